"""Functions on output of other programs: nccl-tests, PyTorch's profiler, nvidia-smi topo."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from simcore.answer.predict import predict
from simcore.answer.request import make_request
from simcore.api.result import takes_options
from simcore.base.errors import DataError, InvalidConfig, UnknownName, UsageError
from simcore.calibrate.nccl.groups import Stated, beyond_rings, is_nccl_file, read_nccl_groups
from simcore.hardware.calibrations import Calibration, Knob
from simcore.hardware.profile import load_profile
from simcore.hardware.spec import GPUS
from simcore.workload.settings import trusts_call

if TYPE_CHECKING:
    from simcore.measurements.kineto.trace import Trace


def paths_of(files: Sequence[Path | str] | Path | str) -> list[Path]:
    """One file or several, as a list of paths. Raises UsageError for an empty list."""
    listed = [files] if isinstance(files, str | Path) else list(files)
    if not listed:
        raise UsageError("no file given: name a table or a log")
    return [Path(f) for f in listed]


def fitted(
    record: Calibration, identified: Callable[[Knob], bool], written: Path | None, **more: Any
) -> dict[str, Any]:
    """A calibration as plain data: provenance, every multiplier, whether the rows determine it.

    ``identified``: whether the rows determine a multiplier; ``written``: the file that holds the
    calibration, if any; ``more``: entries that only this kind of measurement has.
    """
    return {
        "name": record.name,
        "origin": record.origin,
        "rows": record.rows,
        "residual_sd_log": record.residual_sd_log,
        "leave_one_out_mape_frac": record.leave_one_out_mape_frac,
        "knobs": [
            {**k.model_dump(exclude_none=True), "identified": identified(k)} for k in record.knobs
        ],
        **more,
        "written": str(written) if written is not None else None,
    }


def all_nccl(files: Sequence[Path]) -> bool:
    """Whether all files are output of nccl-tests. Raises InvalidConfig where only some are."""
    are_logs = [is_nccl_file(f) for f in files]
    if any(are_logs) and not all(are_logs):
        other = files[are_logs.index(False)].name
        raise InvalidConfig(
            [f"{other!r} is not output of nccl-tests as other files are: use one command for each"]
        )
    return any(are_logs)


def refuse_trace(path: Path) -> None:
    """Raise InvalidConfig where the file is a profiler trace, which is not a table of steps.

    A trace does not name its job; ``explain-trace`` takes the job and makes a table row of both.
    """
    if not path.name.endswith((".json", ".json.gz")) or is_nccl_file(path):
        return
    raise InvalidConfig(
        [f"{path.name} is not a table: make a measured step of a trace with simcore explain-trace "
         f"{path.name} --model NAME --gpus CLUSTER --row steps.csv"]
    )  # fmt: skip


def validate_nccl(
    files: Sequence[Path | str] | Path | str,
    *,
    gpus: str | None = None,
    node: str | None = None,
    network: str | None = None,
    collective: str | None = None,
    calibration: str | None = None,
    bad_rows: Literal["skip", "refuse"] = "skip",
) -> dict[str, Any]:
    """Collectives measured by nccl-tests, compared with their predicted times.

    The log's list of ranks determines the cluster; ``gpus``, ``node``, ``network`` and
    ``collective`` state what the log does not contain. Raises DataError for a file that is not such
    a log, InvalidConfig for missing arguments.
    """
    from simcore.validate.collectives import judge_nccl

    stated = Stated(gpus, node, network, collective)
    profile = load_profile(calibration)
    return judge_nccl(paths_of(files), profile, stated, on_bad=bad_rows)


def calibrate_nccl(
    file: Path | str,
    *,
    output: Path | None = None,
    name: str = "nccl",
    stated: Stated | None = None,
    bad_rows: Literal["refuse", "skip"] = "refuse",
) -> dict[str, Any]:
    """Fit the links of a cluster to a log of nccl-tests, write them as a calibration file where
    ``output`` is given, and return the calibration.
    """
    from simcore.calibrate.nccl.profile import calibration_of_nccl
    from simcore.calibrate.yaml_text import write_profile

    path = Path(file)
    measured = read_nccl_groups([path], stated or Stated(), bad_rows)
    record, links = calibration_of_nccl(measured, name, path.name)
    if output is not None:
        write_profile(output, record)
    return fitted(
        record,
        lambda _: True,  # the record has multipliers only for links that the log measured
        output,
        links=links,
        skipped=dict(measured.skipped),
        notes=[note for g in measured.groups if (note := beyond_rings(g))],
    )


def node_from_topo(
    file: Path | str,
    *,
    gpu: str | None = None,
    name: str | None = None,
    nics: str | None = None,
    sockets: int | None = None,
    output: Path | str | None = None,
) -> dict[str, Any]:
    """A node description from the output of ``nvidia-smi topo -m``, as data and as a file.

    file     output of ``nvidia-smi topo -m``, with that of ``nvidia-smi -L`` if possible
    gpu      GPU type, where the file does not name it
    name     name of the node; by default that of the file
    nics     link of the network adapters, written like ``network`` of ``predict``
    sockets  number of CPU sockets
    output   file to write; None: no file is written

    In the result, ``node`` is the record as in its file, ``told`` what the matrix states,
    ``assumptions`` what it does not state. Raises DataError with the line for an invalid matrix,
    InvalidConfig for missing arguments.
    """
    from simcore.base.atomic import write_text
    from simcore.calibrate.machine.record import node_data
    from simcore.calibrate.tables import open_text
    from simcore.calibrate.yaml_text import yaml_text
    from simcore.hardware.spec import GPUS, NODES
    from simcore.measurements.topology_node import node_of_topology, read_topology

    path = Path(file)
    matrix = read_topology(path, open_text(path)[0])
    listed = set(matrix.listed)
    if gpu is None and len(listed) != 1:
        raise InvalidConfig(
            [f"{path.name} does not name the GPU: give --gpu, such as H100-SXM (or add the output "
             "of `nvidia-smi -L` to the file)"]
        )  # fmt: skip
    target = Path(output) if output is not None else None
    chosen = name or (target.stem if target is not None else path.name.partition(".")[0])
    taken = NODES.path(chosen)  # by alias too
    if taken is not None and not (target and taken.resolve() == target.resolve()):
        raise InvalidConfig(
            [f"a node {chosen!r} would hide the preset {taken.stem!r}: give another --name"]
        )
    derived = node_of_topology(
        matrix, GPUS[gpu or listed.pop()], name=chosen, nics=nics, sockets=sockets
    )
    data = node_data(derived.node)
    if target is not None:
        target.parent.mkdir(parents=True, exist_ok=True)
        head = "# From `nvidia-smi topo -m` (docs/measurements.md).\n"
        write_text(target, head + yaml_text(data))
    return {
        "name": chosen,
        "node": data,
        "told": list(derived.told),
        "assumptions": list(derived.assumptions),
        "written": str(target) if target is not None else None,
    }


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
    from simcore.measurements.kineto.breakdown import breakdown, windows_of
    from simcore.measurements.kineto.trace import read_trace
    from simcore.validate.trace_terms import RankStep, explained

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
    traces: list[Path] = []
    for file in (files,) if one else files:  # type: ignore[union-attr]
        path = Path(file)  # type: ignore[arg-type]
        if path.is_dir():
            inside = [p for p in path.iterdir() if p.name.endswith((".json", ".json.gz"))]
            if not inside:
                raise DataError("holds no trace (.json or .json.gz)", file=path)
            traces += sorted(inside)
        else:
            traces.append(path)
    if not traces:
        raise InvalidConfig(["no trace given"])
    return traces


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
