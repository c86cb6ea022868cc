"""Format of tables whose rows are commands: ``simcore_arguments`` is what follows ``simcore``.

Columns are those of steps measured on one device: ``step_ms``, and optionally the peaks
``alloc_gb`` and ``reserved_gb`` of PyTorch's allocator and ``device_gb`` of the whole device (1e9
bytes).

Model files are looked for beside the table and in its folder ``models``. A table runs no code: a
model that only code or an installed library can build is read from ``nets.yaml`` in
``validate/corpora``, which lists what ``simcore trace-model`` made of such models and from which
words. With ``--allow-code`` the row's own words are used.
"""

from __future__ import annotations

import shlex
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from simcore.base.database import read_yaml
from simcore.base.errors import InvalidConfig
from simcore.base.units import GIGA, MILLI
from simcore.strategy.options import options_typed, read_options
from simcore.validate.case import Case
from simcore.validate.formats import Format, Row, number, present
from simcore.validate.formats.row_rules import corpora_folder
from simcore.workload.settings import name_in_file

_MEMORY = {
    "alloc_gb": "peak_allocated_bytes",
    "reserved_gb": "peak_reserved_bytes",
    "device_gb": "peak_shown_bytes",
}
_MODELS = "models"


def _read(name: str, row: Row) -> Case:
    """The row as a case whose model is as typed. Raises ValueError for a wrong cell."""
    words = shlex.split(row["simcore_arguments"])
    if words[:1] != ["predict"]:
        raise ValueError("simcore_arguments must begin with predict")
    try:
        typed = options_typed(words[1:])
        named = not typed.get("launch")  # else the launch line may name the model
        model, gpus = typed.pop("model") if named else typed.pop("model", ""), typed.pop("gpus")
        options, problems = read_options(typed)
    except InvalidConfig as err:
        raise ValueError(f"simcore_arguments: {err}") from None
    except KeyError as err:
        raise ValueError(f"simcore_arguments: --{err.args[0]} is missing") from None
    if problems:
        raise ValueError(f"simcore_arguments: {problems[0]}")
    peaks = {k: number(row, column) for column, k in _MEMORY.items()}
    step_ms = number(row, "step_ms")
    measured = present(
        step_time_s=step_ms * MILLI if step_ms else None,
        **{k: gb * GIGA if gb is not None else None for k, gb in peaks.items()},
    )
    return Case(
        id=name, table="", model=model, gpus=gpus, options=options, measured=measured, columns=row
    )


def located(case: Case, table: Path, where: str, *, allow_code: bool) -> Case:
    """The case with the file that its model is read from.

    ``where``: the row, for messages. Raises CodeRefused for a model that is code, unless
    ``allow_code``.
    """
    options = dict(case.options)
    inputs = tuple(options.get("inputs") or ())
    if not allow_code and (net := _recorded().get((case.model, inputs))):
        options.pop("inputs", None)
        return replace(case, model=str(net), label=case.model, options=options)
    for folder in (table.parent, table.parent / _MODELS):
        if (folder / case.model).is_file():
            return replace(case, model=str(folder / case.model), label=case.model)
    return replace(case, model=name_in_file(case.model, where, allow_code=allow_code))


@cache
def _recorded() -> dict[tuple[str, tuple[str, ...]], Path]:
    """Files of traced models by (model, inputs) as typed."""
    path = corpora_folder() / "nets.yaml"
    nets: list[dict[str, Any]] = read_yaml(path)["nets"] if path.is_file() else []
    return {
        (net["model"], tuple(net.get("inputs", ()))): path.parent / "nets" / net["file"]
        for net in nets
    }


FORMAT = Format("commands", frozenset({"simcore_arguments", "step_ms"}), _read)
