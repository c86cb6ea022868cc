"""The time of measured kernels from a profile's figures, which fits invert.

The formulas are those of ``physics.kernel``, by which every kernel of a step is priced.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from simcore.base.record import dataclass
from simcore.calibrate.curve_fits import Array
from simcore.calibrate.op_rows import OpBatch
from simcore.hardware.class_figures import MATRIX_CLASSES, held_frac
from simcore.hardware.kernel_limits import only_batched_fp32_tile, row_s, rows_per_l2_byte
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
    clock: Array = held_frac(gpu, "tensor", BURST_LIMIT_J_PER_FLOP) ** (BURST_EXPONENT * throttled)
    return clock


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
        traffic = Traffic(batch.n_bytes, batch.m, per_row, batch.again_bytes)
        limits = TrafficLimits(rows_per_l2_byte(gpu), row_s(gpu, figures.row_clocks))
    moved_s = traffic_s(traffic, bytes_per_s, limits)
    time_s = roofline_s(compute_s, moved_s, figures.start_s) + batch.cast_bytes / bytes_per_s
    return _no_sooner(time_s, figures.floor_s)


def _no_sooner(time_s: Array, floor_s: float) -> Array:
    """``time_s`` limited from below by ``floor_s``, with a smooth transition; 0: no lower limit."""
    if not floor_s:
        return time_s
    longer: Array = (time_s**KNEE + floor_s**KNEE) ** (1.0 / KNEE)
    return longer
