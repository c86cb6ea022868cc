"""Formats that are described by data: each folder of ``validate/corpora`` describes one.

The folder's ``format.yaml`` has these keys:

    needs       a table with all of these columns is of this format
    columns     further columns; they count as blank in a table that lacks them
    whole       columns whose cells must be whole numbers if they are not blank
    model       the model, as ``--model`` takes it, for rows where no rule gives one
    label       the table's name of the model; without it: ``model``
    gpus        the cluster, as ``--gpus`` takes it
    says        the text that ``says`` searches, names of cells in braces; without it: all cells
    reference   empty: a measured speed-up is relative to one GPU with the row's batch (``Case``)
    cards       the table's name of a GPU -> its name in hardware_db
    rules       the rules that are applied first; those of the folder's other files follow, in the
                order of the file names
    after       folders of other formats: their rules are applied after this folder's, and they give
                the keys that this file lacks
    measured    quantity -> {cell, unit, inverse}: the cell that has it, in its unit (ms, GB, GiB;
                SI without one); ``inverse``: the cell is a rate. ``peak_memory`` is a peak of the
                kind and unit that rules state for the row
    told        column -> option that it states; such options count as known even for a source for
                which no rule names the program

Options and settings of a row's job are the row's own, else those that its program sets.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from simcore.base.conditions import holds
from simcore.base.database import read_yaml
from simcore.base.errors import DataError, UnknownName
from simcore.base.record import Same, dataclass
from simcore.base.units import GIB, GIGA, MILLI
from simcore.strategy.programs import program_named
from simcore.strategy.programs.mechanisms import PLAIN, SCALED_A_TENSOR, Program, Runs
from simcore.validate.case import Case, Skipped
from simcore.validate.formats import Format, Row, number, present, whole, with_defaults
from simcore.validate.formats.formulas import NoJobError
from simcore.validate.formats.row_rules import (
    NOTHING,
    Reading,
    Rule,
    cells_read,
    corpora_folder,
    names_in,
    read_by,
    rules_of,
    value_of,
)
from simcore.validate.unnamed import unnamed
from simcore.workload.model_aliases import alias_named
from simcore.workload.models import Scalar
from simcore.workload.settings import PREFIX

#: Settings that only mixtures of experts have.
_OF_EXPERTS = ("weighed_early", "waits_for_counts")


@dataclass(frozen=True)
class StatedJob:
    """The job of a row as far as the row's rules state it.

    ``usual_words``, ``words``, ``usual_settings``, ``settings``, ``all_told``: as in ``row_rules``.
    ``steps``: pairs ("hidden" or "exposed", communication), in the order in which rules gave them.
    ``precision``: the text of the row's cell. ``layer_graphs``: the issuer where CUDA graphs hold
    parts of Megatron-Core's layers; empty where none do.
    """

    usual_words: Mapping[str, Any]
    words: Mapping[str, Any]
    usual_settings: Mapping[str, Scalar]
    settings: Mapping[str, Scalar]
    steps: Iterable[tuple[str, str]]
    all_told: bool
    precision: str
    layer_graphs: str


def words_of(program: Program, stated: StatedJob) -> dict[str, Any]:
    """The options of a job that ``program`` runs, without the model's settings."""
    runs = program.runs or Runs()
    made: dict[str, Any] = {
        **stated.usual_words,
        "software": program.name,
        "issuer": runs.issuer,
        "main_grads": runs.main_grads,
        "recompute_modules": runs.selective_modules,
        "sequence_parallel": runs.sequence_parallel,
        **runs.options,
    }
    if runs.fp32_gradient_sums and stated.precision != "fp16":
        made["main_grads"] = "fp32"
    if runs.fp8_weights:
        made["fp8_params"] = stated.precision in SCALED_A_TENSOR
    made |= stated.words
    if stated.layer_graphs and made["issuer"] == "megatron":
        made["issuer"] = stated.layer_graphs
    if (precision := runs.precisions.get(made.get("precision", ""))) is not None:
        made["precision"] = precision
    made.setdefault("overlap", _overlap(runs, stated, made))
    if made.get("recompute") != "selective":
        made.pop("recompute_modules", None)
    if made.get("recompute") != "full":
        made.pop("recompute_layers", None)
    return made


def _overlap(runs: Runs, stated: StatedJob, made: Mapping[str, Any]) -> str:
    """The option ``overlap``: communication that the program hides, changed by the row's rules."""
    hidden = set(runs.overlap)
    if runs.zero1_reduces_after_backward and made.get("strategy") == "zero1":
        hidden.discard("grads")
    if not stated.all_told:
        hidden |= runs.recipe_overlap
    for step, word in stated.steps:
        if step == "hidden":
            hidden.add(word)
        else:
            hidden.discard(word)
    return ",".join(sorted(hidden)) or "none"


def layers_of(program: Program, stated: StatedJob, made: Mapping[str, Any]) -> dict[str, Scalar]:
    """Settings of a language model's layers as the program implements them.

    ``made``: the options of the job (``words_of``).
    """
    runs = program.runs or Runs()
    tensor_ranks = made.get("tp") or 1
    given = {**stated.usual_settings, **runs.settings, **stated.settings}
    heads = int(given.get("heads") or 0) // tensor_ranks * (made.get("micro_batch") or 1)
    found = {**stated.usual_settings, **runs.layers(tensor_ranks, heads), **stated.settings}
    if not found.get("experts"):
        found = {k: v for k, v in found.items() if k not in _OF_EXPERTS}
    return found


_FORMAT = "format.yaml"
#: The column that most rules ask for.
_SOURCE = "source"
#: What a format may say is measured: ``Case.measured``, and a peak of the rows' own kind and unit.
MEASURED = ("step_time_s", "run_time_s", "samples_per_s", "speedup", "peak_memory",
            "peak_memory_bytes", "memory_resident_bytes", "memory_resident_but_half_weights_bytes",
            "ran")  # fmt: skip
_UNITS = {"": 1.0, "ms": MILLI, "GiB": GIB, "GB": GIGA}
#: The model whose layers a training program implements itself.
_OF_PROGRAMS = PREFIX + "transformer"


@dataclass(frozen=True)
class Description:
    """A format as its folder describes it: the content of ``format.yaml``, and all rules."""

    name: str
    data: Mapping[str, Any]
    rules: tuple[Rule, ...]

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """Names that rules may read: the table's columns, and cells that rules add."""
        made = (c for rule in self.rules for c in rule.gives.get("cells", ()))
        return (*self.data["needs"], *self.data.get("columns", ()), *made)


def described_formats() -> tuple[Format, ...]:
    """The formats of all folders of corpora; to read rows of a broken one raises its DataError."""
    return tuple(_format(path.parent)[0] for path in _files())


def problems_of_corpora() -> tuple[str, ...]:
    """What is wrong with folders of corpora, whose tables cannot be read."""
    return tuple(problem for path in _files() if (problem := _format(path.parent)[1]))


def _files() -> list[Path]:
    return sorted(corpora_folder().glob(f"*/{_FORMAT}"))


def _format(folder: Path) -> tuple[Format, str]:
    """The format of a folder, and what is wrong with it.

    A format whose own file cannot be read needs no columns: no table is taken for one of it.
    """
    try:
        found = _description(folder)
    except DataError as err:
        broken = err
    else:
        return Format(found.name, frozenset(found.data["needs"]), _Reader(found)), ""
    try:
        needs = frozenset(read_yaml(folder / _FORMAT)["needs"])
    except (DataError, KeyError, TypeError):
        needs = frozenset()

    def refuse(_name: str, _row: Row) -> Case:
        raise broken

    return Format(folder.name, needs, refuse), str(broken)


@lru_cache(maxsize=16)
def _description(folder: Path) -> Description:
    path = folder / _FORMAT
    data = read_yaml(path)
    if not isinstance(data, dict) or not isinstance(data.get("needs"), list):
        raise DataError("must have a list of columns that it 'needs'", file=path, line=1)
    files = [f for f in sorted(folder.glob("*.yaml")) if f.name != _FORMAT]
    rules = [rule for file in (path, *files) for rule in rules_of(file)]
    for other in data.get("after", ()):
        base = _description(folder.parent / other)
        rules += base.rules
        columns = [*data.get("columns", ()), *base.columns]
        data = {**base.data, **data, "columns": columns}
    _check(data, path)
    found = Description(folder.name, data, tuple(rules))
    unknown = (cells_read(rules) | names_in(_asked(data))) - {*found.columns}
    if unknown:
        raise DataError(f"rules read {', '.join(sorted(unknown))}, which no row has", file=path)
    return found


def _check(data: Mapping[str, Any], path: Path) -> None:
    """Raises DataError where a format does not say which job a row is, or what it measured."""
    for key in ("model", "gpus"):
        if not isinstance(data.get(key), str):
            raise DataError(f"must say as {key!r} what --{key} of a row is", file=path, line=1)
    measured = data.get("measured")
    if not isinstance(measured, dict):
        raise DataError("must say what is 'measured': step_time_s: {cell: COLUMN}", file=path)
    for quantity, value in measured.items():
        if quantity not in MEASURED:
            raise DataError(str(UnknownName("measured quantity", quantity, MEASURED)), file=path)
        if not isinstance(value, dict) or "cell" not in value:
            raise DataError(f"{quantity} must be {{cell: COLUMN}}, not {value!r:.60}", file=path)


def _asked(data: Mapping[str, Any]) -> list[Any]:
    """What a format reads from a row's cells itself."""
    cells = ["{%s}" % value["cell"] for value in data["measured"].values()]  # noqa: UP031
    return [data["model"], data["gpus"], data.get("label", ""), data.get("says", ""), cells]


@lru_cache(maxsize=1000)
def _rules_for(of: Same[Description], source: str) -> tuple[Rule, ...]:
    """A format's rules for rows of a source: without those that ask for another one."""
    rules = of.it.rules
    if any(_SOURCE in rule.gives.get("cells", ()) for rule in rules):
        return rules
    return tuple(
        rule
        for rule in rules
        if _SOURCE not in rule.when or holds({_SOURCE: rule.when[_SOURCE]}, {_SOURCE: source})
    )


@dataclass(frozen=True)
class _Reader:
    """Reads rows of a described format."""

    of: Description

    def __call__(self, name: str, row: Row) -> Case | Skipped:
        """The row as a case, or why it is skipped. Raises ValueError for an invalid cell."""
        data = self.of.data
        cells = {**dict.fromkeys(self.of.columns, ""), **row}
        for column in data.get("whole", ()):
            whole({column: cells.get(column, "")}, column, 1)
        try:
            rules = _rules_for(Same(self.of), cells.get(_SOURCE, ""))
            made = read_by(rules, cells, data.get("says", ""))
            return self._case(name, row, made)
        except NoJobError as err:
            return Skipped(name, str(err))

    def _case(self, name: str, row: Row, made: Reading) -> Case:
        cells, data = made.cells, self.of.data
        called = made.texts.get("program")
        program = PLAIN if called is None else program_named(called)
        model = made.texts.get("model") or str(value_of(data["model"], cells))
        stated = StatedJob(
            made.maps["usual_words"], made.maps["words"], made.maps["usual_settings"],
            made.maps["settings"], made.steps, made.all_told, cells.get("precision", ""),
            cells.get("layer_graphs", ""),
        )  # fmt: skip
        options = words_of(program, stated)
        written = model == _OF_PROGRAMS
        settings = layers_of(program, stated, options) if written else dict(stated.settings)
        if written:
            settings = with_defaults(model.removeprefix(PREFIX), settings, program.name)
        if settings:
            options["settings"] = settings
        kind = made.texts.get("memory", "allocated")
        measured = _measured(data["measured"], made, kind)
        added = {"memory_definition": kind if f"peak_{kind}_bytes" in measured else ""}
        case = Case(
            id=name,
            table=made.texts.get("table", self.of.name),
            model=model,
            label=str(value_of(data.get("label", ""), cells)),
            gpus=_cluster(str(value_of(data["gpus"], cells)), data.get("cards", {})),
            options=options,
            settings_of_program=written,
            program=called or "",
            own=frozenset(made.own),
            measured=measured,
            columns={**row, **added, **made.maps["columns"]},
            train_samples=number(made.texts, "train_samples"),
            eval_samples=number(made.texts, "eval_samples") or 0.0,
            work_known=made.texts.get("work_known") != "False",
            reference=data.get("reference"),
            flag=made.texts.get("flag", ""),
        )
        if not written and (called is None or program is not PLAIN):
            by_rules = {**stated.usual_words, **stated.words}  # the program's record says the rest
            by_rules |= {"settings": settings} if settings else {}
            by_rules |= {"software": called} if called else {}
            return _spelled_out(replace(case, options=by_rules))
        if called is not None:
            return case
        return unnamed(case, [o for c, o in data.get("told", {}).items() if row.get(c)])


def _spelled_out(case: Case) -> Case:
    """The case with what an alias of a model and the software's release stand for."""
    settings = case.options.get("settings") or {}
    if (alias := alias_named(case.model)) is not None:
        settings = {**alias.settings, **settings}
        options = {**alias.words, **case.options}
        case = replace(case, model=alias.model, label=case.label or case.model, options=options)
    if (name := case.options.get("software")) is not None:
        program = program_named(name)
        settings = {**(program.runs or Runs()).settings, **settings}
        case = replace(case, options={**case.options, "software": program.name})
    return replace(case, options=case.options | {"settings": settings}) if settings else case


def _cluster(text: str, cards: Mapping[str, str]) -> str:
    """A cluster as ``--gpus`` takes it, with the GPU names of hardware_db."""
    groups = (part.split("x", 2) for part in text.split("+"))
    return "+".join(f"{nodes}x{gpus}x{cards.get(card, card)}" for nodes, gpus, card in groups)


def _measured(wanted: Mapping[str, Any], made: Reading, kind: str) -> dict[str, float]:
    """The measured figures of a row by quantity, in SI units; ``ran`` is 0 or 1.

    ``kind``: what a memory figure counts, such as ``allocated``.
    """
    found: dict[str, float | None] = {}
    for quantity, raw in wanted.items():
        value = value_of(raw, made.cells)
        column, unit = raw["cell"], raw.get("unit", "")
        figure = None if value is NOTHING else number({column: str(value)}, column)
        if quantity == "peak_memory":
            quantity, unit = f"peak_{kind}_bytes", made.texts.get("memory_unit", "GiB")
        if figure is not None:
            figure *= _UNITS[unit]
        if raw.get("inverse"):
            figure = 1.0 / figure if figure else None
        found[quantity] = figure
    return present(**found)
