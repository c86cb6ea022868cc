"""Breaks a measured step, from traces of PyTorch's profiler, into the terms of a prediction."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from simcore.answer.predict import predict
from simcore.answer.request import make_request
from simcore.api.signatures import takes_options
from simcore.base.errors import DataError, InvalidConfig, UnknownName
from simcore.hardware.spec import GPUS
from simcore.measurements.kineto.breakdown import breakdown, windows_of
from simcore.measurements.kineto.trace import Trace, read_trace
from simcore.validate.trace_terms import RankStep, explained
from simcore.workload.permission import trusts_call

#: Most ranks that are assumed to be on one node where the cluster is not given.
_ONE_NODE = 8


@takes_options()
@trusts_call(at=1)
def explain_trace(
    files: Sequence[Path | str] | Path | str,
    model: str | None = None,
    gpus: str | None = None,
    *,
    step: int | None = None,
    window_s: tuple[float, float] | None = None,
    bad_rows: Literal["refuse", "skip"] = "refuse",
    **options: Any,
) -> dict[str, Any]:
    """The terms of a prediction as a measured training step has them; with ``model``, the
    predicted terms too.

    files     one trace per rank (.json, .json.gz), or a folder of them
    gpus      the cluster; where it is not given, it follows from a trace of a single node
    step      use only the ``ProfilerStep`` of this number
    window_s  use only the time between these two, in seconds since the first event

    Raises DataError for a file that is not such a trace, InvalidConfig for missing arguments,
    UsageError as ``predict`` does.
    """
    paths = _paths(files)
    ranks = []
    for path in paths:
        trace = read_trace(path, bad_rows)
        windows, how = windows_of(trace, step, window_s)
        ranks.append(RankStep(trace, breakdown(trace, windows, how)))
    if model is None:
        if gpus is not None or any(v is not None for v in options.values()):
            raise InvalidConfig(["--model is missing: without one there is no prediction"])
        return explained(ranks, None)
    request = make_request(model, gpus or _cluster(ranks[0].trace), **options)
    return explained(ranks, (request, predict(request, keep_timeline=True)))


def _paths(files: Sequence[Path | str] | Path | str) -> list[Path]:
    one = isinstance(files, str | Path)
    found: list[Path] = []
    for file in (files,) if one else files:  # type: ignore[union-attr]
        path = Path(file)  # type: ignore[arg-type]
        if path.is_dir():
            inside = [p for p in path.iterdir() if p.name.endswith((".json", ".json.gz"))]
            if not inside:
                raise DataError("holds no trace (.json or .json.gz)", file=path)
            found += sorted(inside)
        else:
            found.append(path)
    if not found:
        raise InvalidConfig(["no trace given"])
    return found


def _cluster(trace: Trace) -> str:
    """The cluster on which a trace was recorded, where it is one node.

    Raises InvalidConfig, which asks for ``--gpus``, where the trace does not determine the cluster.
    """
    world = trace.world_size or 1
    try:
        gpu = GPUS[trace.device].name if trace.device else ""
    except UnknownName:
        gpu = ""
    if not gpu or world > _ONE_NODE:
        what = f"{world} ranks on {trace.device or 'a device that it does not name'}"
        raise InvalidConfig(
            [f"{trace.path.name} is a trace of {what}: give --gpus NODESxGPUSxTYPE"]
        )
    return f"1x{world}x{gpu}"
