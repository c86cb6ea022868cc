"""Reads and writes the launch files of a dialect by its record."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from simcore.base.database import Database
from simcore.base.errors import DataError, InvalidConfig, UsageError
from simcore.base.lookup import Registry
from simcore.base.record import dataclass
from simcore.strategy.dialects.base import Emitted, Job, Launch
from simcore.strategy.dialects.reading import Reading, Table, stated
from simcore.strategy.dialects.record import RECORDS, DialectRecord, Meaning, fold, value_of
from simcore.strategy.dialects.source import (
    Source,
    beside,
    json_table,
    toml_table,
    yaml_table,
)
from simcore.strategy.options import OPTIONS


def written_text(data: Mapping[str, Any], form: str) -> str:
    """Dotted keys and values as JSON, TOML or YAML, or as flags, one a line."""
    if form == "flags":
        return "".join(_flag(key, value) for key, value in data.items() if value is not False)
    nested: dict[str, Any] = {}
    for key, value in data.items():
        *sections, last = key.split(".")
        place = nested
        for section in sections:
            place = place.setdefault(section, {})
        place[last] = value
    if form == "json":
        return json.dumps(nested, indent=2) + "\n"
    lines: list[str] = []
    _lines(nested, form, (), lines)
    return "\n".join(lines).strip() + "\n"


def _flag(key: str, value: Any) -> str:
    return f"--{key}\n" if value is True else f"--{key} {value}\n"


def _lines(data: Mapping[str, Any], form: str, sections: tuple[str, ...], out: list[str]) -> None:
    """Append the keys of a table as TOML or YAML; values are written as in JSON, valid in both."""
    indent = "  " * len(sections) if form == "yaml" else ""
    for key, value in data.items():
        if not isinstance(value, Mapping):
            mark = ": " if form == "yaml" else " = "
            out.append(f"{indent}{key}{mark}{json.dumps(value)}")
    for key, value in data.items():
        if isinstance(value, Mapping):
            inner = (*sections, key)
            out += [f"{indent}{key}:"] if form == "yaml" else ["", f"[{'.'.join(inner)}]"]
            _lines(value, form, inner, out)


_TABLES = {"json": json_table, "toml": toml_table, "yaml": yaml_table}
_SUFFIXES = {"json": (".json",), "toml": (".toml",), "yaml": (".yaml", ".yml"), "flags": (".txt",)}
#: Options that the program which reads the file decides; the last one, unless the file states it.
_OF_PROGRAM = ("software", "issuer", "overlap")
#: Options whose values have several forms, so that what is read may differ from what was written.
_IN_MANY_FORMS = ("stages",)
#: The ZeRO stage in the name of a file of DeepSpeed's.
_STAGE = re.compile(r"(?:z(?:ero)?[_-]?(?:stage)?|stage)[_-]?([0-3])", re.IGNORECASE)
_WITH_EFFECT = "with an effect on the prediction"

Odd = Callable[[Reading, Table], None]
OddWriting = Callable[[Job, dict[str, Any], list[str]], None]


@dataclass(frozen=True)
class TableDialect:
    """One launch format, by its record in ``programs_db/dialects`` or the one ``given``.

    Functions do what a record cannot express: ``first`` and ``odd`` read before and after its keys,
    ``odd_writing`` adds to the keys of a job, and to the reasons why it cannot be written.
    ``of_models``: its arguments describe the model, as far as they can.
    """

    name: str
    given: DialectRecord | None = None
    first: Odd | None = None
    odd: Odd | None = None
    odd_writing: OddWriting | None = None
    of_models: bool = False
    records: Database[Any] = RECORDS

    @cached_property
    def record(self) -> DialectRecord:
        """What each key means."""
        return self.given or self.records[self.name]

    @property
    def title(self) -> str:
        """The program's usual name."""
        return self.record.title

    @property
    def summary(self) -> str:
        """A description of its files."""
        return self.record.summary

    def claims(self, source: Source) -> bool:
        """Whether the text has this form and one of the marks."""
        form, marks = self.record.form, self.record.marks
        typed = form == "json" and source.text.lstrip().startswith("{")
        right = typed or source.suffix in _SUFFIXES[form]
        return right and (not marks or any(mark in source.text for mark in marks))

    def data(self, source: Source) -> Mapping[str, Any]:
        """The keys and values of a file. Raises DataError for a file of another form."""
        return _TABLES[self.record.form](source)

    def knows(self, source: Source) -> int:
        """How many keys of a file the record has. Raises DataError for a file of another form."""
        plain, sections = self.record.without_effect()
        stated = {*plain, *(name for names in self.record.table() for name in names)}
        return sum(
            key in stated or any(key.startswith(f"{s}.") for s in sections)
            for key in Table(self.data(source)).given
        )

    def read(self, source: Source) -> Launch:
        """The options that its keys state. Raises DataError for a file of another form."""
        return self.read_table(Reading(self.name, source), Table(self.data(source)))

    def read_table(self, reading: Reading, table: Table) -> Launch:
        """The options that the keys of a table state."""
        self.heed(reading, table)
        return reading.finish()

    def heed(self, reading: Reading, table: Table) -> None:
        """State what the keys of a table mean, and record those that mean nothing."""
        self.state(reading, table)
        table.leftovers(reading, *self.record.without_effect())

    def state(self, reading: Reading, table: Table) -> None:
        """State the options that the keys of a table mean."""
        record = self.record
        for option, name in record.program.items():
            reading.say(option, name, self.title if self.record.form == "flags" else "the file")
        if record.expected and not any(map(table.has, record.expected)):
            reading.approximate("the file", f"has no {self.title} key {_WITH_EFFECT}")
        if self.first:
            self.first(reading, table)
        plain, _ = record.without_effect()
        for names, meanings in record.table().items():
            self._read_key(reading, table, names, meanings, plain)
        if self.odd:
            self.odd(reading, table)
        for option, (value, why) in record.absent.items():
            if option not in reading.context and not reading.refuses(option):
                reading.say(option, value, why)
        for implied in record.implied:
            if implied.holds(reading.context, table.given):
                key = reading.key_of(implied.because) or implied.because
                for option, word in implied.options.items():
                    reading.say(option, value_of(word, reading.context), key)
        for refused in record.refused:
            if refused.option in reading.facts and refused.holds(reading.context, table.given):
                reading.take_back(refused.option, refused.why)

    def _read_key(
        self, reading: Reading, table: Table, names: tuple[str, ...],
        meanings: tuple[Meaning, ...], plain: Collection[str],
    ) -> None:  # fmt: skip
        """Read one key; of several names the first counts that the file has."""
        inside = reading.inner is None  # of another launch, whose options count before defaults
        present = [name for name in names if table.has(name)]
        key = (present or names)[0]
        shown = table.shown(key)
        meaning = _holding(meanings, reading.context, table.given)
        section = meaning is not None and meaning.section
        value = table.take_section(key, plain) if section else table.take(key)
        for name in set(names) - {key}:
            if table.take(name) is not None:
                reading.ignore(table.shown(name))
        if meaning is None or (section and value is False):
            if value is not None:
                reading.ignore(shown)
        elif value is not None and fold(value) in map(fold, meaning.harmless):
            reading.ignore(shown)
        elif value is None:
            if meaning.missing:
                reading.refuse(shown, meaning.missing, meaning.instead or meaning.option)
            if meaning.assumed:
                reading.approximate(shown, f"is not stated: {meaning.assumed}")
            if meaning.absent is not None and (inside or meaning.option not in reading.context):
                origin = f"{shown} ({meaning.absent} is its default)"
                self._state(reading, shown, meaning, meaning.absent, origin)
        elif self.record.automatic and value == self.record.automatic[0]:
            if meaning.automatic or not meaning.option:
                reading.ignore(f"{shown} ({value})")
            else:
                reading.refuse(shown, self.record.automatic[1], meaning.option)
        elif meaning.refused or meaning.approximated:
            _warn(reading, shown, meaning, value)
        elif self.record.form == "flags" and "$" in str(value) and meaning.option == "model":
            reading.ignore(shown)
        elif self.record.form == "flags" and "$" in str(value):
            reading.refuse(f"{shown} {value}", "is not set in the text",
                           meaning.instead or meaning.option)  # fmt: skip
        elif meaning.names_file:
            reading.within(read_named(reading, shown, meaning.names_file, str(value)))
        elif meaning.option:
            self._state(reading, shown, meaning, value, shown)
        elif meaning.implies:
            for option, implied in meaning.implies.items():
                reading.say(option, implied, shown)
        elif meaning.read:
            reading.meant(shown, meaning, value)
        else:  # without effect beside what else is stated
            reading.ignore(shown)

    def _state(
        self, reading: Reading, key: str, meaning: Meaning, value: object, origin: str
    ) -> None:
        """State the option that a key means."""
        meant = reading.meant(key, meaning, value)
        if how := {fold(k): v for k, v in meaning.partly.items()}.get(fold(value)):
            reading.approximate(f"{key} {value}", how)
        if meant is not None and meaning.option in self.record.exclusive:
            meant = reading.alone(meaning.option, meant, key)
        if meant is not None:
            reading.say(meaning.option, meant, origin)
            for option, implied in meaning.implies.items():
                reading.say(option, implied, key)

    def emit(self, job: Job) -> Emitted:
        """The job as a file. Raises InvalidConfig with everything that it cannot express."""
        record, facts = self.record, job.facts()
        data: dict[str, Any] = {}
        problems: list[str] = []
        if self.odd_writing:
            self.odd_writing(job, data, problems)
        for block in record.written:
            if block.holds(facts, data):
                data |= block.keys
        written: set[str] = set()
        for names, meanings in record.table().items():
            meaning = _holding(meanings, facts, data)
            if meaning is None or not meaning.written:
                continue
            if names[0] in data or meaning.option in written:
                continue
            value = _written(meaning, facts.get(meaning.option))
            if value is not None:
                data[names[0]] = value
                written.add(meaning.option)
        refused = {r.option: r.why for r in record.refused if r.holds(facts, data)}
        problems += [self._cannot(o, facts.get(o), why) for o, why in refused.items()]
        text = self.text(job, data)
        launch = self.read(Source(text, record.title, Path(f"launch{self.suffix}")))
        left = self._left(job, launch, data, tuple(refused), problems)
        if problems:
            raise InvalidConfig(problems)
        program = {w: str(launch.said[w]) for w in _OF_PROGRAM if w in launch.said}
        return Emitted(text, left, program)

    @property
    def suffix(self) -> str:
        """Ending of the names of files that are written."""
        return _SUFFIXES[self.record.form][0]

    def text(self, job: Job, data: Mapping[str, Any]) -> str:
        """The keys and values of a job as a file."""
        return written_text(data, self.record.form)

    def _left(
        self, job: Job, launch: Launch, data: Mapping[str, Any], refused: tuple[str, ...],
        problems: list[str],
    ) -> tuple[str, ...]:  # fmt: skip
        """Options of a job that the training script states, by what its file reads as.

        Options that neither can state, and those that the file reads as others, are added to
        ``problems``, except the ``refused`` ones, which are there already.
        """
        left = ["model"] if self.of_models and not launch.described else []
        for option, value in job.words().items():
            found = launch.said.get(option)
            decided = found is None and option in _OF_PROGRAM[:2]
            if decided or any(option.startswith(r) or r.startswith(option) for r in refused):
                continue
            if option == "overlap" and found != value:
                left.append(option)
            elif found is not None or (option == "grad_accum" and launch.global_batch):
                if found in (None, value) or option in (*_OF_PROGRAM, *_IN_MANY_FORMS):
                    continue
                possible = self._possible(option, job, data)
                if not problems or str(value) not in possible.split(", "):  # else its consequence
                    problems.append(self._cannot(option, value, possible))
            elif option not in self.record.unsettable:
                left.append(option)
            elif possible := self._possible(option, job, data):
                problems.append(self._cannot(option, value, possible))
            elif value not in (OPTIONS[option].unsaid, "none"):
                problems.append(f"{self.title} has no setting for {OPTIONS[option].word} {value}")
        return tuple(left)

    def _cannot(self, option: str, value: object, why: str) -> str:
        name = option.replace("_", "-").replace(".", " of ")
        value = OPTIONS[option].unsaid if value is None else value
        return f"{self.title} cannot express {name} {value}" + (f": {why}" if why else "")

    def _possible(self, option: str, job: Job, data: Mapping[str, Any]) -> str:
        """Values of an option that a file with these keys may state; "" if not listed."""
        found = [self.record.absent[option][0]] if option in self.record.absent else []
        for meanings in self.record.table().values():
            meaning = _holding(meanings, job.facts(), data)
            if meaning is not None and meaning.option == option:
                found += [value for value in meaning.values.values() if value is not None]
            found += [m.implies[option] for m in meanings if option in m.implies]
        return ", ".join(map(str, dict.fromkeys(found)))


#: Dialects by name.
DIALECTS: Registry[TableDialect] = Registry("dialect")


def _holding(
    meanings: tuple[Meaning, ...], facts: Mapping[str, Any], keys: Mapping[str, Any]
) -> Meaning | None:
    return next((m for m in meanings if m.holds(facts, keys)), None)


def read_named(reading: Reading, key: str, dialect: str, name: str) -> Launch:
    """The file that a key names; of one that is not at hand, its name says the ZeRO stage."""
    try:
        source = beside(reading.source, name)
    except (DataError, UsageError):
        if not (stage := _STAGE.search(name)):
            raise
        what = "optimizer:cpu,params:cpu" if stage[1] == "3" else "optimizer:cpu"
        said = {
            "strategy": f"zero{stage[1]}" if stage[1] != "0" else "ddp",
            "offload": what if "offload" in name.replace("no_offload", "") else "none",
            "software": dialect,
        }
        keys = dict.fromkeys(said, key)
        if "." in name or "/" in name:  # a file, not one of the program's own by name (ms-swift)
            how = f"is not at hand: read by its name as stage {stage[1]}"
            reading.approximate(f"{key} {name}", how)
        return Launch(dialect=dialect, where=reading.where, said=said, keys=keys)
    return DIALECTS[dialect].read(source)


def _warn(reading: Reading, key: str, meaning: Meaning, value: object) -> None:
    """Record a key that is refused or not followed, if its value asks for something."""
    shown = key
    if meaning.read == "degree":
        number = reading.whole(key, value, least=None)
        shown, value = f"{key} = {number}:", number is not None and number > 1
    elif meaning.read == "flag":
        value = reading.flag(key, value)
    elif not isinstance(value, bool):
        shown = stated(key, value)
    if value in (None, False):
        return
    if meaning.option and fold(value) in OPTIONS[meaning.option].names():
        reading.say(meaning.option, fold(value), key)
        return
    if meaning.refused:
        reading.refuse(shown, meaning.refused, meaning.instead)
    if meaning.approximated:
        reading.approximate(shown.split()[0], meaning.approximated)
    for option, implied in meaning.implies.items():
        reading.say(option, implied, key)


def _written(meaning: Meaning, value: Any) -> Any:
    """The value of a key that means ``value``; None where none does."""
    if value is None or (value == "none" and "." in meaning.option):
        return None
    if meaning.values:
        said = next((said for said, meant in meaning.values.items() if meant == value), None)
        if said is None or not said.isdigit():
            return {"true": True, "false": False}.get(str(said), said)
        return int(said)
    if meaning.read == "positive":
        return 1.0 if value else 0.0
    return value
