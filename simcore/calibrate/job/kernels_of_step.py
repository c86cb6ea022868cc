"""From timed operators of a real step to seconds of each kernel of the step's kernel table.

A step's kernels are those of its kernel table (``step.kernels``). The operators that ran were
recorded with the same kernels (``workload.trace.flop``), so that each kernel of the table finds the
measured ones of its kind, pass and shape. Equal kernels of different operators (an addition, an
activation function) are one kernel of the table, with their mean time.

# K kernels of the table, N measured kernels, F features
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from simcore.base.arrays import NDArray
from simcore.base.record import dataclass
from simcore.physics.fill import own_sides
from simcore.step.kernels import KINDS, SHORT_SOFTMAX, KernelTable
from simcore.timing.rates import STANDS_FOR, KernelRates
from simcore.workload.graph import CONV_KINDS, CUDNN_NORM, FLASH_KINDS, NATIVE_NORM
from simcore.workload.trace.record import KernelRecord

if TYPE_CHECKING:
    from simcore.calibrate.job.op_timer import TimedOp

Array = NDArray[np.float64]

#: Largest distance of logarithms at which two kernels have the same shape: traced bytes of
#: attention differ a little between torch's operator and its CUDA kernel.
SAME_SHAPE: Final = 0.02


@dataclass(frozen=True, eq=False)
class Measured:
    """Measured kernels: ``groups`` [N] of kind and pass, ``features`` [N, F], seconds [N]."""

    groups: list[tuple[str, bool]]
    features: Array
    seconds: Array
    sd_log: Array


def group_of(kind: str, backward: bool) -> tuple[str, bool]:
    """Kind and pass by which kernels are compared; kinds that one library's kernels serve."""
    plain = STANDS_FOR.get(kind, kind)
    if plain in CONV_KINDS:
        plain = "conv"
    elif plain in FLASH_KINDS:
        plain = "attention"
    elif plain == SHORT_SOFTMAX:
        plain = "softmax"
    elif plain == NATIVE_NORM:  # a whole norm that moves as much
        plain = CUDNN_NORM
    return plain, backward


def _cost_s(kernel: KernelRecord, rates: KernelRates) -> float:
    """Seconds of a kernel by its work and traffic alone, to divide an operator's time."""
    of = rates.of(kernel.kind)
    work_s = np.hypot(kernel.flop / of["flop_per_s"], kernel.n_bytes / of["bytes_per_s"])
    return float(work_s) + rates.start_s * kernel.launches


def measured_kernels(ops: Sequence[TimedOp], rates: KernelRates) -> Measured:
    """The kernels of timed operators; one's time is divided by the work of its kernels."""
    groups, features, seconds, sds = [], [], [], []
    for op in ops:
        costs = [_cost_s(k, rates) for k in op.kernels]
        for kernel, cost in zip(op.kernels, costs, strict=True):
            groups.append(group_of(kernel.kind, op.backward))
            features.append(_features(kernel.n_bytes, kernel.flop, *kernel.dims))
            seconds.append(op.seconds * cost / sum(costs))
            sds.append(op.sd_log)
    return Measured(groups, np.array(features), np.array(seconds), np.array(sds))


def _features(n_bytes: float, flop: float, *dims: float) -> list[float]:
    sides = dims if flop else (1.0,) * len(dims)
    return [float(np.log(max(x, 1.0))) for x in (n_bytes, flop, *sides)]


def seconds_of(table: KernelTable, batch: float, measured: Measured) -> tuple[Array, Array]:
    """Mean seconds [K] of measured kernels of each kernel's shape, and the spread of the logarithm.

    NaN where none has its shape. The spread is over runs and over operators that share a kernel.
    """
    n = len(table.kernels)
    seconds, spread = np.full(n, np.nan), np.zeros(n)
    by_group: dict[tuple[str, bool], NDArray[np.intp]] = {
        group: np.array([i for i, g in enumerate(measured.groups) if g == group])
        for group in set(measured.groups)
    }
    for row, kernel in enumerate(table.kernels):
        kind = KINDS[int(kernel["kind"])]
        own = by_group.get(group_of(kind, bool(kernel["backward"])))
        if own is None or not kernel["launches"]:
            continue
        n_bytes = kernel["n_bytes"][0] + kernel["n_bytes"][1] * batch
        flop = kernel["flop"] * batch
        fixed, per_sample = own_sides(kernel["sides"]).T
        sides = fixed + per_sample * batch
        distance = np.abs(measured.features[own] - _features(n_bytes, flop, *sides))
        same = own[distance.max(axis=1) <= SAME_SHAPE]
        if flop and not same.size:  # work and sides say which product it is, whatever it moves
            same = own[distance[:, 1:].max(axis=1) <= SAME_SHAPE]
        if not same.size:
            continue
        of_runs, of_operators = measured.sd_log[same].mean(), np.log(measured.seconds[same]).std()
        seconds[row] = measured.seconds[same].mean()
        spread[row] = np.hypot(of_runs, of_operators / np.sqrt(len(same)))
    return seconds, spread
