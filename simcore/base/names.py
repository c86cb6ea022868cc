"""Families of names, and their order by size."""

from __future__ import annotations

import re
from collections.abc import Iterable

#: Matches the words and whole numbers of a name.
_PARTS = re.compile(r"\d+|[^\W\d_]+")
#: Matches the words, numbers and sizes of a name. A size is a number with m, b or t that no letter
#: follows.
_SORTED = re.compile(r"(\d+(?:\.\d+)?)([mbt])(?![a-z])|(\d+(?:\.\d+)?)|([^\W\d_]+)")
_BILLIONS = {"m": 1e-3, "b": 1.0, "t": 1e3}


def family(name: str, known: Iterable[str]) -> list[str]:
    """The known names that begin with all words and numbers of ``name``, in order of size.

    ``llama3`` begins ``llama3-8b`` and ``llama3.1-405b``; ``bert-bas`` begins none, since whole
    words must match.
    """
    wanted = _PARTS.findall(name.lower())
    if not wanted:
        return []
    found = {k for k in known if _PARTS.findall(k.lower())[: len(wanted)] == wanted}
    return sorted(found, key=by_size)


def has(name: str, part: str) -> bool:
    """Whether ``name`` contains all words and numbers of ``part``, one right after the other."""
    wanted, parts = _PARTS.findall(part.lower()), _PARTS.findall(name.lower())
    n = len(wanted)
    return bool(n) and any(parts[i : i + n] == wanted for i in range(len(parts) - n + 1))


def by_size(name: str) -> tuple[tuple[int, float, str], ...]:
    """Sort key of a name: sizes (125m before 1.3b) before numbers (2 before 10) before words."""
    return tuple(
        (0, float(size) * _BILLIONS[unit], "") if size else
        (1, float(number), "") if number else (2, 0.0, word)
        for size, unit, number, word in _SORTED.findall(name.lower())
    )  # fmt: skip
