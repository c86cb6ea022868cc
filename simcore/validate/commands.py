"""Rows of measured tables as commands that a user can type."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from dataclasses import dataclass

from simcore.strategy.options.values import command_words
from simcore.validate.case import Case
from simcore.validate.table import Table

#: Words of a job that no command says.
_NOT_TYPED = ("profile",)


@dataclass(frozen=True, slots=True)
class Command:
    """A row as the words of ``simcore predict``, or the reason why it is none.

    ``words``: what follows ``simcore``, one an argument; empty where there is a ``reason``.
    """

    id: str
    words: tuple[str, ...]
    reason: str = ""

    @property
    def line(self) -> str:
        """A line for a shell, the row's id behind it; a comment where the row is no job."""
        if self.reason:
            return f"# {self.id}: {self.reason}"
        return f"simcore {shlex.join(self.words)}  # {self.id}"


def commands_of(tables: Iterable[Table]) -> tuple[Command, ...]:
    """The command of every row, and why the others have none, table by table."""
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
