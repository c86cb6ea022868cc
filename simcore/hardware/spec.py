"""Records of ``hardware_db``: accelerators, links, nodes. Every figure names its source.

YAML figures are ``{value: 960 GB/s, source: datasheet}``; ``source`` is a key of the file's
``sources`` map, which holds the citation. Capacities of device memory are binary (a "48 GB"
card holds 48 GiB), bandwidths are decimal and per direction.
"""

from __future__ import annotations

from math import nan
from typing import Literal

from pydantic import Field, model_validator

from simcore.base.database import Database
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
)
from simcore.base.units import MICRO

#: Arithmetic that a kernel may run in. ``fp16`` and ``bf16`` accumulate in fp32;
#: ``fp16_acc16`` is the rate with fp16 accumulation, where the two differ (GeForce);
#: ``fp32_matrix`` that of fp32 products on matrix units, where it exceeds the vector units' (CDNA).
PeakName = Literal[
    "fp64", "fp32", "fp32_matrix", "tf32", "fp16", "fp16_acc16", "bf16", "fp8", "int8", "fp4"
]  # fmt: skip


class PciePort(Part):
    """The device's host port; the bandwidth is that of the link record it names."""

    generation: int = Field(ge=3, le=7)
    lanes: int = Field(ge=1, le=16)
    source: str


#: Less of its memory than this is reported where ECC bits take a sixteenth of it; what firmware
#: keeps is half of a hundredth.
_ALL_BUT_ECC_BITS = 0.95


class GpuSpec(Sourced):
    """One accelerator as its datasheet has it. Peaks are dense.

    ``nvlink_bw`` is the scale-up bandwidth of one device, all links, one direction (NVLink,
    Infinity Fabric, HCCS, MTLink, ICI); absent where the device has none or none is fitted.
    """

    full_name: str
    vendor: str
    architecture: str
    form_factor: Literal["sxm", "pcie", "oam", "module", "soc"]
    released: int | None = Field(default=None, ge=2010, le=2030)
    process_nm: float | None = Field(
        default=None, gt=0, description="foundry node; for the power-limit term"
    )
    sm_count: Count | None = None
    boost_clock: Hertz | None = None
    base_clock: Hertz | None = Field(
        default=None, description="what the vendor states for the heaviest load within its power"
    )
    sustained_clock: Hertz | None = Field(
        default=None, description="what the vendor rates machines of it at, held for hours in HPL"
    )
    exp_per_sm_clock: Count | None = Field(
        default=None, description="exponentials of an SM and clock, where not the usual 16"
    )
    peak_flop_per_s: dict[PeakName, FlopRate] = Field(min_length=1)
    memory_size: Bytes
    memory_visible: Bytes | None = Field(
        default=None, description="what the driver reports as total, ECC as shipped in servers"
    )
    memory_cuda: Bytes | None = Field(
        default=None, description="what CUDA offers of it, as PyTorch's messages print"
    )
    memory_bw: Bandwidth
    l2_size: Bytes | None = None
    tdp: Watts | None = None
    pcie: PciePort | None = None
    nvlink_bw: Bandwidth | None = None
    peer_to_peer: Literal["nvlink", "pcie", "none"] = Field(
        description="best path on which one device reads another's memory directly"
    )
    mig_instances: Count | None = None
    notes: str = ""

    def peak(self, name: PeakName) -> float | None:
        """Dense peak [FLOP/s], or None where the device has no such unit."""
        figure = self.peak_flop_per_s.get(name)
        return figure.value if figure else None

    @property
    def fp32_product_peak(self) -> float | None:
        """Dense peak of matrix products in fp32 [FLOP/s], on whichever units run them."""
        return self.peak("fp32_matrix") or self.peak("fp32")

    @property
    def tdp_w(self) -> float:
        """Board power [W]; not a number where nobody states it (a measured record)."""
        return self.tdp.value if self.tdp else nan

    @property
    def clock_hz(self) -> float:
        """Boost clock [Hz]; not a number where nobody states it."""
        return self.boost_clock.value if self.boost_clock else nan

    @property
    def node_nm(self) -> float:
        """Foundry node [nm]; not a number where nobody states it."""
        return self.process_nm or nan

    @property
    def inline_ecc(self) -> bool:
        """Whether error correction keeps its bits in the memory itself (GDDR), as shipped: a
        sixteenth is missing from what the driver reports. HBM has a place of its own for them.
        """
        seen = self.memory_visible
        return seen is not None and seen.value < _ALL_BUT_ECC_BITS * self.memory_size.value

    @property
    def usable_memory_bytes(self) -> float:
        """Memory that the driver offers, before any context."""
        return (self.memory_cuda or self.memory_visible or self.memory_size).value


#: A hop over a NIC in NCCL's tables, protocol Simple (src/graph/tuning.cc).
NET_HOP_S = 14.0 * MICRO
LinkKind = Literal["pcie", "nvlink", "infiniband", "roce", "ethernet", "socket", "c2c"]


class LinkSpec(Sourced):
    """One kind of link: line rate of one direction, and what of it payload can reach.

    ``payload_frac`` is protocol and implementation overhead of bulk transfers (TLP headers,
    TCP/IP copies); ``latency`` is one way, software included; ``nccl_latency`` what a network's
    plugin reports to NCCL.
    """

    kind: LinkKind
    full_name: str
    bw: Bandwidth
    payload_frac: Count
    latency: Seconds
    nccl_latency: Seconds | None = None

    @property
    def nic_latency_s(self) -> float:
        """What NCCL adds to a hop over this NIC: as reported, or half of what a hop of its
        Simple protocol, which waits twice, has beyond its table's 14 us.
        """
        if self.nccl_latency is not None:
            return self.nccl_latency.value
        return max(0.0, self.latency.value - NET_HOP_S) / 2.0


class Cpu(Part):
    """Host processor: what feeds loaders, CPU optimisers and pageable copies."""

    model: str
    sockets: int = Field(ge=1, le=72)
    cores_per_socket: int = Field(ge=1)
    dram_bw_per_socket: Bandwidth
    dram_size: Bytes


class Nic(Part):
    """Network ports of one kind; ``count`` of them share the node's traffic evenly."""

    link: str
    count: int = Field(ge=1, le=144)


class Nvme(Part):
    """Local NVMe, all drives together."""

    read_bw: Bandwidth
    write_bw: Bandwidth


class NodeSpec(Sourced):
    """A server or workstation.

    ``fabric`` says how its GPUs reach each other:
      nvswitch  every pair at full NVLink bandwidth
      nvlink-mesh  point-to-point NVLinks (DGX-1, HCCS ring, bridges over all GPUs)
      nvlink-pairs  bridges join pairs, PCIe the rest
      pcie      PCIe only, through switches and sockets
    ``mesh_rings`` of a mesh whose pairs are not all joined alike: how many of a device's links the
    disjoint rings over its first 2, 3, … ``max_gpus`` devices use; all of them where it is empty.
    ``tray_gpus``: devices of a tray, where the record is of a rack that clusters count in trays.
    ``gpus_per_pcie_root`` GPUs share one upstream port of link ``pcie_link`` (1: each its own).
    ``peer_to_peer``: whether devices reach each other's memory; otherwise all they exchange goes
    through host memory, NVLink or not (NCCL_P2P_DISABLE=1, PCIe access control, some VMs).
    """

    full_name: str
    gpu_types: tuple[str, ...] = ()
    max_gpus: int = Field(ge=1, le=72)
    fabric: Literal["nvswitch", "nvlink-mesh", "nvlink-pairs", "pcie"]
    mesh_rings: tuple[int, ...] = ()
    pcie_link: str
    gpus_per_pcie_root: int = Field(default=1, ge=1, le=16)
    tray_gpus: int | None = Field(default=None, ge=1, le=16)
    socket_link: str | None = None
    peer_to_peer: bool = True
    cpu: Cpu
    nics: tuple[Nic, ...] = ()
    nvme: Nvme | None = None
    notes: str = ""

    @model_validator(mode="after")
    def rings_of_every_size(self) -> NodeSpec:
        """Refuse a mesh that leaves out a number of GPUs."""
        if self.mesh_rings and len(self.mesh_rings) != self.max_gpus - 1:
            raise ValueError(f"mesh_rings must name rings of 2 to {self.max_gpus} GPUs")
        return self


GPUS: Database[GpuSpec] = Database("gpu", "hardware_db/gpus", GpuSpec)
LINKS: Database[LinkSpec] = Database("link", "hardware_db/links", LinkSpec)
NODES: Database[NodeSpec] = Database("node", "hardware_db/nodes", NodeSpec)
