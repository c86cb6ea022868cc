"""Standard output and error: without colours when piped, and no error when the reader has ended."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from simcore.base.errors import UsageError
from simcore.base.names import printable

#: Exit code that a shell reports for a program that was ended by SIGPIPE.
PIPE_CLOSED = 141
#: The colours that an answer is printed in.
_COLOURS = re.compile(r"(\x1b\[(?:0|1|31|32)m)")
#: A word that no message shows whole: longer than a path may be.
_ENDLESS = re.compile(r"\S{301,}")


class PipeClosedError(Exception):
    """The reader of standard output has ended."""


def write(text: str) -> None:
    """Write to standard output and flush. Raises PipeClosedError when the reader has ended.

    Text of files is shown, whatever it is: a terminal obeys nothing in it.
    """
    if sys.stdout is None:
        raise UsageError("standard output is closed")
    try:
        parts = _COLOURS.split(text)  # every second is a colour
        parts[::2] = map(printable, parts[::2])
        sys.stdout.write("".join(parts))
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
    """Write one line to standard error, if that can be written; endless words are shortened."""
    shown = _ENDLESS.sub(lambda m: f"{m[0][:100]}...{m[0][-20:]}", printable(text.rstrip()))
    with suppress(OSError, AttributeError):  # closed, or on a full disk
        sys.stderr.write(shown + "\n")
        sys.stderr.flush()


def terminal_width() -> int:
    """Columns of the terminal to which standard output goes; 0 where it is no terminal."""
    return shutil.get_terminal_size().columns if _on_terminal() else 0


def colour_wanted() -> bool:
    """Whether to print colours: on a terminal, unless NO_COLOR is set or TERM is dumb."""
    return (
        _on_terminal()
        and not os.environ.get("NO_COLOR")
        and os.environ.get("TERM", "dumb") != "dumb"
    )


def _on_terminal() -> bool:
    """Whether standard output goes to a terminal."""
    return sys.stdout is not None and sys.stdout.isatty()
