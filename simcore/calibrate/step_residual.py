"""What steps of one program err by in common: the covariance of their residuals.

The engine's error is no coin toss. Two steps of one program that spend their time on the same
resources err alike, and so do those of one model or one precision: a kernel that is slower than
described is slower in both. The residual of ln(time) is taken as a Gaussian process over what a
step is, never over what it measured. Its widths are learnt from the rows of the fit alone.

# A, B rows; K what a step's time depends on (engine.points.KNOBS)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from simcore.base.arrays import NDArray

Array = NDArray[np.float64]

#: Distance between shares of the time at which errors have lost most of what they share: a fifth
#: of the step moved from one resource to others.
SHARE_SCALE = 0.2
#: The same of a job's sizes, in doublings.
SIZE_SCALE = 1.5


@dataclass(frozen=True, slots=True)
class Traits:
    """What a step is, for its likeness to others.

    ``program``: whose it is (a source on a GPU type); nothing is shared across programs.
    ``work``: what one device computes in a micro-step, the same on any number of devices.
    ``sizes``: log2 of batch, ranks, degrees and parameters.
    """

    program: str
    model: str
    precision: str
    work: str
    sizes: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Features:
    """Traits of several rows as arrays, with their shares of the time [A, K]."""

    program: NDArray[np.int64]
    model: NDArray[np.int64]
    precision: NDArray[np.int64]
    work: NDArray[np.int64]
    sizes: Array
    shares: Array

    @staticmethod
    def of(traits: Sequence[Traits], shares: Array) -> Features:
        """Features of rows whose elasticities of the time are ``shares``."""
        return Features(
            program=_codes([t.program for t in traits]),
            model=_codes([t.model for t in traits]),
            precision=_codes([t.precision for t in traits]),
            work=_codes([t.work for t in traits]),
            sizes=np.array([t.sizes for t in traits], dtype=np.float64),
            shares=shares,
        )


def _codes(names: Sequence[str]) -> NDArray[np.int64]:
    """A number for each name, the same in every call."""
    import zlib

    return np.array([zlib.crc32(n.encode()) for n in names], dtype=np.int64)


#: Parts of the covariance with their widths (sd of ln time) before any row is seen: about what
#: published steps of one source share of a blind error of 15 %. Learnt anew from each fit's rows.
PARTS: dict[str, float] = {
    "precision": 0.04,
    "model": 0.04,
    "work of a device": 0.08,
    "shares of the time": 0.12,
    "sizes of one model": 0.05,
}


def part_covariances(a: Features, b: Features) -> dict[str, Array]:
    """Correlation [A, B] of each part; one on the diagonal."""
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
