"""Formats of single tables, each described by a section of ``validate/corpora/seeds.yaml``.

A section has these keys; texts may have names of cells in braces, such as "{nodes}x{gpus}":

    needs            a table with all of these columns is of this format
    columns          further columns that rules read; they count as blank in a table that lacks them
    whole            column -> value of a blank cell (null: it must not be blank); the cells are
                     whole numbers
    gpus             the cluster, as ``--gpus`` takes it
    cards            the table's name of a GPU -> its name in hardware_db
    measured         quantity -> {column, unit, inverse}; ``inverse``: the column is a rate
    notes            the notes of a row
    rules            all rules whose condition holds are applied, and a later one overrides; they
                     give model, words (options), table, flag, skip, train_samples, eval_samples and
                     work_known
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, cast

from simcore.base.units import GIB, GIGA, MILLI
from simcore.validate.case import Case, Skipped
from simcore.validate.formats import Format, Row, number, present, whole
from simcore.validate.formats.rules import Facts, Rule, corpus_data, rule_of

_UNITS = {"": 1.0, "ms": MILLI, "GB": GIGA, "GiB": GIB}
_BRACES = re.compile(r"\{(\w+)\}")
#: Name of the file in ``validate/corpora``.
FILE = "seeds"


@dataclass(frozen=True)
class _Reader:
    """Reads the rows of the tables that one section describes."""

    name: str
    data: Mapping[str, Any]
    rules: tuple[Rule, ...]

    def __call__(self, name: str, row: Row) -> Case | Skipped:
        """The row as a case, or why it is skipped. Raises ValueError for an invalid cell."""
        cells = {**dict.fromkeys(self.data.get("columns", ()), ""), **row}
        facts: Facts = cells
        gives: dict[str, Any] = {"words": {}, "table": self.name, "flag": ""}
        for rule in self.rules:
            if not rule.holds(facts):
                continue
            if "skip" in rule.gives:
                return Skipped(name, _filled(rule.gives["skip"], cells))
            words = {**gives["words"], **rule.gives.get("words", {})}
            gives |= {**rule.gives, "words": words}
        numbers = {k: whole(cells, k, usual) for k, usual in self.data.get("whole", {}).items()}
        known = {**cells, **{k: str(v) for k, v in numbers.items()}}
        options = {k: _word(v, known, numbers) for k, v in gives["words"].items()}
        train = gives.get("train_samples")
        return Case(
            id=name,
            table=gives["table"],
            model=_filled(gives["model"], known),
            gpus=self._cluster(known),
            options=options,
            measured=present(**{q: _si(row, how) for q, how in self._measured().items()}),
            columns=row,
            train_samples=None if train is None else float(train),
            flag=_filled(gives["flag"], known),
            notes=_filled(self.data.get("notes", ""), known),
            eval_samples=float(gives.get("eval_samples", 0.0)),
            work_known=bool(gives.get("work_known", True)),
        )

    def _measured(self) -> Mapping[str, Mapping[str, Any]]:
        return cast("Mapping[str, Mapping[str, Any]]", self.data.get("measured", {}))

    def _cluster(self, cells: Mapping[str, str]) -> str:
        """The cluster, as ``--gpus`` takes it, with the GPU names of hardware_db."""
        cards, groups = self.data.get("cards", {}), []
        for part in _filled(self.data["gpus"], cells).split("+"):
            nodes, gpus, card = part.split("x", 2)
            groups.append(f"{nodes}x{gpus}x{cards.get(card, card)}")
        return "+".join(groups)


@lru_cache(maxsize=1)
def mapped_formats() -> tuple[Format, ...]:
    """The formats of the file, in the file's order."""
    return tuple(_format(name, data) for name, data in corpus_data(FILE).items())


def _format(name: str, data: Mapping[str, Any]) -> Format:
    rules = tuple(map(rule_of, data["rules"]))
    return Format(name, frozenset(data["needs"]), _Reader(name, data, rules))


def _filled(text: str, cells: Mapping[str, str]) -> str:
    """The text with each name in braces replaced by that cell."""
    return _BRACES.sub(lambda m: cells[m[1]], text)


def _word(value: Any, cells: Mapping[str, str], numbers: Mapping[str, int]) -> Any:
    """An option's value: an int if the text is one whole-number column, else the filled text."""
    if not isinstance(value, str):
        return value
    alone = _BRACES.fullmatch(value)
    return numbers[alone[1]] if alone and alone[1] in numbers else _filled(value, cells)


def _si(row: Row, how: Mapping[str, Any]) -> float | None:
    """A figure in SI units; None if the cell is blank, and for a rate or time of zero."""
    value = number(row, how["column"])
    timed = bool(how.get("inverse")) or how.get("unit") == "ms"
    if value is None or (timed and not value):
        return None
    return 1.0 / value if how.get("inverse") else value * _UNITS[how.get("unit", "")]
