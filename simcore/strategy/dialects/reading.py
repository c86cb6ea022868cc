"""What a dialect collects while it reads: options, problems, and how each key is treated."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from pathlib import PurePath
from typing import Any

from simcore.base.errors import did_you_mean, nearest
from simcore.strategy.dialects.base import Launch, Unsupported, Word, joined
from simcore.strategy.dialects.record import FALSE, TRUE, Meaning, fold
from simcore.strategy.dialects.source import Source
from simcore.strategy.layout import parse_overlap
from simcore.strategy.options import OPTIONS, Number, Switch, Whole
from simcore.strategy.strategy import Offload, parse_offload

_SWITCH = {"true", "false"}
NOT_YET = "is not supported yet"
#: What is stated that is no option of the table: sizes, the model, settings of it, other facts.
NO_OPTIONS = ("global_batch", "n_gpus", "model", "set", "other")
#: Options of several parts, each of which a key may state: ``offload.params``, ``overlap.grads``.
_OF_PARTS: Mapping[str, Callable[[str], object]] = {
    "offload": parse_offload,
    "overlap": parse_overlap,
}


def places_of(offload: Offload) -> dict[str, str]:
    """The parts that are offloaded, and where to."""
    places = {f.name: getattr(offload, f.name) for f in fields(offload)}
    return {part: where for part, where in places.items() if where not in ("none", 0)}


class Reading:
    """The notes of one reading; ``finish`` turns them into a frozen ``Launch``.

    ``facts``: options, and parts of options, and the values that are stated for them so far;
    ``more``: fields of the result that are no options; ``inner``: a file that this one names.
    """

    def __init__(self, dialect: str, source: Source) -> None:
        self.dialect, self.source, self.where = dialect, source, source.where
        self.facts: dict[str, Word] = {}
        self.more: dict[str, Any] = {}
        self.inner: Launch | None = None
        self._launched = False
        self._keys: dict[str, str] = {}
        self._unsupported: list[Unsupported] = []
        self._approximated: list[str] = []
        self._unknown: list[str] = []
        self._ignored: list[str] = []

    def say(self, option: str, value: Word | None, key: str) -> None:
        """State the value of an option or of a part of one, and the key that it was read from."""
        whole = option.partition(".")[0]
        assert whole in OPTIONS.in_launch() or whole in NO_OPTIONS, option
        if value is None:
            return
        self.facts[option] = value
        self._keys[option] = key
        if option == "offload":  # beside parts that other keys state
            for part, where in places_of(parse_offload(str(value))).items():
                self.facts[f"offload.{part}"], self._keys[f"offload.{part}"] = where, key
        if whole in _OF_PARTS and (whole != option or option == "offload"):
            parts = {o.partition(".")[2]: v for o, v in self.facts.items()
                     if o.startswith(f"{whole}.") and v not in (False, "none")}  # fmt: skip
            text = ",".join(p if v is True else f"{p}:{v}" for p, v in parts.items())
            self.facts[whole] = str(_OF_PARTS[whole](text or "none"))
            self._keys[whole] = ", ".join(self._keys[f"{whole}.{p}"] for p in parts) or key

    def said(self, option: str) -> Word | None:
        """The value stated for an option so far; None where there is none."""
        return self.facts.get(option)

    def key_of(self, option: str) -> str:
        """The key that stated an option; "" where none did."""
        return self._keys.get(option, "")

    def within(self, launch: Launch) -> None:
        """Read as part of another launch, whose options this one replaces and may depend on."""
        self.inner = launch if self.inner is None else joined(launch, self.inner)
        self._launched = True

    @property
    def context(self) -> Mapping[str, Word]:
        """What is stated so far, and what the launch states of which this is a part."""
        if self.inner is None or not self._launched:
            return self.facts
        others = {f"other.{k}": v for k, v in self.inner.other.items()}
        return {**self.inner.words(), **others, **self.facts}

    def alone(self, option: str, value: Word, key: str) -> Word | None:
        """The value, unless another key states another one, which is an error."""
        before = self.facts.get(option)
        if before is None or before == value:
            return None if self.refuses(option) else value
        self.refuse(f"{self._keys[option]} and {key}", "are both on", option)
        del self.facts[option], self._keys[option]
        return None

    def take_back(self, option: str, why: str) -> None:
        """Refuse the key that stated an option which the program does not have beside others."""
        value, key = self.facts.pop(option), self._keys[option]
        for part in [o for o in self.facts if o.startswith(f"{option}.")]:
            del self.facts[part]
        self.refuse(f"{key} = {value!r}" if "." in option else key, why, option)
        if "." in option:
            self.say(option, "none", self._keys[option])

    def refuses(self, option: str) -> bool:
        """Whether a key was refused that the option can replace."""
        return any(u.word == option for u in self._unsupported)

    def refuse(self, key: str, why: str, word: str | None = None) -> None:
        """Record a key that matters but cannot be used; option ``word`` can replace it."""
        word = word.partition(".")[0] if word else None
        word = word if word in OPTIONS else None
        hint = f": give {OPTIONS[word].typed}" if word else ""
        self._unsupported.append(Unsupported(f"{self.where}: {key} {why}{hint}", word))

    def approximate(self, key: str, how: str) -> None:
        """Record a key that is followed only in part; ``how`` says what is predicted instead."""
        self._approximated.append(f"{self.where}: {key} {how}")

    def ignore(self, key: str) -> None:
        """Record a known key that has no effect on the prediction."""
        if key not in self._ignored:
            self._ignored.append(key)

    def not_known(self, key: str, known: Iterable[str]) -> None:
        """Record a key that the dialect does not know."""
        hint = did_you_mean(key, sorted(set(known)))
        self._unknown.append(f"{self.where}: unknown key {key!r}{hint}")

    def not_at_hand(self, name: str, program: str, known: Sequence[str] = ()) -> None:
        """Record a file that comes with the program and is not in reach; ``known``: those that
        are.
        """
        self.more["absent_files"] = (*self.more.get("absent_files", ()), name)
        alike = nearest(name, known, 1) if known else []
        meant = f" (did you mean {alike[0]!r}?)" if alike else ""
        self._unknown.append(f"{self.where}: {name} of {program} is not at hand{meant}: what it "
                             "states is not known, give the file or the options")  # fmt: skip

    def not_understood(self, keys: str) -> None:
        """Record keys of the training script that may matter."""
        self._unknown.append(f"{self.where}: {keys}: not understood, and without effect here")

    def meant(self, key: str, meaning: Meaning, value: object) -> Word | None:
        """The option's value that a key's value means; None for none, or wrong (recorded)."""
        if fold(value) in FALSE and meaning.values and not {*FALSE} & {*map(fold, meaning.values)}:
            return None  # a switch left off
        last = PurePath(str(value)).name  # of a folder that is called as a model is
        if meaning.option == "model" and fold(last) in map(fold, meaning.values):
            value = last
        named = set(meaning.values)
        switch = meaning.read == "flag" or (bool(named) and named <= _SWITCH)
        found: Any = self.flag(key, value) if switch else value
        if meaning.read == "whole":
            found = self.whole(key, value, least=0)
            if found is None:
                return None
        if meaning.values and (meaning.read != "free" or fold(value) in map(fold, meaning.values)):
            if found is False and "false" not in meaning.values:
                return None
            return self.choose(key, found, meaning.values, meaning.instead or meaning.option,
                               meaning.unsupported or NOT_YET, meaning.otherwise)  # fmt: skip
        if meaning.read in ("degree", "count"):
            number = self.whole(key, value, least=None if meaning.read == "degree" else -1)
            return number if number and number > (meaning.read == "degree") else None
        if meaning.read == "positive":
            norm = self.number(key, value)
            return None if norm is None else norm > 0
        if switch:
            return None if found is None else bool(found)
        return self.value(key, value, meaning.option)

    def value(self, key: str, value: object, option: str) -> Word | None:
        """The value of an option that a file states in simcore's form, parsed by its kind."""
        if option.partition(".")[0] in NO_OPTIONS:
            number = math.nan if isinstance(value, bool) or option == "model" else _number(value)
            whole = option in ("global_batch", "n_gpus")
            plain = value if isinstance(value, bool) else str(value)
            return self.whole(key, value) if whole else plain if math.isnan(number) else number
        kind = OPTIONS[option].kind
        if isinstance(kind, Whole):
            return self.whole(key, value, least=kind.least)
        if isinstance(kind, Switch):
            return self.flag(key, value)
        if isinstance(kind, Number):
            return self.number(key, value)
        return None if value is None else str(value)

    def whole(self, key: str, value: object, *, least: int | None = 1) -> int | None:
        """``value`` as a whole number; it may be text, or ``5e8``. None if absent or wrong."""
        if value is None:
            return None
        number = _number(value)
        if not math.isfinite(number) or number != int(number):
            self.refuse(f"{key} = {short(value)}", "is not a whole number")
        elif least is not None and number < least:
            self.refuse(f"{key} = {short(value)}", f"must be at least {least}")
        else:
            return int(number)
        return None

    def flag(self, key: str, value: object) -> bool | None:
        """``value`` as True or False; it may be text. None if absent, or wrong (recorded)."""
        if value is None or isinstance(value, bool):
            return value
        if fold(value) in TRUE:
            return True
        if fold(value) in FALSE:
            return False
        self.refuse(f"{key} = {short(value)}", "is neither true nor false")
        return None

    def number(self, key: str, value: object) -> float | None:
        """``value`` as a number. None if absent, or wrong (recorded)."""
        number = _number(value)
        if value is not None and math.isnan(number):
            self.refuse(f"{key} = {short(value)}", "is not a number")
        return None if math.isnan(number) else float(number)

    def choose(
        self, key: str, value: object, choices: Mapping[str, Word | None], word: str,
        unsupported: str = NOT_YET, otherwise: str = "",
    ) -> Word | None:  # fmt: skip
        """The meaning of a value by ``choices``, where None marks a value that is not supported."""
        if value is None:
            return None
        folded = {fold(said): meant for said, meant in choices.items()}
        known = fold(value) in folded
        shown = key if isinstance(value, bool) else stated(key, value)
        if known and (meaning := folded[fold(value)]) is not None:
            return meaning
        if known or otherwise:
            self.refuse(shown, unsupported if known else otherwise, word)
            return None
        hint = did_you_mean(fold(value), folded, f": known are {', '.join(folded)}")
        text = f"{self.where}: {key} = {short(value)} is unknown{hint}"
        self._unsupported.append(Unsupported(text, word.partition(".")[0]))
        return None

    def finish(self) -> Launch:
        """The result."""
        launch = Launch(
            dialect=self.dialect,
            where=self.where,
            **{option: value for option, value in self.facts.items() if "." not in option},
            **self.more,
            settings=self._below("set."),
            other=self._below("other."),
            keys={option: key for option, key in self._keys.items() if "." not in option},
            unsupported=tuple(dict.fromkeys(self._unsupported)),
            approximated=tuple(dict.fromkeys(self._approximated)),
            unknown=tuple(dict.fromkeys(self._unknown)),
            ignored=tuple(self._ignored),
        )
        return launch if self.inner is None else joined(launch, self.inner)

    def _below(self, prefix: str) -> dict[str, Word]:
        return {k.removeprefix(prefix): v for k, v in self.facts.items() if k.startswith(prefix)}


class Table:
    """A nested table whose keys are taken by dotted path; keys never taken are left over.

    ``given``: every key and its value; ``prefix``: what messages write before a key; ``spelt``:
    how they write single keys.
    """

    def __init__(
        self, data: Mapping[str, Any], prefix: str = "", spelt: Mapping[str, str] | None = None
    ) -> None:
        self.given, self._prefix, self._spelt = dict(flat(data)), prefix, spelt or {}
        self._left = dict(self.given)
        self._known: set[str] = set()

    def shown(self, key: str) -> str:
        """A key as messages write it."""
        return self._spelt.get(key, self._prefix + key)

    def take(self, key: str) -> Any:
        """The value of a key, or None where it is absent; the key counts as read."""
        self._known.add(key)
        return self._left.pop(key, None)

    def first(self, *keys: str, otherwise: Any = None) -> tuple[str, Any]:
        """The first key that exists, with its value; else the first key and ``otherwise``."""
        self._known |= set(keys)
        key = next((k for k in keys if self._left.get(k) is not None), keys[0])
        value = self.take(key)
        return key, otherwise if value is None else value

    def drop(self, section: str, but: Collection[str] = ()) -> dict[str, Any]:
        """Take a section with all keys below it, except ``but``; returns those with values."""
        inside = [k for k in self._left if k == section or k.startswith(f"{section}.")]
        values = {k: self._left.pop(k) for k in inside if k not in but}
        return {k: value for k, value in values.items() if value is not None}

    def take_section(self, key: str, but: Collection[str] = ()) -> bool | None:
        """Whether a section is there and not switched off; None where it is absent.

        Its keys count as read, except those in ``but``.
        """
        if not self.has(key):
            return None
        own = self.drop(key, but)
        return not any(own.get(f"{key}.{switch}") is False for switch in ("enabled", "enable"))

    def has(self, key: str) -> bool:
        """Whether the key, or one below it, exists."""
        return key in self.given or any(k.startswith(f"{key}.") for k in self.given)

    def put(self, key: str, value: Any, spelt: str = "") -> None:
        """Give a key another value; ``spelt``: how messages write it."""
        self.given[key] = self._left[key] = value
        if spelt:
            self._spelt = {**self._spelt, key: spelt}

    def left(
        self, reading: Reading, plain: Collection[str], sections: Collection[str]
    ) -> list[str]:
        """Keys that were not taken and are not known to be without effect; those are recorded."""
        odd = []
        for key in self._left:
            section = next((s for s in sections if key == s or key.startswith(f"{s}.")), None)
            if section is not None or key in plain or self._is_known(key, plain):
                reading.ignore(self.shown(key))
            else:
                odd.append(key)
        return odd

    def _is_known(self, key: str, plain: Collection[str]) -> bool:
        """Whether a key was asked for, or is a section of such keys that has none."""
        empty = self._left[key] is None
        return key in self._known or (
            empty and any(k.startswith(f"{key}.") for k in (*self._known, *plain))
        )

    def leftovers(
        self, reading: Reading, ignored: Collection[str], sections: Collection[str] = ()
    ) -> None:
        """Record all keys that were not taken as ignored (by key or whole section) or unknown."""
        for key in self._left:
            section = next((s for s in sections if key == s or key.startswith(f"{s}.")), None)
            if section is not None:
                reading.ignore(section)
            elif key in ignored or self._is_known(key, ignored):
                reading.ignore(self.shown(key))
            else:
                every = (*ignored, *self._known, *sections)
                reading.not_known(self.shown(key), map(self.shown, every))


def flat(data: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every key of a nested table by dotted path, with its value."""
    for key, value in data.items():
        if isinstance(value, dict) and value:
            yield from flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value if value != {} else None


def _number(value: object) -> int | float:
    """The number that a value is, or is the text of; NaN for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return math.nan
    digits = str(value).strip().lstrip("+-").replace("_", "")
    try:
        return int(value) if digits.isdigit() and len(digits) < 20 else float(value)
    except (ValueError, OverflowError):
        return math.nan


def stated(key: str, value: object) -> str:
    """A key and its value as messages write them: ``--optim sgd``, ``optimizer.name = 'SGD'``."""
    return f"{key} {value}" if key.startswith("-") else f"{key} = {short(value)}"


def short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "..."
