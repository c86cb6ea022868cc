"""``simcore predict --plot`` and ``--scaling``: checks the flags, writes plots and text."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from simcore.cli.files import plot_problems
from simcore.cli.names import PLOTS
from simcore.cli.output import complain, write

if TYPE_CHECKING:
    from simcore.api import Prediction


def view_problems(
    plot: Path | None, kind: str | None, scaling: bool, explain: str | None, emit: str | None
) -> list[str]:
    """Error messages about the flags of plots and scaling."""
    found = plot_problems("--plot", plot) if plot is not None else []
    if kind is not None:
        if plot is None:
            found.append("--plot-kind needs --plot FILE")
        if kind not in PLOTS:
            from simcore.base.errors import UnknownName

            found.append(str(UnknownName("plot", kind, PLOTS)))
    if scaling and (explain is not None or emit is not None):
        other = "--explain" if explain is not None else "--emit"
        found.append(f"--scaling and {other} both write standard output: drop one")
    return found


def write_plot(answer: Prediction, path: Path, kind: str | None) -> None:
    """Write a plot of the answer. Raises UsageError."""
    from simcore.base.errors import UsageError
    from simcore.report.plots import KINDS
    from simcore.report.plots import write as write_figure

    wanted = kind or answer.plots[0]
    try:
        write_figure(answer.plot(wanted), path)
    except OSError as err:
        raise UsageError(f"--plot {str(path)!r} cannot be written: {err.strerror}") from None
    complain(f"plot in {path}: {KINDS[wanted]}")


def write_scaling(model: str, gpus: str, options: dict[str, Any], as_json: bool) -> None:
    """Print the scaling up to the cluster, as text or JSON."""
    from simcore import api

    curve = api.scaling(model, gpus, **options)
    if as_json:
        from simcore.report.jsonout import dumps, scaling_to_dict

        write(dumps(scaling_to_dict(curve)))
        return
    write(str(curve))
