"""What other programs measured: nccl-tests, traces of PyTorch's profiler, nvidia-smi topo."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from simcore.api.calibrations import fitted
from simcore.api.files import paths_of
from simcore.base.errors import InvalidConfig
from simcore.calibrate.nccl_groups import Said, beyond_rings, is_nccl_file, read_nccl_groups
from simcore.hardware.profile import load_profile


def all_nccl(files: Sequence[Path]) -> bool:
    """Whether files are output of nccl-tests. Raises InvalidConfig where only some are."""
    told = [is_nccl_file(f) for f in files]
    if any(told) and not all(told):
        other = files[told.index(False)].name
        raise InvalidConfig([f"{other!r} is no output of nccl-tests as the others: ask apart"])
    return any(told)


def refuse_trace(path: Path) -> None:
    """A trace is of one step of some job, which only its reader asks for. Raises InvalidConfig."""
    if not path.name.endswith((".json", ".json.gz")) or is_nccl_file(path):
        return
    raise InvalidConfig(
        [f"{path.name} is no table: a trace becomes a measured step with simcore explain-trace "
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
    """Collectives that nccl-tests measured beside what a prediction charges for them.

    The cluster is that of the log's rank list; ``gpus``, ``node``, ``network`` and ``collective``
    say what it leaves out. Raises DataError for no such log, InvalidConfig for what is missing.
    """
    from simcore.validate.nccl import judge_nccl

    said = Said(gpus, node, network, collective)
    profile = load_profile(calibration)
    return judge_nccl(paths_of(files), profile, said, on_bad=bad_rows)


def calibrate_nccl(
    file: Path | str,
    *,
    output: Path | None = None,
    name: str = "nccl",
    said: Said | None = None,
    bad_rows: Literal["refuse", "skip"] = "refuse",
) -> dict[str, Any]:
    """Fit the links of a cluster to a log of nccl-tests; write them as a calibration file."""
    from simcore.calibrate.nccl_profile import calibration_of_nccl
    from simcore.calibrate.profile_file import write_profile

    path = Path(file)
    found = read_nccl_groups([path], said or Said(), bad_rows)
    record, links = calibration_of_nccl(found, name, path.name)
    if output is not None:
        write_profile(output, record)
    return fitted(
        record,
        lambda _: True,  # only what the log measured has a multiplier
        output,
        links=links,
        skipped=dict(found.skipped),
        notes=[note for g in found.groups if (note := beyond_rings(g))],
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
    """A node description from the output of ``nvidia-smi topo -m``, written where ``output`` says.

    ``node`` is the record as its file has it, ``told`` what the matrix says, ``assumptions`` what
    it does not. ``nics``: their link, as ``network`` of ``predict``. Raises DataError with the
    line for a matrix that is none, InvalidConfig for what the file leaves out.
    """
    from simcore.base.atomic import write_text
    from simcore.calibrate.machine_record import dumped, node_data
    from simcore.calibrate.op_tables import open_text
    from simcore.hardware.spec import GPUS, NODES
    from simcore.measurements.topology_matrix import read_topology
    from simcore.measurements.topology_node import node_of_topology

    path = Path(file)
    matrix = read_topology(path, open_text(path)[0])
    listed = set(matrix.listed)
    if gpu is None and len(listed) != 1:
        raise InvalidConfig(
            [f"{path.name} does not name the GPU: say --gpu, such as H100-SXM (or put the output "
             "of `nvidia-smi -L` into the file)"]
        )  # fmt: skip
    target = Path(output) if output is not None else None
    chosen = name or (target.stem if target is not None else path.name.partition(".")[0])
    taken = NODES.path(chosen)  # by alias too
    if taken is not None and not (target and taken.resolve() == target.resolve()):
        raise InvalidConfig([f"a node {chosen!r} would hide the preset {taken.stem!r}: say --name"])
    found = node_of_topology(
        matrix, GPUS[gpu or listed.pop()], name=chosen, nics=nics, sockets=sockets
    )
    data = node_data(found.node)
    if target is not None:
        target.parent.mkdir(parents=True, exist_ok=True)
        write_text(target, "# From `nvidia-smi topo -m` (docs/measurements.md).\n" + dumped(data))
    return {
        "name": chosen,
        "node": data,
        "told": list(found.told),
        "assumptions": list(found.assumptions),
        "written": str(target) if target is not None else None,
    }
