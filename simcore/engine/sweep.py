"""Many configurations of one model in one call: the product of clusters, strategies, batches.

Points that share a step graph (same strategy, same device types) form one configuration axis.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from simcore.base.arrays import NDArray
from simcore.base.errors import InvalidConfig, SimcoreError
from simcore.engine.evaluate import Job, evaluate
from simcore.engine.memory import memory_of, workspace_bytes
from simcore.engine.points import Points
from simcore.engine.predict import Request, job_of, point_values
from simcore.hardware.cluster import ClusterSpec
from simcore.hardware.paths import cluster_paths
from simcore.strategy.strategy import Strategy

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Sweep:
    """One entry a configuration, in the order of the product; arrays [C].

    ``cluster`` and ``strategy`` index ``clusters`` and ``strategies``. Points whose strategy and
    cluster do not go together hold NaN and are counted in ``invalid`` by reason.
    """

    clusters: tuple[str, ...]
    strategies: tuple[str, ...]
    cluster: NDArray[np.intp]
    strategy: NDArray[np.intp]
    n_gpus: NDArray[np.intp]
    micro_batch: Array
    step_time_s: Array
    samples_per_s: Array
    memory_bytes: Array
    fits: NDArray[np.bool_]
    invalid: dict[str, int]

    def __len__(self) -> int:
        return len(self.step_time_s)

    @property
    def front(self) -> NDArray[np.bool_]:
        """Pareto front: fits, and nothing that fits is as fast on as few GPUs [C]."""
        on_front = np.zeros(len(self), dtype=bool)
        best = 0.0
        rate = np.where(self.fits & np.isfinite(self.samples_per_s), self.samples_per_s, 0.0)
        for i in np.lexsort((self.memory_bytes, -rate, self.n_gpus)):
            if rate[i] > best:
                best, on_front[i] = rate[i], True
        return on_front


def sweep(
    base: Request,
    clusters: Sequence[ClusterSpec],
    strategies: Sequence[Strategy],
    micro_batches: Sequence[int],
) -> Sweep:
    """Evaluate every combination. Cost grows with the number of points, not of devices."""
    batches = np.asarray(micro_batches, dtype=np.float64)
    if not clusters or not strategies or not len(batches):
        raise InvalidConfig(["a sweep needs at least one cluster, strategy and micro-batch"])
    n_c, n_s, n_b = len(clusters), len(strategies), len(batches)
    step, memory = np.full((n_c, n_s, n_b), np.nan), np.full((n_c, n_s, n_b), np.nan)
    fits = np.zeros((n_c, n_s, n_b), dtype=bool)
    invalid: dict[str, int] = {}
    wires = [point_values(c, base.profile, base.workload.name, 1.0, 1.0) for c in clusters]
    kinds: dict[tuple[object, ...], list[int]] = {}
    for i, cluster in enumerate(clusters):
        key = tuple((g.gpu.name, g.node.name, g.gpus_per_node) for g in cluster.groups)
        kinds.setdefault(key, []).append(i)
    for (s, strategy), members in product(enumerate(strategies), kinds.values()):
        valid = []
        for i in members:
            c = clusters[i]
            types = len({g.gpu.name for g in c.groups})
            broken = strategy.violations(c.n_nodes, c.n_gpus, types)
            if broken:
                reason = f"{strategy.parallelism}: {broken[0].partition(', not ')[0]}"
                invalid[reason] = invalid.get(reason, 0) + n_b
            else:
                valid.append(i)
        if not valid:
            continue
        request = replace(base, cluster=clusters[valid[0]], strategy=strategy)
        try:
            job = job_of(request)
        except SimcoreError as err:
            invalid[str(err)] = invalid.get(str(err), 0) + n_b * len(valid)
            continue
        shape = (len(valid), n_b)
        points = _points([wires[i] for i in valid], batches, base.grad_accum)
        steps = evaluate(job, points).step_s.reshape(shape)
        device, fit = _memory(request, job, [clusters[i] for i in valid], points)
        step[valid, s] = steps
        memory[valid, s], fits[valid, s] = device.reshape(shape), fit.reshape(shape)
    size = n_c * n_s * n_b
    cluster_index, strategy_index, batch_index = np.unravel_index(np.arange(size), step.shape)
    gpus = np.array([float(c.n_gpus) for c in clusters])
    flat = step.reshape(size)
    per_step = batches[batch_index] * base.grad_accum * gpus[cluster_index]
    return Sweep(
        clusters=tuple(map(str, clusters)),
        strategies=tuple(s.parallelism for s in strategies),
        cluster=cluster_index,
        strategy=strategy_index,
        n_gpus=gpus[cluster_index].astype(np.intp),
        micro_batch=batches[batch_index],
        step_time_s=flat,
        samples_per_s=per_step / flat,
        memory_bytes=memory.reshape(size),
        fits=fits.reshape(size),
        invalid=invalid,
    )


def _points(rows: Sequence[dict[str, float]], batches: Array, grad_accum: int) -> Points:
    """The product of clusters and batches as one axis."""
    values: dict[str, object] = {
        key: np.repeat([r[key] for r in rows], len(batches)) for key in rows[0]
    }
    values["micro_batch"] = np.tile(batches, len(rows))
    values["grad_accum"] = float(grad_accum)
    return Points.of(values, len(rows) * len(batches))


def _memory(
    request: Request, job: Job, clusters: Sequence[ClusterSpec], points: Points
) -> tuple[Array, NDArray[np.bool_]]:
    route = cluster_paths(clusters[0])[0].route
    context = max(request.profile.cuda_context_bytes(c.gpu).value for c in job.classes)
    memory = memory_of(
        request.workload,
        request.strategy,
        points.micro_batch,
        points.grad_accum,
        points.n_ranks,
        points.n_nodes,
        nvlink=route == "nvlink",
        cuda_context_bytes=context,
        cublas_bytes=workspace_bytes(c.gpu.architecture for c in job.classes),
    )
    capacity = min(c.gpu.usable_memory_bytes for c in job.classes)
    return memory.device, memory.device <= capacity
