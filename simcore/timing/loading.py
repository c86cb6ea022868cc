"""What a step waits for its samples, along the configuration axis."""

from __future__ import annotations

import numpy as np

from simcore.base.arrays import Array
from simcore.base.record import dataclass
from simcore.physics.collectives import most_work
from simcore.physics.loading import batch_period_s, crowding, epoch_s, memory_period_s
from simcore.request.resolved import Loading
from simcore.timing.points import Points


@dataclass(frozen=True)
class Loader:
    """The loader of a job's ranks.

    ``one_process``: one process, with one loader, feeds all devices (DataParallel). ``cores``: of a
    node. ``slower``: time of host work over that on a processor of ``workload.models.Dataset``'s
    kind, on the slowest node. ``share``: largest micro-batch of a rank over the mean one.
    ``dram_bytes_per_s``: what the memory of a node sustains.
    """

    data: Loading
    one_process: bool
    cores: float
    slower: float
    share: float
    dram_bytes_per_s: float = np.inf

    def _micro_batch(self, points: Points) -> Array:
        """Samples [C] of a batch of the loader."""
        fed = points.n_ranks if self.one_process else np.ones(len(points))
        return points.micro_batch * fed * self.share

    def blocking_s(self, points: Points) -> Array:
        """Seconds [C] that loading takes inside the step: it has no worker processes."""
        if self.data.workers:
            return np.zeros(len(points))
        return self._micro_batch(points) * points.grad_accum * self._sample_s(points)

    def _sample_s(self, points: Points) -> Array:
        """Seconds [C] that a core takes to load a sample."""
        slower = 1.0 if self.data.measured_here else self.slower
        return self.data.sample_load_s * slower * points.use_loader / points.loader

    def step_s(self, points: Points, makespan_s: Array) -> tuple[Array, Array]:
        """(mean step, least time between steps that the loader allows), seconds [C].

        ``makespan_s``: the step without its loader. See ``physics.loading.epoch_s``; workers that
        live on (``persistent``) never start again, so that no first batch is waited for.
        """
        data = self.data
        if not data.workers:
            return makespan_s, np.zeros(len(points))
        samples = self._micro_batch(points)
        loaders = np.ones(len(points)) if self.one_process else points.n_ranks
        of_epoch = np.inf if data.samples is None else data.samples
        batches = np.maximum(1.0, of_epoch * self.share / (samples * loaders))
        ranks = 1.0 if self.one_process else points.gpus_per_node
        busy = crowding(np.minimum(data.workers, batches), ranks, self.cores)
        batch_s = samples * self._sample_s(points) * busy
        spread = data.load_sd_frac
        endless = data.persistent or data.samples is None
        period = batch_period_s(
            batch_s, spread, samples, loaders, np.inf if endless else batches, data.workers,
            data.prefetch,
        )  # fmt: skip
        through_memory = memory_period_s(
            samples * ranks, data.sample_traffic_bytes, self.dram_bytes_per_s
        )
        period = np.maximum(period, through_memory * points.use_loader / points.loader)
        allowed = period * points.grad_accum
        if endless:
            return np.maximum(makespan_s, allowed), allowed
        start_s = data.worker_start_s * self.slower * points.use_loader / points.loader
        first = data.workers * start_s + batch_s * most_work(loaders, samples, spread)
        epoch = epoch_s(batches, makespan_s / points.grad_accum, period, first, data.workers)
        return epoch / batches * points.grad_accum, allowed
