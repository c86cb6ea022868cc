"""Records of ``hardware_db``: accelerators, links, nodes; the switches between nodes in words.

Every figure of a record names its source.

YAML figures are written ``{value: 960 GB/s, source: datasheet}``; ``source`` is a key of the file's
``sources`` map, which holds the citation. Capacities of device memory are binary (a "48 GB"
card holds 48 GiB), bandwidths are decimal and per direction.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from math import nan
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

from simcore.base.database import Database
from simcore.base.errors import InvalidConfig
from simcore.base.figures import (
    Bandwidth,
    Bytes,
    Count,
    FlopRate,
    Hertz,
    Part,
    Seconds,
    Sourced,
    Watts,
    entry,
)
from simcore.base.record import dataclass
from simcore.base.units import MICRO

if TYPE_CHECKING:
    from simcore.hardware.gpu_names import Meant

#: Arithmetic that a kernel may run in. ``fp16`` and ``bf16`` accumulate in fp32.
#: ``fp16_acc16``: with fp16 accumulation, where its peak differs (GeForce). ``fp32_matrix``: fp32
#: products on matrix units, where their peak exceeds that of the vector units (CDNA).
PeakName = Literal[
    "fp64", "fp32", "fp32_matrix", "tf32", "fp16", "fp16_acc16", "bf16", "fp8", "int8", "fp4"
]  # fmt: skip

#: Most devices of a node, which may be a domain of several cabinets (384 in Huawei's CloudMatrix).
MOST_GPUS = 384


class PciePort(Part):
    """The device's PCIe port; its bandwidth is in the link record of its generation."""

    generation: int = entry(ge=3, le=7)
    lanes: int = entry(ge=1, le=16)
    source: str


#: Share of its memory below which a device must have inline ECC: ECC bits take a sixteenth of the
#: memory, firmware only 0.5 %.
_ALL_BUT_ECC_BITS = 0.95


class GpuSpec(Sourced):
    """One accelerator by its datasheet. Peaks are dense (without sparsity).

    ``nvlink_bw``: scale-up bandwidth of one device over all its links, per direction (NVLink,
    Infinity Fabric, HCCS, MTLink, ICI); absent where the device has no such links installed.
    """

    full_name: str
    vendor: str
    architecture: str
    form_factor: Literal["sxm", "pcie", "oam", "module", "soc"]
    released: int | None = entry(default=None, ge=2010, le=2030)
    process_nm: float | None = entry(
        default=None, gt=0, description="foundry node; for the power-limit term"
    )
    sm_count: Count | None = None
    boost_clock: Hertz | None = None
    base_clock: Hertz | None = entry(
        default=None, description="the vendor's clock for the heaviest load within the power limit"
    )
    sustained_clock: Hertz | None = entry(
        default=None, description="clock at which its vendor rates machines, held for hours in HPL"
    )
    exp_per_sm_clock: Count | None = entry(
        default=None, description="exponentials per SM and clock, where they are not 16"
    )
    peak_flop_per_s: dict[PeakName, FlopRate] = entry(min_length=1)
    memory_size: Bytes
    memory_visible: Bytes | None = entry(
        default=None, description="total that the driver reports, with ECC as shipped in servers"
    )
    memory_cuda: Bytes | None = entry(
        default=None, description="total that CUDA offers, as PyTorch's messages print it"
    )
    memory_bw: Bandwidth
    l2_size: Bytes | None = None
    tdp: Watts | None = None
    pcie: PciePort | None = None
    nvlink_bw: Bandwidth | None = None
    peer_to_peer: Literal["nvlink", "pcie", "none"] = entry(
        description="best path on which one device reads another's memory directly"
    )
    mig_instances: Count | None = None
    array_side: Count | None = entry(
        default=None, description="side of the systolic arrays that compute products"
    )
    program_devices: int = entry(
        default=1, ge=1, le=8, description="devices that programs see in this one (cores, dies)"
    )
    preliminary: bool = entry(
        default=False, description="figures are announced; sources disagree, nothing is measured"
    )
    notes: str = ""

    def peak(self, name: PeakName) -> float | None:
        """Dense peak [FLOP/s]; None where the device has no such unit."""
        figure = self.peak_flop_per_s.get(name)
        return figure.value if figure else None

    @property
    def noun(self) -> str:
        """What a reader calls one device: a GPU, a TPU's chip, a processor."""
        named = {"TPU": "chip", "Trainium": "chip", "CPU": "processor"}
        return named.get(self.architecture, "GPU")

    @property
    def fp32_product_peak(self) -> float | None:
        """Dense peak of matrix products in fp32 [FLOP/s], on whichever units run them."""
        return self.peak("fp32_matrix") or self.peak("fp32")

    @property
    def tdp_w(self) -> float:
        """Board power [W]; NaN where it is not stated (a measured record)."""
        return self.tdp.value if self.tdp else nan

    @property
    def clock_hz(self) -> float:
        """Boost clock [Hz]; NaN where it is not stated."""
        return self.boost_clock.value if self.boost_clock else nan

    @property
    def node_nm(self) -> float:
        """Foundry node [nm]; NaN where it is not stated."""
        return self.process_nm or nan

    @property
    def inline_ecc(self) -> bool:
        """Whether ECC, as shipped, stores its bits among the data (GDDR).

        The driver then reports a sixteenth less memory. HBM has separate cells for ECC bits.
        """
        visible = self.memory_visible
        return visible is not None and visible.value < _ALL_BUT_ECC_BITS * self.memory_size.value

    @property
    def usable_memory_bytes(self) -> float:
        """Device memory that the driver offers before any CUDA context [bytes]."""
        return (self.memory_cuda or self.memory_visible or self.memory_size).value


#: Latency of a hop over a NIC in NCCL's tables, protocol Simple (src/graph/tuning.cc).
NET_HOP_S = 14.0 * MICRO
LinkKind = Literal["pcie", "nvlink", "infiniband", "roce", "ethernet", "socket", "c2c"]


class LinkSpec(Sourced):
    """One kind of link: its line rate per direction, and the share that payload reaches.

    ``payload_frac``: what protocol and implementation overhead (TLP headers, TCP/IP copies) leave
    of the line rate for bulk transfers. ``latency``: one way, software included. ``nccl_latency``:
    the latency that a network's plugin reports to NCCL.
    """

    kind: LinkKind
    full_name: str
    bw: Bandwidth
    payload_frac: Count
    latency: Seconds
    nccl_latency: Seconds | None = None

    @property
    def nic_latency_s(self) -> float:
        """Latency of this NIC that NCCL adds to a hop [s].

        The latency that the plugin reports; otherwise half of what ``latency`` exceeds the 14 us in
        NCCL's table, since a hop of the Simple protocol waits twice for the NIC.
        """
        if self.nccl_latency is not None:
            return self.nccl_latency.value
        return max(0.0, self.latency.value - NET_HOP_S) / 2.0


class Cpu(Part):
    """Host processors of a node, which run data loaders, CPU optimizers and pageable copies."""

    model: str
    sockets: int = entry(ge=1, le=192)
    cores_per_socket: int = entry(ge=1)
    dram_bw_per_socket: Bandwidth
    dram_size: Bytes


class Nic(Part):
    """Network ports of one kind; the node's traffic is spread evenly over ``count`` ports."""

    link: str
    count: int = entry(ge=1, le=3072)


class Nvme(Part):
    """Bandwidth of a node's local NVMe drives, all together."""

    read_bw: Bandwidth
    write_bw: Bandwidth


class Torus(Part):
    """How the chips of several hosts form one slice, a torus of links between neighbours.

    ``axes``: of the torus. ``ring_multiple``: an axis of a multiple of this many chips is closed to
    a ring, any other is a line. ``max_chips`` of a slice. ``named_cores``: cores a chip that names
    of slices such as v5p-256 count.
    """

    axes: Literal[2, 3]
    ring_multiple: int = entry(ge=2, le=64)
    max_chips: int = entry(ge=1, le=65_536)
    named_cores: int = entry(default=1, ge=1, le=16)


class NodeSpec(Sourced):
    """A server or workstation.

    ``fabric``: how its GPUs reach each other:
      nvswitch      every pair at full NVLink bandwidth
      nvlink-mesh   point-to-point NVLinks (DGX-1, HCCS ring, bridges over all GPUs)
      nvlink-pairs  NVLink bridges within pairs, PCIe between pairs
      pcie          PCIe only, through switches and sockets
      torus         links to the neighbours on each axis of a torus, which joins hosts (``torus``)
    ``mesh_rings``: for a mesh whose pairs have different numbers of links, the number of a device's
    links that disjoint rings over the first 2, 3, … ``max_gpus`` devices use; empty: all links.
    ``tray_gpus``: devices per tray, where the record is a rack that clusters count in trays.
    ``gpus_per_pcie_root``: GPUs that share one upstream port of link ``pcie_link``.
    ``peer_to_peer``: whether devices can access each other's memory. Otherwise all their traffic
    goes through host memory, even with NVLink (NCCL_P2P_DISABLE=1, PCIe access control, some VMs).
    ``memory_domains``: NUMA nodes a socket, where they are stated. With fewer than four on an AMD
    host exchanges through the memory of both sockets are slow (NVIDIA/nccl-tests issue 74).
    ``sockets_visible``: whether programs see which processor a device belongs to. In a virtual
    machine that hides it all devices seem to be below one bridge (NVIDIA/nccl issue 1298), and
    NCCL's buffers lie in the memory of either processor.
    """

    full_name: str
    gpu_types: tuple[str, ...] = ()
    max_gpus: int = entry(ge=1, le=MOST_GPUS)
    fabric: Literal["nvswitch", "nvlink-mesh", "nvlink-pairs", "pcie", "torus"]
    torus: Torus | None = None
    mesh_rings: tuple[int, ...] = ()
    pcie_link: str
    gpus_per_pcie_root: int = entry(default=1, ge=1, le=16)
    tray_gpus: int | None = entry(default=None, ge=1, le=16)
    socket_link: str | None = None
    peer_to_peer: bool = True
    memory_domains: int | None = entry(default=None, ge=1, le=16)
    sockets_visible: bool = True
    cpu: Cpu
    nics: tuple[Nic, ...] = ()
    nvme: Nvme | None = None
    notes: str = ""

    def check(self) -> None:
        """Raises ValueError where ``mesh_rings`` lacks a number of GPUs too."""
        super().check()
        if self.mesh_rings and len(self.mesh_rings) != self.max_gpus - 1:
            raise ValueError(f"mesh_rings must name rings of 2 to {self.max_gpus} GPUs")
        if (self.fabric == "torus") != (self.torus is not None):
            raise ValueError("fabric torus needs the key torus, and only it")

    @property
    def most_gpus(self) -> int:
        """Devices that can be one node of a cluster: those of a slice, else those of the server."""
        return self.torus.max_chips if self.torus else self.max_gpus


#: What a suffix of a node's name, or the suffix as its whole name, changes of its record: devices
#: exchange data through host memory; the node is a virtual machine that hides its sockets.
NODE_CHANGES = {"no-p2p": {"peer_to_peer": False}, "vm": {"sockets_visible": False}}


@lru_cache(maxsize=256)
def changed_node(node: NodeSpec, suffix: str) -> NodeSpec:
    """The same node without peer-to-peer access, or as a virtual machine.

    It has another name, so that calibrations of the node itself do not apply.
    """
    return node.model_copy(update={**NODE_CHANGES[suffix], "name": f"{node.name}:{suffix}"})


class GpuDatabase(Database[GpuSpec]):
    """The GPU records, found by name, by alias, or by a name that states more (``gpu_names``)."""

    def path(self, name: str) -> Path | None:
        """The file of a GPU; records are read only where no name or alias matches."""
        exact = super().path(name)
        if exact is not None or not name.strip():
            return exact
        from simcore.hardware.gpu_names import readings  # most names are a record's own

        found = ((meant, super(GpuDatabase, self).path(meant.name)) for meant in readings(name))
        return next((p for meant, p in found if p is not None and self._is(p, meant)), None)

    def _is(self, path: Path, meant: Meant) -> bool:
        gpu = self._read(path)
        sizes = (gpu.memory_size, gpu.memory_visible)
        return meant.agrees(
            tuple(s.value for s in sizes if s is not None), gpu.tdp_w, gpu.form_factor
        )


GPUS: GpuDatabase = GpuDatabase("gpu", "hardware_db/gpus", GpuSpec)
LINKS: Database[LinkSpec] = Database("link", "hardware_db/links", LinkSpec)
NODES: Database[NodeSpec] = Database("node", "hardware_db/nodes", NodeSpec)


#: Ports assumed for a leaf switch where its number of nodes is not stated: NVIDIA Quantum-2 QM9700,
#: 64 x 400 Gbit/s.
LEAF_PORTS = 64
_RATIO = re.compile(r"^(\d+(?:\.\d+)?):1$")
_LEAF = re.compile(r"^leaf=?(\d{1,18})$")
WORDS = ("rails", "sharp")


class FabricGraph(Protocol):
    """What a cluster knows of a fabric that is a graph (``hardware.fabrics.record``)."""

    @property
    def by_rails(self) -> bool:
        """Whether each leaf switch joins the NICs of equal index of its nodes."""

    @property
    def assumed(self) -> str:
        """What a prediction on it assumes, as one sentence."""

    def placed(self, n_nodes: int) -> tuple[int, ...]:
        """The nodes on which a job of ``n_nodes`` runs. Raises InvalidConfig if it has fewer."""


@dataclass(frozen=True)
class Fabric:
    """A fat tree: ``leaf_nodes`` nodes per leaf switch (0: as many as a switch has ports for).

    ``oversubscription``: bandwidth from the nodes into a leaf over that of its uplinks. ``rails``:
    each leaf joins the NICs of equal index of its nodes. ``sharp``: whether switches reduce.
    ``graph``: the fabric of ``--fabric``, whose flows then take the place of the other figures.
    """

    oversubscription: float = 1.0
    leaf_nodes: int = 0
    rails: bool = False
    sharp: bool = False
    graph: FabricGraph | None = None

    def nodes_of_leaf(self, nics: int) -> float:
        """Nodes of ``nics`` ports each per leaf switch; infinite where uplinks never bind."""
        if self.oversubscription <= 1.0:
            return float("inf")
        if self.leaf_nodes:
            return float(self.leaf_nodes)
        down = int(LEAF_PORTS * self.oversubscription / (1.0 + self.oversubscription))
        return float(max(1, down if self.rails else down // max(1, nics)))

    def __str__(self) -> str:
        """Text that ``parse_fabric`` accepts; empty for the default fabric."""
        words = [f"{self.oversubscription:g}:1"] if self.oversubscription > 1 else []
        words += [f"leaf={self.leaf_nodes}"] if self.leaf_nodes else []
        words += [w for w in WORDS if getattr(self, w) and (w != "rails" or self.graph is None)]
        return " ".join(words)


#: The default fabric: every node reaches every other at the full rate of its NICs.
FLAT = Fabric()


def parse_fabric(words: Sequence[str]) -> Fabric:
    """The fabric that ``4:1``, ``leaf=16``, ``rails`` and ``sharp`` state. Raises InvalidConfig."""
    ratio, leaf, flags, problems = 1.0, 0, set(), []
    for word in (w.strip().lower() for w in words):
        if match := _RATIO.match(word):
            ratio = float(match[1])
            if not 1.0 <= ratio <= 64.0:
                problems.append(f"oversubscription {word!r}: 1:1 to 64:1")
        elif match := _LEAF.match(word):
            leaf = int(match[1])
            if not 1 <= leaf <= 100_000:
                problems.append(f"{word!r}: 1 to 100,000 nodes a leaf switch")
        elif word in WORDS:
            flags.add(word)
        else:
            problems.append(f"{word!r} of a network is none of 4:1, leaf=16, {', '.join(WORDS)}")
    if problems:
        raise InvalidConfig(problems)
    return Fabric(ratio, leaf, "rails" in flags, "sharp" in flags)


def is_fabric_word(word: str) -> bool:
    """Whether a word of ``--network`` describes the fabric, and not the links."""
    low = word.strip().lower()
    return bool(_RATIO.match(low) or "=" in low or low in WORDS)


def with_graph(words: Fabric, graph: FabricGraph | None, n_nodes: int) -> Fabric:
    """The switches of a network's words, or those of a graph for a job of ``n_nodes``.

    Raises InvalidConfig where both are given, and where the graph has fewer nodes.
    """
    if graph is None:
        return words
    if replace(words, sharp=False) != FLAT:
        raise InvalidConfig([f"give the switches in --fabric or as words of --network ({words}), "
                             "not both"])  # fmt: skip
    graph.placed(n_nodes)
    return replace(words, rails=graph.by_rails, graph=graph)
