"""Share of its peak FLOP/s that a device sustains under its power cap, on floats and on arrays.

Two figures indicate the sustained clock: what the power cap allows, by a law fitted to measured
shares, and the base clock, which the vendor states for the heaviest load. Matrix units are such a
load, and their share is the geometric mean of both. Vector units are not, and only the power cap
counts for them.
"""

from __future__ import annotations

from math import isnan, sqrt
from typing import Any, Final, Literal, TypeAlias

from simcore.base.units import GIGA
from simcore.hardware.estimates import families_of
from simcore.hardware.spec import GpuSpec

#: A float or an array of floats; the formulas use plain arithmetic and work on both.
FloatLike: TypeAlias = Any
Unit: TypeAlias = Literal["tensor", "simt"]

#: Energy per FLOP grows with the foundry node as nm^0.8, relative to 16 nm. Fits of measured shares
#: against tdp / peak allow exponents from 0.7 to 1.0; vendors state that the step from 16 to 7 nm
#: leaves 0.35 to 0.5 of the energy.
NODE_EXPONENT: Final = 0.8
REFERENCE_NM: Final = 16.0
#: Energy per FLOP grows with the square root of the boost clock: a higher clock needs a higher
#: voltage. Without this term the vector units of 70 W cards come out too fast (error 0.17 instead
#: of 0.11 on families left out of the fit). Linear in the clock the error is 0.08, but 2.5 GHz
#: cards would keep a third of their peak.
REFERENCE_CLOCK_HZ: Final = 1.5 * GIGA
CLOCK_EXPONENT: Final = 0.5
#: Where the power cap binds, the clock goes with power to this exponent: 1/3 where voltage follows
#: the clock (power goes with clock * voltage^2), 1 where the voltage is at its minimum, as on the
#: vector units of 70 W cards. Chosen on all families, none held out (docs/model.md judges that).
CAP_EXPONENT: Final[dict[Unit, float]] = {"tensor": 1.0 / 3.0, "simt": 1.0}
#: Sustained time of products over that of 0.33 ms bursts is 1 / held_frac to this exponent. Four
#: devices were timed both ways: B200 1.15, GB200 1.19 (loops of seconds, on one machine each), A100
#: 1.11, H100 1.15 (long profiles). Least squares of the logarithms; all four within 4.5 %.
SUSTAINED_EXPONENT: Final = 0.74
#: Base over boost clock of a device that does not state both: the median of the records that do.
TYPICAL_CLOCK_RATIO: Final = 0.77
#: Share of FMAs among the instructions of an fp32 product whose threads each compute 8 x 8 outputs.
#: Per step of the depth: 64 FMAs, 4 loads of 16 operands from shared memory, and 1 instruction for
#: copies, addresses and waits. A hand-written loop for Maxwell (maxas, sgemm128.sass) has 512 FMAs
#: of 556 instructions, 32 loads and 12 others: 0.921, 1.5 others per step. Ampere and later copy
#: into shared memory without store instructions, which leaves 1.
FMA_SLOTS: Final = 64.0 / 69.0
#: Schedulers of an SM; each issues for a quarter of its lanes.
_SM_QUARTERS: Final = 4.0
#: Threshold between quarters of 16 and of 32 lanes; the number is derived from peak and clock.
_BETWEEN_LANES: Final = 24.0
#: Families whose schedulers issue one instruction per clock.
_ONE_ISSUE: Final = (
    "Volta", "Turing", "Ampere", "Ampere-GA100", "Ada", "Hopper", "Blackwell", "Blackwell-GB202",
)  # fmt: skip
#: Classes of products on matrix units. POWERED_KIN: matrix units ("registers", mma.sync) on which
#: attention is power limited too: exponentials of a head dimension of 128 take a tenth of the
#: products' time. With asynchronous products (a third on B200) matrix units idle meanwhile.
MATRIX_CLASSES: Final = ("gemm_tensor16", "gemm_tensor8", "gemm_block8", "gemm_tensor4")
POWERED_KIN: Final = "registers"
#: Classes of fp32 products: with weights, and of activations alone (one per head and sample).
FP32_CLASSES: Final = ("gemm_simt32", "bmm_simt32")


def flop_energy_frac(process_nm: float, boost_hz: float) -> float:
    """Energy per FLOP at boost clock, over that at 16 nm and 1.5 GHz."""
    clock = (boost_hz / REFERENCE_CLOCK_HZ) ** CLOCK_EXPONENT
    return float((process_nm / REFERENCE_NM) ** NODE_EXPONENT * clock)


def power_limited_frac(
    tdp_w: FloatLike,
    peak_flop_per_s: FloatLike,
    limit_w_per_flop_per_s: FloatLike,
    exponent: float = 1.0,
) -> FloatLike:
    """Share of its peak that a device can sustain under its power cap, in (0, 1].

        (1 + (w0/w)^4)^(-exponent/4),  w = tdp / peak,  w0 = limit

    ``w0`` [W per FLOP/s, that is J per FLOP] is the energy of the whole board per FLOP at boost
    clock. For w ≫ w0 the cap does not bind and the share is 1; for w ≪ w0 the share is
    (w / w0)^exponent.
    """
    ratio = limit_w_per_flop_per_s * peak_flop_per_s / tdp_w
    return (1.0 + ratio**4) ** (-exponent / 4.0)


def clock_frac(gpu: GpuSpec) -> float:
    """Clock under the heaviest load over boost clock: the geometric mean of base and boost."""
    if gpu.base_clock is None or gpu.boost_clock is None:
        return sqrt(TYPICAL_CLOCK_RATIO)
    return sqrt(gpu.base_clock.value / gpu.boost_clock.value)


def issue_frac(gpu: GpuSpec) -> float:
    """Share of its peak that fp32 products can reach, since other instructions take issue slots.

    A quarter of an SM issues one instruction of 32 threads per clock. With 16 lanes (Volta, Turing,
    GA100) FMAs take every other slot and other instructions fit between them: 1. With 32 lanes
    (GA10x, Ada, Hopper, Blackwell) they compete. 1 for Pascal and older, which issue two
    instructions at once, and for other vendors, whose instructions were not counted.
    """
    fp32, clock_hz = gpu.peak("fp32"), gpu.clock_hz
    if families_of(gpu)[-1] not in _ONE_ISSUE or not (fp32 and gpu.sm_count and clock_hz > 0.0):
        return 1.0
    lanes = fp32 / (2.0 * gpu.sm_count.value * clock_hz) / _SM_QUARTERS
    return FMA_SLOTS if lanes > _BETWEEN_LANES else 1.0


def reference_peak(gpu: GpuSpec, unit: Unit) -> float:
    """Peak [FLOP/s] of a unit's power limit: 16-bit for matrix units, fp32 for vector units.

    The 16-bit peak counts whatever precision runs on the matrix units; 0 where it is unknown.
    """
    if unit == "simt":
        return gpu.fp32_product_peak or 0.0
    return gpu.peak("bf16") or gpu.peak("fp16") or 0.0


def held_frac(gpu: GpuSpec, unit: Unit, limit_j_per_flop: float) -> float:
    """Share of its peak that a unit sustains within the device's power; 1 if that is unknown."""
    peak = reference_peak(gpu, unit)
    clock_hz = gpu.clock_hz
    if isnan(clock_hz) and gpu.sm_count and unit == "tensor":
        clock_hz = (gpu.peak("fp32") or 0.0) / (256.0 * gpu.sm_count.value)  # 128 lanes per SM
    if gpu.tdp is None or gpu.process_nm is None or not peak or not clock_hz or isnan(clock_hz):
        return 1.0
    joules = limit_j_per_flop * flop_energy_frac(gpu.process_nm, clock_hz)
    allowed = power_limited_frac(gpu.tdp_w, peak, joules, CAP_EXPONENT[unit])
    return float(sqrt(allowed * clock_frac(gpu)) if unit == "tensor" else allowed)


def open_frac(gpu: GpuSpec, unit: Unit, limit_j_per_flop: float) -> float:
    """Share of its peak that power and, on vector units, instruction issue leave a unit."""
    held = held_frac(gpu, unit, limit_j_per_flop)
    return held * issue_frac(gpu) if unit == "simt" else held


def sustained_over_burst(gpu: GpuSpec, limit_j_per_flop: float) -> float | None:
    """Time of products in long runs over bursts; None where power is unknown or does not limit.

    A burst ends before power regulation and temperature lower the clock. The less of its peak a
    device's power allows, the more it then loses.
    """
    held = held_frac(gpu, "tensor", limit_j_per_flop)
    return float(held**-SUSTAINED_EXPONENT) if held < 1.0 else None
