"""``simcore predict --trace`` and ``--chakra``: checks file names first, writes the files later."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from simcore.cli.files import folder_problems
from simcore.cli.output import complain

#: Endings of a trace in one file; a name without an ending is a folder.
ENDINGS = (".json", ".gz")

if TYPE_CHECKING:
    from simcore.answer.result import Prediction


def trace_problems(trace: Path | None, chakra: Path | None) -> list[str]:
    """Error messages about the names of the requested files."""
    problems = []
    if trace is not None:
        problems += _trace_problems(trace)
    if chakra is not None:
        problems += folder_problems("--chakra", chakra)
    return problems


def _trace_problems(path: Path) -> list[str]:
    """Error messages about a name; one without an ending is a folder, which will be created."""
    if path.is_dir():
        return []
    if path.suffix and path.suffix.lower() not in ENDINGS:
        return [f"--trace {str(path)!r} must end in .json or .json.gz, or be a folder"]
    if not path.suffix and path.is_file():
        return [f"--trace {str(path)!r} is a file: name a folder, or a file in .json or .json.gz"]
    return folder_problems("--trace", path)


def write_traces(
    answer: Prediction,
    model: str,
    gpus: str,
    options: dict[str, Any],
    trace: Path | None,
    chakra: Path | None,
) -> None:
    """Write the requested files. Raises UsageError."""
    if trace is not None:
        _write_trace(answer, trace)
    if chakra is not None:
        _write_chakra(model, gpus, options, chakra)


def _write_trace(answer: Prediction, path: Path) -> None:
    from simcore.base.errors import UsageError
    from simcore.report.trace import write_rank_traces, write_trace

    try:
        if path.is_dir() or not (path.suffix or path.exists()):
            path.mkdir(exist_ok=True)
            written = write_rank_traces(answer, path)
            names = ", ".join(p.name for p in written)
            complain(f"one rank of each kind in {path}: {names}; for Holistic Trace Analysis")
            return
        write_trace(answer, path)
    except OSError as err:
        raise UsageError(f"--trace {str(path)!r} cannot be written: {err.strerror}") from None
    complain(f"trace of one step in {path}: open it at https://ui.perfetto.dev")


def _write_chakra(model: str, gpus: str, options: dict[str, Any], prefix: Path) -> None:
    from simcore import api
    from simcore.base.errors import UsageError
    from simcore.report.trace.chakra import write_chakra

    try:
        n_ranks = write_chakra(api.replay(model, gpus, **options), prefix)
    except OSError as err:
        raise UsageError(f"--chakra {str(prefix)!r} cannot be written: {err.strerror}") from None
    complain(f"{n_ranks} ranks in {prefix}.0.et and on, their groups in {prefix}.groups.json")
