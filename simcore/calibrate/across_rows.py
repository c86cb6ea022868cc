"""Measured collectives between nodes, from tables that state the network."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from typing import Final

import numpy as np

from simcore.base.arrays import NDArray
from simcore.base.errors import SimcoreError, UnknownName
from simcore.base.record import dataclass
from simcore.base.units import MICRO
from simcore.calibrate.curve_fits import Array
from simcore.calibrate.nccl_groups import PRICED
from simcore.calibrate.op_tables import Table
from simcore.hardware.cluster import ClusterSpec, parse_cluster
from simcore.hardware.spec import GPUS
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
