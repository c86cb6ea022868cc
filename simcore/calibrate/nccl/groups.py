"""Reads runs of nccl-tests together with their cluster, for fits and for comparisons."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import Final

import numpy as np

from simcore.base.arrays import Array
from simcore.base.errors import DataError, InvalidConfig, SimcoreError, UnknownName, refuse_bad
from simcore.base.record import dataclass
from simcore.base.units import format_si
from simcore.calibrate.tables import OnBad, open_text
from simcore.hardware.cluster import ClusterSpec, parse_cluster
from simcore.hardware.paths import cluster_paths
from simcore.hardware.spec import GPUS
from simcore.measurements.nccl_runs import (
    PROGRAMS,
    NcclFile,
    NcclRun,
    bus_factor,
    run_problem,
)
from simcore.measurements.nccl_tests import is_nccl_json, is_nccl_tests, read_nccl_tests

#: Collectives whose time the engine predicts (``physics.collectives.Collective``).
PRICED: Final = (
    "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "reduce",
)  # fmt: skip
#: Share of the link's rate above which an all-reduce cannot be a ring.
_BEYOND_RING: Final = 0.9
#: Integer dtypes. Their sums cannot be reduced in the switch, so NCCL uses another algorithm than
#: for the gradients of a training job.
_INTEGERS: Final = ("int8", "uint8", "int32", "uint32", "int64", "uint64")


@dataclass(frozen=True)
class Stated:
    """Options that state what a log of nccl-tests leaves out; None for what the log states."""

    gpus: str | None = None
    node: str | None = None
    network: str | None = None
    collective: str | None = None


@dataclass(frozen=True)
class Measured:
    """Measured times of one collective on one cluster.

    ``n_bytes`` [sizes] are ascending message sizes, ``time_s`` [sizes] seconds; ``where`` is the
    place in the file, ``version`` NCCL's version.
    """

    op: str
    cluster: ClusterSpec
    where: str
    version: str
    n_bytes: Array
    time_s: Array

    @property
    def ranks(self) -> int:
        """The number of ranks, one per GPU of the cluster."""
        return self.cluster.n_gpus

    @property
    def title(self) -> str:
        """The collective and the cluster."""
        return f"{self.op} {self.cluster}"


@dataclass(frozen=True)
class NcclGroups:
    """The measurements of one or more files.

    ``skipped`` counts the rows left out by reason; ``problems`` names the bad rows.
    """

    groups: tuple[Measured, ...]
    skipped: Counter[str] = field(default_factory=Counter)
    problems: tuple[str, ...] = ()

    @property
    def n_rows(self) -> int:
        """The number of sizes over all groups."""
        return sum(len(g.n_bytes) for g in self.groups)


def beyond_rings(m: Measured) -> str:
    """A sentence on an all-reduce that is faster than a ring over the node's links; otherwise "".

    With NCCL's protocol a ring reaches about 0.82 of NVLink (370 of 450 GB/s; NVIDIA/nccl-tests
    issue 212). A higher bus bandwidth means that the switches reduce, so that each GPU sends and
    receives the message only once.
    """
    link = cluster_paths(m.cluster)[0]
    if m.op != "all_reduce" or link.route != "nvlink" or m.cluster.groups[0].gpus_per_node < 2:
        return ""
    bus = float((bus_factor(m.op, m.ranks) * m.n_bytes / m.time_s).max())
    if bus < _BEYOND_RING * link.bw_bytes_per_s:
        return ""
    return (
        f"{m.where}: {format_si(bus, 'B/s', 3)} of bus bandwidth are more than a ring carries over "
        f"{link.bottleneck}: the switches reduce (NVLink SHARP), so the run cannot calibrate a ring"
    )


def is_nccl_file(path: Path) -> bool:
    """Whether a file is an output of nccl-tests, as text or JSON."""
    try:
        text, _ = open_text(path)
    except DataError:
        return False
    return is_nccl_json(text) or (not text.startswith("{") and is_nccl_tests(text))


def read_nccl_groups(paths: Sequence[Path], said: Stated, on_bad: OnBad) -> NcclGroups:
    """The measurements of files of nccl-tests.

    Raises DataError for bad rows if ``on_bad`` is "refuse" (otherwise they are skipped and named),
    and InvalidConfig if a file leaves something out, with the option that states it.
    """
    op = _collective(said)
    found = NcclFile(())
    for path in paths:
        text, cut = open_text(path)
        part = read_nccl_tests(path, text, op)
        if cut:
            part += NcclFile((), (f"{path.name}: the file ends early",))
        found += part
    if on_bad == "refuse":
        hint = "(--bad-rows skip leaves them out)"
        refuse_bad("measurements", found.problems, file=paths[0], hint=hint)
    missing: list[str] = []
    clusters = []
    for run in found.runs:
        if not run.op:
            missing.append(
                f"{run.where}: the log does not state which collective ran: say --collective "
                "NAME, such as all_gather"
            )
        try:
            clusters.append(_cluster(run, said))
        except SimcoreError as err:
            missing.append(f"{run.where}: {err}")
    if missing:
        raise InvalidConfig(list(dict.fromkeys(missing)))
    skipped: Counter[str] = Counter(found.problems)
    groups = []
    for run, cluster in zip(found.runs, clusters, strict=True):
        measured, left_out = _measured(run, cluster)
        groups += measured
        skipped += left_out
    return NcclGroups(tuple(groups), skipped, found.problems)


def _collective(said: Stated) -> str:
    if said.collective is None:
        return ""
    names = {**PROGRAMS, **{op: op for op in PROGRAMS.values()}}
    if said.collective not in names:
        raise UnknownName("collective", said.collective, sorted(set(PROGRAMS.values())))
    return names[said.collective]


def _cluster(run: NcclRun, said: Stated) -> ClusterSpec:
    """The cluster of a run. Raises SimcoreError with one sentence that names the option to give."""

    def parsed(text: str) -> ClusterSpec:
        return parse_cluster(text, node=said.node, network=said.network)

    if said.gpus is not None:
        cluster = parsed(said.gpus)
        if run.devices and cluster.n_gpus != run.n_ranks:
            raise InvalidConfig(
                [f"--gpus {said.gpus} has {cluster.n_gpus} GPUs, the run {run.n_ranks} ranks"]
            )
        if why := run_problem(replace(run, n_ranks=cluster.n_gpus)):
            raise InvalidConfig([f"--gpus {said.gpus}: {why}"])
        return cluster
    if not run.devices:
        raise InvalidConfig(["lists no devices: say --gpus NODESxGPUSxTYPE, such as 1x8xH100"])
    names, hosts = run.gpu_names(), run.ranks_by_host()
    if len(names) > 1:
        raise InvalidConfig([f"ran on several GPU types ({', '.join(names)}): say --gpus"])
    if len(set(hosts.values())) > 1:
        each = ", ".join(f"{h} {n}" for h, n in hosts.items())
        raise InvalidConfig([f"has different numbers of ranks on its hosts ({each}): say --gpus"])
    try:
        gpu = GPUS[names[0]]
    except UnknownName as err:
        raise InvalidConfig([f"{err}; say --gpus NODESxGPUSxTYPE"]) from None
    try:
        return parsed(f"{len(hosts)}x{next(iter(hosts.values()))}x{gpu.name}")
    except InvalidConfig as err:
        raise InvalidConfig([f"{v} (say --node or --network)" for v in err.violations]) from None


def _measured(run: NcclRun, cluster: ClusterSpec) -> tuple[list[Measured], Counter[str]]:
    skipped: Counter[str] = Counter()
    if run.op not in PRICED:
        skipped[f"{run.op} is not modelled: {', '.join(PRICED)} are"] += len(run.rows)
        return [], skipped
    if cluster.n_gpus < 2:
        skipped["a single rank sends nothing"] += len(run.rows)
        return [], skipped
    times: dict[float, list[float]] = {}
    for row in run.rows:
        side = row.side(run.op)
        if side is None:
            continue
        if row.dtype in _INTEGERS and row.redop not in ("", "none"):
            skipped["sums of integers use another algorithm than gradients"] += 1
            continue
        times.setdefault(row.n_bytes, []).append(side.time_s)
    if not times:
        return [], skipped
    sizes = np.array(sorted(times))
    median = np.array([float(np.median(times[s])) for s in sizes])
    return [Measured(run.op, cluster, run.where, run.version, sizes, median)], skipped
