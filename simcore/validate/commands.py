"""Rows of measured tables as commands that a user can type."""

from __future__ import annotations

import shlex
from collections.abc import Iterable

from simcore.base.record import dataclass
from simcore.strategy.options.values import command_words
from simcore.validate.case import Case
from simcore.validate.table import Table

#: Options of a job that have no place in a command.
_NOT_TYPED = ("profile",)


@dataclass(frozen=True)
class Command:
    """A row as a ``simcore predict`` command, or the reason why it has none.

    ``words``: the arguments after ``simcore``; empty where there is a ``reason``.
    """

    id: str
    words: tuple[str, ...]
    reason: str = ""

    @property
    def line(self) -> str:
        """A line for a shell that ends with the row's id; a comment where there is no command."""
        if self.reason:
            return f"# {self.id}: {self.reason}"
        return f"simcore {shlex.join(self.words)}  # {self.id}"


def commands_of(tables: Iterable[Table]) -> tuple[Command, ...]:
    """The command of every row, or the reason why it has none, table by table."""
    return tuple(
        one
        for table in tables
        for one in (
            *map(_command, table.cases),
            *(Command(s.id, (), s.reason) for s in table.skipped),
        )
    )


def _command(case: Case) -> Command:
    typed = {k: v for k, v in case.options.items() if k not in _NOT_TYPED}
    words = command_words({"model": case.model, "gpus": case.gpus, **typed})
    return Command(case.id, ("predict", *words))
