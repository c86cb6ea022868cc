"""Time of one kernel from its work, its traffic and how well the device keeps its datasheet.

Pure functions on broadcasting arrays: usually K kernels x C configurations.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import numpy as np

from simcore.base.arrays import NDArray

FloatArray: TypeAlias = NDArray[np.float64]
FloatLike: TypeAlias = float | NDArray[np.floating[Any]]

#: Output tile of one thread block, and the depth that split-K leaves to each.
TILE: Final = 128
SPLIT_K: Final = 512


def kernel_time_s(
    flop: FloatLike,
    n_bytes: FloatLike,
    peak_flop_per_s: FloatLike,
    bw_bytes_per_s: FloatLike,
    eff_compute: FloatLike,
    eff_memory: FloatLike,
    fill: FloatLike,
    launch_s: FloatLike = 0.0,
) -> FloatArray:
    """Time of a kernel [s]: a roofline with a rounded knee.

        launch + sqrt(tc^2 + tm^2),  tc = flop / (eff_c · peak · fill),  tm = bytes / (eff_m · bw)

    ``peak`` and ``bw`` are the datasheet's (dense), ``eff_*`` the share a kernel reaches,
    ``fill`` in (0, 1] comes from :func:`tile_fill`. All arguments broadcast. The exponent 2 is
    near what op tables give (1.9) and needs no power function. A kernel without FLOP needs no
    valid peak share: pass any positive one.
    """
    compute_s = np.asarray(flop, dtype=float) / (
        np.asarray(eff_compute, dtype=float) * peak_flop_per_s * fill
    )
    memory_s = np.asarray(n_bytes, dtype=float) / (
        np.asarray(eff_memory, dtype=float) * bw_bytes_per_s
    )
    busy_s = np.sqrt(compute_s * compute_s + memory_s * memory_s)
    time_s: FloatArray = busy_s + np.asarray(launch_s, dtype=float)
    return time_s


def tile_fill(
    m: FloatLike, n: FloatLike, k: FloatLike, groups: FloatLike, sm_count: FloatLike
) -> FloatArray:
    """Share of the SMs that the tiles of ``groups`` products [m, k] @ [k, n] occupy, in (0, 1].

        min(1, ceil(m/128) · ceil(n/128) · groups · max(1, floor(k/512)) / SMs)

    Split-K cuts deep products into slices of at least 512. No wave term: measured large GEMMs
    do not show one once tile size and split-K are free. Geometry below 1 counts as 1.
    """
    tiles = (
        np.ceil(np.maximum(m, 1.0) / TILE)
        * np.ceil(np.maximum(n, 1.0) / TILE)
        * np.maximum(groups, 1.0)
        * np.maximum(np.floor(np.maximum(k, 1.0) / SPLIT_K), 1.0)
    )
    fill: FloatArray = np.minimum(tiles / np.asarray(sm_count, dtype=float), 1.0)
    return fill


def power_limited_frac(
    tdp_w: FloatLike, peak_flop_per_s: FloatLike, limit_w_per_flop_per_s: FloatLike
) -> FloatArray:
    """Share of its matrix peak that a device can hold under its power cap, in (0, 1].

        (1 + (w0/w)^4)^(-1/4),  w = tdp / peak,  w0 = limit

    ``w0`` [W per FLOP/s, that is J per FLOP] is what the whole board draws per FLOP at boost
    clock. Well above it (w ≫ w0) the cap does not bind and the share is 1; at w = w0 it is
    2^(-1/4) = 0.84; well below, the rate is tdp / w0 and the share w / w0.
    """
    ratio = np.asarray(limit_w_per_flop_per_s, dtype=float) * peak_flop_per_s / tdp_w
    square = ratio * ratio
    frac: FloatArray = 1.0 / np.sqrt(np.sqrt(1.0 + square * square))
    return frac
