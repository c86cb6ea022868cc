"""The hardware record of a machine that is not in the database, made from measured peaks.

It is written as ``hardware_db/gpus/NAME.yaml`` and ``hardware_db/nodes/NAME.yaml`` in the profile's
folder, so that ``--gpus 1x2xNAME`` finds it from that folder (or with SIMCORE_DB set to it).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from simcore.base.atomic import write_text
from simcore.base.figures import Figure
from simcore.base.record import dataclass
from simcore.base.units import GIGA, MEGA, format_si
from simcore.calibrate.yaml_text import yaml_text
from simcore.hardware.cluster import ClusterSpec, NodeGroup
from simcore.hardware.profile import HOST_CPU
from simcore.hardware.spec import Cpu, GpuSpec, NodeSpec, Nvme

MEASURED: Final = "measured"
_HEAD: Final = "# Measured by `simcore calibrate`; not a datasheet.\n"


@dataclass(frozen=True)
class Machine:
    """The records of a machine's devices and node; ``new``: both were made from measurements."""

    gpu: GpuSpec
    node: NodeSpec
    ranks: int
    new: bool

    def cluster(self, ranks: int) -> ClusterSpec:
        """A cluster of one such node with ``ranks`` devices in use."""
        return ClusterSpec((NodeGroup(1, ranks, self.gpu, self.node),))


@dataclass(frozen=True)
class Facts:
    """What the system reports of a machine, and measured rates in SI units (0: not measured).

    ``peer``: devices can copy to each other directly.
    """

    name: str
    kind: str
    device: str
    source: str
    ranks: int
    cores: int
    memory_bytes: float
    host_bytes: float
    flop_per_s: Mapping[str, float]
    bytes_per_s: float
    host_bytes_per_s: float
    bus_bytes_per_s: float
    disk_read_bytes_per_s: float
    disk_write_bytes_per_s: float
    sm_count: int = 0
    peer: bool = True


def record_of(facts: Facts) -> Machine:
    """The record of a machine without a datasheet: its best measured rates, marked as measured."""

    def figure(value: float) -> Figure:
        return Figure(value=float(f"{value:.4g}"), source=MEASURED)

    on_host = facts.kind == "cpu"
    gpu = GpuSpec(
        name=facts.name,
        full_name=facts.device,
        vendor=facts.device.split()[0],
        architecture=HOST_CPU if on_host else "unknown",
        form_factor="soc" if on_host else "module",
        sm_count=figure(facts.sm_count) if facts.sm_count else None,
        peak_flop_per_s={k: figure(v) for k, v in facts.flop_per_s.items()},  # type: ignore[misc]
        memory_size=figure(facts.memory_bytes),
        memory_bw=figure(facts.bytes_per_s),
        peer_to_peer="pcie" if facts.peer else "none",
        sources={MEASURED: facts.source},
        notes="Peaks are the best measured rates, not a datasheet's.",
    )
    # ``pcie_link`` also accepts a rate as text. A single rank has no link; it gets the memory's
    # bandwidth.
    bus = facts.bus_bytes_per_s or facts.bytes_per_s
    node = NodeSpec(
        name=facts.name,
        full_name=f"{facts.device}: {facts.ranks} rank{'s' if facts.ranks > 1 else ''}",
        gpu_types=(facts.name,),
        max_gpus=facts.ranks,
        fabric="pcie",
        pcie_link=format_si(bus, "B/s", 4),
        cpu=Cpu(
            model=facts.device,
            sockets=1,
            cores_per_socket=facts.cores,
            dram_bw_per_socket=figure(facts.host_bytes_per_s or facts.bytes_per_s),
            dram_size=figure(facts.host_bytes),
        ),
        nvme=(
            Nvme(read_bw=figure(facts.disk_read_bytes_per_s),
                 write_bw=figure(facts.disk_write_bytes_per_s))
            if facts.disk_read_bytes_per_s and facts.disk_write_bytes_per_s else None
        ),
        sources={MEASURED: facts.source},
        notes="The link is the best bus bandwidth of an all-reduce between its ranks.",
    )  # fmt: skip
    return Machine(gpu, node, facts.ranks, new=True)


def write_record(machine: Machine, folder: Path) -> tuple[Path, Path]:
    """Write both records under ``folder``/hardware_db and return the paths (device, node)."""
    gpu, node = machine.gpu, machine.node
    targets = tuple(
        folder / "hardware_db" / kind / f"{gpu.name}.yaml" for kind in ("gpus", "nodes")
    )

    def figure(value: float, unit: str) -> dict[str, str]:
        return {"value": _plain(value, unit), "source": MEASURED}

    card: dict[str, Any] = {
        "name": gpu.name,
        "full_name": gpu.full_name,
        "vendor": gpu.vendor,
        "architecture": gpu.architecture,
        "form_factor": gpu.form_factor,
        "sources": dict(gpu.sources),
        "peak_flop_per_s": {
            k: figure(f.value, "FLOP/s") for k, f in gpu.peak_flop_per_s.items()
        },
        "memory_size": figure(gpu.memory_size.value, "B"),
        "memory_bw": figure(gpu.memory_bw.value, "B/s"),
        "peer_to_peer": gpu.peer_to_peer,
        "notes": gpu.notes,
    }  # fmt: skip
    if gpu.sm_count:
        card["sm_count"] = {"value": gpu.sm_count.value, "source": MEASURED}
    for target, data in zip(targets, (card, node_data(node)), strict=True):
        target.parent.mkdir(parents=True, exist_ok=True)
        write_text(target, _HEAD + yaml_text(data))
    return targets[0], targets[1]


def node_data(node: NodeSpec) -> dict[str, Any]:
    """A node as plain data in the form of its file; empty fields are left out."""

    def figure(of: Figure, unit: str) -> dict[str, str]:
        return {"value": _plain(of.value, unit), "source": of.source}

    data: dict[str, Any] = {
        "name": node.name,
        "full_name": node.full_name,
        "sources": dict(node.sources),
        "gpu_types": list(node.gpu_types),
        "max_gpus": node.max_gpus,
        "fabric": node.fabric,
        "mesh_rings": list(node.mesh_rings),
        "pcie_link": node.pcie_link,
        "gpus_per_pcie_root": node.gpus_per_pcie_root,
        "socket_link": node.socket_link,
        "cpu": {
            "model": node.cpu.model,
            "sockets": node.cpu.sockets,
            "cores_per_socket": node.cpu.cores_per_socket,
            "dram_bw_per_socket": figure(node.cpu.dram_bw_per_socket, "B/s"),
            "dram_size": figure(node.cpu.dram_size, "B"),
        },
        "nics": [{"link": n.link, "count": n.count} for n in node.nics],
        "nvme": node.nvme
        and {
            "read_bw": figure(node.nvme.read_bw, "B/s"),
            "write_bw": figure(node.nvme.write_bw, "B/s"),
        },
        "notes": node.notes,
    }
    # Empty ``gpu_types`` are written too: they mean that no GPU uses the node by default.
    always = ("gpu_types",)
    return {k: v for k, v in data.items() if k in always or v not in (None, [], "")}


def _plain(value: float, unit: str) -> str:
    size = (GIGA, "G") if value >= GIGA else (MEGA, "M")
    return f"{value / size[0]:.6g} {size[1]}{unit}"
