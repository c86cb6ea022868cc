"""Roofline fits of each class of op: GEMM, convolution, attention, memory-bound."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

import numpy as np

from simcore.base.units import GIGA, MEGA, MICRO
from simcore.calibrate.curve_fits import RooflineFit, fit_memory, fit_roofline, stratify
from simcore.calibrate.op_tables import Gpu, Groups, column
from simcore.physics.roofline import tile_fill

SEED: Final = 20240607
BEYOND_L2: Final = 100 * MEGA

Fits: TypeAlias = dict[str, dict[str, RooflineFit]]  # gpu -> source tag -> fit


def fit_gemm(
    groups: Groups,
    gpus: Mapping[str, Gpu],
    peak: Callable[[Gpu], float],
    width_in: float,
    width_out: float,
    quantise: float = 0.0,
) -> Fits:
    """Roofline fit of each (gpu, source). ``quantise``: extra bytes per element of the left side.

    Rows below 0.1 GFLOP say little about efficiency and are left out.
    """
    fits: Fits = defaultdict(dict)
    for (name, tag), rows in sorted(groups.items()):
        m, n, k, groups_ = (column(rows, c) for c in ("m", "n", "k", "batch"))
        flop = 2.0 * m * n * k * groups_
        pick = np.flatnonzero(flop >= 100 * MEGA)
        if not pick.size:
            continue
        pick = pick[stratify(flop[pick], np.random.default_rng(SEED))]
        m, n, k, groups_, flop = (a[pick] for a in (m, n, k, groups_, flop))
        n_bytes = groups_ * (m * k * (width_in + quantise) + k * n * width_in + m * n * width_out)
        gpu = gpus[name]
        fill = tile_fill(m, n, k, groups_, gpu.sm_count)
        time_s = column(rows, "time_us")[pick] * MICRO
        fits[name][tag] = fit_roofline(
            flop, n_bytes, fill, time_s, peak(gpu), gpu.bw_bytes_per_s, eff_memory_min=0.55
        )
    return fits


def fit_conv(groups: Groups, gpus: Mapping[str, Gpu]) -> Fits:
    """Forward convolutions in fp32, as the implicit GEMM that the workload graph counts.

    Winograd kernels need fewer multiplications than are counted here, which lifts the share.
    """
    fits: Fits = defaultdict(dict)
    for (name, tag), rows in sorted(groups.items()):
        batch, cin, cout, kernel, hw, stride, pad = (
            column(rows, c)
            for c in ("batch", "cin", "cout", "kernel_size", "in_hw", "stride", "pad")
        )
        out_hw = np.floor((hw + 2 * pad - kernel) / stride) + 1
        pixels, depth = batch * out_hw * out_hw, cin * kernel * kernel
        flop = 2.0 * pixels * cout * depth
        n_bytes = 4.0 * (batch * hw * hw * cin + pixels * cout + cout * depth)
        gpu = gpus[name]
        fill = tile_fill(pixels, cout, depth, 1.0, gpu.sm_count)
        time_s = column(rows, "time_us") * MICRO
        pick = np.flatnonzero(flop >= 10 * GIGA)
        fits[name][tag] = fit_roofline(
            flop[pick], n_bytes[pick], fill[pick], time_s[pick], gpu.fp32, gpu.bw_bytes_per_s,
            eff_memory_min=0.55,
        )  # fmt: skip
    return fits


def fit_attention(groups: Groups, gpus: Mapping[str, Gpu], flop_factor: float = 1.0) -> Fits:
    """Flash attention; a causal mask halves the FLOP. ``flop_factor`` 2.5 for backward.

    Sequences of 256 to 32768: what training runs; shorter ones are launch-bound.
    """
    fits: Fits = defaultdict(dict)
    for (name, tag), rows in sorted(groups.items()):
        b, h, kv, q, s, d, dv = (
            column(rows, c)
            for c in ("batch", "heads", "kv_heads", "seq_q", "seq_kv", "head_dim", "v_head_dim")
        )
        half = np.where(column(rows, "causal") > 0, 0.5, 1.0)
        flop = flop_factor * 2.0 * b * h * q * s * (d + dv) * half
        pick = np.flatnonzero((q >= 256) & (q <= 32768) & (flop >= 100 * MEGA))
        if pick.size < 10:
            continue
        pick = pick[stratify(flop[pick], np.random.default_rng(SEED))]
        b, h, kv, q, s, d, dv, flop = (a[pick] for a in (b, h, kv, q, s, d, dv, flop))
        n_bytes = 2.0 * b * (h * q * (d + dv) + kv * s * (d + dv)) * (2.0 if flop_factor > 1 else 1)
        gpu = gpus[name]
        fill = tile_fill(q, d, s, b * h, gpu.sm_count)
        time_s = column(rows, "time_us")[pick] * MICRO
        fits[name][tag] = fit_roofline(
            flop, n_bytes, fill, time_s, gpu.tensor16, gpu.bw_bytes_per_s
        )  # fmt: skip
    return fits


def fit_memory_class(groups: Groups, gpus: Mapping[str, Gpu]) -> Fits:
    """Memory-bound kernels whose traffic exceeds the L2 of every device in the tables.

    Smaller ones run from L2 in a benchmark loop and would flatter DRAM. Eager rows carry the
    host's launch in ``launch_s``.
    """
    fits: Fits = defaultdict(dict)
    for (name, tag), rows in sorted(groups.items()):
        n_bytes, time_s = column(rows, "bytes"), column(rows, "time_us") * MICRO
        pick = np.flatnonzero(n_bytes >= BEYOND_L2)
        pick = pick[stratify(n_bytes[pick], np.random.default_rng(SEED))]
        fits[name][tag] = fit_memory(n_bytes[pick], time_s[pick], gpus[name].bw_bytes_per_s)
    return fits
