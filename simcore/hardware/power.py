"""How much of its peak a device holds under its power cap. Works on floats and on arrays.

Two indications of the clock that is left: what the power cap allows, from a law fitted to measured
shares, and the base clock, which the vendor states for its heaviest load. Matrix units are such a
load: their share is the geometric mean of both. Vector units are not: the cap alone tells.
"""

from __future__ import annotations

from math import isnan, sqrt
from typing import Any, Final, Literal, TypeAlias

from simcore.base.units import GIGA
from simcore.hardware.estimates import families_of
from simcore.hardware.spec import GpuSpec

#: A float or an array of floats: plain arithmetic serves both.
FloatLike: TypeAlias = Any
Unit: TypeAlias = Literal["tensor", "simt"]

#: Energy of a FLOP over the foundry's node: nm^0.8, relative to 16 nm. Fits of measured shares
#: against tdp / peak left it between 0.7 and 1.0; vendors state 0.35 to 0.5 from 16 to 7 nm.
NODE_EXPONENT: Final = 0.8
REFERENCE_NM: Final = 16.0
#: A device that boosts higher does so at a higher voltage: energy a FLOP rises with its clock. Its
#: square root: without the clock, vector units of cards of 70 W come out too fast (families left
#: out 0.17, not 0.11); by the clock itself (0.08) cards of 2.5 GHz would keep a third of the peak.
REFERENCE_CLOCK_HZ: Final = 1.5 * GIGA
CLOCK_EXPONENT: Final = 0.5
#: Below the cap's edge the clock follows power to this exponent: 1/3 where voltage follows the
#: clock (power goes with clock * voltage^2), 1 where it is at its floor, as on the vector units of
#: cards of 70 W. Chosen with all families in sight (docs/model.md says what that is worth).
CAP_EXPONENT: Final[dict[Unit, float]] = {"tensor": 1.0 / 3.0, "simt": 1.0}
#: Time of products at the clocks that a device keeps, over that of bursts of 0.33 ms, is the share
#: that power leaves, inverted, to this exponent. Four devices have both: B200 1.15, GB200 1.19
#: (loops of seconds), A100 1.11, H100 1.15 (profiled at length); least squares of the logarithms,
#: all within 4.5 %.
SUSTAINED_EXPONENT: Final = 0.74
#: Base over boost clock where it is not stated: the median of the records that state both.
TYPICAL_CLOCK_RATIO: Final = 0.77
#: FMAs among the instructions of a product whose threads hold 8 x 8 of its output: 64 a step of
#: the depth beside 4 loads of 16 operands from shared memory and 1 of copies, addresses and waits.
#: Counted in a loop written by hand for Maxwell (maxas, sgemm128.sass): 512 of 556, 32 loads and 12
#: of the rest, 0.921; Ampere and later copy into shared memory without stores, hence 1 for 1.5.
FMA_SLOTS: Final = 64.0 / 69.0
#: Schedulers of an SM, each with a quarter of its lanes.
_SM_QUARTERS: Final = 4.0
#: A quarter has 16 lanes or 32; peaks over clocks come out near one of them.
_BETWEEN_LANES: Final = 24.0
#: Families whose schedulers issue one instruction a clock.
_ONE_ISSUE: Final = (
    "Volta", "Turing", "Ampere", "Ampere-GA100", "Ada", "Hopper", "Blackwell", "Blackwell-GB202",
)  # fmt: skip
#: Classes of products on matrix units. Attention follows the clock that they hold where its
#: kernels are warp-wise (mma.sync: the exponentials of a head of 128 are a tenth of its products'
#: time), not where products run asynchronously (a third on B200): there matrix units idle between.
MATRIX_CLASSES: Final = ("gemm_tensor16", "gemm_tensor8", "gemm_block8", "gemm_tensor4")
POWERED_KIN: Final = "registers"
#: Classes of fp32 products: with weights, and of activations alone (one a head and sample).
FP32_CLASSES: Final = ("gemm_simt32", "bmm_simt32")


def flop_energy_frac(process_nm: float, boost_hz: float) -> float:
    """Energy of a FLOP at boost clock, over that at 16 nm and 1.5 GHz."""
    clock = (boost_hz / REFERENCE_CLOCK_HZ) ** CLOCK_EXPONENT
    return float((process_nm / REFERENCE_NM) ** NODE_EXPONENT * clock)


def power_limited_frac(
    tdp_w: FloatLike,
    peak_flop_per_s: FloatLike,
    limit_w_per_flop_per_s: FloatLike,
    exponent: float = 1.0,
) -> FloatLike:
    """Share of its peak that a device can hold under its power cap, in (0, 1].

        (1 + (w0/w)^4)^(-exponent/4),  w = tdp / peak,  w0 = limit

    ``w0`` [W per FLOP/s, that is J per FLOP] is what the whole board draws per FLOP at boost
    clock. Well above it (w ≫ w0) the cap does not bind and the share is 1; well below, the share
    is (w / w0)^exponent.
    """
    ratio = limit_w_per_flop_per_s * peak_flop_per_s / tdp_w
    return (1.0 + ratio**4) ** (-exponent / 4.0)


def clock_frac(gpu: GpuSpec) -> float:
    """Clock under the heaviest load over boost: between base and boost, at their geometric mean."""
    if gpu.base_clock is None or gpu.boost_clock is None:
        return sqrt(TYPICAL_CLOCK_RATIO)
    return sqrt(gpu.base_clock.value / gpu.boost_clock.value)


def issue_frac(gpu: GpuSpec) -> float:
    """Share of its peak that fp32 products leave vector units, which other instructions issue for.

    A quarter of an SM issues one instruction of 32 threads a clock. With 16 lanes (Volta, Turing,
    GA100) FMAs take every other slot and the rest goes between them; with 32 (GA10x, Ada, Hopper,
    Blackwell) they compete. Pascal and before issue two at once; other vendors' are not counted.
    """
    fp32, clock_hz = gpu.peak("fp32"), gpu.clock_hz
    if families_of(gpu)[-1] not in _ONE_ISSUE or not (fp32 and gpu.sm_count and clock_hz > 0.0):
        return 1.0
    lanes = fp32 / (2.0 * gpu.sm_count.value * clock_hz) / _SM_QUARTERS
    return FMA_SLOTS if lanes > _BETWEEN_LANES else 1.0


def reference_peak(gpu: GpuSpec, unit: Unit) -> float:
    """Peak that a unit's limit refers to: 16 bit for matrix units, whatever runs on them."""
    if unit == "simt":
        return gpu.fp32_product_peak or 0.0
    return gpu.peak("bf16") or gpu.peak("fp16") or 0.0


def held_frac(gpu: GpuSpec, unit: Unit, limit_j_per_flop: float) -> float:
    """Share of its peak that a device's power leaves a unit; 1 where its power is not known."""
    peak = reference_peak(gpu, unit)
    clock_hz = gpu.clock_hz
    if isnan(clock_hz) and gpu.sm_count and unit == "tensor":
        clock_hz = (gpu.peak("fp32") or 0.0) / (256.0 * gpu.sm_count.value)  # 128 lanes an SM
    if gpu.tdp is None or gpu.process_nm is None or not peak or not clock_hz or isnan(clock_hz):
        return 1.0
    joules = limit_j_per_flop * flop_energy_frac(gpu.process_nm, clock_hz)
    allowed = power_limited_frac(gpu.tdp_w, peak, joules, CAP_EXPONENT[unit])
    return float(sqrt(allowed * clock_frac(gpu)) if unit == "tensor" else allowed)


def open_frac(gpu: GpuSpec, unit: Unit, limit_j_per_flop: float) -> float:
    """Share of its peak that power and, on vector units, the issue of instructions leave open."""
    held = held_frac(gpu, unit, limit_j_per_flop)
    return held * issue_frac(gpu) if unit == "simt" else held


def sustained_over_burst(gpu: GpuSpec, limit_j_per_flop: float) -> float | None:
    """Time of long runs of products over bursts; None where the device's power is not known.

    A burst is over before the regulator and the heat have settled; what a device loses then is the
    more, the less of its peak its power allows.
    """
    held = held_frac(gpu, "tensor", limit_j_per_flop)
    return float(held**-SUSTAINED_EXPONENT) if held < 1.0 else None
