"""Time of one kernel from its FLOP, its memory traffic and the device's efficiencies.

Pure functions on broadcasting arrays: usually K kernels x C configurations.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from simcore.base.arrays import NDArray

FloatArray: TypeAlias = NDArray[np.float64]
FloatLike: TypeAlias = float | NDArray[np.floating[Any]]


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

    ``peak`` [FLOP/s] and ``bw`` [bytes/s] are the datasheet's (dense), ``eff_*`` the shares of them
    that a kernel reaches; ``fill`` in (0, 1] comes from :mod:`simcore.physics.fill`. All arguments
    broadcast. The exponent 2 is close to the fit of op tables (1.9) and needs no power function.
    For a kernel without FLOP any positive ``eff_compute`` will do.
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
