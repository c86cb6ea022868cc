"""Kernels of training steps that were timed by shape, and how they correct the formulas.

The seconds of a kernel are those of the formulas (``physics.kernel``) times a factor:

    ln factor = sum_i w_i ln(measured_i / formula_i) / sum_i w_i,    w_i = 1 / d_i^4

over the timed kernels i of its kind and phase. ``d_i`` is the distance of the logarithms of bytes,
FLOP, columns, depth, groups and rows, with OTHER added (in quadrature) for a kernel that is not the
same one at another batch. At distance zero the factor is that kernel's own: the answer is the
measured time. Far from all of them it is their mean. Inverse distance weighting (Shepard 1968) is
exact at its points, smooth between them, and needs no fitted width.

# K kernels of a table, M timed kernels, B distinct batches, F features
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from simcore.base.arrays import Array, NDArray
from simcore.base.errors import InvalidConfig
from simcore.base.record import dataclass
from simcore.hardware.calibrations import MeasuredDevice
from simcore.hardware.spec import GpuSpec
from simcore.step.kernel_text import kernel_texts, read_kernels
from simcore.step.kernels import KernelTable
from simcore.strategy.precision import PRECISIONS, Precision

#: Squared distance of a kernel to another kernel of the same shape: as far as the same one at e
#: times the size. A kernel whose factor was measured at another batch keeps it rather than that of
#: a different kernel which happens to be of its size.
OTHER = 1.0
#: Squared distance below which two shapes are the same: 1 in 10,000.
SAME = 1e-8


@dataclass(frozen=True, eq=False)
class TimedKernels:
    """Kernels that were timed on a device in one precision.

    ``table``: one phase a kernel; ``texts``: their keys; ``batch`` [M]: samples at which each ran;
    ``seconds`` [M]: of one run.
    """

    table: KernelTable
    texts: tuple[str, ...]
    batch: Array
    seconds: Array


def timed_kernels(
    measured: MeasuredDevice, gpu: GpuSpec, precision: Precision
) -> TimedKernels | None:
    """The kernels that were timed on a device in a precision; None if there are none.

    Raises InvalidConfig for a kernel that cannot be read.
    """
    found = [k for k in measured.kernels if _alike(PRECISIONS[k.precision], precision)]
    if measured.gpu != gpu.name or not found:
        return None
    texts = tuple(k.kernel for k in found)
    try:
        kernels = read_kernels(texts)
    except ValueError as err:
        raise InvalidConfig([f"kernels timed on {gpu.name}: {err}"]) from None
    none = np.zeros(len(found))
    table = KernelTable(
        kernels=kernels, phase_start=np.arange(len(found)), launches_per_phase=none,
        issues_per_phase=none, calls_per_phase=none, awaited_per_phase=np.zeros((len(found), 2)),
        unit_issues_per_phase=none,
    )  # fmt: skip
    batch, seconds = (np.array([getattr(k, name) for k in found]) for name in ("batch", "seconds"))
    return TimedKernels(table, texts, batch, seconds)


def _alike(one: Precision, other: Precision) -> bool:
    """Whether kernels of two precisions are the same: their products, and widths of tensors."""
    return all(
        getattr(one, name) == getattr(other, name)
        for name in ("peak", "conv_peak", "low_bytes", "high_bytes", "operand_bytes")
    )


def timed_factors(
    table: KernelTable, timed: TimedKernels, ratios: Array, micro_batch: Array
) -> Array:
    """Factors on the formulas' seconds of each kernel at each batch [K, B].

    ``ratios`` [M]: measured seconds of the timed kernels over those of the formulas.
    """
    batches, column = np.unique(micro_batch, return_inverse=True)
    factors = np.stack([_factors(table, timed, float(b)) @ np.log(ratios) for b in batches], axis=1)
    return np.exp(factors)[:, column]


@lru_cache(maxsize=256)
def _factors(table: KernelTable, timed: TimedKernels, batch: float) -> Array:
    """Weights [K, M] of the timed kernels in the factor of each kernel; no row sums to over one."""
    squared = np.square(_features(table, np.array([batch]))[:, None] - _own(timed)).sum(axis=-1)
    squared += OTHER * ~_same_kernel(table, timed)
    weights = 1.0 / np.square(np.maximum(squared, SAME))
    kernels, others = table.kernels, timed.table.kernels
    of_kind = kernels["kind"][:, None] == others["kind"]
    of_phase = of_kind & (kernels["backward"][:, None] == others["backward"])
    weights *= np.where(of_phase.any(axis=1, keepdims=True), of_phase, of_kind)
    total = weights.sum(axis=1, keepdims=True)
    return weights / np.where(total, total, 1.0)


@lru_cache(maxsize=64)
def _same_kernel(table: KernelTable, timed: TimedKernels) -> NDArray[np.bool_]:
    """Whether each kernel of a table is a timed one, at whatever batch [K, M]."""
    return np.array(kernel_texts(table))[:, None] == np.array(timed.texts)


@lru_cache(maxsize=64)
def _own(timed: TimedKernels) -> Array:
    """Features of the timed kernels, each at the batch at which it ran [M, F]."""
    return _features(timed.table, timed.batch)


def _features(table: KernelTable, batch: Array) -> Array:
    """Logarithms of bytes, FLOP, columns, depth, groups and rows [K, F] at a batch ([1] or [K])."""
    kernels = table.kernels
    _, n, k, groups = (kernels["sides"][..., 0] + kernels["sides"][..., 1] * batch[:, None]).T
    n_bytes = kernels["n_bytes"][:, 0] + kernels["n_bytes"][:, 1] * batch
    amounts = n_bytes, kernels["flop"] * batch, n, k, groups, kernels["rows"] * batch
    return np.log(np.maximum(np.stack(amounts, axis=1), 1.0))


def timed_here(table: KernelTable, timed: TimedKernels, batch: float) -> NDArray[np.bool_]:
    """Whether each kernel of a table was itself timed at this batch [K]."""
    squared = np.square(_features(table, np.array([batch]))[:, None] - _own(timed)).sum(axis=-1)
    return (_same_kernel(table, timed) & (squared <= SAME)).any(axis=1)
