"""The covariance of the residuals of steps of one program.

The engine's errors are correlated. Two steps of one program that spend their time on the same
resources have similar errors, and so have those of one model or one precision: a kernel that is
slower than described is slower in both. The residual of ln(time) is modelled as a Gaussian process
over the properties of a step, never over its measured time. Its widths are learnt from the rows of
the fit alone.

# A, B rows; K what a step's time depends on (timing.points.KNOBS)
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from simcore.base.arrays import NDArray
from simcore.base.record import dataclass

Array = NDArray[np.float64]

#: Length scale of the correlation over shares of the time: it falls to 1/e if about a fifth of the
#: step moves from one resource to others.
SHARE_SCALE = 0.2
#: Length scale of the correlation over a job's sizes, in doublings.
SIZE_SCALE = 1.5


@dataclass(frozen=True)
class Traits:
    """The properties of a step that determine the correlation of its error with others.

    ``program``: a source on a GPU type; steps of different programs are not correlated. ``work``:
    an identifier of what one device computes in a micro-step, the same on any number of devices.
    ``sizes``: log2 of batch, ranks, degrees and parameters.
    """

    program: str
    model: str
    precision: str
    work: str
    sizes: tuple[float, ...]


@dataclass(frozen=True)
class Features:
    """The traits of several rows as arrays, with their shares of the time [A, K]."""

    program: NDArray[np.int64]
    model: NDArray[np.int64]
    precision: NDArray[np.int64]
    work: NDArray[np.int64]
    sizes: Array
    shares: Array

    @staticmethod
    def of(traits: Sequence[Traits], shares: Array) -> Features:
        """The features of rows; ``shares`` [A, K] are the elasticities of the time."""
        return Features(
            program=_codes([t.program for t in traits]),
            model=_codes([t.model for t in traits]),
            precision=_codes([t.precision for t in traits]),
            work=_codes([t.work for t in traits]),
            sizes=np.array([t.sizes for t in traits], dtype=np.float64),
            shares=shares,
        )


def _codes(names: Sequence[str]) -> NDArray[np.int64]:
    """A number for each name, the same in every call and process."""
    import zlib

    return np.array([zlib.crc32(n.encode()) for n in names], dtype=np.int64)


#: Part of the covariance -> its prior width, a standard deviation of ln(time). Together they are
#: about the correlated share of a blind error of 15 % in published steps of one source. Each fit
#: learns the widths from its rows.
PARTS: dict[str, float] = {
    "precision": 0.04,
    "model": 0.04,
    "work of a device": 0.08,
    "shares of the time": 0.12,
    "sizes of one model": 0.05,
}


def part_covariances(a: Features, b: Features) -> dict[str, Array]:
    """The correlation [A, B] of each part between rows ``a`` and rows ``b``; one for equal rows."""
    program = a.program[:, None] == b.program[None, :]
    model = program & (a.model[:, None] == b.model[None, :])
    precision = program & (a.precision[:, None] == b.precision[None, :])
    work = program & (a.work[:, None] == b.work[None, :])
    moved = np.sqrt(_square_distances(a.shares, b.shares))
    doublings = _square_distances(a.sizes, b.sizes)
    return {
        "precision": precision.astype(np.float64),
        "model": model.astype(np.float64),
        "work of a device": work.astype(np.float64),
        "shares of the time": program * np.exp(-moved / SHARE_SCALE),
        "sizes of one model": model * np.exp(-doublings / (2.0 * SIZE_SCALE**2)),
    }


def _square_distances(a: Array, b: Array) -> Array:
    found: Array = np.square(a[:, None, :] - b[None, :, :]).sum(axis=-1)
    return found
