"""A dialect that is described by a table of keys, each of which is one option.

It needs no code of its own, since the program's settings correspond to simcore's options.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from simcore.base.errors import InvalidConfig, UsageError
from simcore.strategy.dialects.base import Emitted, Job, Launch, Word
from simcore.strategy.dialects.reading import Reading, Table
from simcore.strategy.dialects.source import Source, json_table, toml_table, yaml_table
from simcore.strategy.options import OPTIONS

#: Options that a script or its launcher states where a format has no key for them.
_OF_LAUNCHER = ("nnodes", "nproc_per_node", "software", "issuer")
#: Value of a launch file that is no option: samples of a step.
_GLOBAL = "global_batch"
_TABLES = {"json": json_table, "toml": toml_table, "yaml": yaml_table}


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyedDialect:
    """One launch format.

    name, title, summary    name on the command line, usual name, description of its files
    form       json, toml or yaml
    keys       dotted key to its option, in addition to those of the option table (``launch_keys``)
    marks      keys of which a file of this program has at least one
    meanings   for an option, the meaning of each value of its key; other values are refused
    ignored    keys that have no effect on a prediction
    left       options that the script states, besides nodes, GPUs a node, software and issuer
    program    software, issuer and overlap of the program that reads the file
    """

    name: str
    title: str
    summary: str
    form: Literal["json", "toml", "yaml"]
    keys: Mapping[str, str] = field(default_factory=dict)
    marks: tuple[str, ...]
    meanings: Mapping[str, Mapping[str, Word]] = field(default_factory=dict)
    ignored: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    program: Mapping[str, str] = field(default_factory=dict)

    def every_key(self) -> dict[str, str]:
        """Key to option, from this record and from the option table."""
        return {**OPTIONS.launch_keys(self.name), **self.keys}

    def claims(self, source: Source) -> bool:
        """Whether the file has this form and the text contains a key that marks it."""
        suffixes = {"json": (".json",), "toml": (".toml",), "yaml": (".yaml", ".yml")}[self.form]
        return source.suffix in suffixes and any(key in source.text for key in self.marks)

    def read(self, source: Source) -> Launch:
        """The options that its keys state. Raises DataError for a file of another form."""
        reading, table = Reading(self.name, source), Table(_TABLES[self.form](source))
        for word, value in self.program.items():
            reading.say(word, value, "the file")
        keys = self.every_key()
        for key, word in keys.items():
            if (value := table.take(key)) is not None:
                reading.say(word, self._meant(reading, key, word, value), key)
        table.leftovers(reading, self.ignored, tuple(keys))
        return reading.finish()

    def _meant(self, reading: Reading, key: str, word: str, value: Any) -> Word | None:
        """The option's value for a key's value; None for an error, which is recorded."""
        option = OPTIONS[word]
        if (meanings := self.meanings.get(word)) is not None:
            if (found := meanings.get(str(value).lower())) is None:
                reading.refuse(f"{key} = {value!r}", f"is none of {', '.join(meanings)}", word)
            return found
        try:
            meant: Word = option.read(value)
        except UsageError as err:
            reading.refuse(f"{key}:", str(err))
            return None
        return meant

    def emit(self, job: Job) -> Emitted:
        """The job as a file of this form. Raises InvalidConfig with all that has no key."""
        words: dict[str, Word] = {**job.words(), _GLOBAL: job.global_batch}
        left = (*_OF_LAUNCHER, *self.left)
        data: dict[str, Any] = {}
        problems: list[str] = []
        keys = {word: key for key, word in reversed(self.every_key().items())}
        for word, value in words.items():
            if (key := keys.get(word)) is not None:
                said = self._said(word, value)
                if said is None:
                    problems.append(f"{self.title} cannot express {OPTIONS[word].word} {value}")
                *sections, last = key.split(".")
                place = data
                for section in sections:
                    place = place.setdefault(section, {})
                place[last] = said
            elif word not in left and word != _GLOBAL and value not in _usual(word):
                problems.append(f"{self.title} has no setting for {OPTIONS[word].word} {value}")
        if problems:
            raise InvalidConfig(problems)
        unstated = tuple(w for w in left if w not in keys and w in OPTIONS.in_launch())
        return Emitted(_written(data, self.form), unstated, self.program)

    def _said(self, word: str, value: Word) -> Any:
        """The program's value for an option's value; None where it has none."""
        if (meanings := self.meanings.get(word)) is None:
            return value
        return next((said for said, meant in meanings.items() if meant == value), None)


def _usual(word: str) -> tuple[Any, ...]:
    """Values of an option that a file need not state."""
    return (OPTIONS[word].unsaid, "none", None)


def _written(data: Mapping[str, Any], form: str) -> str:
    if form == "json":
        return json.dumps(data, indent=2) + "\n"
    lines: list[str] = []
    _lines(data, form, (), lines)
    return "\n".join(lines).strip() + "\n"


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
