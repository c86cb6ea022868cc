"""Format of published runs that no figure of simcore was fitted to, as a user would type them.

A row has its model (an entry of models_db, or an architecture with its settings), GPUs and options
as the command line takes them. What some sources ran besides is in ``validate/corpora/published``
(rules as in ``row_rules``). ``published`` is the source's own
figure and ``step_time_s`` the step time that follows from it; ``ran`` is ``no`` if memory ran out.
``inferred`` lists what the source does not state and was inferred.
"""

from __future__ import annotations

import shlex
from functools import lru_cache
from typing import Final

from simcore.base.errors import SimcoreError
from simcore.base.units import GIB
from simcore.strategy.options import Options, read_options
from simcore.validate.case import Case
from simcore.validate.formats import Format, Row, number, present
from simcore.validate.formats.row_rules import Rule, corpora_folder, read_by, rules_of
from simcore.workload.models import Scalar
from simcore.workload.resolve import resolve_model
from simcore.workload.settings import PREFIX

#: ``memory_kind``: what a peak of memory counts.
_PEAKS = ("allocated", "reserved", "shown")
#: Columns of a table that rules may read; they count as blank where it lacks them.
_COLUMNS = ("source", "source_ref", "model", "arch", "config", "gpus", "options", "note")
_RAN = {"": True, "yes": True, "no": False}


def _pairs(row: Row, column: str) -> dict[str, str]:
    """The ``key=value`` pairs of a cell, which are separated by blanks."""
    found = {}
    for word in shlex.split(row[column]):
        key, sign, value = word.partition("=")
        if not sign or not value:
            raise ValueError(f"{column}: {word!r} is not key=value")
        found[key.replace("-", "_")] = value
    return found


@lru_cache(maxsize=1)
def _rules() -> tuple[Rule, ...]:
    """What is known of sources besides the rows' own columns."""
    return tuple(
        rule
        for file in sorted((corpora_folder() / "published").glob("*.yaml"))
        for rule in rules_of(file)
    )


def _options(row: Row) -> Options:
    found, problems = read_options(_pairs(row, "options"))
    if problems:
        raise ValueError(f"options: {problems[0]}")
    return found


def _model(row: Row, known: dict[str, Scalar]) -> tuple[str, dict[str, Scalar]]:
    """The model, as the command line takes it, and its settings; ``known``: of its source."""
    model = PREFIX + row["arch"] if row["arch"] else row["model"]
    settings: dict[str, Scalar] = dict(sorted({**known, **_pairs(row, "config")}.items()))
    try:
        resolve_model(model, settings=settings)
    except SimcoreError as err:
        raise ValueError(f"model: {err}") from None
    return model, settings


def _read(name: str, row: Row) -> Case:
    ran, kind = row["ran"], row.get("memory_kind", "")
    if ran not in _RAN:
        raise ValueError(f"ran: {ran!r} is none of yes, no and blank")
    peak = number(row, "peak_gib")
    if peak is not None and kind not in _PEAKS:
        raise ValueError(f"memory_kind: {kind!r} is none of {', '.join(_PEAKS)}")
    of_source = read_by(_rules(), {**dict.fromkeys(_COLUMNS, ""), **row})
    if kind == "allocated":
        kind = of_source.texts.get("memory", kind)
    measured = present(
        step_time_s=number(row, "step_time_s"),
        **{f"peak_{kind}_bytes": peak * GIB if peak is not None else None} if kind else {},
    )
    if ran:
        measured["ran"] = float(_RAN[ran])
    model, settings = _model(row, of_source.maps["settings"])
    options = {**of_source.maps["usual_words"], **_options(row), **of_source.maps["words"]}
    return Case(
        id=name,
        table="published",
        model=model,
        label=row["model"],
        gpus=row["gpus"],
        options=options | {"settings": settings} if settings else options,
        measured=measured,
        columns={**row, "memory_definition": kind},
        reference=row["reference"],
        flag=of_source.texts.get("flag", ""),
    )


_NEEDED: Final = {"arch", "config", "gpus", "model", "options", "published", "ran", "reference"}
FORMAT = Format("published", frozenset(_NEEDED), _read)
