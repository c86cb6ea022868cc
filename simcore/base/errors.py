"""Errors that simcore raises on purpose, as a tree.

SimcoreError
├── UsageError           the command or call is wrong                exit code 2
│   ├── UnknownName      no such GPU, model…; names the nearest
│   ├── BadQuantity      a number with no unit or a wrong one
│   └── InvalidConfig    violated rules, all of them at once
└── DataError            a file is wrong: names file, line and key   exit code 2
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from simcore.base.names import family

T = TypeVar("T")

#: Largest number of similar names that a message proposes.
_PROPOSED = 3
#: Least similarity (difflib's ratio) of a proposed name: difflib's own default.
_ALIKE_FRAC = 0.6
#: Fewest letters of a name that is proposed because it stands in another one.
_TOLD_APART = 3
#: The words of a name in small letters.
_WORD = re.compile(r"[a-z]+|\d+")
#: Weight of the likeness of letters beside that of words.
_LETTERS = 3.0
#: Largest number of names that a message lists, of a family or of all known names.
LISTED = 12


class SimcoreError(Exception):
    """Base of every error that simcore raises on purpose; its text is one clear sentence."""

    exit_code = 2

    @property
    def sentences(self) -> tuple[str, ...]:
        """The message, one sentence a mistake."""
        return (str(self),)

    def __reduce__(self) -> tuple[Any, ...]:
        """Arguments for pickle, which do not depend on the signature of the constructor."""
        return _restored, (type(self), self.args, self.__dict__)


def _restored(
    kind: type[SimcoreError], args: tuple[Any, ...], state: dict[str, Any]
) -> SimcoreError:
    error = kind.__new__(kind, *args)
    error.__dict__.update(state)
    return error


class UsageError(SimcoreError):
    """The request cannot be answered as it stands."""


class UnknownName(UsageError):
    """A name that no database entry or registry has.

    ``known``: valid names; ``aliases``: other names -> valid name. The message proposes aliases
    that are similar, but does not list them. ``hint`` ends the message.
    """

    def __init__(
        self,
        kind: str,
        name: str,
        known: Iterable[str],
        hint: str = "",
        aliases: Mapping[str, str] | None = None,
    ) -> None:
        self.kind, self.name = kind, name
        known = sorted(set(known), key=str.lower)
        members = family(name, known) or _members(name, aliases or {})
        near = members[:1] or _proposed(name, known, aliases or {})
        text = f"unknown {kind} {name!r}"
        if len(members) > 1:
            text += f": did you mean one of {_listed(members)}?"
        elif near:
            text += f": did you mean {near[0]!r}?"
            if len(near) > 1:
                text += f" (also near: {', '.join(near[1:])})"
        elif known and (len(known) <= LISTED or not hint):
            text += f": known are {_listed(known)}"
        elif known:
            text += f": none of {len(known)} is near"
        super().__init__(f"{text} {hint}".rstrip())


class BadQuantity(UsageError, ValueError):
    """A quantity without a unit, with an unknown unit, or out of range."""


class InvalidConfig(UsageError):
    """One or more violated rules; the message lists every violation."""

    def __init__(self, violations: Sequence[str]) -> None:
        self.violations = tuple(violations)
        super().__init__("; ".join(self.violations))

    @property
    def sentences(self) -> tuple[str, ...]:
        """The violations."""
        return self.violations


class DataError(SimcoreError):
    """A file that cannot be used: the message says where in the file and why."""

    def __init__(
        self, message: str, *, file: object, line: int | None = None, key: str = ""
    ) -> None:
        self.file, self.line, self.key = str(file), line, key
        where = self.file + (f":{line}" if line is not None else "")
        super().__init__(f"{where}: {key + ': ' if key else ''}{message}")


class Problems(list[str]):
    """Sentences about the mistakes in a call, collected so that all are reported at once."""

    def attempt(self, make: Callable[..., T], *arguments: Any, **words: Any) -> T | None:
        """What ``make`` returns; None where it raises SimcoreError, whose sentences are added."""
        try:
            return make(*arguments, **words)
        except SimcoreError as err:
            self.extend(err.sentences)
            return None

    def stop(self) -> None:
        """Raise InvalidConfig with every sentence, each once, if there are any."""
        if self:
            raise InvalidConfig(list(dict.fromkeys(self)))


def refuse_bad(what: str, problems: Sequence[str], *, file: object, hint: str = "") -> None:
    """Raises DataError with the first problems of a file's rows or events, if there are any.

    ``what``: what is bad, such as measurements; ``hint``: how to leave them out.
    """
    if problems:
        more = f"; and {len(problems) - BAD_SHOWN} more" if len(problems) > BAD_SHOWN else ""
        text = f"bad {what}: {'; '.join(problems[:BAD_SHOWN])}{more} {hint}"
        raise DataError(text.rstrip(), file=file)


#: The most problems that the message about a bad file lists.
BAD_SHOWN = 10


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:LISTED]) + (" …" if len(names) > LISTED else "")


def _members(name: str, aliases: Mapping[str, str]) -> list[str]:
    """Aliases of the family that ``name`` begins, one per thing named."""
    alias_of: dict[str, str] = {}
    for alias in family(name, aliases):
        alias_of.setdefault(aliases[alias], alias)
    return list(alias_of.values())


def _proposed(name: str, known: Sequence[str], aliases: Mapping[str, str]) -> list[str]:
    """The most similar names and aliases, for each thing only the most similar one."""
    means = {**aliases, **{k: k for k in known}}
    best: dict[str, str] = {}
    for near in nearest(name, list(means), 4 * _PROPOSED):
        best.setdefault(means[near], near)
    return list(best.values())[:_PROPOSED]


def nearest(
    name: str, known: Sequence[str], n: int = _PROPOSED, alike_frac: float = _ALIKE_FRAC
) -> list[str]:
    """Up to ``n`` of the known names that are similar to ``name``, the most similar first.

    ``alike_frac`` is the least similarity (difflib's ratio) of their letters. Names that reach it
    are ordered by the similarity of letters and words together. If none does, those that contain
    ``name`` are proposed, or that are part of it and have at least three letters, the nearest in
    length first.
    """
    import difflib  # only needed for error messages

    folded = {k.lower(): k for k in known}
    typed = name.lower()
    matches = difflib.get_close_matches(typed, list(folded), n=len(folded) or 1, cutoff=alike_frac)

    def alike(match: str) -> float:
        letters = difflib.SequenceMatcher(None, match, typed).ratio()
        return _LETTERS * letters + _words_alike_frac(_WORD.findall(typed), _WORD.findall(match))

    close = sorted(matches, key=alike, reverse=True)[:n]
    if not close and name:
        low = name.lower()
        inside = (k for k in folded if low in k or (len(k) >= _TOLD_APART and k in low))
        close = sorted(inside, key=lambda k: abs(len(k) - len(low)))[:n]
    return [folded[c] for c in close]


def _words_alike_frac(a: Sequence[str], b: Sequence[str]) -> float:
    """The share of the words of two names that the other one has too, misspelt or abbreviated."""
    found = sum(_alike_frac(w, b) for w in a) + sum(_alike_frac(w, a) for w in b)
    return found / (len(a) + len(b) or 1)


def _alike_frac(word: str, words: Sequence[str]) -> float:
    """Similarity of a word and the most similar of ``words``; 1 for an abbreviation.

    Numbers are alike only if they are equal.
    """
    import difflib

    if word in words:
        return 1.0
    found = 0.0
    for other in words if word.isalpha() else ():
        short, long = sorted((word, other), key=len)
        if len(short) > 1 and long.startswith(short):
            return 1.0
        found = max(found, difflib.SequenceMatcher(None, word, other).ratio())
    return found if found >= _ALIKE_FRAC else 0.0


def did_you_mean(name: str, known: Iterable[str], otherwise: str = "") -> str:
    """``: did you mean 'x'?`` where one of the known names is similar, ``otherwise`` elsewhere."""
    near = nearest(name, list(known), 1)
    return f": did you mean {near[0]!r}?" if near else otherwise
