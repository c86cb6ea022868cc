"""Rules that translate the cells of a published table to options of ``simcore predict``.

A corpus is a folder of ``validate/corpora`` whose files have lists of rules, applied to a row one
after the other:

    rules:
      - when: {model: BERT-Large, says: [seq384, precision=fp32], torch: [unknown, "<1.11"]}
        words: {optimizer: lamb}
        source: optimization.py of the program, if args.fp16

``when`` is a condition on the row's cells (``base/conditions.py``); ``says`` searches all of the
row's text. A rule without ``when`` always holds. A file and a group of ``rules`` may have
a ``when`` too, which then holds for all rules in it. Of a group ``first`` only the first rule that
holds applies. The other keys of a rule are

    cells       cells that are replaced or added, for the rules and values that follow
    skip        the reason why the row is skipped
    program     the program that ran the job: NAME or NAME@RELEASE
    model       the model, as ``--model`` takes it, instead of the format's
    words       options of ``simcore predict``; null removes an option that an earlier rule set
    settings    settings of the model, as ``--set`` takes them
    usual_words, usual_settings    defaults: the program's own options and settings override them
    hidden      communication that overlaps with compute, in addition to the program's
    exposed     communication that does not overlap, although the program would overlap it
    all_told    true: the row lists every overlap that a recipe turns on; a blank cell means none
    memory, memory_unit    what a peak counts (allocated, reserved, shown), and GiB or GB
    columns     columns to add to the table's own
    table       the name under which the row is judged, instead of the format's
    train_samples, eval_samples, work_known    of a whole run (``Case``)
    flag        the reason why the row is doubted
    source      where the rule's content is from

A later rule overrides an earlier one. A value is a constant, a text with names of cells in braces
("{nodes}x{gpus}"), or one of these expressions:

    {cell: NAME}                  the cell; no value if it is blank
    {cell: NAME, among: {..}}     the entry of this table for the cell; no value if it has none
    {found: REGEX, in: NAME}      the match in the cell: its first group, else the whole match
    {product: [..]}, {quotient: [a, b]}, {least: [..]}    of numbers; a quotient is rounded down
    {formula: NAME, ...}          the result of a named formula (``formulas.py``) for the row, with
                                  the other keys as arguments

Each may have a key ``else``: its value if the expression has none. An expression without a value
changes nothing.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any

from simcore.base.conditions import TEXT, Facts, Test, all_hold, tests_of
from simcore.base.database import read_yaml, shipped_folder
from simcore.base.errors import DataError, UnknownName, did_you_mean
from simcore.strategy.options import OPTIONS, read_options
from simcore.validate.formats import Row
from simcore.validate.formats.formulas import FORMULAS, NoJobError, applied, as_number


@dataclass(frozen=True)
class Rule:
    """A rule: its condition ``when``, its ``source``, and ``gives``, all of its other keys.

    Of the rules of one ``group`` only the first that holds applies.
    """

    when: Mapping[str, Any]
    gives: Mapping[str, Any]
    source: str = ""
    group: object = None

    @cached_property
    def _tests(self) -> list[Test]:
        return tests_of(self.when)

    def holds(self, facts: Facts) -> bool:
        """Whether all conditions hold for a row's facts. Raises KeyError for an unknown fact."""
        return all_hold(self._tests, facts)

    @cached_property
    def own(self) -> tuple[tuple[str, str], ...]:
        """Pairs (key, option or setting) of ``gives`` that it reads from the row itself.

        Not from what its source is. What is usual counts only where a cell other than the
        architecture states it.
        """
        read = _conditions(self.when)
        if read & _OF_SOURCE and not (read & _REMARKS or "says" in self.when):
            return ()
        keys = ["words", "settings"]
        if read - {"arch", "source"}:
            keys += ["usual_words", "usual_settings"]
        return tuple((key, name) for key in keys for name in self.gives.get(key, ()))


def corpora_folder() -> Path:
    """The folder of the corpora, in the installed package or in a checkout."""
    return shipped_folder("validate/corpora")


#: The keys that a rule may have besides ``when`` and ``source``.
GIVES = (
    "cells", "skip", "program", "model", "usual_words", "words", "usual_settings", "settings",
    "hidden", "exposed", "all_told", "memory", "memory_unit", "columns", "table", "train_samples",
    "eval_samples", "work_known", "flag",
)  # fmt: skip
_MAPS = ("cells", "usual_words", "words", "usual_settings", "settings", "columns")
#: Columns in which a source describes a single row in its own words.
_REMARKS = {"variant", "notes"}
#: Columns that tell which program a row ran, and cells that rules derive from them.
_OF_SOURCE = {"source", "source_ref", "framework", "torch"}
_EXPRESSIONS = ("cell", "found", "product", "quotient", "least", "formula")
_BRACES = re.compile(r"\{([a-z_]\w*)\}")
#: Result of an expression that has no value for a row.
NOTHING = object()


@dataclass(slots=True)
class Reading:
    """What the rules applied so far give for a row.

    ``cells``: the row's cells, with those that rules replaced or added. ``texts``: single values,
    such as ``program``, by key. ``maps``: values by key and name, such as ``words``. ``steps``:
    pairs ("hidden" or "exposed", communication), in order. ``says``: the text that conditions
    search, with names of cells in braces; without it, all cells. ``own``: options and settings that
    the row's own cells state, not what is known of its source.
    """

    cells: Row
    says: str = ""
    texts: dict[str, str] = field(default_factory=dict)
    maps: dict[str, dict[str, Any]] = field(default_factory=lambda: {k: {} for k in _MAPS})
    steps: list[tuple[str, str]] = field(default_factory=list)
    all_told: bool = False
    own: set[str] = field(default_factory=set)

    def facts(self) -> Facts:
        """The facts for the rules' conditions: all cells, and their joined text in lower case."""
        text = text_of(self.says, self.cells) or " | ".join(self.cells.values())
        return {**self.cells, TEXT: text.lower()}


def rules_of(path: Path) -> tuple[Rule, ...]:
    """The rules of a file, those of groups included, in order.

    Raises DataError for an unknown key, an invalid value or a condition that a group repeats.
    """
    data = read_yaml(path)
    if not isinstance(data, dict) or not isinstance(data.get("rules"), list):
        raise DataError("must have a list of 'rules'", file=path, line=1)
    return tuple(_flat(data, {}, path))


def _flat(data: Mapping[str, Any], above: Mapping[str, Any], path: Path) -> Iterator[Rule]:
    """The rules of a group, each with the conditions of the groups around it (``above``)."""
    for one in data["rules"]:
        if not isinstance(one, dict) or not isinstance(one.get("when", {}), dict):
            raise DataError(f"a rule is a mapping, and so is its 'when': {one!r:.60}", file=path)
        when = one.get("when", {})
        twice = above.keys() & when.keys()
        if twice:
            raise DataError(f"{min(twice)!r} is in the 'when' of an outer group too", file=path)
        if "rules" in one:
            yield from _flat(one, {**above, **when}, path)
            continue
        if "first" in one:
            group = object()
            for rule in _flat({"rules": one["first"]}, {**above, **when}, path):
                yield replace(rule, group=group)
            continue
        gives = {k: v for k, v in one.items() if k not in ("when", "source")}
        for key in gives:
            if key not in GIVES:
                meant = did_you_mean(key, GIVES, f" ({', '.join(GIVES)})")
                raise DataError(f"a rule has no {key!r}{meant}", file=path)
        for raw in _values(gives):
            if not any(kind in raw for kind in _EXPRESSIONS):
                kinds = ", ".join(_EXPRESSIONS)
                raise DataError(f"{raw!r:.80} is not a value: it has none of {kinds}", file=path)
            if (formula := raw.get("formula")) is not None and formula not in FORMULAS:
                raise DataError(str(UnknownName("formula", formula, FORMULAS)), file=path)
        _check_words(gives, path)
        in_slashes = [t[1:-1] for t in _texts(when) if len(t) > 1 and t[0] == t[-1] == "/"]
        _check_expressions(
            [*in_slashes, *(r["found"] for r in _values(gives) if "found" in r)], path
        )
        yield Rule(MappingProxyType({**above, **when}), gives, str(one.get("source", "")))


def _check_words(gives: Mapping[str, Any], path: Path) -> None:
    """Raises DataError for a word that is no option, and a plain value that it does not take."""
    for key in ("usual_words", "words"):
        for name, value in gives.get(key, {}).items():
            plain = value is not None and not isinstance(value, dict) and "{" not in str(value)
            known = OPTIONS.options()
            if name not in known:
                raise DataError(str(UnknownName("option", name, known)), file=path, key=key)
            problems = read_options({name: value})[1] if plain else []
            if problems:
                raise DataError(problems[0], file=path, key=key)


def _check_expressions(texts: Iterable[str], path: Path) -> None:
    """Raises DataError for a regular expression that is none."""
    for text in texts:
        try:
            re.compile(text)
        except re.error as err:
            raise DataError(f"{text!r} is no regular expression: {err}", file=path) from None


def cells_read(rules: Iterable[Rule]) -> set[str]:
    """Names of the cells that the conditions and values of rules read."""
    found: set[str] = set()
    for rule in rules:
        found |= _conditions(rule.when)
        for raw in _values(rule.gives):
            found |= {str(raw[key]) for key in ("cell", "in") if key in raw}
        found |= names_in(rule.gives)
    return found


def names_in(given: Any) -> set[str]:
    """The cells that texts ask for in braces, in any nesting."""
    return {name for text in _texts(given) for name in _BRACES.findall(text)}


def _conditions(when: Mapping[str, Any]) -> set[str]:
    inner = _conditions(when["not"]) if "not" in when else set()
    return inner | (when.keys() - {"not", "says"})


def _values(gives: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Every expression in a rule's values, nested ones included."""
    for key, given in gives.items():
        for one in given.values() if key in _MAPS else [given]:
            yield from _expressions_in(one)


def _expressions_in(raw: Any) -> Iterator[dict[str, Any]]:
    if isinstance(raw, dict):
        yield raw
        raw = [value for key, value in raw.items() if key != "among"]
    if isinstance(raw, list):
        for one in raw:
            yield from _expressions_in(one)


def _texts(given: Any) -> Iterator[str]:
    """Every text in a rule's values, nested ones included."""
    if isinstance(given, str):
        yield given
    for one in (
        given.values() if isinstance(given, dict) else given if isinstance(given, list) else ()
    ):
        yield from _texts(one)


def read_by(rules: tuple[Rule, ...], cells: Row, says: str = "") -> Reading:
    """The result of all rules for a row. Raises NoJobError, with the reason, to skip the row."""
    made = Reading(dict(cells), says)
    facts = made.facts()
    done: set[object] = set()
    for rule in rules:
        if rule.group not in done and rule.holds(facts):
            if rule.group is not None:
                done.add(rule.group)
            _apply(rule.gives, made)
            made.own |= {name for key, name in rule.own if name in made.maps[key]}
            if "cells" in rule.gives:
                facts = made.facts()
    return made


def _apply(gives: Mapping[str, Any], made: Reading) -> None:
    if "skip" in gives:
        raise NoJobError(str(value_of(gives["skip"], made.cells)))
    for key, given in gives.items():
        if key in _MAPS:
            for name, raw in given.items():
                value = text_of(raw, made.cells) if key == "cells" else value_of(raw, made.cells)
                if value is NOTHING:
                    continue
                if key == "cells":
                    made.cells[name] = "" if value is None else _text(value)
                elif value is None:
                    made.maps[key].pop(name, None)
                else:
                    made.maps[key][name] = value
        elif key in ("hidden", "exposed"):
            made.steps += [(key, word) for word in given]
        elif key == "all_told":
            made.all_told = bool(given)
        elif (text := value_of(given, made.cells)) not in (None, NOTHING):
            made.texts[key] = str(text)


def value_of(raw: Any, cells: Row) -> Any:
    """A rule's value for a row; text of an expression that is a number becomes a number."""
    value = text_of(raw, cells)
    return as_number(value) if isinstance(raw, dict) and isinstance(value, str) else value


def text_of(raw: Any, cells: Row) -> Any:
    """A rule's value for a row, with the text of cells unchanged; ``NOTHING`` if it has none."""
    if isinstance(raw, str):
        return _BRACES.sub(lambda m: cells[m[1]], raw) if "{" in raw else raw
    if not isinstance(raw, dict):
        return raw
    value = _expression(raw, cells)
    return text_of(raw["else"], cells) if value is NOTHING and "else" in raw else value


def _expression(raw: Mapping[str, Any], cells: Row) -> Any:
    kind = next((k for k in _EXPRESSIONS if k in raw), None)
    if kind == "cell":
        return _cell(raw, cells)
    if kind == "found":
        found = re.search(raw["found"], cells[raw["in"]])
        return NOTHING if found is None else found[1 if found.re.groups else 0]
    if kind == "formula":
        arguments = {k: value_of(v, cells) for k, v in raw.items() if k not in ("formula", "else")}
        value = applied(raw["formula"], cells, arguments)
        return NOTHING if value is None else value
    assert kind is not None  # ``rules_of`` has checked this
    numbers = [value_of(one, cells) for one in raw[kind]]
    if NOTHING in numbers:
        return NOTHING
    if kind == "product":
        return math.prod(numbers)
    return min(numbers) if kind == "least" else int(numbers[0] // numbers[1])


def _cell(raw: Mapping[str, Any], cells: Row) -> Any:
    text = cells[raw["cell"]]
    if not text:
        return NOTHING
    if (among := raw.get("among")) is None:
        return text
    number = as_number(text)
    return next((among[key] for key in (text, number, _text(number)) if key in among), NOTHING)


def _text(value: Any) -> str:
    """A value as the text of a cell: switches as yes or no, floats in up to six digits."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else str(value)
