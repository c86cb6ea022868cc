"""Files that commands read and write: names are checked before any work is done."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simcore.base.errors import UnknownName, UsageError
from simcore.base.record import dataclass
from simcore.cli.output import complain

if TYPE_CHECKING:
    from simcore.api import Prediction

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
