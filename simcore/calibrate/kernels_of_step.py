"""From timed operators of a real step to seconds of each kernel of the step's kernel table.

A step's kernels are those of its kernel table (``step.kernels``). The operators that ran were
recorded with the same kernels (``workload.trace.flop``), so that each kernel of the table finds the
measured ones of its kind, pass and shape. Equal kernels of different operators (an addition, an
activation function) are one kernel of the table, with their mean time.

# K kernels of the table, N measured kernels, F features
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np

from simcore.base.arrays import NDArray
from simcore.step.kernels import KINDS, SHORT_SOFTMAX, KernelTable
from simcore.timing.rates import STANDS_FOR, KernelRates
from simcore.workload.graph import CONV_KINDS, FLASH_KINDS, Workload
from simcore.workload.trace.record import KernelRecord

Array = NDArray[np.float64]

#: Largest distance of logarithms at which two kernels have the same shape: traced bytes of
#: attention differ a little between torch's operator and its CUDA kernel.
SAME_SHAPE: Final = 0.02
#: Distance from which on a measured kernel says nothing about another one: a factor of four.
FAR: Final = np.log(4.0)


class Timed(Protocol):
    """An operator that was timed (``op_timer.TimedOp``)."""

    @property
    def backward(self) -> bool:
        """Whether it ran in backward."""

    @property
    def kernels(self) -> tuple[KernelRecord, ...]:
        """Its kernels."""

    @property
    def seconds(self) -> float:
        """Its time."""

    @property
    def sd_log(self) -> float:
        """Standard deviation of the logarithm of its time."""


@dataclass(frozen=True, eq=False, slots=True)
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
    return plain, backward


def _cost_s(kind: str, flop: float, n_bytes: float, rates: KernelRates) -> float:
    """Seconds of a kernel by its work and traffic alone, to divide an operator's time."""
    of = rates.of(kind)
    return float(np.hypot(flop / of["flop_per_s"], n_bytes / of["bytes_per_s"])) + rates.start_s


def measured_kernels(ops: Sequence[Timed], rates: KernelRates) -> Measured:
    """The kernels of timed operators; one's time is divided by the work of its kernels."""
    groups, features, seconds, sds = [], [], [], []
    for op in ops:
        costs = [_cost_s(k.kind, k.flop, k.n_bytes, rates) for k in op.kernels]
        for kernel, cost in zip(op.kernels, costs, strict=True):
            groups.append(group_of(kernel.kind, op.backward))
            features.append(_features(kernel.n_bytes, kernel.flop, *kernel.dims))
            seconds.append(op.seconds * cost / sum(costs))
            sds.append(op.sd_log)
    return Measured(groups, np.array(features), np.array(seconds), np.array(sds))


def _features(n_bytes: float, flop: float, *dims: float) -> list[float]:
    sides = dims if flop else (1.0,) * len(dims)
    return [float(np.log(max(x, 1.0))) for x in (n_bytes, flop, *sides)]


@dataclass(frozen=True, eq=False, slots=True)
class Found:
    """Seconds [K] of each kernel of a table, NaN where none was found; their spread.

    ``near`` [K]: distance to the measured kernel. ``spread`` [K]: standard deviation of ln(seconds)
    over the runs and over the operators that share a kernel.
    """

    seconds: Array
    spread: Array
    near: Array


def seconds_of(table: KernelTable, batch: float, measured: Measured, rates: KernelRates) -> Found:
    """Seconds of each kernel of a table at a batch, from measured kernels.

    Measured kernels of the same shape give their mean; else the nearest one is scaled by the work.
    """
    n = len(table.kernels)
    seconds, spread, near = np.full(n, np.nan), np.zeros(n), np.full(n, np.inf)
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
        sides = kernel["sides"][:, 0] + kernel["sides"][:, 1] * batch
        distance = np.abs(measured.features[own] - _features(n_bytes, flop, *sides)).max(axis=1)
        near[row] = distance.min()
        if near[row] > FAR:
            continue
        chosen = own[distance <= max(near[row], SAME_SHAPE)]
        scaled = measured.seconds[chosen].copy()
        if near[row] > SAME_SHAPE:
            of = np.exp(measured.features[chosen])
            costs = [_cost_s(kind, f if flop else 0.0, b, rates) for b, f, *_ in of]
            scaled *= _cost_s(kind, flop, n_bytes, rates) / np.array(costs)
        seconds[row] = scaled.mean()
        spread[row] = np.hypot(
            measured.sd_log[chosen].mean(), np.log(scaled).std() / np.sqrt(len(scaled))
        )
    return Found(seconds, spread, near)


def runs_of(workload: Workload, table: KernelTable) -> Array:
    """How often each kernel runs in one forward and backward of a workload [K]."""
    counts = [workload.count(b) for b in range(len(workload.blocks))]
    of_phase = np.array([*counts, *counts, *(1 for _ in workload.frozen)], dtype=float)
    phase = np.searchsorted(table.phase_start, np.arange(len(table.kernels)), side="right") - 1
    runs: Array = table["count"] * of_phase[phase]
    return runs
