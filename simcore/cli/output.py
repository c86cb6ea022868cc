"""What commands print, and the files that they read and write.

Output has no colours when piped, and there is no error when its reader has ended. Names of files
are checked before any work is done.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simcore.base.errors import UnknownName, UsageError
from simcore.base.names import printable
from simcore.base.record import dataclass

if TYPE_CHECKING:
    from simcore.api import Prediction

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


#: Kinds of plots of a prediction; the first is the default.
PLOTS = (
    "overview", "time", "memory", "memory-over-step", "scaling", "roofline", "timeline",
    "sensitivity",
)  # fmt: skip
PLOT_ENDINGS = (".svg", ".pdf", ".png")
#: Endings of a trace in one file; a name without an ending is a folder.
TRACE_ENDINGS = (".json", ".gz")


def missing_problems(*paths: Path) -> list[str]:
    """Error messages about files to read that do not exist or are folders."""
    return [
        f"{str(path)!r} is a folder: name a file in it" if path.is_dir()
        else f"no such file: {str(path)!r}"
        for path in paths if not path.is_file()
    ]  # fmt: skip


def folder_problems(flag: str, path: Path | None) -> list[str]:
    """Error messages about a file to write that is a folder, or whose folder does not exist."""
    if path is None:
        return []
    if path.is_dir():
        return [f"{flag} {str(path)!r} is a folder: name a file"]
    if not path.parent.is_dir():
        return [f"{flag}: folder {str(path.parent)!r} does not exist"]
    return []


def ending_problems(flag: str, path: Path | None, *endings: str) -> list[str]:
    """Error messages about a file to write, whose ending must name its format."""
    if path is None:
        return []
    found = folder_problems(flag, path)
    if path.suffix.lower() not in endings:
        choices = " or ".join(filter(None, (", ".join(endings[:-1]), endings[-1])))
        found.append(f"{flag} {str(path)!r} must end in {choices}")
    return found


@contextmanager
def writing(flag: str, path: Path) -> Iterator[None]:
    """Turn an OSError into a UsageError of one sentence, which names the flag and the file."""
    try:
        yield
    except OSError as err:
        what = f"{flag} {str(path)!r}".lstrip()
        raise UsageError(f"{what} cannot be written: {err.strerror}") from None


def write_page(flag: str, path: Path, page: str) -> None:
    """Write an HTML page and say so. Raises UsageError."""
    with writing(flag, path):
        path.write_text(page, encoding="utf-8")
    complain(f"report in {path}: {len(page.encode()) / 1e3:.0f} kB, opens in any browser")


@dataclass(frozen=True, kw_only=True)
class Files:
    """The files that ``simcore predict`` is to write; None: not that one."""

    trace: Path | None = None
    chakra: Path | None = None
    memory_snapshot: Path | None = None
    memory_plot: Path | None = None
    plot: Path | None = None
    plot_kind: str | None = None

    def problems(self) -> list[str]:
        """Error messages about the names of the files."""
        found = folder_problems("--memory-snapshot", self.memory_snapshot)
        found += ending_problems("--memory-plot", self.memory_plot, *PLOT_ENDINGS)
        if self.trace is not None:
            found += _trace_problems(self.trace)
        found += folder_problems("--chakra", self.chakra)
        found += ending_problems("--plot", self.plot, *PLOT_ENDINGS)
        if self.plot_kind is not None and self.plot is None:
            found.append("--plot-kind needs --plot FILE")
        if self.plot_kind not in (None, *PLOTS):
            found.append(str(UnknownName("plot", str(self.plot_kind), PLOTS)))
        return found

    def write(self, answer: Prediction, model: str, gpus: str, options: dict[str, Any]) -> None:
        """Write the files and say so on standard error. Raises UsageError."""
        if self.trace is not None:
            _write_trace(answer, self.trace)
        if self.chakra is not None:
            _write_chakra(self.chakra, model, gpus, options)
        if self.memory_snapshot is not None or self.memory_plot is not None:
            self._write_memory(model, gpus, options)
        if self.plot is not None:
            from simcore.report import plots

            kind = self.plot_kind or PLOTS[0]
            with writing("--plot", self.plot):
                plots.write(answer.plot(kind), self.plot)
            complain(f"plot in {self.plot}: {plots.KINDS[kind]}")

    def _write_memory(self, model: str, gpus: str, options: dict[str, Any]) -> None:
        from simcore import api
        from simcore.base.units import GIGA, PERCENT
        from simcore.report.memory import write_snapshot
        from simcore.report.plots import write as write_plot

        timeline = api.memory_timeline(model, gpus, **options)
        said = "memory of one step in {}: {}"
        if self.memory_snapshot is not None:
            with writing("--memory-snapshot", self.memory_snapshot):
                write_snapshot(timeline, self.memory_snapshot)
            view = "open it at https://pytorch.org/memory_viz"
            complain(said.format(self.memory_snapshot, view))
        if self.memory_plot is not None:
            with writing("--memory-plot", self.memory_plot):
                write_plot(timeline.plot(), self.memory_plot)
            complain(said.format(self.memory_plot, "memory over one step"))
        complain(
            f"allocator: {timeline.peak_allocated_bytes / GIGA:.2f} GB allocated, "
            f"{timeline.peak_reserved_bytes / GIGA:.2f} GB reserved "
            f"({timeline.replay.fragmentation_frac * PERCENT:.0f} % lost to fragmentation)"
            + ("" if timeline.fits else "; it ran out of memory there")
        )


def _trace_problems(path: Path) -> list[str]:
    """Error messages about a name; one without an ending is a folder, which will be created."""
    if path.is_dir():
        return []
    if path.suffix and path.suffix.lower() not in TRACE_ENDINGS:
        return [f"--trace {str(path)!r} must end in .json or .json.gz, or be a folder"]
    if not path.suffix and path.is_file():
        return [f"--trace {str(path)!r} is a file: name a folder, or a file in .json or .json.gz"]
    return folder_problems("--trace", path)


def _write_trace(answer: Prediction, path: Path) -> None:
    from simcore.report.trace import write_rank_traces, write_trace

    with writing("--trace", path):
        if path.is_dir() or not (path.suffix or path.exists()):
            path.mkdir(exist_ok=True)
            names = ", ".join(file.name for file in write_rank_traces(answer, path))
            said = f"one rank of each kind in {path}: {names}; for Holistic Trace Analysis"
        else:
            write_trace(answer, path)
            said = f"trace of one step in {path}: open it at https://ui.perfetto.dev"
    complain(said)


def _write_chakra(prefix: Path, model: str, gpus: str, options: dict[str, Any]) -> None:
    from simcore import api
    from simcore.report.trace.chakra import write_chakra

    with writing("--chakra", prefix):
        n_ranks = write_chakra(api.replay(model, gpus, **options), prefix)
    complain(f"{n_ranks} ranks in {prefix}.0.et and on, their groups in {prefix}.groups.json")
