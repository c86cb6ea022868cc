"""Many configurations of one form in one call: clusters of a kind, batches and accumulation.

Points that share a step graph (same model, strategy and layout on the same kind of node) lie on
one configuration axis; ``plan.sweep`` deals a whole space out to such axes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from simcore.base.arrays import NDArray
from simcore.engine.points import Knob, Points
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
    """What each point of an axis gives, arrays [C]; ``capacity_bytes`` of the smallest device.

    ``busy_frac``: share of the step in which devices compute. ``faster_s``: the step with twice
    of the resource that was asked for, the step itself where none was.
    """

    step_time_s: Array
    memory_bytes: Array
    capacity_bytes: float
    busy_frac: Array
    faster_s: Array

    @property
    def fits(self) -> NDArray[np.bool_]:
        """Whether the fullest device holds it."""
        return self.memory_bytes <= self.capacity_bytes


def cluster_kind(cluster: ClusterSpec) -> tuple[object, ...]:
    """Clusters of equal kind differ in the number of nodes alone and share an axis."""
    groups = tuple((g.gpu.name, g.node, g.gpus_per_node) for g in cluster.groups)
    return (*groups, cluster.n_nodes > 1)


#: Terms of a step in which the device computes.
BUSY_TERMS = ("forward", "backward", "frozen", "accumulation", "optimizer", "ema")


def evaluate_axis(request: Request, axis: Axis, *, twice: Knob | None = None) -> Outcome:
    """Step time and memory of every point; ``request`` says the form, on any of the clusters.

    Equal to ``predict`` of each point. Cost grows with the points, not with devices. ``twice``
    asks for the step with twice of one resource too.
    """
    n = len(axis)
    wires = [
        point_values(c, request.profile, request.workload.name, 1.0, 1.0) for c in axis.clusters
    ]
    values: dict[str, Array] = {
        key: np.array([w[key] for w in wires])[axis.cluster] for key in wires[0]
    }
    values["micro_batch"], values["grad_accum"] = axis.micro_batch, axis.grad_accum
    stages = memory_over(
        request, axis.micro_batch, axis.grad_accum, values["n_ranks"], values["n_nodes"]
    )
    size = n
    if twice is not None:
        size = 2 * n
        values = {key: np.concatenate([v, v]) for key, v in values.items()}
        values[twice] = values.get(twice, np.ones(size)) * np.repeat([1.0, 2.0], n)
    steps = steps_of(request, Points.of(values, size))
    busy = sum((v for k, v in steps.terms_s.items() if k in BUSY_TERMS), np.zeros(size))
    return Outcome(
        step_time_s=steps.step_s[:n],
        memory_bytes=np.max([m.device for m in stages], axis=0),
        capacity_bytes=float(min(g.gpu.usable_memory_bytes for g in request.cluster.groups)),
        busy_frac=np.minimum(1.0, busy[:n] / steps.step_s[:n]),
        faster_s=steps.step_s[-n:],
    )
