"""``simcore predict --memory-snapshot`` and ``--memory-plot``: checks file names, writes files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from simcore.cli.files import folder_problems, plot_problems
from simcore.cli.output import complain


def path_problems(snapshot: Path | None, plot: Path | None) -> list[str]:
    """Error messages about the names of the requested files."""
    problems = []
    if snapshot is not None:
        problems += folder_problems("--memory-snapshot", snapshot)
    if plot is not None:
        problems += plot_problems("--memory-plot", plot)
    return problems


def write_files(
    model: str, gpus: str, options: dict[str, Any], snapshot: Path | None, plot: Path | None
) -> None:
    """Simulate the allocations of the step and write the requested files. Raises UsageError."""
    if snapshot is None and plot is None:
        return
    from simcore import api
    from simcore.base.errors import UsageError
    from simcore.base.units import GIGA, PERCENT
    from simcore.report.memory import write_snapshot
    from simcore.report.plots import write as write_plot

    timeline = api.memory_timeline(model, gpus, **options)
    view = "open it at https://pytorch.org/memory_viz"
    for flag, path, what in (
        ("--memory-snapshot", snapshot, view),
        ("--memory-plot", plot, "memory over one step"),
    ):
        if path is None:
            continue
        try:
            if flag == "--memory-plot":
                write_plot(timeline.plot(), path)
            else:
                write_snapshot(timeline, path)
        except OSError as err:
            raise UsageError(f"{flag} {str(path)!r} cannot be written: {err.strerror}") from None
        complain(f"memory of one step in {path}: {what}")
    complain(
        f"allocator: {timeline.peak_allocated_bytes / GIGA:.2f} GB allocated, "
        f"{timeline.peak_reserved_bytes / GIGA:.2f} GB reserved "
        f"({timeline.replay.fragmentation_frac * PERCENT:.0f} % lost to fragmentation)"
        + ("" if timeline.fits else "; it ran out of memory there")
    )
