"""Which program a launch line is of (``programs_db/dialects/lines``).

What the line starts decides, or a key that only one program has.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from simcore.base.errors import SimcoreError
from simcore.base.lookup import once_a_question
from simcore.strategy.dialects.calls import PYTHON
from simcore.strategy.dialects.line_record import LINES, LineRecord, fold_key
from simcore.strategy.dialects.lines import ANY_SCRIPT, FILES, JOINED, LineDialect
from simcore.strategy.dialects.source import Source, beside

#: The dotted name of a Python module.
_MODULE = re.compile(r"^[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*$")


@once_a_question
def line_programs() -> tuple[str, ...]:
    """Names of the records that are programs: those that something starts."""
    return tuple(r.name for r in LINES.all() if r.started.any or r.calls)


def chosen(
    source: Source, script: str, command: str, words: Sequence[str], launcher: str = ""
) -> LineDialect:
    """The reader of a line's arguments.

    ``script``: what the line runs, a file or a module; ``command``: the words that start a program
    by its own command, if they do. Of an unknown script the file that it is given decides, then
    what it calls where it is at hand, flags that only one program has, and the launcher.
    """
    programs = [r for r in LINES.all() if r.started.any]
    if command:
        its = [r for r in programs if command in r.started.commands]
        return LineDialect(next((r for r in its if r.started.given(words)), its[0]).name)
    fits = {r.name: n for r in programs if (n := r.started.fits(script))}
    best = max(fits.values(), key=len, default="")
    named = [r for r in programs if best and len(fits.get(r.name, "")) == len(best)]
    own = not best.endswith(".py") or "/" in best
    keys = {fold_key(w.partition("=")[0]) for w in words if w.startswith("-")}
    keys |= {found[1] for found in map(JOINED.match, words) if found}
    if len(named) == 1:
        return LineDialect(named[0].name, own=own)
    if not named and (own_file := [r for r in programs if r.started.given(words)]):
        return LineDialect(own_file[0].name)
    if not named and (by_file := _taking_file(source, words)) is not None:
        return by_file
    if not named and (by_calls := _calling(source, script)) is not None:
        return by_calls
    marked = [r for r in named or programs if r.marked(keys)]
    if len(marked) > 1:
        most = max(knows(r, keys) for r in marked)
        marked = [r for r in marked if knows(r, keys) == most]
    if marked:
        return LineDialect(marked[0].name, certain=bool(named), own=own)
    named = named or [r for r in programs if launcher in r.started.launchers.split()]
    if named:
        return LineDialect(named[0].name, own=own)
    return LineDialect(ANY_SCRIPT, certain=False, at_hand=bool(script_file(source, script)))


def script_file(source: Source, script: str) -> str:
    """The file of a script, or of a module in the working folder; "" where it is not at hand."""
    if script.endswith(PYTHON):
        names = [script]
    else:
        path = script.replace(".", "/") if _MODULE.match(script) else ""
        names = [f"{path}.py", f"{path}/__main__.py"] if path else []
    for name in names:
        with suppress(SimcoreError):
            beside(source, name)
            return name
    return ""


def _calling(source: Source, script: str) -> LineDialect | None:
    """The program that a script at hand calls; None where it calls no program's functions."""
    file = script_file(source, script)
    best = _claiming(source, [file] if file else [])
    return best and replace(best, code=file)


def _taking_file(source: Source, words: Sequence[str]) -> LineDialect | None:
    """The program of a file of arguments that a line names; None where no program claims one."""
    names = [w.rpartition("=")[2] if w.startswith("-") else w for w in words]
    return _claiming(source, [name for name in names if name.endswith(tuple(FILES))])


def _claiming(source: Source, names: Iterable[str]) -> LineDialect | None:
    """The program that claims the first of these files that is at hand and that any claims.

    Of several it is the one that knows most of the file.
    """
    for name in names:
        try:
            file = beside(source, name)
        except SimcoreError:
            continue
        claiming = [d for d in map(LineDialect, line_programs()) if d.claims(file)]
        if claiming:
            return max(claiming, key=lambda d: d.knows(file))
    return None


def knows(record: LineRecord, keys: set[str]) -> int:
    """How many of ``keys`` a record knows."""
    full = record.complete()
    _, sections = full.without_effect()
    inside = sum(any(k == s or k.startswith(f"{s}.") for s in sections) for k in keys)
    return len(keys & full.names()) + inside


@once_a_question
def commands() -> Mapping[tuple[str, ...], LineRecord]:
    """The commands that start programs, as words."""
    return {tuple(c.split()): r for r in LINES.all() for c in r.started.commands}
