"""Efficiency of a class of kernels on a device, and the host's time to launch one.

An efficiency is measured on the device, or carried over from others.

A share of the peak that was measured on other devices is rescaled by what power limit and
instruction issue leave of this device's peak, over what they left of theirs. A share of the memory
bandwidth is rescaled for this device's instruction issue rate and for inline ECC.

Two figures indicate the clock that a device sustains under its power cap: what the cap allows, by a
law fitted to measured shares, and the base clock, which the vendor states for the heaviest load.
Matrix units are such a load, and their share of the peak is the geometric mean of both. Vector
units are not, and only the power cap counts for them.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from math import hypot, isnan, sqrt
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from simcore.base.database import read_yaml, shipped_root
from simcore.base.record import replace
from simcore.base.units import GIGA, parse_quantity
from simcore.hardware.estimates import (
    ClassFigures,
    Estimate,
    Level,
    families_of,
    matrix_style,
    pick,
    ramp_depth,
)
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


#: Share of the memory bandwidth that a plain streaming kernel reaches (gpu-benches: 0.74 to 0.95).
STREAM_FRAC: Final = 0.85
#: Share of the memory bandwidth assumed for a class that states none.
MEMORY_FRAC: Final = 0.75


def figures_of(tables: Mapping[str, Any], cls: str, gpu: GpuSpec) -> ClassFigures | None:
    """Efficiency of a class of kernels at burst clocks; None where the tables lack the class.

    ``tables``: the sections ``compute_efficiency`` and ``memory_efficiency`` of a profile's file.
    """
    table = tables["compute_efficiency"].get(cls) or tables["memory_efficiency"].get(cls)
    if table is None:
        return None
    entry, share, level = pick(table, gpu)
    share = _at_own_power(table, entry, share, level, cls, gpu)
    share = _at_own_issue(table, share, level, gpu)
    if cls not in tables["compute_efficiency"]:
        share = at_own_ecc(cls, share, level, gpu)
    start, floor, ramp = (entry.get(k) for k in ("start", "floor", "ramp"))
    depth = float(entry.get("depth", 0.0))
    if ramp:
        depth = ramp_depth(parse_quantity(ramp, "seconds"), gpu)
    return ClassFigures(
        share=share,
        level=level,
        memory=float(entry.get("memory", MEMORY_FRAC)),
        start_s=parse_quantity(start, "seconds") if start else 0.0,
        wave_frac=float(entry.get("wave", 0.0)),
        half_depth=depth,
        floor_s=parse_quantity(floor, "seconds") if floor else 0.0,
        row_clocks=_row_clocks(table, entry, level),
        by_shape=not entry.get("rates_only", False),
    )


def _row_clocks(table: Mapping[str, Any], entry: Mapping[str, Any], level: Level) -> float:
    """SM clocks per row: the entry's figure, else that of all devices pooled.

    An entry measured on this very device without a figure per row gets 0: its share of the
    bandwidth already includes what rows cost.
    """
    otherwise = table.get("pooled", {}).get("row", 0.0) if level != "own" else 0.0
    return float(entry.get("row", otherwise))


def _at_own_power(
    table: Mapping[str, Any],
    entry: Mapping[str, Any],
    share: Estimate,
    level: Level,
    cls: str,
    gpu: GpuSpec,
) -> Estimate:
    """Another device's share of the peak, rescaled to this device's power limit and issue rate.

    ``held`` of an entry is the share of their peaks that power and issue left to the devices it was
    measured on. A pooled figure has no ``held``: it stands for a device that nothing limits.
    """
    limit = table.get("pooled", {}).get("limit_j_per_flop")
    if matrix_style(gpu) == POWERED_KIN:  # only register-operand kernels of attention have a limit
        kin = (table.get("by_kin") or {}).get(POWERED_KIN, {})
        limit = limit or kin.get("limit_j_per_flop")
    if not limit or level == "own" or (level == "family" and "held" not in entry):
        return share
    unit: Unit = "simt" if cls.endswith("simt32") else "tensor"
    held = open_frac(gpu, unit, float(limit)) / float(entry.get("held", 1.0))
    return Estimate(share.value * held, share.sd_log, f"{share.source} x {held:.3g} for its power")


def at_own_ecc(kind: str, share: Estimate, level: Level, gpu: GpuSpec) -> Estimate:
    """Another device's share of the bandwidth, rescaled for this device's inline ECC."""
    left = carried_frac(kind, level, gpu)
    if left == 1.0:
        return share
    return Estimate(share.value * left, share.sd_log, f"{share.source} x {left:g} for its ECC")


def _at_own_issue(
    table: Mapping[str, Any], share: Estimate, level: Level, gpu: GpuSpec
) -> Estimate:
    """Share of the bandwidth of kernels with narrow loads, which instruction issue limits too.

    1 / hypot(1 / STREAM_FRAC, memory bandwidth / (bytes per SM and clock · SMs · clock))
    """
    issue = table.get("pooled", {}).get("issue_bytes_per_sm_clock")
    if not issue or level == "own" or not gpu.sm_count or not gpu.boost_clock:
        return share
    issued = float(issue) * gpu.sm_count.value * gpu.boost_clock.value
    value = 1.0 / hypot(1.0 / STREAM_FRAC, gpu.memory_bw.value / issued)
    return Estimate(value, share.sd_log, f"{share.source}, by issue rate")


#: How an op was timed. burst: milliseconds on a cool device; sustained: loops of seconds and sweeps
#: of hours, at the clock that a hot device keeps; profiled: kernel times recorded by a profiler
#: in an eager loop; derived: computed from the efficiencies in another training simulator's tables.
Clock = Literal["burst", "sustained", "profiled", "derived"]


def clock_ratio(
    tables: Mapping[str, Any], cls: str, clock: Clock, gpu: GpuSpec, runtime: Mapping[str, Any]
) -> Estimate:
    """Time of a class of kernels at ``clock``, over its time at burst clocks.

    ``tables``: sections of an efficiency profile. Of the time that products lose, attention loses
    the share that ``runtime`` gives (``attention_clock_share``):

        1 + share · (products' ratio - 1)
    """
    found = _of_products(tables, cls, clock, gpu)
    if cls != "attention" or found.value == 1.0:
        return found
    share = pick(runtime["attention_clock_share"], gpu)[1]
    source = f"{found.source}, {share.value:.3g} of it ({share.source})"
    return replace(found, value=1.0 + share.value * (found.value - 1.0), source=source)


def _of_products(tables: Mapping[str, Any], cls: str, clock: Clock, gpu: GpuSpec) -> Estimate:
    """The ratio of products, or of a class as if it were of products.

    The sustained ratio of matrix products comes from the first of these that is known: loops of
    seconds timed on this device, the clock at which its vendor rates machines built of it, kernels
    profiled over a long time, its power limit. Derived times also stem from loops: they count as
    sustained for attention, and for products of a device
    without burst times to compare them with.
    """
    clocks = tables["clocks"]
    unit = "simt" if cls.endswith("32") else "tensor"

    def timed_both_ways(as_what: Clock) -> bool:
        return gpu.name in (clocks.get(f"{unit}_{as_what}_over_burst", {}).get("by_gpu") or {})

    paired = cls in MATRIX_CLASSES and timed_both_ways(clock)
    if clock == "burst":
        return Estimate(1.0, 0.0, "burst clocks")
    if (clock == "derived" and not paired) or f"{unit}_{clock}_over_burst" not in clocks:
        clock = "sustained"
    if clock == "sustained" and unit == "tensor" and not timed_both_ways(clock):
        if (rated := _rated(tables, gpu)) is not None:
            return rated
        if timed_both_ways("profiled"):
            clock = "profiled"
        elif (by_power := _by_power(tables, gpu)) is not None:
            return by_power
    return pick(clocks[f"{unit}_{clock}_over_burst"], gpu)[1]


def _rated(tables: Mapping[str, Any], gpu: GpuSpec) -> Estimate | None:
    """Boost clock over the clock that the vendor states for hours at the power limit, or None."""
    if gpu.sustained_clock is None or gpu.boost_clock is None:
        return None
    spread = pick(tables["clocks"]["tensor_sustained_over_burst"], gpu)[1]
    ratio = gpu.boost_clock.value / gpu.sustained_clock.value
    return replace(spread, value=ratio, source=f"rated clock ({gpu.sustained_clock.source})")


def _by_power(tables: Mapping[str, Any], gpu: GpuSpec) -> Estimate | None:
    """Sustained over burst time from the power limit; None where the device's power is unknown."""
    products = tables["compute_efficiency"].get("gemm_tensor16", {})
    limit = products.get("pooled", {}).get("limit_j_per_flop")
    ratio = sustained_over_burst(gpu, float(limit)) if limit else None
    spread = pick(tables["clocks"]["tensor_sustained_over_burst"], gpu)[1]
    return None if ratio is None else replace(spread, value=ratio, source="by its power")


#: Bandwidth with inline ECC over that without (CUDA C++ Best Practices Guide, Theoretical Bandwidth
#: Calculation: "approximately 20%" less on GPUs with GDDR). Measurements agree: with inline ECC
#: fp32 streams reach 0.75 of the bandwidth on P4 and 0.74 on T4 (NeuSight), without it 0.94 on A40
#: (gpu-benches).
INLINE_ECC_FRAC: Final = 0.8
#: The same on Ada, whose L2 of 48 MB and more holds ECC bits too: streams reach 0.78 on L4 with it
#: (NeuSight, dataset/test/elem.csv and vec.csv: median of 528 rows of 200 MB and more) and 0.89 on
#: L40 without (gpu-benches).
ADA_ECC_FRAC: Final = 0.88
#: Kinds of kernel that inline ECC does not slow like a stream: L2 serves much of their operands.
_NOT_STREAMS: Final = ("gemm", "attention")


def ecc_frac(gpu: GpuSpec) -> float:
    """Share of its memory bandwidth that a device keeps with ECC as shipped."""
    if not gpu.inline_ecc:
        return 1.0
    return ADA_ECC_FRAC if gpu.architecture == "Ada" else INLINE_ECC_FRAC


def carried_frac(kind: str, level: str, gpu: GpuSpec) -> float:
    """Factor for a share of the bandwidth that was measured on other devices.

    Figures of families and of all devices hold without inline ECC, so that a device with it keeps
    less. A figure of the device itself (``level`` "own") already includes its ECC.
    """
    return 1.0 if level == "own" or kind in _NOT_STREAMS else ecc_frac(gpu)


def issue_over_torch(
    runtime: Mapping[str, Any], issuer: str, cpu: str, *, eight_bit: bool = False
) -> float:
    """Host time to launch a kernel, over that of torch on an x86 host (``runtime.yaml``).

    ``issuer``: what launches them, in the words of ``--issuer``. ``cpu``: the processor's name in
    the node's record; empty where the host itself was measured.
    ``eight_bit``: whether products run in 8 bits or fewer; Transformer Engine handles their scales
    and casts in Python too.
    """
    table = runtime["issue_over_torch"]
    if issuer == "graph":
        return float(table["graph"]["value"])  # the device replays: the CPU hardly matters
    by_program = float(table[issuer]["value"]) if issuer in table else 1.0
    if issuer.startswith("megatron") and eight_bit:
        by_program *= float(table["megatron_eight_bit"]["value"])
    by_cpu = table["by_cpu"]
    return by_program * (float(by_cpu[cpu]["value"]) if cpu in by_cpu else 1.0)


class HostWork(NamedTuple):
    """Work of the host: what the framework does, and what CUDA and its libraries do.

    ``issues``: time of Python, dispatch and autograd in *kernel issues*, of which forward of
    ``nn.Linear`` takes 1.28. ``launches``: time in CUDA's driver and libraries, in launches of one
    kernel.
    """

    issues: float
    launches: float


@lru_cache(maxsize=1)
def host_work_by_kind() -> Mapping[str, tuple[HostWork, HostWork]]:
    """Host work of an operator of PyTorch that runs eagerly, by kind: (forward, backward).

    Of kinds with several kernels in backward it is the work of one of them. Kinds that are missing
    cost as ``elementwise`` (``runtime.yaml``, ``host_work``).
    """
    table = read_yaml(shipped_root() / "hardware_db" / "calibrations" / "runtime.yaml")
    return {
        kind: (HostWork(*map(float, row["forward"])), HostWork(*map(float, row["backward"])))
        for kind, row in table["host_work"].items()
    }


def host_work(kind: str, *, backward: bool) -> HostWork:
    """Host work of one eager kernel of a kind."""
    table = host_work_by_kind()
    return table.get(kind, table["elementwise"])[backward]
