"""Measured collectives between nodes, where a table says over which network."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import Final

import numpy as np

from simcore.base.arrays import NDArray
from simcore.base.errors import SimcoreError, UnknownName
from simcore.base.units import MICRO
from simcore.calibrate.curve_fits import Array
from simcore.calibrate.nccl_groups import PRICED
from simcore.calibrate.op_tables import Table
from simcore.hardware.cluster import ClusterSpec, parse_cluster
from simcore.hardware.spec import GPUS
from simcore.physics.collectives import ALGORITHMS

#: What tables call the library's own choice of algorithm.
TUNED: Final = ("", "NCCL", "auto")
#: Ports of a node and their rate: 8x400G IB, EFAv4 8x400G/node.
_PORTS: Final = re.compile(r"(?P<ports>\d+)x(?P<gbit>\d+)G")
#: InfiniBand's generations by the rate of a port, Gbit/s.
_INFINIBAND: Final = {100: "ib-edr", 200: "ib-hdr", 400: "ib-ndr", 800: "ib-xdr"}


@dataclass(frozen=True)
class AcrossRun:
    """One collective over all devices of a cluster.

    ``algorithm``: the one that the library was held to, "" for its own choice. Sizes [rows] in
    bytes of the message (all-gather: the gathered output), seconds beside.
    """

    op: str
    algorithm: str
    cluster: ClusterSpec
    n_bytes: Array
    time_s: Array

    @property
    def title(self) -> str:
        """The collective, nodes by devices in each, and what the library was held to."""
        group = self.cluster.groups[0]
        told = f"{self.op} {group.n_nodes}x{group.gpus_per_node}"
        return f"{told} {self.algorithm}" if self.algorithm else told


def network_of(link: str) -> str:
    """The network of a table's words, as ``--network`` says it; "" where they leave its kind open.

    Raises KeyError for a rate that no link of the kind has.
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
    """Why a row between nodes is not judged; "" where it is."""
    op, algo = table.text("collective")[row], table.text("algo")[row]
    if not table.text("time_us")[row] or not table.text("size_bytes")[row]:
        return "no time or no size (published as bus bandwidth)"
    if op not in PRICED:
        return f"collective {op!r} is not modelled between nodes"
    if not _held_to(algo) and algo.split(" ")[0] not in TUNED:  # auto (a tuner of the cloud's)
        return str(UnknownName("collective algorithm", algo, ALGORITHMS))
    try:
        network = network_of(table.text("inter_link")[row])
    except KeyError as err:
        return str(err.args[0])
    return "" if network else "collectives between nodes over a network that is not stated"


def _held_to(algo: str) -> str:
    """The algorithm that a table says was forced; "" for the library's own choice."""
    return algo if algo in ALGORITHMS else ""


def across_runs(
    table: Table, rows: NDArray[np.intp], device_of: dict[str, str], skipped: Counter[str]
) -> list[AcrossRun]:
    """Runs of the good ``rows`` [n] of a table; ``skipped`` counts those of unknown clusters.

    ``device_of``: names of devices that tables shorten to what is another card here.
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
        groups[ops[row], names[row], m, n // m, links[row], _held_to(algos[row])].append(int(row))
    found = []
    for (op, name, m, each, link, algorithm), mine in groups.items():
        try:
            gpu = GPUS[device_of.get(name, name)].name
            cluster = parse_cluster(f"{m}x{each}x{gpu}", network=network_of(link))
        except SimcoreError as err:
            skipped[str(err)] += len(mine)
            continue
        order = np.array(mine)[np.argsort(sizes[mine], kind="stable")]
        found.append(AcrossRun(op, algorithm, cluster, sizes[order], time_s[order]))
    return found
