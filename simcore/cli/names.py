"""Names for shell completion; with a broken database there are none."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from simcore.strategy.options import OPTIONS
from simcore.strategy.options.kinds import Names, names_of

#: Text before the GPU type that is being typed: earlier groups and numbers.
_BEFORE_TYPE = re.compile(r"^(?:.*\+)?(?:\d+x){0,2}")


def _programs() -> list[str]:
    """Programs, and each with its releases."""
    from simcore.strategy.programs import PROGRAMS, program_names

    releases = (f"{name}@{r}" for name in PROGRAMS.names() for r in PROGRAMS[name].releases)
    return [*program_names(), *releases]


#: Where names are listed that are not those of an option of a job, by kind.
_LISTED: dict[str, Names] = {
    "model": "simcore.workload.models:MODELS",
    "gpu": "simcore.hardware.spec:GPUS",
    "node": "simcore.hardware.spec:NODES",
    "link": "simcore.hardware.spec:LINKS",
    "program": _programs,
    "term": "simcore.answer.explain:TERMS",
    "ranking": "simcore.planning.ranking:SCORES",
    "objective": "simcore.planning.goal:OBJECTIVES",
    "price list": "simcore.hardware.prices:PRICES",
    "policy": "simcore.planning.fleet:POLICIES",
    "dialect": "simcore.strategy.dialects:DIALECTS",
    "plot": "simcore.cli.output:PLOTS",
    "list": "simcore.cli.catalog:LISTS",
    "show": "simcore.cli.catalog:SHOWS",
}


def completions(kind: str, incomplete: str, words: Mapping[str, Any]) -> list[str]:
    """The names of a kind that begin with ``incomplete``, sorted.

    A kind is one of ``_LISTED``, the name of an option of a job, ``cluster`` (GPU types after the
    numbers already typed: ``4x8xA6`` to ``4x8xA6000ada``) or ``shown`` (entries of the kind that
    the command's other argument names). ``words``: arguments of the command so far.
    """
    before = ""
    if kind == "cluster":
        match = _BEFORE_TYPE.match(incomplete)
        kind, before = "gpu", match[0] if match else ""
    elif kind == "shown":
        kind = str(words.get("kind") or "").removesuffix("s")
    try:
        known = names_of(_LISTED[kind]) if kind in _LISTED else OPTIONS[kind].names()
    except Exception:  # an error message would appear in the user's command line
        return []
    return sorted(before + name for name in known if (before + name).startswith(incomplete))
