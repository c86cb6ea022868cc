"""``simcore predict --memory-snapshot`` and ``--memory-plot``: checks before, files after."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from simcore.cli.output import complain


def path_problems(snapshot: Path | None, plot: Path | None) -> list[str]:
    """What is wrong with the names of the files that are asked for."""
    problems = []
    for flag, path in (("--memory-snapshot", snapshot), ("--memory-plot", plot)):
        if path is None:
            continue
        if path.is_dir():
            problems.append(f"{flag} {str(path)!r} is a folder: name a file")
        elif not path.parent.is_dir():
            problems.append(f"{flag}: folder {str(path.parent)!r} does not exist")
    if plot is not None and plot.suffix.lower() not in (".svg", ".png"):
        problems.append(f"--memory-plot {str(plot)!r} must end in .svg or .png")
    return problems


def write_files(
    model: str, gpus: str, options: dict[str, Any], snapshot: Path | None, plot: Path | None
) -> None:
    """Play the step's allocations and write what is asked for. Raises UsageError."""
    if snapshot is None and plot is None:
        return
    from simcore import api
    from simcore.base.errors import UsageError
    from simcore.base.units import GIGA, PERCENT
    from simcore.report.memory import write_plot, write_snapshot

    timeline = api.memory_timeline(model, gpus, **options)
    writers = (
        (
            "--memory-snapshot",
            snapshot,
            write_snapshot,
            "open it at https://pytorch.org/memory_viz",
        ),
        ("--memory-plot", plot, write_plot, "memory over one step"),
    )
    for flag, path, writer, what in writers:
        if path is None:
            continue
        try:
            writer(timeline, path)
        except OSError as err:
            raise UsageError(f"{flag} {str(path)!r} cannot be written: {err.strerror}") from None
        complain(f"memory of one step in {path}: {what}")
    complain(
        f"allocator: {timeline.peak_allocated_bytes / GIGA:.2f} GB allocated, "
        f"{timeline.peak_reserved_bytes / GIGA:.2f} GB reserved "
        f"({timeline.replay.fragmentation_frac * PERCENT:.0f} % never used at once)"
        + ("" if timeline.fits else "; it ran out of memory there")
    )
