"""What a dialect collects while it reads: options, problems, and how each key is treated."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from simcore.base.errors import nearest
from simcore.strategy.dialects.base import Launch, Unsupported, Word
from simcore.strategy.dialects.source import Source
from simcore.strategy.options import OPTIONS, Number, Switch, Whole

_TRUE, _FALSE = ("true", "yes", "on", "1"), ("false", "no", "off", "0")
NOT_YET = "is not supported yet"


class Reading:
    """The notes of one reading; ``finish`` turns them into a frozen ``Launch``."""

    def __init__(self, dialect: str, source: Source) -> None:
        self.dialect, self.where = dialect, source.where
        self._words: dict[str, Word] = {}
        self._keys: dict[str, str] = {}
        self._unsupported: list[Unsupported] = []
        self._approximated: list[str] = []
        self._unknown: list[str] = []
        self._ignored: list[str] = []

    def say(self, word: str, value: Word | None, key: str) -> None:
        """State the value of an option, and the key that it was read from."""
        assert word in OPTIONS.in_launch() or word in ("global_batch", "n_gpus"), word
        if value is not None:
            self._words[word] = value
            self._keys[word] = key

    def said(self, word: str) -> Word | None:
        """The value stated for an option so far; None where there is none."""
        return self._words.get(word)

    def option(self, key: str, value: object, word: str) -> None:
        """State an option whose value in the file has simcore's form; it is parsed by its kind."""
        kind = OPTIONS[word].kind
        if isinstance(kind, Whole):
            self.say(word, self.whole(key, value, least=kind.least), key)
        elif isinstance(kind, Switch):
            self.say(word, self.flag(key, value), key)
        elif isinstance(kind, Number):
            self.say(word, self.number(key, value), key)
        elif value is not None:
            self.say(word, str(value), key)

    def refuse(self, key: str, why: str, word: str | None = None) -> None:
        """Record a key that matters but cannot be used; option ``word`` can replace it."""
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
        near = nearest(key, sorted(set(known)), 1)
        hint = f": did you mean {near[0]!r}?" if near else ""
        self._unknown.append(f"{self.where}: unknown key {key!r}{hint}")

    def degree(self, key: str, value: object, word: str) -> None:
        """State a degree of parallelism; 1 and less (e.g. -1 for all remaining) state nothing."""
        n = self.whole(key, value, least=None)
        if n is not None and n > 1:
            self.say(word, n, key)

    def no_degree(self, key: str, value: object, what: str) -> None:
        """Refuse a degree above 1 of a parallelism that simcore does not have."""
        n = self.whole(key, value, least=None)
        if n is not None and n > 1:
            self.refuse(f"{key} = {n}:", f"{what} {NOT_YET}")

    def whole(self, key: str, value: object, *, least: int | None = 1) -> int | None:
        """``value`` as a whole number; it may be text, or ``5e8``. None if absent or wrong."""
        if value is None:
            return None
        number: float | int
        try:
            if isinstance(value, bool) or not isinstance(value, (int, float, str)):
                raise ValueError
            number = (
                int(value) if isinstance(value, (int, str)) and _digits(value) else float(value)
            )
            if number != int(number):
                raise ValueError
        except (ValueError, OverflowError):
            self.refuse(f"{key} = {_short(value)}", "is not a whole number")
            return None
        if least is not None and number < least:
            self.refuse(f"{key} = {_short(value)}", f"must be at least {least}")
            return None
        return int(number)

    def flag(self, key: str, value: object) -> bool | None:
        """``value`` as True or False; it may be text. None if absent, or wrong (recorded)."""
        if value is None or isinstance(value, bool):
            return value
        folded = str(value).strip().lower()
        if folded in _TRUE:
            return True
        if folded in _FALSE:
            return False
        self.refuse(f"{key} = {_short(value)}", "is neither true nor false")
        return None

    def number(self, key: str, value: object) -> float | None:
        """``value`` as a number. None if absent, or wrong (recorded)."""
        if value is None:
            return None
        try:
            if isinstance(value, bool) or not isinstance(value, (int, float, str)):
                raise ValueError
            return float(value)
        except (ValueError, OverflowError):
            self.refuse(f"{key} = {_short(value)}", "is not a number")
            return None

    def choose(
        self, key: str, value: object, choices: Mapping[str, str | None], word: str
    ) -> str | None:
        """The meaning of a value by ``choices``, where None marks a value that is not supported."""
        if value is None:
            return None
        folded = str(value).strip().lower()
        if folded in choices:
            meaning = choices[folded]
            if meaning is None:
                self.refuse(f"{key} = {_short(value)}", NOT_YET, word)
            return meaning
        near = nearest(folded, list(choices), 1)
        hint = f": did you mean {near[0]!r}?" if near else f": known are {', '.join(choices)}"
        self._unsupported.append(
            Unsupported(f"{self.where}: {key} = {_short(value)} is unknown{hint}", word)
        )
        return None

    def finish(self, **more: Any) -> Launch:
        """The result."""
        return Launch(
            dialect=self.dialect,
            where=self.where,
            **self._words,
            **more,
            keys=dict(self._keys),
            unsupported=tuple(dict.fromkeys(self._unsupported)),
            approximated=tuple(dict.fromkeys(self._approximated)),
            unknown=tuple(dict.fromkeys(self._unknown)),
            ignored=tuple(self._ignored),
        )


class Table:
    """A nested table whose keys are taken by dotted path; keys never taken are left over."""

    def __init__(self, data: Mapping[str, Any]) -> None:
        self._flat = dict(_flat(data))

    def take(self, key: str) -> Any:
        """The value of a key, or None where it is absent; the key counts as read."""
        return self._flat.pop(key, None)

    def has(self, key: str) -> bool:
        """Whether the key, or one below it, exists and was not taken."""
        return key in self._flat or any(k.startswith(key + ".") for k in self._flat)

    def below(self, key: str) -> list[str]:
        """Keys below a section that were not taken."""
        return [k for k in self._flat if k.startswith(key + ".")]

    def leftovers(
        self,
        reading: Reading,
        ignored: Collection[str],
        known: Collection[str],
        sections: Collection[str] = (),
    ) -> None:
        """Record all keys that were not taken as ignored (by key or whole section) or unknown."""
        for key in self._flat:
            section = next((s for s in sections if key == s or key.startswith(s + ".")), None)
            if section is not None:
                reading.ignore(section)
            elif key in ignored:
                reading.ignore(key)
            else:
                reading.not_known(key, (*ignored, *known, *sections))


def _flat(data: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in data.items():
        if isinstance(value, dict) and value:
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value if value != {} else None


def _digits(value: int | str) -> bool:
    if isinstance(value, int):
        return True
    text = value.strip().lstrip("+-").replace("_", "")
    return text.isdigit() and len(text) < 20


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "..."
