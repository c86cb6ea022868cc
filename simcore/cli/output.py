"""Standard output and error: without colours when piped, and no error when the reader has ended."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from typing import Any

from simcore.base.errors import UsageError

#: Exit code that a shell reports for a program that was ended by SIGPIPE.
PIPE_CLOSED = 141


class PipeClosedError(Exception):
    """The reader of standard output has ended."""


def write(text: str) -> None:
    """Write to standard output and flush. Raises PipeClosedError when the reader has ended."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        # Otherwise Python would flush at exit and print an error.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise PipeClosedError from None
    except OSError as err:  # a full disk
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise UsageError(f"standard output cannot be written: {err.strerror}") from None


def write_result(as_json: bool, data: Callable[[], Any], text: Callable[[], str]) -> None:
    """Write a result: ``data()`` as JSON, or ``text()``."""
    if as_json:
        from simcore.report.jsonout import dumps, finite

        write(dumps(finite(data())))
    else:
        write(text())


def complain(text: str) -> None:
    """Write one line to standard error."""
    sys.stderr.write(text.rstrip() + "\n")


def terminal_width() -> int:
    """Columns of the terminal to which standard output goes; 0 where it is no terminal."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else 0


def colour_wanted() -> bool:
    """Whether to print colours: on a terminal, unless NO_COLOR is set or TERM is dumb."""
    return (
        sys.stdout.isatty()
        and not os.environ.get("NO_COLOR")
        and os.environ.get("TERM", "dumb") != "dumb"
    )
