"""Standard output and error: plain where piped, quiet where the reader has gone."""

from __future__ import annotations

import os
import shutil
import sys

from simcore.base.errors import UsageError

#: What a shell reports for a program that SIGPIPE ended.
PIPE_CLOSED = 141


class PipeClosedError(Exception):
    """Nobody reads standard output any more."""


def write(text: str) -> None:
    """Write to standard output at once. Raises PipeClosedError when nobody reads it."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        # Python would try to flush once more at exit, and complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise PipeClosedError from None
    except OSError as err:  # a full disk
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise UsageError(f"standard output cannot be written: {err.strerror}") from None


def complain(text: str) -> None:
    """One line on standard error."""
    sys.stderr.write(text.rstrip() + "\n")


def terminal_width() -> int:
    """Columns of the terminal that standard output goes to; 0: it goes elsewhere."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else 0


def colour_wanted() -> bool:
    """Whether escape codes are welcome: on a terminal, unless NO_COLOR says no."""
    return (
        sys.stdout.isatty()
        and not os.environ.get("NO_COLOR")
        and os.environ.get("TERM", "dumb") != "dumb"
    )
