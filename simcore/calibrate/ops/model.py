"""The time of measured kernels from a profile's figures, and figures of a class from the times.

The formulas are those of ``physics.kernel``, by which every kernel of a step is priced. A class of
kernel is fitted on one device. Sources differ in clocks, libraries and hosts, so each has its own
compute efficiency; they share the parameters that the silicon decides: memory efficiency, start,
last wave, depth.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from simcore.base.arrays import Array
from simcore.base.record import dataclass
from simcore.base.units import MEGA, MICRO
from simcore.calibrate.curve_fits import EFF_MAX, robust_sd, solve, stratify
from simcore.calibrate.ops.rows import OpBatch
from simcore.hardware.class_figures import FP32_CLASSES, MATRIX_CLASSES, Clock, held_frac
from simcore.hardware.estimates import only_batched_fp32_tile, row_s, rows_per_l2_byte
from simcore.hardware.spec import GpuSpec
from simcore.physics.fill import TAPS, attention_fill, conv_fill, matmul_fill
from simcore.physics.kernel import Traffic, TrafficLimits, roofline_s, traffic_s

#: Exponent p of (device^p + floor^p)^(1/p), which joins the device's time and the host's floor.
#: Errors of held-out shapes are the same from 3 to 10.
KNEE: Final = 4.0


#: A burst of a few calls starts at boost clock, and power management reduces it within
#: milliseconds: kernels on matrix units that last much longer than this run at a lower clock.
THROTTLE_S: Final = 1e-3
#: Duration at which the efficiencies of bursts hold: the middle of the tables' large products.
REFERENCE_S: Final = 0.33e-3
#: The full slowdown is the share of the peak that power allows (hardware.power, with a limit near
#: the fitted one) to this exponent. Fits of single devices give 0.5 to 0.65 on Ada, Hopper and
#: Blackwell, and no effect on GA100, which power limits least; errors with families left out are
#: flat from 0.55 to 0.8.
BURST_EXPONENT: Final = 0.55
BURST_LIMIT_J_PER_FLOP: Final = 4.15e-12


@dataclass(frozen=True)
class OpFigures:
    """The figures of one class of kernel on one device.

    ``half_width`` [elements] is for attention only, ``floor_s`` for eager rows (see
    :func:`op_time_s`), ``row_clocks`` for kernels with one thread block per row.
    """

    eff_compute: float
    eff_memory: float
    start_s: float
    wave_frac: float = 0.0
    half_depth: float = 0.0
    half_width: float = 0.0
    floor_s: float = 0.0
    row_clocks: float = 0.0


def op_fill(batch: OpBatch, gpu: GpuSpec, figures: OpFigures) -> Array:
    """The share of the rate of large shapes that each shape reaches [rows]."""
    if gpu.sm_count is None:
        return np.ones(len(batch))
    geometry = (batch.m, batch.n, batch.k, batch.groups, gpu.sm_count.value)
    if batch.form == "attention":
        return attention_fill(*geometry, figures.wave_frac, figures.half_depth, figures.half_width)
    if batch.cls == "conv_simt32":
        rate = figures.eff_compute * batch.peak_flop_per_s
        bandwidth = figures.eff_memory * gpu.memory_bw.value
        return conv_fill(
            batch.m, batch.groups, batch.k / TAPS, batch.n, gpu.sm_count.value,
            figures.wave_frac, figures.half_depth, rate / bandwidth,
        )  # fmt: skip
    tile = only_batched_fp32_tile(gpu) if batch.cls == "bmm_simt32" else None
    return matmul_fill(*geometry, figures.wave_frac, figures.half_depth, tile)


def burst_clock(busy_s: Array, gpu: GpuSpec) -> Array:
    """The clock in a burst of kernels on matrix units, over that at REFERENCE_S [rows].

    ``busy_s`` [rows]: how long a kernel keeps the matrix units busy.
    """
    throttled = busy_s / (busy_s + THROTTLE_S) - REFERENCE_S / (REFERENCE_S + THROTTLE_S)
    return held_frac(gpu, "tensor", BURST_LIMIT_J_PER_FLOP) ** (BURST_EXPONENT * throttled)


def op_time_s(batch: OpBatch, gpu: GpuSpec, figures: OpFigures) -> Array:
    """The seconds of each row, including kernels that cast or copy its input before it.

    In an eager loop, a short kernel between two events waits for the host, so its time is at least
    ``floor_s``. Behind long kernels the host runs ahead, and only the device's start remains. So
    the time is the larger of both, not their sum.
    """
    bytes_per_s = figures.eff_memory * gpu.memory_bw.value
    compute_s: Array | float = 0.0
    traffic, limits = Traffic(batch.n_bytes), TrafficLimits()
    if batch.form != "memory":
        rate = figures.eff_compute * batch.peak_flop_per_s * op_fill(batch, gpu, figures)
        if batch.clock == "burst" and batch.cls in MATRIX_CLASSES:
            rate = rate * burst_clock(batch.flop / rate, gpu)
        compute_s = batch.flop / rate
    elif figures.row_clocks:
        per_row = batch.n_bytes / batch.m
        traffic = Traffic(batch.n_bytes, batch.m, per_row, batch.reread_bytes)
        limits = TrafficLimits(rows_per_l2_byte(gpu), row_s(gpu, figures.row_clocks))
    moved_s = traffic_s(traffic, bytes_per_s, limits)
    time_s = roofline_s(compute_s, moved_s, figures.start_s) + batch.cast_bytes / bytes_per_s
    return _no_sooner(time_s, figures.floor_s)


def _no_sooner(time_s: Array, floor_s: float) -> Array:
    """``time_s`` limited from below by ``floor_s``, with a smooth transition; 0: no lower limit."""
    if not floor_s:
        return time_s
    return (time_s**KNEE + floor_s**KNEE) ** (1.0 / KNEE)


SEED: Final = 20240607
#: Bytes of traffic that exceed the L2 cache of every device.
BEYOND_L2: Final = 100 * MEGA
#: The least FLOP of a product in a fit: smaller ones say little about efficiency.
FIT_FLOP: Final = 100 * MEGA
#: The least sequence length of attention in a fit: the time of shorter ones is mostly the start.
FIT_SEQ: Final = 64
#: The largest depth k of an fp32 product with weights in a fit: the widest input of a layer among
#: NeuSight's models (T5's 16,384). Its sweep also runs the depths of backward products, tokens and
#: vocabularies of 30,522 to 65,536, through nn.Linear. Its kernels read both operands along the
#: depth, 8 elements of every row at a time. With rows that far apart they lose up to two thirds of
#: the rate (P100, CDNA), though nothing on matrix units. The products of a real backward pass read
#: such operands along their rows.
DEEPEST_FP32: Final = 16384.0
#: Weight of a small shape's residual: the figures are for steps, whose time is in large shapes.
SMALL_WEIGHT: Final = 0.5
#: The least number of rows of a fit.
MIN_ROWS: Final = 10

#: Parameter -> (start, low, high) of the fit. All but ``wave_frac`` are fitted as logarithms.
BOUNDS: Final[Mapping[str, tuple[float, float, float]]] = {
    "eff_memory": (0.75, 0.5, 1.0),
    "start_s": (3 * MICRO, 0.3 * MICRO, 300 * MICRO),
    "wave_frac": (0.3, 0.0, 1.0),
    "half_depth": (50.0, 1.0, 2000.0),
    "floor_s": (30 * MICRO, 0.3 * MICRO, 300 * MICRO),
}
#: The same for eager fp32 products. The host that launches them is that of the elementwise ops of
#: the same sweep, whose start is 11 to 23 us and whose floor 13 to 46 us (P100 the largest of
#: both). Any further loss of small products is due to their shapes (waves, depth), and occurs
#: within steps too.
EAGER_BOUNDS: Final[Mapping[str, tuple[float, float, float]]] = {
    **BOUNDS,
    "start_s": (10 * MICRO, 0.3 * MICRO, 23 * MICRO),
    "floor_s": (30 * MICRO, 0.3 * MICRO, 46 * MICRO),
}
#: The largest efficiency of a class, if it is not ``EFF_MAX``.
CLASS_EFF_MAX: Final = {"attention": 1.3, "attention_serving": 1.3,
                        "attention_encoder": 1.3}  # fmt: skip


@dataclass(frozen=True)
class KernelFit:
    """The fitted figures of one class on one device.

    ``shared``: the figures that all sources share. ``eff``: clock -> source and op -> share of the
    peak. ``sd_log``: standard deviations of the logarithms of the parameters (of ``wave_frac``
    itself). ``resid_sd_log``: robust standard deviation of ln(measured / fitted) over large
    shapes. ``n``: number of rows.
    """

    shared: OpFigures
    eff: Mapping[Clock, Mapping[str, float]]
    sd_log: Mapping[str, float]
    resid_sd_log: float
    n: int


def _rows_to_fit(batch: OpBatch) -> OpBatch:
    """The rows of a batch that determine the efficiency, a limited number of each size."""
    usable = batch.flop >= FIT_FLOP
    if batch.cls == "gemm_simt32":
        usable &= batch.k <= DEEPEST_FP32
    if batch.form == "attention":
        usable &= batch.m >= FIT_SEQ
    rows = batch.take(usable)
    return rows.take(stratify(rows.flop, np.random.default_rng(SEED)))


def fit_kernels(
    batches: Sequence[OpBatch],
    gpu: GpuSpec,
    *,
    fixed: Mapping[str, float] | None = None,
    half_width: float = 0.0,
) -> KernelFit | None:
    """The figures of one class of products, convolutions or attention on one device.

    All sources are fitted together. ``fixed``: parameters of :data:`BOUNDS` that are not fitted,
    with their values. ``half_width``: see :func:`simcore.physics.fill.softmax_width`. None if
    there are too few rows.
    """
    parts = [p for p in map(_rows_to_fit, batches) if len(p) >= MIN_ROWS]
    if not parts:
        return None
    eager = all(p.eager for p in parts)
    bounds = EAGER_BOUNDS if eager and parts[0].cls in FP32_CLASSES else BOUNDS
    free = [n for n in BOUNDS if n not in (fixed or {}) and (eager or n != "floor_s")]
    logs = [n != "wave_frac" for n in free]
    base = replace(OpFigures(0.7, 0.75, 3 * MICRO, half_width=half_width), **(fixed or {}))
    measured = [np.log(p.time_s) for p in parts]
    weight = [np.where(p.large, 1.0, SMALL_WEIGHT) for p in parts]

    def figures(x: Array, at: int) -> OpFigures:
        shared = {n: math.exp(v) if log else float(v)
                  for n, v, log in zip(free, x, logs, strict=False)}  # fmt: skip
        return replace(base, eff_compute=math.exp(x[len(free) + at]), **shared)

    def residual(x: Array, i: int) -> Array:
        return np.log(op_time_s(parts[i], gpu, figures(x, i))) - measured[i]

    def weighted(x: Array) -> Array:
        return np.concatenate([weight[i] * residual(x, i) for i in range(len(parts))])

    def ends(which: int) -> list[float]:
        return [math.log(bounds[n][which]) if log else bounds[n][which]
                for n, log in zip(free, logs, strict=True)]  # fmt: skip

    top = math.log(CLASS_EFF_MAX.get(parts[0].cls, EFF_MAX))
    x, sd = solve(
        weighted,
        np.array(ends(0) + [math.log(0.7)] * len(parts)),
        np.array(ends(1) + [math.log(0.02)] * len(parts)),
        np.array(ends(2) + [top] * len(parts)),
    )
    eff: dict[Clock, dict[str, float]] = {}
    for i, part in enumerate(parts):
        eff.setdefault(part.clock, {})[f"{part.source} {part.op}"] = math.exp(x[len(free) + i])
    off = np.concatenate([
        residual(x, i)[parts[i].large if parts[i].large.any() else slice(None)]
        for i in range(len(parts))
    ])  # fmt: skip
    names = [*free, *(f"eff_compute {i}" for i in range(len(parts)))]
    return KernelFit(
        shared=figures(x, 0), eff=eff,
        sd_log={n: float(s) for n, s in zip(names, sd, strict=True)},
        resid_sd_log=robust_sd(off), n=sum(len(p) for p in parts),
    )  # fmt: skip


@dataclass(frozen=True)
class MemoryFit:
    """The fitted figures of a class of memory-bound kernels on one device.

    ``eff_memory``: share of the bandwidth. ``start_s``: start of a kernel. ``floor_s``: least time
    of a kernel in an eager loop, set by the host. ``row_clocks``: least clocks of an SM per row,
    for kernels that run one thread block per row (``physics.kernel``).
    """

    eff_memory: float
    start_s: float
    floor_s: float
    eager: bool
    sd_log: float
    resid_sd_log: float
    n: int
    row_clocks: float = 0.0


def fit_memory_class(batches: Sequence[OpBatch], gpu: GpuSpec) -> MemoryFit | None:
    """The figures of one class of memory-bound kernels on one device.

    The time is ``start + bytes / (eff · bandwidth)``; that of norms is at least the time of their
    rows (``physics.kernel``). Kernels that exceed the L2 of every device weigh most, since smaller
    ones run from L2 in a benchmark's loop. Eager rows also determine the host's floor. None if
    there are too few rows.
    """
    parts = [b.take(stratify(b.n_bytes, np.random.default_rng(SEED), 60)) for b in batches]
    rows = parts[0].join(parts[1:])
    if len(rows) < MIN_ROWS:
        return None
    weight = np.where(rows.n_bytes >= BEYOND_L2, 1.0, np.where(rows.large, 0.7, 0.25))

    by_rows = bool(rows.reread_bytes.any())
    free = [0, 1, *([2] if rows.eager else []), *([3] if by_rows else [])]

    def figures(x: Array) -> OpFigures:
        of = dict(zip(free, np.exp(x), strict=True))
        return OpFigures(1.0, of[0], of[1], floor_s=of.get(2, 0.0), row_clocks=of.get(3, 0.0))

    def residual(x: Array) -> Array:
        return np.log(op_time_s(rows, gpu, figures(x)) / rows.time_s)

    x, sd = solve(
        lambda x: weight * residual(x),
        *(np.log(np.array(ends)[free]) for ends in (
            [0.7, 10 * MICRO, 30 * MICRO, 800.0], [0.02, 0.1 * MICRO, 0.1 * MICRO, 50.0],
            [1.05, 300 * MICRO, 300 * MICRO, 5000.0],
        )),
    )  # fmt: skip
    fitted = figures(x)
    return MemoryFit(
        fitted.eff_memory, fitted.start_s, fitted.floor_s, rows.eager, float(sd[0]),
        robust_sd(residual(x)[rows.large] if rows.large.any() else residual(x)), len(rows),
        fitted.row_clocks,
    )  # fmt: skip
