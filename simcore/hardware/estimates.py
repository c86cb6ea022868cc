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

    ``start_s`` of one call, no sooner than ``floor_s`` in eager loops; ``memory`` share of the
    bandwidth; ``wave_frac`` and ``half_depth`` of :func:`simcore.physics.fill.matmul_fill`.
    ``row_clocks`` that an SM takes a row at least (``physics.rows``).
    ``level``: whose figures these are. ``by_shape``: an op table times the class there; else a
    rate over many shapes is all that is known.
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


#: FLOP that a tile of attention takes a key: 128 rows, head dimension 128, two products.
_TILE_FLOP_PER_KEY = 4.0 * 128.0 * 128.0


def ramp_depth(ramp_s: float, gpu: GpuSpec) -> float:
    """Keys whose products last as long as the fixed time of a tile of attention on one SM."""
    peak = gpu.peak("bf16") or gpu.peak("fp16") or 0.0
    return ramp_s * peak / (gpu.sm_count.value * _TILE_FLOP_PER_KEY) if gpu.sm_count else 0.0


def ramp_s(depth: float, gpu: GpuSpec) -> float:
    """The fixed time of a tile that :func:`ramp_depth` turns into ``depth``; 0 if unknown."""
    one = ramp_depth(1.0, gpu)
    return depth / one if one else 0.0


#: How matrix instructions get their operands, which decides how their kernels are built: from
#: registers, warp by warp (mma.sync), or asynchronously from shared memory (wgmma, tcgen05).
_REGISTERS = ("Volta", "Turing", "Ampere", "Ampere-GA100", "Ada", "Blackwell-GB202")
_ASYNC = ("Hopper", "Blackwell")


def matrix_style(gpu: GpuSpec) -> str:
    """``registers`` or ``async``; nothing for other vendors and devices without such units."""
    arch = families_of(gpu)[-1]
    return "registers" if arch in _REGISTERS else "async" if arch in _ASYNC else ""


def copies_into_shared(gpu: GpuSpec) -> bool:
    """Whether loads go into shared memory without a register (cp.async, since Ampere)."""
    return bool(matrix_style(gpu)) and families_of(gpu)[-1] not in ("Volta", "Turing")


def takes_either_layout(gpu: GpuSpec) -> bool:
    """Whether 8-bit products read operands transposed too: of NVIDIA's, tcgen05 alone.

    mma.sync and wgmma take 8-bit operands along the depth only (PTX ISA, wgmma: transposing is for
    16-bit types).
    """
    return families_of(gpu)[-1] == "Blackwell"


def kins_of(gpu: GpuSpec) -> tuple[str, ...]:
    """What a device shares with other families."""
    style = matrix_style(gpu)
    return (style,) if style else ()


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
