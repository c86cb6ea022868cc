"""Samples that worker processes read ahead: PyTorch's DataLoader as a queue, in closed form."""

from __future__ import annotations

import numpy as np

from simcore.base.arrays import NDArray
from simcore.physics.slowest import most_work

Array = NDArray[np.float64]


def crowding(workers: Array, ranks_of_node: Array | float, cores: float) -> Array:
    """How much longer a load takes where busy workers of all ranks share a node's cores [C].

        max(1, workers · ranks / cores)

    ``workers``: those of a rank that have work.
    """
    shared: Array = np.maximum(1.0, workers * ranks_of_node / cores)
    return shared


def batch_period_s(
    batch_s: Array, sample_sd_frac: float, samples: Array, read_ahead: Array, n_ranks: Array,
    workers: float,
) -> Array:  # fmt: skip
    """Seconds [C] between two batches where loading is the limit.

        batch / workers · slowest of all ranks

    Each worker loads a whole batch, and batches are used in order. All ranks wait for the slowest;
    what they read ahead evens out batches that take long, so that the slowest is that over
    ``read_ahead`` batches (workers · prefetch factor). ``batch_s``: one worker's seconds for a
    batch of ``samples``; ``sample_sd_frac``: standard deviation of a sample's load time over its
    mean.
    """
    return batch_s / workers * most_work(n_ranks, samples * read_ahead, sample_sd_frac)


def epoch_s(batches: Array, use_s: Array, period_s: Array, first_s: Array, workers: float) -> Array:
    """Seconds [C] of an epoch whose first batch its workers begin when it starts.

        first + max(n · use, later · period + (n - later) · use)
        later = (n - 1) // workers · workers

    ``batches``: n, those of a rank. ``use_s``: time to use one. ``first_s``: until the slowest rank
    has its first batch, the start of workers included. The batches of the first wave, one a worker,
    are there at once; every further wave comes after as long as a worker takes for a batch, which
    is ``workers`` · ``period_s``. Between waves either the queue is full, and the batches' use
    counts, or it is empty. Exact where all batches take equally long, for any prefetch factor:
    ``tests/physics/test_loading.py`` compares it with the events of the queue.
    """
    waves = np.floor((batches - 1.0) / workers)
    later = waves * workers
    limit = later * period_s + (batches - later) * use_s
    return first_s + np.maximum(batches * use_s, limit)
