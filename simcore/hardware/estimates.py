"""A figure with its spread and source, and whose figures a device may take."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from simcore.hardware.spec import GpuSpec

Level = Literal["own", "family", "pooled"]
#: GA100 is made in TSMC N7, the graphics chips of its generation in Samsung 8N.
GA100_PROCESS_NM = 7


@dataclass(frozen=True, slots=True)
class Estimate:
    """A figure, the standard deviation of its logarithm, and where it is from."""

    value: float
    sd_log: float
    source: str


@dataclass(frozen=True, slots=True)
class ClassFigures:
    """What a class of kernel reaches on a device, and how its shapes matter.

    ``start_s`` of one call; ``memory`` share of the bandwidth, ``wave_frac`` and ``half_depth``
    of :func:`simcore.physics.fill.matmul_fill`. ``level``: whose figures these are.
    """

    share: Estimate
    level: Level
    memory: float
    start_s: float
    wave_frac: float
    half_depth: float


def families_of(gpu: GpuSpec) -> tuple[str, ...]:
    """Families that a device belongs to, most telling first (as ``calibrate.op_fit`` has them)."""
    found = []
    full, half = gpu.peak("fp16_acc16"), gpu.peak("fp16")
    if full and half and full > half:
        found.append("half-rate")
    arch = gpu.architecture
    if arch == "Ampere" and gpu.process_nm == GA100_PROCESS_NM:
        arch = "Ampere-GA100"
    elif arch.startswith("Blackwell"):
        arch = "Blackwell-GB202" if gpu.form_factor == "pcie" else "Blackwell"
    elif arch.startswith("CDNA"):
        arch = "CDNA"
    found.append(arch)
    return tuple(found)
