"""Tables of measured collectives: curves over message size, runs between nodes, and pooled fits.

Curves and pooled fits are those of collectives inside one node, for the shipped profile.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import numpy as np

from simcore.base.arrays import Array, NDArray
from simcore.base.errors import DataError, SimcoreError, UnknownName
from simcore.base.record import dataclass
from simcore.base.units import MICRO
from simcore.calibrate.curve_fits import fit_collective
from simcore.calibrate.nccl.groups import PRICED
from simcore.calibrate.pooling import family_of
from simcore.calibrate.tables import OnBad, RowsRead, Table, collection_of, read_table
from simcore.hardware.cluster import ClusterSpec, link_named, parse_cluster
from simcore.hardware.spec import GPUS, GpuSpec
from simcore.measurements.nccl_runs import bus_factor
from simcore.physics.collectives import ALGORITHMS

#: Entries of the algorithm column that mean: the library chose the algorithm.
TUNED: Final = ("", "NCCL", "auto")
#: A node's ports and their rate in Gbit/s, as in "8x400G IB" or "EFAv4 8x400G/node".
_PORTS: Final = re.compile(r"(?P<ports>\d+)x(?P<gbit>\d+)G")
#: Rate of an InfiniBand port in Gbit/s -> the link's name.
_INFINIBAND: Final = {100: "ib-edr", 200: "ib-hdr", 400: "ib-ndr", 800: "ib-xdr"}


@dataclass(frozen=True)
class AcrossRun:
    """Measured times of one collective over all devices of a cluster.

    ``algorithm`` is the algorithm that the run forced, "" if the library chose. ``n_bytes`` and
    ``time_s`` are [rows]; a size is that of the message (all-gather: the gathered output).
    """

    op: str
    algorithm: str
    cluster: ClusterSpec
    n_bytes: Array
    time_s: Array

    @property
    def title(self) -> str:
        """The collective, nodes x devices per node, and the algorithm if it was forced."""
        group = self.cluster.groups[0]
        name = f"{self.op} {group.n_nodes}x{group.gpus_per_node}"
        return f"{name} {self.algorithm}" if self.algorithm else name


def network_of(link: str) -> str:
    """The network that a table describes, in the syntax of ``--network``; "" if it states no kind.

    ``link`` is the table's text, such as "8x400G IB". Raises KeyError for a rate that no
    InfiniBand port has.
    """
    ports = _PORTS.search(link)
    words = set(link.replace("/", " ").split())
    efa = re.search(r"\bEFA(?:v(\d))?\b", link)
    if ports is None or not (efa or "IB" in words):
        return ""
    rate = int(ports["gbit"])
    if efa:
        name = f"efa-v4-{rate}" if (efa[1] or "0") >= "3" else f"efa-{rate}"
    elif rate in _INFINIBAND:
        name = _INFINIBAND[rate]
    else:
        raise KeyError(f"no InfiniBand port has {rate} Gbit/s")
    return f"{ports['ports']}x{name}"


def why_not(table: Table, row: int) -> str:
    """Why a row between nodes cannot be compared with a prediction; "" if it can."""
    op, algo = table.text("collective")[row], table.text("algo")[row]
    if not table.text("time_us")[row] or not table.text("size_bytes")[row]:
        return "no time or no size (published as bus bandwidth)"
    if op not in PRICED:
        return f"collective {op!r} is not modelled between nodes"
    # The first word of, say, "auto (a cloud provider's tuner)" counts.
    if not _forced_algorithm(algo) and algo.split(" ")[0] not in TUNED:
        return str(UnknownName("collective algorithm", algo, ALGORITHMS))
    try:
        network = network_of(table.text("inter_link")[row])
    except KeyError as err:
        return str(err.args[0])
    return "" if network else "collectives between nodes over a network that is not stated"


def _forced_algorithm(algo: str) -> str:
    """The algorithm that a run forced; "" if the library chose."""
    return algo if algo in ALGORITHMS else ""


def across_runs(
    table: Table, rows: NDArray[np.intp], device_of: dict[str, str], skipped: Counter[str]
) -> list[AcrossRun]:
    """The runs in the rows [n] of a table that are still marked good.

    ``device_of`` maps a table's device names to names in the database, where these differ. Adds
    rows of unknown clusters to ``skipped`` and marks rows bad whose ranks do not divide by nodes.
    """
    time_s, sizes = table.number("time_us") * MICRO, table.number("size_bytes")
    ranks, nodes = table.number("gpus"), table.number("nodes")
    names, links = table.text("gpu_type"), table.text("inter_link")
    ops, algos = table.text("collective"), table.text("algo")
    groups: dict[tuple[str, str, int, int, str, str], list[int]] = defaultdict(list)
    for row in rows:
        if not table.good[row]:
            continue
        n, m = int(ranks[row]), int(nodes[row])
        if n % m:
            table.bad(row, f"gpus: {n} is no multiple of {m} nodes")
            continue
        algorithm = _forced_algorithm(algos[row])
        groups[ops[row], names[row], m, n // m, links[row], algorithm].append(int(row))
    runs = []
    for (op, name, m, each, link, algorithm), mine in groups.items():
        try:
            gpu = GPUS[device_of.get(name, name)].name
            cluster = parse_cluster(f"{m}x{each}x{gpu}", network=network_of(link))
        except SimcoreError as err:
            skipped[str(err)] += len(mine)
            continue
        order = np.array(mine)[np.argsort(sizes[mine], kind="stable")]
        runs.append(AcrossRun(op, algorithm, cluster, sizes[order], time_s[order]))
    return runs


CommPath: TypeAlias = Literal["nvswitch", "nvlink_mesh", "pcie_p2p", "pcie_host"]

#: Names of devices in the tables -> their names in the database, where these differ.
DEVICE_OF: Final = {"V100": "V100-SXM-32GB", "A100": "A100-SXM-80GB", "H100": "H100-SXM-80GB"}
#: The collectives of nccl-tests. Fused all-reduces of inference servers do not occur in training.
OPS: Final = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send_recv", "broadcast")
#: A bus bandwidth above this share of the link is impossible: a wrong unit or swapped columns.
FASTEST_SHARE: Final = 4.0


@dataclass(frozen=True)
class CollectiveCurve:
    """Measured times of one collective on one group of one kind of device.

    ``op`` includes the dtype if it decides the algorithm (in-switch reduction takes floats only).
    ``link_bytes_per_s`` is the rate of one direction of a device's link. ``n_bytes`` and
    ``time_s`` are [rows]; a size is that of the message (all-gather: the gathered output).
    """

    path: CommPath
    gpu: str
    op: str
    ranks: int
    origin: str
    link_bytes_per_s: float
    n_bytes: Array
    time_s: Array

    @property
    def key(self) -> tuple[CommPath, str, str, int]:
        return self.path, self.gpu, self.op, self.ranks

    def thinned(self) -> CollectiveCurve:
        """The curve with one point per size: the median of repeated measurements."""
        sizes = np.unique(self.n_bytes)
        times = np.array([np.median(self.time_s[self.n_bytes == s]) for s in sizes])
        return replace(self, n_bytes=sizes, time_s=times)


def is_collective_table(table: Table) -> bool:
    """Whether a table has the columns of a table of collectives."""
    return {"gpu_type", "gpus", "collective", "size_bytes", "time_us"} <= table.columns.keys()


def route(spec: GpuSpec, ranks: int, link: str) -> tuple[CommPath, float]:
    """The path between ``ranks`` devices of a node, and the rate of one device's link in bytes/s.

    ``link`` is the table's text on the link. More than two PCIe cards without NVLink mostly span
    two sockets, so their traffic goes through host memory. Raises KeyError for a device with
    neither NVLink nor PCIe in the database.
    """
    if ("PCIe" in link and "NVLink" not in link) or spec.nvlink_bw is None:
        if spec.pcie is None:
            raise KeyError(f"{spec.name} has neither NVLink nor PCIe in the database")
        port = link_named(f"pcie{min(spec.pcie.generation, 6)}-x{spec.pcie.lanes}")
        direct = spec.peer_to_peer != "none" and ranks <= 2
        return ("pcie_p2p" if direct else "pcie_host"), port.bw.value
    mesh = spec.architecture in ("Volta", "Pascal")
    return ("nvlink_mesh" if mesh else "nvswitch"), spec.nvlink_bw.value


def _between_nodes(table: Table, row: int) -> bool:
    return table.text("nodes", "1")[row] not in ("", "1", "1.0")


def _reason(table: Table, row: int) -> str:
    """Why a row cannot be compared with a prediction; "" if it can."""
    if _between_nodes(table, row):
        return why_not(table, row)
    op = table.text("collective")[row]
    algo, link = table.text("algo")[row], table.text("intra_link")[row]
    if op not in OPS:
        return f"collective {op!r} is not modelled"
    if algo not in TUNED:
        return "an algorithm that was forced, or an inference server's own all-reduce"
    if "pairwise" in link:
        return "groups across NVLink pairs and PCIe: which link the ring took is not stated"
    if not table.text("time_us")[row] or not table.text("size_bytes")[row]:
        return "no time or no size (published as bus bandwidth)"
    return ""


def collective_rows(table: Table, on_bad: OnBad = "skip") -> RowsRead[CollectiveCurve | AcrossRun]:
    """Curves inside nodes and runs between nodes, without rows that no prediction exists for.

    Raises DataError if it is no table of collectives, or has bad rows and ``on_bad`` is "refuse".
    """
    if not is_collective_table(table):
        raise DataError("is no table of collectives", file=table.path)
    skipped: Counter[str] = Counter()
    reasons = np.array([_reason(table, row) for row in range(len(table))], dtype=object)
    for reason in reasons[reasons != ""]:
        skipped[reason] += 1
    table.good &= reasons == ""
    time_s = table.number("time_us") * MICRO
    sizes, ranks = table.number("size_bytes"), table.number("gpus", low=1.0)
    ops, notes = table.text("collective"), table.text("notes")
    across = np.array([_between_nodes(table, row) for row in range(len(table))], dtype=bool)
    runs = across_runs(table, np.flatnonzero(table.good & across), DEVICE_OF, skipped)
    groups: dict[tuple[str, str, int, str, str], list[int]] = defaultdict(list)
    for row in np.flatnonzero(table.good & ~across):
        op = ops[row]
        if op == "all_reduce" and notes[row].startswith("int8"):
            op = "all_reduce_int8"
        groups[table.text("gpu_type")[row], op, int(ranks[row]), table.text("intra_link")[row],
               collection_of(table.text("source")[row])].append(int(row))  # fmt: skip
    curves = []
    for (device, op, n, link, origin), rows in groups.items():
        try:
            spec = GPUS[DEVICE_OF.get(device, device)]
            path, rate = route(spec, n, link)
        except (SimcoreError, KeyError) as err:
            skipped[str(err.args[0]) if isinstance(err, KeyError) else str(err)] += len(rows)
            continue
        at = np.array(rows)
        share = sizes[at] * bus_factor(op, n) / time_s[at] / rate
        for i in np.flatnonzero(share > FASTEST_SHARE):
            table.bad(int(at[i]), f"time_us means {share[i]:.2g} of the link: swapped columns?")
        at = at[share <= FASTEST_SHARE]
        if len(at):
            curves.append(
                CollectiveCurve(path, spec.name, op, n, origin, rate, sizes[at], time_s[at])
            )
    return table.read((*curves, *runs), skipped, on_bad)


def read_collectives(path: Path) -> RowsRead[CollectiveCurve | AcrossRun]:
    """The same of one file. Raises DataError as :func:`collective_rows`."""
    return collective_rows(read_table(path))


def merged(curves: Iterable[CollectiveCurve]) -> list[CollectiveCurve]:
    """The curves with those of the same group, op and collection joined; one point per size."""
    groups: dict[tuple[object, ...], list[CollectiveCurve]] = defaultdict(list)
    for c in curves:
        groups[(*c.key, c.origin)].append(c)
    return [
        replace(
            same[0], n_bytes=np.concatenate([c.n_bytes for c in same]),
            time_s=np.concatenate([c.time_s for c in same]),
        ).thinned()
        for same in groups.values()
    ]  # fmt: skip


#: The largest number of points of a written curve, evenly spread over ln(size).
POINTS: Final = 24
#: The least number of points of a curve that is written or fitted.
MIN_POINTS: Final = 6
#: A collection whose kernel times jump between 20 and 60 us at any size. Its curves are written
#: and compared with predictions, but not pooled.
NOISY: Final = "vidur"
#: Standard deviations of the logarithms of (bus share, latency, ramp) if fewer than three families
#: were measured: those between PCIe hosts, and those of other paths.
_ALONE_PCIE, _ALONE = (0.35, 0.35, 0.8), (0.12, 0.25, 0.4)
#: The least such standard deviations; the share of the standard deviation between families that
#: holds within one; and the least ramp, since its logarithm is pooled. All are assumptions.
_LEAST_SD, _FAMILY_SHARE = (0.05, 0.10, 0.2), 0.7
_LEAST_RAMP = 0.01


def curve_rows(curves: Iterable[CollectiveCurve], without: Collection[str] = ()) -> list[Any]:
    """The curves as entries of the profile's file: message sizes in bytes and times in us.

    Curves with fewer than ``MIN_POINTS`` points and of families in ``without`` are left out.
    """
    rows = []
    for c in merged(curves):
        if len(c.n_bytes) < MIN_POINTS or family_of(c.gpu) in without:
            continue
        at = np.unique(np.round(np.linspace(0, len(c.n_bytes) - 1, POINTS)).astype(int))
        if len(c.n_bytes) > POINTS:
            grid = np.geomspace(c.n_bytes[0], c.n_bytes[-1], POINTS)
            at = np.unique(np.abs(np.log(c.n_bytes[:, None] / grid)).argmin(axis=0))
        rows.append({
            "path": c.path, "gpu": c.gpu, "collective": c.op, "ranks": c.ranks, "source": c.origin,
            "bytes": [int(v) for v in c.n_bytes[at]],
            "us": [float(f"{v / MICRO:.4g}") for v in c.time_s[at]],
        })  # fmt: skip
    return sorted(rows, key=lambda r: [str(r[k]) for k in ("path", "gpu", "collective", "ranks")])


def collective_section(
    curves: Sequence[CollectiveCurve], without: Collection[str] = ()
) -> dict[str, Any]:
    """Fits by path, collective and ranks: pooled over families, and by family.

    A value is the bus bandwidth as a share of one direction of the link. Families in ``without``
    are left out.
    """
    fitted: dict[tuple[str, str, int], dict[str, list[tuple[float, float, float]]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for c in merged(curves):
        if len(c.n_bytes) < MIN_POINTS or c.origin == NOISY or family_of(c.gpu) in without:
            continue
        fit = fit_collective(c.n_bytes, c.time_s)
        share = fit.message_bytes_per_s * bus_factor(c.op, c.ranks) / c.link_bytes_per_s
        fitted[c.path, c.op, c.ranks][family_of(c.gpu)].append(
            (share, fit.latency_s, max(fit.ramp, _LEAST_RAMP))
        )
    section: dict[str, Any] = {"pooled": {}, "by_family": {}}
    for (path, op, ranks), families in sorted(fitted.items()):
        mids = {f: np.exp(np.mean(np.log(v), axis=0)) for f, v in families.items()}
        logs = np.log(np.array(list(mids.values())))
        alone = np.array(_ALONE_PCIE if path.startswith("pcie") else _ALONE)
        spread = np.std(logs, axis=0, ddof=1) if len(logs) > 2 else alone
        spread = np.maximum(spread, _LEAST_SD)
        place = section["pooled"].setdefault(path, {}).setdefault(op, {})
        place[ranks] = _leaf(np.exp(np.median(logs, axis=0)), spread, len(mids))
        for family, mid in sorted(mids.items()):
            by_op = section["by_family"].setdefault(family, {}).setdefault(path, {})
            by_op.setdefault(op, {})[ranks] = _leaf(
                mid, _FAMILY_SHARE * spread, len(families[family])
            )
    return section


def _leaf(values: Any, spread: Any, n: int) -> dict[str, Any]:
    return {
        "value": float(f"{values[0]:.3g}"), "sd_log": float(f"{spread[0]:.2g}"),
        "latency": f"{values[1] / MICRO:.3g} us", "ramp": float(f"{values[2]:.2g}"),
        "n": n, "source": "pooled",
    }  # fmt: skip
