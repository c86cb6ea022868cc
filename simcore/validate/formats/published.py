"""Format of published runs that no figure of simcore was fitted to, as a user would type them.

A row has its model (an entry of models_db, or an architecture with its settings), GPUs and options
as the command line takes them; no rule depends on its source. ``published`` is the source's own
figure and ``step_time_s`` the step time that follows from it; ``ran`` is ``no`` if memory ran out.
``inferred`` lists what the source does not state and was inferred.
"""

from __future__ import annotations

import shlex

from simcore.base.errors import SimcoreError
from simcore.base.units import GIB
from simcore.strategy.options import Options
from simcore.strategy.options.values import read_options
from simcore.validate.case import Case
from simcore.validate.formats import Format, Row, number, present
from simcore.workload.models import Scalar
from simcore.workload.resolve import resolve_model
from simcore.workload.settings import PREFIX

#: ``memory_kind``, what a peak of memory counts -> the name of the measurement.
_PEAKS = {
    "allocated": "peak_allocated_bytes",
    "reserved": "peak_reserved_bytes",
    "shown": "peak_shown_bytes",
}
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


def _options(row: Row) -> Options:
    found, problems = read_options(_pairs(row, "options"))
    if problems:
        raise ValueError(f"options: {problems[0]}")
    return found


def _model(row: Row) -> tuple[str, dict[str, Scalar]]:
    """The model, as the command line takes it, and its settings."""
    model = PREFIX + row["arch"] if row["arch"] else row["model"]
    settings: dict[str, Scalar] = dict(sorted(_pairs(row, "config").items()))
    try:
        resolve_model(model, settings=settings)
    except SimcoreError as err:
        raise ValueError(f"model: {err}") from None
    return model, settings


def _read(name: str, row: Row) -> Case:
    ran, kind = row["ran"], row["memory_kind"]
    if ran not in _RAN:
        raise ValueError(f"ran: {ran!r} is none of yes, no and blank")
    peak = number(row, "peak_gib")
    if peak is not None and kind not in _PEAKS:
        raise ValueError(f"memory_kind: {kind!r} is none of {', '.join(_PEAKS)}")
    measured = present(
        step_time_s=number(row, "step_time_s"),
        **{_PEAKS[kind]: peak * GIB if peak is not None else None} if kind else {},
    )
    if ran:
        measured["ran"] = float(_RAN[ran])
    model, settings = _model(row)
    return Case(
        id=name,
        table="published",
        model=model,
        label=row["model"],
        gpus=row["gpus"],
        options=_options(row) | {"settings": settings} if settings else _options(row),
        measured=measured,
        columns={**row, "memory_definition": kind},
        reference=row["reference"],
    )


FORMAT = Format("published", frozenset({"arch", "config", "options", "published", "ran"}), _read)
