"""Many configurations of one form in one call: clusters of a kind, batches and accumulation.

Points that share a step graph (same model, strategy and layout on the same kind of node) lie on
one configuration axis; ``plan.sweep`` deals a whole space out to such axes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from simcore.base.arrays import NDArray
from simcore.engine.points import Points
from simcore.engine.predict import Request, memory_over, point_values, steps_of
from simcore.hardware.cluster import ClusterSpec

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Axis:
    """Points of one form: ``cluster`` indexes ``clusters``, which are of one kind; arrays [C]."""

    clusters: tuple[ClusterSpec, ...]
    cluster: NDArray[np.intp]
    micro_batch: Array
    grad_accum: Array

    def __len__(self) -> int:
        return len(self.cluster)


@dataclass(frozen=True)
class Outcome:
    """What each point of an axis gives, arrays [C]; ``capacity_bytes`` of the smallest device."""

    step_time_s: Array
    memory_bytes: Array
    capacity_bytes: float

    @property
    def fits(self) -> NDArray[np.bool_]:
        """Whether the fullest device holds it."""
        return self.memory_bytes <= self.capacity_bytes


def cluster_kind(cluster: ClusterSpec) -> tuple[object, ...]:
    """Clusters of equal kind differ in the number of nodes alone and share an axis."""
    groups = tuple((g.gpu.name, g.node, g.gpus_per_node) for g in cluster.groups)
    return (*groups, cluster.n_nodes > 1)


def evaluate_axis(request: Request, axis: Axis) -> Outcome:
    """Step time and memory of every point; ``request`` says the form, on any of the clusters.

    Equal to ``predict`` of each point. Cost grows with the points, not with devices.
    """
    wires = [
        point_values(c, request.profile, request.workload.name, 1.0, 1.0) for c in axis.clusters
    ]
    values: dict[str, object] = {
        key: np.array([w[key] for w in wires])[axis.cluster] for key in wires[0]
    }
    values["micro_batch"], values["grad_accum"] = axis.micro_batch, axis.grad_accum
    points = Points.of(values, len(axis))
    stages = memory_over(
        request, points.micro_batch, points.grad_accum, points.n_ranks, points.n_nodes
    )
    return Outcome(
        step_time_s=steps_of(request, points).step_s,
        memory_bytes=np.max([m.device for m in stages], axis=0),
        capacity_bytes=float(min(g.gpu.usable_memory_bytes for g in request.cluster.groups)),
    )
