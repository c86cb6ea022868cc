"""A figure with its uncertainty and source, and the families whose figures a device may use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from simcore.hardware.spec import GpuSpec

#: Which devices a figure was measured on: this very one, its family, or all devices pooled.
Level = Literal["own", "family", "pooled"]
#: Foundry node of GA100 (TSMC N7) [nm]; other Ampere chips are made in Samsung 8N.
GA100_PROCESS_NM = 7


@dataclass(frozen=True, slots=True)
class Estimate:
    """A figure, the standard deviation of its logarithm, and its source in words."""

    value: float
    sd_log: float
    source: str


@dataclass(frozen=True, slots=True)
class ClassFigures:
    """Efficiency of a class of kernels on a device, and how it depends on their shapes.

    ``share``: share of the peak (or of the bandwidth, for memory-bound classes) that large kernels
    reach. ``level``: which devices the figures were measured on. ``memory``: share of the memory
    bandwidth. ``start_s``: fixed time of a call. ``floor_s``: least time of a call in eager loops.
    ``wave_frac``, ``half_depth``: as in :func:`simcore.physics.fill.matmul_fill`. ``row_clocks``:
    least SM clocks per row (``physics.kernel``). ``by_shape``: whether an op table times the class
    shape by shape; otherwise only a rate over many shapes is known.
    """

    share: Estimate
    level: Level
    memory: float
    start_s: float
    wave_frac: float
    half_depth: float
    floor_s: float = 0.0
    row_clocks: float = 0.0
    by_shape: bool = True


#: FLOP per key of one attention tile: 128 query rows, head dimension 128, two products.
_TILE_FLOP_PER_KEY = 4.0 * 128.0 * 128.0


def ramp_depth(ramp_s: float, gpu: GpuSpec) -> float:
    """Number of keys whose products take one SM ``ramp_s``, the fixed time of an attention tile."""
    peak = gpu.peak("bf16") or gpu.peak("fp16") or 0.0
    return ramp_s * peak / (gpu.sm_count.value * _TILE_FLOP_PER_KEY) if gpu.sm_count else 0.0


def ramp_s(depth: float, gpu: GpuSpec) -> float:
    """Fixed time of an attention tile [s], the inverse of :func:`ramp_depth`; 0 if unknown."""
    one = ramp_depth(1.0, gpu)
    return depth / one if one else 0.0


#: How matrix instructions get their operands, which decides how their kernels are built: from
#: registers, warp by warp (mma.sync), or asynchronously from shared memory (wgmma, tcgen05).
_REGISTERS = ("Volta", "Turing", "Ampere", "Ampere-GA100", "Ada", "Blackwell-GB202")
_ASYNC = ("Hopper", "Blackwell")


def matrix_style(gpu: GpuSpec) -> str:
    """How matrix instructions get operands: ``registers``, ``async``, or "" where neither is known.

    Empty for vendors other than NVIDIA and for devices without matrix units.
    """
    arch = families_of(gpu)[-1]
    return "registers" if arch in _REGISTERS else "async" if arch in _ASYNC else ""


def copies_into_shared(gpu: GpuSpec) -> bool:
    """Whether loads reach shared memory without passing registers (cp.async, since Ampere)."""
    return bool(matrix_style(gpu)) and families_of(gpu)[-1] not in ("Volta", "Turing")


def takes_either_layout(gpu: GpuSpec) -> bool:
    """Whether 8-bit matrix products can read transposed operands; of NVIDIA's only tcgen05 can.

    mma.sync and wgmma read 8-bit operands along the depth only (PTX ISA, wgmma: transposing is for
    16-bit types).
    """
    return families_of(gpu)[-1] == "Blackwell"


def kins_of(gpu: GpuSpec) -> tuple[str, ...]:
    """Groups of several families that a device belongs to, by the style of its matrix units."""
    style = matrix_style(gpu)
    return (style,) if style else ()


def families_of(gpu: GpuSpec) -> tuple[str, ...]:
    """Families that a device belongs to, the most specific first (``calibrate.op_fit`` fits them).

    ``half-rate``: devices whose matrix units run at half rate when they accumulate in fp32.
    """
    families = []
    full, half = gpu.peak("fp16_acc16"), gpu.peak("fp16")
    if full and half and full > half:
        families.append("half-rate")
    arch = gpu.architecture
    if arch == "Ampere" and gpu.process_nm == GA100_PROCESS_NM:
        arch = "Ampere-GA100"
    elif arch.startswith("Blackwell"):
        arch = "Blackwell-GB202" if gpu.form_factor == "pcie" else "Blackwell"
    elif arch.startswith("CDNA"):
        arch = "CDNA"
    families.append(arch)
    return tuple(families)
