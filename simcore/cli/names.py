"""Names for shell completion, from the databases; with a broken database there are none."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

from simcore.strategy.options import OPTIONS, Option

#: Text before the GPU type that is being typed: earlier groups and numbers.
_BEFORE_TYPE = re.compile(r"^(?:.*\+)?(?:\d+x){0,2}")

Completer = Callable[[str], list[str]]


def _completer(names: Callable[[], Iterable[str]]) -> Completer:
    def complete(incomplete: str) -> list[str]:
        try:
            return sorted(n for n in names() if n.startswith(incomplete))
        except Exception:  # an error message would appear in the user's command line
            return []

    return complete


def _databases() -> Any:
    from simcore.hardware import spec

    return spec


def _models() -> Iterable[str]:
    from simcore.workload.models import MODELS

    return MODELS.names()


def _gpus() -> list[str]:
    names: list[str] = _databases().GPUS.names()
    return names


def _nodes() -> list[str]:
    names: list[str] = _databases().NODES.names()
    return names


def _links() -> list[str]:
    names: list[str] = _databases().LINKS.names()
    return names


def _terms() -> Iterable[str]:
    from simcore.answer.explain import TERMS

    return TERMS


def _scores() -> Iterable[str]:
    from simcore.planning.ranking import SCORES

    return SCORES


def _objectives() -> Iterable[str]:
    from simcore.planning.goal import OBJECTIVES

    return OBJECTIVES


def _price_lists() -> Iterable[str]:
    from simcore.hardware.prices import PRICES

    return PRICES.names()


def _dialects() -> Iterable[str]:
    from simcore.strategy.dialects import DIALECTS

    return DIALECTS


dialects = _completer(_dialects)
models = _completer(_models)
gpus = _completer(_gpus)
nodes = _completer(_nodes)
links = _completer(_links)
terms = _completer(_terms)
scores = _completer(_scores)
policies = _completer(lambda: ("fifo", "backfill", "priority", "preempt"))
objectives = _completer(_objectives)
price_lists = _completer(_price_lists)


def _programs() -> Iterable[str]:
    from simcore.strategy.programs import PROGRAMS, program_names

    releases = (f"{n}@{r}" for n in PROGRAMS.names() for r in PROGRAMS[n].releases)
    return [*program_names(), *releases]


programs = _completer(_programs)


def of_option(option: Option) -> Completer | None:
    """Completion of the names that an option accepts; None for numbers and files."""
    return _completer(option.names) if getattr(option.kind, "names", ()) else None


networks = _completer(OPTIONS["network"].names)
calibrations = _completer(OPTIONS["calibration"].names)
optimizers = _completer(OPTIONS["optimizer"].names)


def cluster(incomplete: str) -> list[str]:
    """Completions of a GPU type after the numbers already typed: ``4x8xA6`` to ``4x8xA6000ada``."""
    match = _BEFORE_TYPE.match(incomplete)
    before = match[0] if match else ""
    return [before + name for name in gpus(incomplete[len(before) :])]


#: Kinds of plots of a prediction; the first is the default.
PLOTS = (
    "overview", "time", "memory", "memory-over-step", "scaling", "roofline", "timeline",
    "sensitivity",
)  # fmt: skip
plots = _completer(lambda: PLOTS)

#: Kinds that ``list`` and ``show`` know; the singular is accepted too.
LISTS = (
    "gpus", "models", "configs", "nodes", "links", "strategies", "precisions", "optimizers",
    "collectives", "software", "dialects", "options", "calibrations", "prices",
)  # fmt: skip
SHOWS = ("gpu", "model", "node", "link", "program", "optimizer", "calibration")
kinds = _completer(lambda: LISTS)
shown_kinds = _completer(lambda: SHOWS)


def show_name(ctx: Any, incomplete: str) -> list[str]:
    """Completions of a name for ``show KIND``."""
    kind = str(ctx.params.get("kind") or "").rstrip("s")
    by_kind = {"gpu": gpus, "model": models, "node": nodes, "link": links, "program": programs,
               "optimizer": optimizers, "calibration": calibrations}  # fmt: skip
    return by_kind[kind](incomplete) if kind in by_kind else []
