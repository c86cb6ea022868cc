"""Patterns of layers: a letter for each layer of a model, from the keys of its config."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from simcore.workload.huggingface.expressions import FORMS, Expression, Translation
from simcore.workload.huggingface.records import table


@FORMS.register("pattern")
def _pattern(t: Translation, alternatives: list[Any], x: Expression) -> str:
    """The letters of a model's layers, by the first of ``alternatives`` that a config has.

    A text is repeated over the layers. The result is the shortest pattern whose repetition gives
    the letters; with ``exactly``, it is all letters, which must be as many as layers.
    """
    n: int = t.named("layers")
    found = (a if isinstance(a, str) else _KINDS[next(iter(a))](t, a, n) for a in alternatives)
    letters = next(filter(None, found))
    if not x.get("exactly"):
        return shortest((letters * n)[:n])
    if len(letters) != n:
        key = _key(t, alternatives[0]["words"])
        raise t.fields.error(key, f"{len(letters)} entries for {n} layers")
    return letters


@FORMS.register("letters")
def _letters(t: Translation, operand: Any, x: Expression) -> str:
    count = t.named("layers")
    letters = (t.value(operand) * count)[:count]
    return shortest("".join(x["are"][letter] for letter in letters))


def shortest(pattern: str) -> str:
    """The shortest prefix of ``pattern`` whose repetition gives ``pattern``."""
    n = len(pattern)
    for length in range(1, n):
        if (pattern[:length] * n)[:n] == pattern:
            return pattern[:length]
    return pattern


def letters_of(t: Translation, key: str, among: Mapping[str, str]) -> str:
    """The letters for a list of words. Raises DataError for other words."""
    words = t.fields.words(key)
    for word in words:
        if word not in among:
            raise t.fields.error(key, f"{word!r:.40} is none of {', '.join(among)}")
    return "".join(among[word] for word in words)


def _key(t: Translation, keys: str | list[str]) -> str:
    """The key that is given, of several."""
    several = [keys] if isinstance(keys, str) else keys
    return next((k for k in several if t.fields.has(k)), several[0])


def _long_enough(t: Translation, key: str, listed: int, n: int) -> None:
    if 0 < listed < n:
        raise t.fields.error(key, f"{listed} entries for {n} layers")


def _words(t: Translation, x: Expression, n: int) -> str:
    """``are``: the letter for each word of a list."""
    key = _key(t, x["words"])
    letters = letters_of(t, key, table(x["are"]))
    _long_enough(t, key, len(letters), n)
    return letters


def _flags(t: Translation, x: Expression, n: int) -> str:
    """``at``: letter of the layers for which a list has no 0."""
    flags = t.fields.counts(x["flags"])
    _long_enough(t, x["flags"], len(flags), n)
    return "".join(x["at"] if flag else x["others"] for flag in flags)


def _places(t: Translation, x: Expression, n: int) -> str:
    """``at``: letter of the layers that a list names, counted from ``from`` (0)."""
    places = t.fields.counts(x["places"])
    first = x.get("from", 0)
    return "".join(x["at"] if i + first in places else x["others"] for i in range(n)) * bool(places)


def _period(t: Translation, x: Expression, n: int) -> str:
    """``at``: letter of one layer in each period, by default the last one.

    ``start``: the first layer that can have it; ``never_at``: key of layers that do not have it.
    """
    period = t.value(x["period"])
    offset = t.value(x["offset"]) if "offset" in x else period - 1
    never = t.fields.counts(x["never_at"]) if "never_at" in x else ()
    places = {i for i in range(x.get("start", 0), n) if i % period == offset} - set(never)
    return "".join(x["at"] if i in places else x["others"] for i in range(n))


def _first(t: Translation, x: Expression, n: int) -> str:
    """``at``: letter of the first layers."""
    count = min(t.value(x["first"]), n)
    return x["at"] * count + x["others"] * (n - count)


def _runs(t: Translation, x: Expression, n: int) -> str:
    """Letters of runs of layers such as ``[[["global", "local"], 12]]``. Raises DataError."""
    listed = t.fields.value(x["runs"]) or []
    try:
        return "".join("".join(x["are"][kind] for kind in kinds) * times for kinds, times in listed)
    except (KeyError, TypeError, ValueError):
        raise t.fields.error(
            x["runs"], f"{str(listed)[:60]} is no list such as [[['global', 'local'], {n}]]"
        ) from None


#: Ways to give letters to layers, by the first key.
_KINDS: Mapping[str, Callable[[Translation, Expression, int], str]] = {
    "words": _words, "flags": _flags, "places": _places, "period": _period, "first": _first,
    "runs": _runs,
}  # fmt: skip
