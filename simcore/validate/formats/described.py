"""Formats that are data: a folder of ``validate/corpora`` says what its rows' columns mean.

``format.yaml`` of the folder has

    needs       columns that tell the format
    columns     columns that a row may lack, which then are blank
    whole       columns that are whole numbers where they are given
    model       as --model names the model, where no rule says
    label       what the table calls the model; without it: ``model``
    gpus        as --gpus names the cluster
    rules       those that run first; the folder's other files follow in the order of their names
    after       folders of formats whose rules, and what this one does not say, follow
    measured    quantity to value: step_time_s, ran, peak_memory
    told        column to option: what a row says itself, whoever its source is
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

from simcore.base.database import read_yaml
from simcore.base.errors import DataError, UnknownName
from simcore.base.units import GIB, GIGA
from simcore.engine.options import Options
from simcore.strategy.programs import PLAIN, program_named
from simcore.validate.case import Case, Skipped
from simcore.validate.formats import Format, Row, number, present, settled, whole
from simcore.validate.formats.formulas import NoJobError
from simcore.validate.formats.program_words import Told, layers_of, words_of
from simcore.validate.formats.row_rules import (
    NOTHING,
    Reading,
    cells_asked,
    names_in,
    read_by,
    rules_of,
    value_of,
)
from simcore.validate.formats.rules import Rule, corpora_folder
from simcore.validate.unnamed import unnamed
from simcore.workload.settings import PREFIX

_FORMAT = "format.yaml"
#: What a format may say is measured: ``Case.measured``, and a peak of the rows' own kind and unit.
MEASURED = ("step_time_s", "samples_per_s", "speedup", "peak_memory", "ran")
_UNITS = {"GiB": GIB, "GB": GIGA}
#: A model whose layers a program writes itself.
_WRITTEN_ANEW = PREFIX + "transformer"


@dataclass(frozen=True)
class Description:
    """A format as its folder describes it."""

    name: str
    data: Mapping[str, Any]
    rules: tuple[Rule, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        """Names that rules may ask for: columns, and cells that rules make."""
        made = (c for rule in self.rules for c in rule.gives.get("cells", ()))
        return (*self.data["needs"], *self.data.get("columns", ()), *made)


def described_formats() -> tuple[Format, ...]:
    """The formats of all folders of corpora."""
    found = (_description(path.parent) for path in sorted(corpora_folder().glob(f"*/{_FORMAT}")))
    return tuple(Format(d.name, frozenset(d.data["needs"]), _Reader(d)) for d in found)


@lru_cache(maxsize=16)
def _description(folder: Path) -> Description:
    path = folder / _FORMAT
    data = read_yaml(path)
    if not isinstance(data, dict) or not isinstance(data.get("needs"), list):
        raise DataError("must have a list of columns that it 'needs'", file=path, line=1)
    files = [f for f in sorted(folder.glob("*.yaml")) if f.name != _FORMAT]
    rules = [rule for file in (path, *files) for rule in rules_of(file)]
    for other in data.get("after", ()):
        behind = _description(folder.parent / other)
        rules += behind.rules
        columns = [*data.get("columns", ()), *behind.columns]
        data = {**behind.data, **data, "columns": columns}
    _check(data, path)
    found = Description(folder.name, data, tuple(rules))
    unknown = (cells_asked(rules) | names_in(_asked(data))) - {*found.columns}
    if unknown:
        raise DataError(f"rules ask for {', '.join(sorted(unknown))}, which no row has", file=path)
    return found


def _check(data: Mapping[str, Any], path: Path) -> None:
    """Raises DataError where a format does not say which job a row is, or what it measured."""
    for key in ("model", "gpus"):
        if not isinstance(data.get(key), str):
            raise DataError(f"must say as {key!r} what --{key} of a row is", file=path, line=1)
    measured = data.get("measured")
    if not isinstance(measured, dict) or not measured:
        raise DataError("must say what is 'measured': step_time_s: {cell: COLUMN}", file=path)
    for quantity, value in measured.items():
        if quantity not in MEASURED:
            raise DataError(str(UnknownName("measured quantity", quantity, MEASURED)), file=path)
        if not isinstance(value, dict) or "cell" not in value:
            raise DataError(f"{quantity} must be {{cell: COLUMN}}, not {value!r:.60}", file=path)


def _asked(data: Mapping[str, Any]) -> list[Any]:
    """What a format reads from a row's cells itself."""
    cells = ["{%s}" % value["cell"] for value in data["measured"].values()]  # noqa: UP031
    return [data["model"], data["gpus"], data.get("label", ""), cells]


@dataclass(frozen=True)
class _Reader:
    """Reads rows of a described format."""

    of: Description

    def __call__(self, name: str, row: Row) -> Case | Skipped:
        """A row as a case. Raises ValueError for a cell that cannot be."""
        data = self.of.data
        cells = {**dict.fromkeys(self.of.columns, ""), **row}
        for column in data.get("whole", ()):
            whole({column: cells.get(column, "")}, column, 1)
        try:
            made = read_by(self.of.rules, cells)
            return self._case(name, row, made)
        except NoJobError as err:
            return Skipped(name, str(err))

    def _case(self, name: str, row: Row, made: Reading) -> Case:
        cells, data = made.cells, self.of.data
        called = made.texts.get("program")
        program = PLAIN if called is None else program_named(called)
        model = made.texts.get("model") or str(value_of(data["model"], cells))
        told = Told(
            made.maps["usual_words"], made.maps["words"], made.maps["usual_settings"],
            made.maps["settings"], made.steps, made.all_told, cells.get("precision", ""),
            cells.get("layer_graphs") == "yes",
        )  # fmt: skip
        options = words_of(program, told)
        written = model == _WRITTEN_ANEW
        settings = layers_of(program, told, options) if written else dict(told.settings)
        if written:
            settings = settled(model.removeprefix(PREFIX), settings, program.name)
        if settings:
            options["settings"] = settings
        kind = made.texts.get("memory", "allocated")
        measured = _measured(data["measured"], made, kind)
        beside = {"memory_definition": kind if f"peak_{kind}_bytes" in measured else ""}
        case = Case(
            id=name,
            table=self.of.name,
            model=model,
            label=str(value_of(data.get("label", ""), cells)),
            gpus=str(value_of(data["gpus"], cells)),
            options=cast("Options", options),
            settings_of_program=written,
            measured=measured,
            columns={**row, **beside, **made.maps["columns"]},
            flag=made.texts.get("flag", ""),
            notes=row.get("notes", "")[:200],
        )
        if called is not None:
            return case
        if not written:  # no program's layers: the job is what the rules say, and no more
            stated = {**told.usual_words, **told.words}
            stated |= {"settings": settings} if settings else {}
            return replace(case, options=cast("Options", stated))
        return unnamed(case, [o for c, o in data.get("told", {}).items() if row.get(c)])


def _measured(wanted: Mapping[str, Any], made: Reading, kind: str) -> dict[str, float]:
    """The measured figures of a row: seconds, bytes, shares."""
    found: dict[str, float | None] = {}
    for quantity, raw in wanted.items():
        value = value_of(raw, made.cells)
        column = raw["cell"]
        figure = None if value is NOTHING else number({column: str(value)}, column)
        if quantity == "peak_memory" and figure is not None:
            figure *= _UNITS[made.texts.get("memory_unit", "GiB")]
        found[f"peak_{kind}_bytes" if quantity == "peak_memory" else quantity] = figure
    return present(**found)
