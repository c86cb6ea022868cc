"""What can go wrong, as a tree.

SimcoreError
├── UsageError           the command or call is wrong            exit code 2
│   ├── UnknownName      no such GPU, model…; names the nearest
│   ├── BadQuantity      a number without or with a wrong unit
│   └── InvalidConfig    violated rules, all of them at once
└── DataError            a file is wrong: says file, line, key    exit code 2
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from simcore.base.names import family

#: How many near names a sentence proposes.
_PROPOSED = 3
#: Least share of letters in common of two names that look alike: difflib's own default.
_ALIKE_FRAC = 0.6
#: How many of a family, or of all where none is near.
LISTED = 12


class SimcoreError(Exception):
    """Base of every error that simcore raises on purpose; its text is one clear sentence."""

    exit_code = 2

    def __reduce__(self) -> tuple[Any, ...]:
        """Travels between processes as it is, whatever its constructor takes."""
        return _again, (type(self), self.args, self.__dict__)


def _again(kind: type[SimcoreError], args: tuple[Any, ...], state: dict[str, Any]) -> SimcoreError:
    error = kind.__new__(kind, *args)
    error.__dict__.update(state)
    return error


class UsageError(SimcoreError):
    """The request cannot be answered as it stands."""


class UnknownName(UsageError):
    """A name that no database entry or registry has.

    ``aliases``: other names of what is known, with what they name; they are proposed, not listed.
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
        #: Whether something known is near.
        self.proposes = bool(near)
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
    """A figure without a unit, with an unknown one, or out of range."""


class InvalidConfig(UsageError):
    """One or more rules are violated; every violation is listed."""

    def __init__(self, violations: Sequence[str]) -> None:
        self.violations = tuple(violations)
        super().__init__("; ".join(self.violations))


class DataError(SimcoreError):
    """A file that cannot be used, with where in it and why."""

    def __init__(
        self, message: str, *, file: object, line: int | None = None, key: str = ""
    ) -> None:
        self.file, self.line, self.key = str(file), line, key
        where = self.file + (f":{line}" if line is not None else "")
        super().__init__(f"{where}: {key + ': ' if key else ''}{message}")


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:LISTED]) + (" …" if len(names) > LISTED else "")


def _members(name: str, aliases: Mapping[str, str]) -> list[str]:
    """A family by its aliases, each thing once."""
    found: dict[str, str] = {}
    for alias in family(name, aliases):
        found.setdefault(aliases[alias], alias)
    return list(found.values())


def _proposed(name: str, known: Sequence[str], aliases: Mapping[str, str]) -> list[str]:
    """The nearest names, each thing by that of its names which is nearest."""
    means = {**aliases, **{k: k for k in known}}
    found: dict[str, str] = {}
    for near in nearest(name, list(means), 4 * _PROPOSED):
        found.setdefault(means[near], near)
    return list(found.values())[:_PROPOSED]


def nearest(
    name: str, known: Sequence[str], n: int = _PROPOSED, alike_frac: float = _ALIKE_FRAC
) -> list[str]:
    """Up to ``n`` of the known names that look like ``name``, best first.

    ``alike_frac`` is the least share of letters that two names have in common
    (difflib's ratio)."""
    import difflib  # only needed once something has gone wrong

    folded = {k.lower(): k for k in known}
    close = difflib.get_close_matches(name.lower(), list(folded), n=n, cutoff=alike_frac)
    if not close and name:
        close = [k for k in folded if name.lower() in k or k in name.lower()][:n]
    return [folded[c] for c in close]
