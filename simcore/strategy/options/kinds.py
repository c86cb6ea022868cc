"""The kinds of value that an option can have: how each is read, and its error messages.

Every kind has ``read(flag, value)``, which returns the value converted for the engine or raises
UsageError with one sentence. The sentence is the same for the command line, Python and the web
page. Names of choices are looked up when they are first needed, so that the table of options
imports neither the databases nor the models of the step.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib import import_module
from os import PathLike, fspath
from pathlib import Path
from typing import Any, ClassVar, get_args

from simcore.base.errors import InvalidConfig, UnknownName
from simcore.base.names import read_pairs
from simcore.base.record import dataclass
from simcore.base.units import GIGA, KIB, KILO, MEGA, MIB, TERA

#: Names to choose from: a sequence of them, a function that returns one, or ``module:NAME`` of an
#: object that has them (a sequence, a mapping, a registry, a database, a Literal, a function).
Names = Sequence[str] | Callable[[], Sequence[str]] | str
#: The two values of a switch, as they are typed.
SWITCH: Mapping[str, bool] = {"on": True, "off": False}
#: Suffixes of counts; G and B both mean a billion.
DECIMAL = {"K": KILO, "M": MEGA, "G": GIGA, "B": GIGA, "T": TERA}
#: Suffixes of sequence lengths, which are powers of two: 128k means 131,072 tokens.
_BINARY = {"K": KIB, "M": MIB}


@cache
def looked_up(place: str) -> Any:
    """The object that ``module:NAME`` refers to."""
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)


def names_of(names: Names) -> tuple[str, ...]:
    """The names to choose from, in the order in which to show them."""
    found: Any = looked_up(names) if isinstance(names, str) else names
    if literals := get_args(found):
        return literals
    if hasattr(found, "names"):  # a database of YAML files
        return tuple(found.names())
    return tuple(found() if callable(found) else found)


def folded(name: str) -> str:
    """A name in lower case without hyphens and underscores, for comparisons."""
    return name.strip().lower().replace("_", "").replace("-", "")


def whole_meant(text: str, *, binary: bool = False) -> int | None:
    """The whole number written as ``4k``, ``1e6``, ``4,096`` or ``2.0``; None for other text.

    ``binary``: whether k means 1,024 instead of 1,000.
    """
    plain = text.strip().replace(",", "").replace("_", "")
    times = (_BINARY if binary else DECIMAL).get(plain[-1:].upper(), 1)
    try:
        value = float(plain[:-1] if times != 1 else plain) * times
    except ValueError:
        return None
    return int(value) if math.isfinite(value) and value == int(value) else None


@dataclass(frozen=True, eq=False)
class Whole:
    """A whole number of at least ``least``.

    most      greatest value; None: no limit
    or_max    whether the word ``max`` is accepted too
    binary    whether a suffix k means 1,024 (sequence lengths), for the suggested correction
    """

    least: int | None = 1
    most: int | None = None
    or_max: bool = False
    binary: bool = False
    control: ClassVar[str] = "number"

    @property
    def metavar(self) -> str:
        """Placeholder for a value in help texts."""
        return "N|max" if self.or_max else "N"

    @property
    def python(self) -> Any:
        """Type of the keyword in Python signatures."""
        return int | str | None if self.or_max else int | None

    def read(self, flag: str, value: object) -> int | str:
        """The number. Raises InvalidConfig."""
        number: Any = value
        if isinstance(value, str):
            if self.or_max and value.strip().lower() == "max":
                return "max"
            try:
                number = int(value)
            except ValueError:
                raise InvalidConfig([f"{flag} {value!r} {self._not_whole(value)}"]) from None
        elif not _is_whole(value):
            raise InvalidConfig([f"{flag} must be a whole number, not {value!r}"])
        number = int(number)
        if self.most is not None and not (self.least or 0) <= number <= self.most:
            raise InvalidConfig([f"{flag} must be {self.least} to {self.most:,}, not {number}"])
        if self.least is not None and number < self.least:
            raise InvalidConfig([f"{flag} must be at least {self.least}, not {number}"])
        return int(number)

    def _not_whole(self, text: str) -> str:
        meant = whole_meant(text, binary=self.binary)
        near = f": did you mean {meant}?" if meant else ""
        return (
            "is neither a whole number nor 'max'" if self.or_max else "is not a whole number"
        ) + near


@dataclass(frozen=True, eq=False)
class Number:
    """A finite number of at least ``least``; ``counts``: also as text such as 300B or 15T."""

    least: float | None = None
    counts: bool = False
    metavar: str = "X"
    control: ClassVar[str] = "number"
    python: ClassVar[Any] = float | str | None

    def read(self, flag: str, value: object) -> float:
        """The number. Raises InvalidConfig."""
        plain, size = value, 1.0
        if self.counts and isinstance(value, str):
            plain = value.strip().replace("_", "").replace(",", "")
            size = DECIMAL.get(plain[-1:].upper(), 1.0)
            plain = plain if size == 1.0 else plain[:-1]
        try:
            if isinstance(value, bool):
                raise ValueError
            number = float(plain) * size  # type: ignore[arg-type]
        except (TypeError, ValueError, OverflowError):
            such_as = ", such as 1e12, 300B or 15T" if self.counts else ""
            raise InvalidConfig([f"{flag} {value!r} is not a number{such_as}"]) from None
        if self.least is not None and not (math.isfinite(number) and number >= self.least):
            least = f"{self.least:g}"
            raise InvalidConfig([f"{flag} must be a number of at least {least}, not {value}"])
        if not math.isfinite(number):
            raise InvalidConfig([f"{flag} must be finite, not {value}"])
        return number


@dataclass(frozen=True, eq=False)
class Switch:
    """On or off; True or False in Python."""

    control: ClassVar[str] = "select"
    metavar: ClassVar[str] = "on|off"
    python: ClassVar[Any] = bool | str | None
    names: ClassVar[Names] = tuple(SWITCH)

    def read(self, flag: str, value: object) -> bool:
        """Whether the switch is on. Raises UnknownName, InvalidConfig."""
        if isinstance(value, str):
            if value not in SWITCH:
                raise UnknownName(flag.lstrip("-"), value, list(SWITCH))
            return SWITCH[value]
        try:
            good = bool(value in (True, False))  # numpy's too
        except ValueError:
            good = False
        if not good:
            raise InvalidConfig([f"{flag} must be True or False, not {value!r}"])
        return bool(value)


@dataclass(frozen=True, eq=False)
class Text:
    """Text with its own grammar, which ``check`` validates and the engine parses.

    check      ``module:function`` that raises UsageError for wrong text
    names      names that shell completion and the web page suggest
    for_true   texts that correspond to False and True, for options that are a switch in other
               programs: the error message suggests one
    """

    check: str = ""
    names: Names = ()
    metavar: str = "TEXT"
    for_true: tuple[str, str] | None = None
    control: ClassVar[str] = "text"
    python: ClassVar[Any] = str | None

    def read(self, flag: str, value: object) -> str:
        """The text, unchanged. Raises InvalidConfig."""
        return _text(flag, value, self.for_true)

    def judge(self, text: str) -> None:
        """Raise UsageError where the text is wrong."""
        if self.check:
            looked_up(self.check)(text)


@dataclass(frozen=True, eq=False)
class Name:
    """One of several names.

    also     synonyms: a mapping from them to names, or ``module:NAME`` of such a mapping
    not_all  names that ``all`` in a sweep does not include
    judged   whether the engine, not ``read``, refuses unknown names
    """

    names: Names = ()
    also: Mapping[str, str] | str = ""
    not_all: tuple[str, ...] = ()
    judged: bool = False
    metavar: str = "NAME"
    for_true: tuple[str, str] | None = None
    control: ClassVar[str] = "select"
    python: ClassVar[Any] = str | None

    @property
    def others(self) -> Mapping[str, str]:
        """Synonyms, to the names that they stand for."""
        if isinstance(self.also, str):
            return looked_up(self.also) if self.also else {}
        return self.also

    def read(self, flag: str, value: object) -> str:
        """The name. Raises UnknownName that suggests the nearest, InvalidConfig."""
        text = _text(flag, value, self.for_true)
        return text if self.judged else self.known(flag, text)

    def known(self, flag: str, text: str) -> str:
        """The name that ``text`` stands for. Raises UnknownName that suggests the nearest."""
        known = {**self.others, **{folded(n): n for n in names_of(self.names)}}
        if (found := known.get(folded(text))) is None:
            raise UnknownName(flag.lstrip("-"), text, names_of(self.names))
        return found


@dataclass(frozen=True, eq=False)
class NameList:
    """Several names, joined by commas; ``judged`` as in ``Name``."""

    names: Names = ()
    judged: bool = False
    metavar: str = "LIST"
    control: ClassVar[str] = "text"
    python: ClassVar[Any] = str | None

    def read(self, flag: str, value: object) -> str:
        """The names, joined by commas. Raises UnknownName that suggests the nearest, or
        InvalidConfig.
        """
        text = _text(flag, value)
        if self.judged:
            return text
        one = Name(self.names)
        return ",".join(one.known(flag, part) for part in text.split(",") if part.strip())


@dataclass(frozen=True, eq=False)
class File:
    """A path of a file, or one of ``names``, which stand for files of the package."""

    names: Names = ()
    metavar: str = "FILE"
    control: ClassVar[str] = "select"
    python: ClassVar[Any] = str | Path | None

    def read(self, flag: str, value: object) -> str:
        """The path or name, as text. Raises InvalidConfig."""
        return _text(flag, fspath(value) if isinstance(value, PathLike) else value)


@dataclass(frozen=True, eq=False)
class Texts:
    """Several texts, for a flag that is repeated; ``such_as`` is an example of one text."""

    such_as: str = ""
    metavar: str = "TEXT"
    control: ClassVar[str] = ""
    python: ClassVar[Any] = Sequence[str] | str | None

    def read(self, flag: str, value: object) -> Any:
        """The texts as they were given. Raises InvalidConfig."""
        if isinstance(value, str):
            return value
        if isinstance(value, Sequence) and all(isinstance(v, str) for v in value):
            return value
        raise InvalidConfig(
            [f"{flag} must be a list of texts such as {self.such_as}, not {value!r}"]
        )


class Pairing(dict[str, Any]):
    """A hashable mapping, for keys of caches; it must not be changed once it is read."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self.items()))


@dataclass(frozen=True, eq=False)
class Pairs:
    """Pairs ``KEY=VALUE``, for a flag that is repeated, or a mapping in Python.

    keys      the valid keys; empty: any key
    such_as   an example of a pair
    """

    keys: Names = ()
    such_as: str = "layers=16"
    metavar: str = "KEY=VALUE"
    control: ClassVar[str] = "text"
    python: ClassVar[Any] = Mapping[str, Any] | Sequence[str] | str | None

    def read(self, flag: str, value: object) -> Pairing:
        """The pairs as a mapping, where values given as text stay text.

        Raises InvalidConfig that lists every mistake.
        """
        if isinstance(value, str):
            value = value.split()
        problems: list[str] = []
        found = Pairing()
        if isinstance(value, Mapping):
            found.update({str(k).replace("-", "_"): v for k, v in value.items()})
            problems += [
                f"{flag}: {k} must be text, a number or true or false, not {v!r:.60}"
                for k, v in found.items()
                if not isinstance(v, str | int | float | None)
            ]
        elif isinstance(value, Sequence) and all(isinstance(v, str) for v in value):
            pairs, problems = read_pairs(flag, value, self.such_as)
            found.update(pairs)
        else:
            problems.append(f"{flag} must be pairs such as {self.such_as}, not {value!r}")
        if self.keys:
            known = names_of(self.keys)
            for key in found:
                if key not in known:
                    problems.append(f"{flag}: {UnknownName('key', key, known)}")
        if problems:
            raise InvalidConfig(problems)
        return found


@dataclass(frozen=True, eq=False)
class Made:
    """A Python object, which cannot be typed on a command line.

    type_     its class as ``module:Class``
    made_by   name of the function that makes one
    """

    type_: str
    made_by: str
    metavar: ClassVar[str] = ""
    control: ClassVar[str] = ""

    @property
    def python(self) -> Any:
        """Type of the keyword in Python signatures, as text."""
        return f"{self.type_.partition(':')[2]} | None"

    def read(self, flag: str, value: object) -> Any:
        """The value, unchanged. Raises InvalidConfig for an object of another class."""
        if not isinstance(value, looked_up(self.type_)):
            raise InvalidConfig([f"{flag} must be a result of {self.made_by}, not {value!r}"])
        return value


Kind = Whole | Number | Switch | Text | Name | NameList | File | Texts | Pairs | Made


def _text(flag: str, value: object, for_true: tuple[str, str] | None = None) -> str:
    if isinstance(value, str):
        return value
    hint = ""
    if isinstance(value, bool) and for_true:
        hint = f" ({for_true[value]!r})"
    elif isinstance(value, list | tuple) and value and all(isinstance(v, str) for v in value):
        hint = f" ({','.join(value)!r})"
    raise InvalidConfig([f"{flag} must be text{hint}, not {value!r}"])


def _is_whole(value: Any) -> bool:
    try:
        return bool(value == int(value)) and not isinstance(value, bool)
    except (TypeError, ValueError, OverflowError):
        return False
