"""Texts: names and their order by size, paths, ``KEY=VALUE`` pairs, tables of spreadsheets."""

from __future__ import annotations

import codecs
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

#: Matches the words and whole numbers of a name.
_PARTS = re.compile(r"\d+|[^\W\d_]+")
#: Matches the words, numbers and sizes of a name. A size is a number with m, b or t that no letter
#: follows.
_SORTED = re.compile(r"(\d+(?:\.\d+)?)([mbt])(?![a-z])|(\d+(?:\.\d+)?)|([^\W\d_]+)")
_BILLIONS = {"m": 1e-3, "b": 1.0, "t": 1e3}


class Changed(str):
    """A sentence about a job that is predicted otherwise than it was given, or that a program would
    refuse: a warning, not an assumption.
    """

    __slots__ = ()


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


def path_of(text: str) -> Path:
    """The path that a text names: ``~`` is the home folder, ``~nobody`` a name like others."""
    return Path(os.path.expanduser(text))  # noqa: PTH111  (Path.expanduser raises RuntimeError)


def by_size(name: str) -> tuple[tuple[int, float, str], ...]:
    """Sort key of a name: sizes (125m before 1.3b) before numbers (2 before 10) before words."""
    return tuple(
        (0, float(size) * _BILLIONS[unit], "") if size else
        (1, float(number), "") if number else (2, 0.0, word)
        for size, unit, number, word in _SORTED.findall(name.lower())
    )  # fmt: skip


#: What separates pairs: blanks, or a comma before a key and its equals sign.
_BETWEEN_PAIRS: Final = re.compile(r"\s+|,(?=[A-Za-z][\w-]*=)")


def read_pairs(flag: str, texts: Iterable[str], such_as: str) -> tuple[dict[str, str], list[str]]:
    """The pairs in texts of ``KEY=VALUE`` words separated by blanks, and what is wrong with others.

    A comma separates pairs too, where a key and an equals sign follow. Hyphens of a key become
    underscores; values stay text. ``flag``: what error messages call the option; ``such_as``: an
    example of a pair.
    """
    found: dict[str, str] = {}
    problems: list[str] = []
    for word in (word for text in texts for word in _BETWEEN_PAIRS.split(text) if word):
        key, equals, value = (part.strip() for part in word.partition("="))
        key = key.replace("-", "_")
        if not key or not equals or not value:
            problems.append(f"{flag} {word!r} is not KEY=VALUE, such as {such_as}")
        elif key in found:
            problems.append(f"{flag} gives {key} twice")
        else:
            found[key] = value
    return found, problems


def pair_texts(pairs: Mapping[str, object]) -> tuple[str, ...]:
    """``key=value`` texts that ``read_pairs`` reads as these pairs; switches are true or false."""
    return tuple(
        f"{key}={str(value).lower() if isinstance(value, bool) else value}"
        for key, value in pairs.items()
    )


#: Characters that a terminal, a page or a figure would obey: controls but for tab and newline,
#: halves of characters, marks that turn the direction of writing.
_OBEYED: Final = re.compile(
    r"[\0-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]"
)


def printable(text: str) -> str:
    """The text with escapes such as ``\\x1b`` for characters that would be obeyed, not shown."""
    return _OBEYED.sub(lambda m: m[0].encode("unicode_escape").decode(), text)


def all_printable(data: Any) -> Any:
    """Plain data whose texts and keys are ``printable``."""
    if isinstance(data, str):
        return printable(data)
    if isinstance(data, dict):
        return {all_printable(k): all_printable(v) for k, v in data.items()}
    return [all_printable(v) for v in data] if isinstance(data, list) else data


_UTF16_MARKS: Final = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


def decoded(raw: bytes) -> str:
    """The text of bytes in UTF-8, with or without a byte order mark, or in UTF-16 with one.

    These are the two encodings in which Excel saves text. Raises UnicodeDecodeError.
    """
    return raw.decode("utf-16" if raw.startswith(_UTF16_MARKS) else "utf-8-sig")


def between(heading: str) -> str:
    """Delimiter of a table's header line: a comma, a semicolon or a tab.

    Spreadsheets write semicolons where the decimal point is a comma.
    """
    return max(",;\t", key=heading.count)
