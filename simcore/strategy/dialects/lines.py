"""A program's own arguments, on its launch line or in a file that it takes.

``programs_db/dialects/lines`` has a record for each program; ``line_choice`` finds a line's.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property, lru_cache
from typing import Any, Literal

from simcore.base.errors import DataError, InvalidConfig, UsageError, nearest
from simcore.base.lookup import Registry
from simcore.base.record import dataclass
from simcore.strategy.dialects.base import Emitted, Job, Launch
from simcore.strategy.dialects.calls import PYTHON, arguments_of, called
from simcore.strategy.dialects.keyed import DIALECTS, Odd, TableDialect
from simcore.strategy.dialects.line_record import LINES, LineRecord, NamedFile, fold_key
from simcore.strategy.dialects.reading import Reading, Table
from simcore.strategy.dialects.recipes import TABLES, names_given
from simcore.strategy.dialects.record import FALSE, fold
from simcore.strategy.dialects.source import Source, beside, json_table, toml_table, yaml_table
from simcore.strategy.options import OPTIONS

#: How files of arguments are read, by their endings.
FILES = {".json": json_table, ".toml": toml_table, ".yaml": yaml_table, ".yml": yaml_table}
_FORMS = {**{ending[1:]: read for ending, read in FILES.items()}, "python": names_given}
#: The record that reads scripts of which nothing else is known.
ANY_SCRIPT = "any-script"
#: Another key of the same arguments, as OmegaConf writes it: ${variables.max_seq_len}.
_KEY = re.compile(r"\$\{([A-Za-z_][\w.-]*)\}")
#: How often such a value may name another one.
_HOPS = 4
#: Flags by which scripts of any kind name a model, unless it is a path.
_MODEL_FLAGS = (
    "model", "arch", "a", "model-name", "model-path", "model-id", "base-model-name",
    "model-name-or-id", "pretrained-model", "pretrained", "hf-model", "backbone", "network", "net",
    "llm", "model-type",
)  # fmt: skip
#: Keys that say what their section is, or whether it is on.
_OF_SECTION = ("name", "type", "enabled")
#: Sections of files whose keys are not those of a training step.
_EVALUATION = re.compile(r"eval|valid|test|infer|sampl", re.IGNORECASE)
#: A key of yacs and LazyConfig: SOLVER.BASE_LR.
_PAIR = re.compile(r"^[A-Z][A-Z0-9_]*(?:\.[A-Z0-9_]+)+$")
_NUMBER = re.compile(r"^[\d.]+$")
#: A one-letter flag with its number at once: -b256.
JOINED = re.compile(r"^-([A-Za-z])(\d[\d.]*)$")
_OVERRIDE = re.compile(r"^(?:\+{0,2}([A-Za-z_][\w./@-]*)=(.*)|~([A-Za-z_][\w./@-]*).*)$", re.DOTALL)

#: What records cannot express: functions by the names that records call them by (``before``,
#: ``after``).
ODD: Registry[Odd] = Registry("function of records of launch lines")


@dataclass(frozen=True)
class Arguments:
    """Keys of a line or file with their values, by folded name, and how each is spelt.

    ``loose``: words that belong to no key.
    """

    given: Mapping[str, Any] = field(default_factory=dict)
    spelt: Mapping[str, str] = field(default_factory=dict)
    loose: tuple[str, ...] = ()

    def over(self, other: Arguments) -> Arguments:
        """These and the ``other`` ones that they do not replace."""
        return Arguments(
            {**other.given, **self.given}, {**other.spelt, **self.spelt}, self.loose
        )  # fmt: skip


def arguments(words: Sequence[str], record: LineRecord) -> Arguments:
    """The flags of a line, and ``key=value`` and ``KEY value``.

    A one-letter flag of the program may have its number at once: ``-b256``.
    """
    names = record.names() if any(map(JOINED.match, words)) else ()
    found: dict[str, list[str]] = {}
    spelt: dict[str, str] = {}
    loose: list[str] = []
    name = ""
    for word in (w for w in words if w != "--"):
        override = _OVERRIDE.match(word) if record.overrides else None
        joined = JOINED.match(word)
        if joined is not None and joined[1] in names and fold_key(word) not in names:
            word = f"-{joined[1]}={joined[2]}"
        if word.startswith("-") and len(word) > 1 and not re.match(r"^-[\d.]", word):
            flag, equals, value = word.partition("=")
            name = fold_key(flag)
            spelt[name], found[name] = flag, [value] if equals else []
        elif override is not None:
            name, typed = "", override[1] or override[3]
            key = fold_key(typed)
            spelt[key], found[key] = typed, ["null" if override[2] is None else override[2]]
        elif record.pairs and _PAIR.match(word):
            name = fold_key(word)
            spelt[name], found[name] = word, []
        elif name and _belongs(word, name, found[name], record):
            found[name].append(word)
        else:
            name = ""
            loose.append(word)
    given: dict[str, Any] = {}
    for key, values in found.items():
        text: Any = values[0] if len(values) == 1 else ",".join(values) or True
        _spread(key, _typed(text), spelt[key], given, spelt)
    return Arguments(given, spelt, tuple(loose))


def _belongs(word: str, name: str, values: Sequence[str], record: LineRecord) -> bool:
    """Whether a word is the flag's value; a path is no switch's, and none beside a number."""
    if "/" not in word:
        return True
    numbers = bool(values) and all(map(_NUMBER.match, values))
    return name not in record.switches() and not (numbers and name in record.stated())


def _typed(value: Any) -> Any:
    """A word as a mapping or list, where it is the text of one."""
    if not isinstance(value, str):
        return value
    text = value.strip()
    if text.startswith("{"):
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            return value
    if text.startswith("[") and text.endswith("]") and not {"[", "{"} & set(text[1:]):
        return [w.strip().strip("'\"") for w in text[1:-1].split(",") if w.strip()]
    return None if text in ("null", "None") else value


def of_table(data: Mapping[str, Any]) -> Arguments:
    """The keys of a file, nested ones by dotted path."""
    given: dict[str, Any] = {}
    spelt: dict[str, str] = {}
    for key, value in data.items():
        _spread(fold_key(key), value, key, given, spelt)
    return Arguments(given, spelt)


def _spread(key: str, value: Any, typed: str, given: dict[str, Any], spelt: dict[str, str]) -> None:
    """Add a key, or those of the mapping that is its value; a list of words becomes one text."""
    if isinstance(value, Mapping):
        for inner, v in value.items():
            name = str(inner)
            _spread(f"{key}.{fold_key(name)}", v, f"{typed}.{name}", given, spelt)
        return
    if isinstance(value, list | tuple) and not any(isinstance(v, dict | list) for v in value):
        value = ",".join(map(str, value))
    spelt[key] = typed
    if value is not None:
        given[key] = value


@lru_cache(maxsize=8)
def _top_keys(source: Source) -> frozenset[str]:
    """Keys of the outermost level of a file, folded; none of a file that cannot be read."""
    try:
        return frozenset(map(fold_key, FILES[_ending(source)](source)))
    except DataError:
        return frozenset()


@dataclass(frozen=True)
class LineDialect(TableDialect):
    """The arguments of one program, by its record in ``programs_db/dialects/lines``.

    ``certain``: whether the line starts this program for sure; the arguments of other scripts are
    read only where their values are known too. ``own``: whether it is one of the program's own
    scripts by its path, not another one of that name. ``code``: a script at hand that the line
    starts, whose calls state what the line does not. ``at_hand``: whether an unknown script is.
    """

    certain: bool = True
    own: bool = True
    code: str = ""
    at_hand: bool = False

    @cached_property
    def record(self) -> LineRecord:
        """What each argument means, inherited ones too.

        Where the line may not be of this program, also names that scripts of any kind share.
        """
        found = LINES[self.name].complete()
        return found if self.certain else found.beside(LINES[ANY_SCRIPT])

    def claims(self, source: Source) -> bool:
        """Whether it is a file of this program's arguments: its form, and one of its marks."""
        file = self.record.file
        if source.suffix in PYTHON:
            return called(source, self.record.own_calls()) > 0
        if file is None or source.suffix not in FILES:
            return False
        if file.form == "toml" and source.suffix != ".toml":
            return False
        return not _top_keys(source).isdisjoint(map(fold_key, file.marks))

    def data(self, source: Source) -> Mapping[str, Any]:
        """The keys and values of a file of arguments."""
        return self._of_file(source).given

    def knows(self, source: Source) -> int:
        """How many keys of a file the record has, or functions that a script calls."""
        if source.suffix in PYTHON:
            return called(source, self.record.calls)
        return super().knows(source)

    def _of_file(self, source: Source) -> Arguments:
        if source.suffix in PYTHON:
            return of_table(arguments_of(source, self.record.calls))
        return of_table(FILES[_ending(source)](source))

    def read(self, source: Source) -> Launch:
        """The options that a file of arguments states."""
        return self.read_arguments(Reading(self.name, source), self._of_file(source), "the file")

    def read_words(self, reading: Reading, words: Sequence[str], script: str) -> Launch:
        """The options that a line states after the script, and in the file that it names."""
        record = self.record
        found = arguments(words, record)
        if record.file is not None and record.file.dialect:
            return self._through(reading, record.file, found)
        if record.file is not None:
            found = self._with_file(reading, record.file, found)
        if self.code:
            found = found.over(self._of_file(beside(reading.source, self.code)))
        return self.read_arguments(reading, _with_words(record, found), script)

    def _through(self, reading: Reading, file: NamedFile, found: Arguments) -> Launch:
        """What the file says to its own dialect, and the line's arguments as if they were in it."""
        dialect = DIALECTS[file.dialect]
        found = self._with_recipe(reading, found)
        given = {found.spelt.get(k, k).lstrip("-+"): v for k, v in found.given.items()}
        named = set(map(fold_key, file.flags.split()))
        data: dict[str, Any] = {}
        for flag in [k for k in given if fold_key(k) in named]:
            data |= Table(dialect.data(beside(reading.source, str(given.pop(flag))))).given
        table = Table({**data, **given})
        plain, sections = self.record.without_effect()
        for key in list(table.given):
            if fold_key(key) in plain or any(fold_key(key).startswith(f"{s}.") for s in sections):
                reading.ignore(key)
                table.drop(key)
                del table.given[key]
        for first in _of_family(self.name, "before"):
            first(reading, table)
        reading.dialect = self.name if self.record.program else dialect.name
        launch = dialect.read_table(reading, table)
        if not self.record.program:
            return launch
        return replace(launch, **self.record.program, fills=False)  # type: ignore[arg-type]

    def _with_recipe(self, reading: Reading, found: Arguments) -> Arguments:
        """The arguments, over the keys of the recipe that they name."""
        recipe = self.record.recipe
        if recipe is None:
            return found
        given = dict(found.given)
        flags = [n for n in map(fold_key, recipe.flags.split()) if n in given]
        names = [str(given.pop(flag)).partition("(")[0] for flag in flags]
        parts = re.findall(r"{([\w-]+)}", recipe.joined)
        if not names and parts and all(p in given for p in parts):
            values = {p: str(given.pop(p)) for p in parts}
            names = [recipe.joined.format(**{p: recipe.spelt.get(v, v) for p, v in values.items()})]
        found = Arguments(given, found.spelt, found.loose)
        for name in names:
            keys = TABLES[recipe.table].keys(name)
            if keys is None:
                reading.not_at_hand(name, self.title)
                continue
            if model := keys.pop("model", None):
                reading.say("model", str(model), name)
            switched_off = {k for k in found.spelt if k not in found.given}
            base = of_table({k: v for k, v in keys.items() if fold_key(k) not in switched_off})
            found = found.over(base)
        return found

    def _with_file(self, reading: Reading, file: NamedFile, found: Arguments) -> Arguments:
        given = dict(found.given)
        flags = [n for n in map(fold_key, file.flags.split()) if n in given]
        if not self.certain:  # which may call anything so
            flags = [n for n in flags if str(given[n]).endswith(tuple(FILES))]
        names = [str(given.pop(flag)) for flag in flags]
        loose = tuple(word for word in found.loose if word != "@")  # sft @ file.toml
        if file.every:
            folder, *inside = names[0].split(",") if names else [""]
            every = [*(f"{folder}/{name}" for name in inside), *filter(_is_file, loose)]
            names, loose = every[::-1], tuple(w for w in loose if not _is_file(w))
        if file.first and not names and loose and (self.certain or _is_file(loose[0])):
            names, loose = [loose[0]], loose[1:]
        found = Arguments(given, found.spelt, loose)
        for name in names:
            try:
                source = beside(reading.source, name)
            except (DataError, UsageError):
                if not file.shipped:
                    raise
                table = TABLES[file.recipes] if file.recipes else None
                keys = table.of_path(name) if table else None
                if keys is None:
                    reading.not_at_hand(name, self.title, tuple(table.recipes) if table else ())
                    continue
                if model := keys.pop("model", None):
                    reading.say("model", str(model), name)
                found = found.over(of_table({k: v for k, v in keys.items() if v is not None}))
                continue
            read = FILES.get(source.suffix, _FORMS[file.form])
            found = found.over(of_table(read(source)))
        return found

    def read_arguments(self, reading: Reading, found: Arguments, script: str) -> Launch:
        """The options that arguments state; the rest is told."""
        record = self.record
        table = Table(_interpolated(found.given), "", found.spelt)
        for first in _of_family(self.name, "before"):
            first(reading, table)
        if not self.certain:
            _lift(table, {*record.names()})
            reading.more["model_hints"] = _model_hints(table.given)
        foreign = {k for k, v in table.given.items() if not (self.certain or self._takes(k, v))}
        for key in foreign:
            table.take(key)
            del table.given[key]
        if self.certain and self.own:
            reading.say("other.program", self.name, script)
        self.state(reading, table)
        for last in _of_family(self.name, "after"):
            last(reading, table)
        if not self.certain:
            self._tell_names(reading, table, script)
        for note in record.notes:
            reading.approximate(script, note)
        reading.more["fills"] = not record.program
        plain, sections = record.without_effect()
        odd = table.left(reading, plain, sections)
        told = [k for k in found.spelt if k in foreign or k in odd]
        if told:
            listed = ", ".join(self._hinted(found.spelt[k], k, found.given.get(k)) for k in told)
            reading.not_understood(f"{listed} of {script}")
        return reading.finish()

    def _takes(self, name: str, value: Any) -> bool:
        """Whether an argument of an unknown script is one of this record, by name and value."""
        if name in self.record.without_effect()[0]:
            return True
        meaning = next((m[0] for names, m in self.record.table().items() if name in names), None)
        if meaning is None:
            return False
        if not meaning.values and meaning.option:
            trial = Reading(self.name, Source("", ""))
            trial.meant(name, meaning, value)
            return not trial.finish().unsupported
        if not meaning.values or meaning.read == "free" or set(meaning.values) <= {"true", "false"}:
            return True
        known = {*map(fold, meaning.values), *map(fold, meaning.harmless), *FALSE}
        return fold(value) in known

    def _tell_names(self, reading: Reading, table: Table, script: str) -> None:
        """Tell which options are read by names that many scripts share, and their values.

        Names of the program that the line looks like need no telling. Of a script of which nothing
        is read, whether it is at hand.
        """
        shared = set(LINES[ANY_SCRIPT].names())
        if self.name != ANY_SCRIPT:
            shared -= LINES[self.name].complete().names()
        shown = {table.shown(name) for name in shared if name in table.given}
        read = [
            f"{reading.key_of(option)} (as --{option.replace('_', '-')} {value})"
            for option, value in reading.facts.items()
            if reading.key_of(option) in shown and not option.startswith("other.")
        ]
        if read:
            how = "are read as in most scripts: give the option where it means something else here"
            reading.approximate(", ".join(read), f"of {script}, an unknown script, {how}")
        elif self.name == ANY_SCRIPT:
            how = "calls no trainer that is known here" if self.at_hand else "is not at hand"
            reading.approximate(script, f"{how}: nothing that it states itself is read")

    def _hinted(self, typed: str, key: str, value: object) -> str:
        """A key that is not followed, as typed, with the reason or the nearest key."""
        means = next((m[-1] for names, m in self.record.table().items() if key in names), None)
        if means is not None and (option := means.option) in OPTIONS:
            return f"{typed} {value} (no value of --{OPTIONS[option].word})"
        words = {name for name in self.record.names() if len(name) > 1}
        words |= {*self.record.without_effect()[1]}
        near = nearest(key, sorted(words), 1)
        return f"{typed} ({near[0]}?)" if near and near[0] != key else typed

    def emit(self, job: Job) -> Emitted:
        """Raises InvalidConfig: such lines are only read."""
        raise InvalidConfig([f"{self.title}'s arguments are read, not written: --emit accelerate"])


def _model_hints(given: Mapping[str, Any]) -> tuple[str, ...]:
    """What the flags of an unknown script may call its model."""
    return tuple(v for key in _MODEL_FLAGS if isinstance(v := given.get(key), str))


def _lift(table: Table, known: Collection[str]) -> None:
    """Rename keys of sections of an unknown file to their last names: training.batch_size.

    What a section is, and whether it is on, stands for the section: optimizer.name, ema.enabled.
    Sections of evaluation keep their keys.
    """
    for key, value in list(table.given.items()):
        sections, _, last = key.rpartition(".")
        name = sections.rpartition(".")[2] if last in _OF_SECTION else last
        if not sections or key in known or _EVALUATION.search(sections):
            continue
        if name in known or name in _MODEL_FLAGS:
            if name not in table.given:  # else the line states it
                table.put(name, value, table.shown(key))
            table.take(key)
            del table.given[key]


def _interpolated(given: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments, where values that name other keys have the values of these."""

    def of_key(match: re.Match[str]) -> str:
        value = given.get(fold_key(match[1]))
        return match[0] if value is None or isinstance(value, bool) else str(value)

    found = dict(given)
    for key, value in given.items():
        for _ in range(_HOPS if isinstance(value, str) and "${" in value else 0):
            found[key] = _KEY.sub(of_key, found[key])
    return found


def _with_words(record: LineRecord, found: Arguments) -> Arguments:
    """The arguments, of which words that belong to no flag have the names of the record."""
    plain = record.plain(found.given, found.loose)
    return Arguments({**plain, **found.given}, {**{n: n for n in plain}, **found.spelt})


def _is_file(word: str) -> bool:
    return word.endswith(tuple(FILES))


def _ending(source: Source) -> str:
    return source.suffix if source.suffix in FILES else ".yaml"


def _of_family(name: str, when: Literal["before", "after"]) -> Iterator[Odd]:
    """The functions of the records that a record inherits, and its own."""
    record = LINES[name]
    for base in record.inherits:
        yield from _of_family(base, when)
    if function := record.before if when == "before" else record.after:
        yield ODD[function]
