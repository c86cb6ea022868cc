"""Samples that worker processes read ahead: PyTorch's DataLoader as a queue, in closed form."""

from __future__ import annotations

import numpy as np

from simcore.base.arrays import Array
from simcore.physics.collectives import most_work


def crowding(workers: Array, ranks_of_node: Array | float, cores: float) -> Array:
    """How much longer a load takes where busy workers of all ranks share a node's cores [C].

        max(1, workers · ranks / cores)

    ``workers``: those of a rank that have work.
    """
    return np.maximum(1.0, workers * ranks_of_node / cores)


def memory_period_s(samples: Array, traffic_bytes: float, dram_bytes_per_s: float) -> Array:
    """Seconds [C] in which a node's memory passes what loading ``samples`` of all its ranks moves.

        samples · traffic / sustained DRAM bandwidth

    Workers of many cores share their sockets' memory: pipelines of whole tensors in fp32 reach its
    limit before that of the cores. ``traffic_bytes``: of one sample, reads and writes beyond the
    caches. ``dram_bytes_per_s``: of all sockets of a node.
    """
    return samples * traffic_bytes / dram_bytes_per_s


def batch_period_s(
    batch_s: Array, sample_sd_frac: float, samples: Array, n_ranks: Array,
    batches: Array | float, workers: float, prefetch: float,
) -> Array:  # fmt: skip
    """Seconds [C] between two batches of a rank where loading is the limit.

        batch / workers · (1 + wait)
        wait = min(spread, max(spread / sqrt(waves), spread² / (2 · (prefetch - 1))))
        spread = sd / sqrt(samples) · E[max of all workers]

    Batches go round the workers and are used in order, so that each wave of a batch a worker ends
    with the slowest worker of all ranks. A worker may be ``prefetch`` - 1 batches ahead of it: of
    one batch, all wait for the slowest in each wave; with a longer lead the waits are those of a
    diffusion between two walls, as in a queue of finite length (Harrison 1985, Brownian motion and
    stochastic flow systems), and never less than the slowest worker's excess over all ``waves`` of
    the epoch. ``batch_s``: one worker's seconds for a batch of ``samples``; ``batches``: those of a
    rank in an epoch, may be infinite; ``sample_sd_frac``: standard deviation of a sample's load
    time over its mean.
    """
    busy = np.minimum(workers, batches)
    spread = most_work(np.rint(n_ranks * busy), samples, sample_sd_frac) - 1.0
    of_epoch = spread / np.sqrt(np.maximum(1.0, batches / workers))
    of_lead = spread**2 / (2.0 * (prefetch - 1.0)) if prefetch > 1 else spread
    return batch_s / workers * (1.0 + np.minimum(spread, np.maximum(of_epoch, of_lead)))


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
