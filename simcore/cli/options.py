"""Options that several commands share."""

from __future__ import annotations

from typing import Any

import typer

from simcore.cli import names


def option(flag: str, metavar: str, text: str, complete: names.Completer | None = None) -> Any:
    """An option with a name for its value and completion."""
    return typer.Option(
        flag, metavar=metavar, help=text, autocompletion=complete, show_default=False
    )
