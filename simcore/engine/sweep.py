"""Many configurations of one form in one call: clusters of a kind, batches and accumulation.

Points that share a step graph (same model, strategy and layout on the same kind of node) lie on
one configuration axis; ``planning.sweep`` deals a whole space out to such axes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from simcore.base.arrays import NDArray
from simcore.engine.convex import at_counts
from simcore.engine.job_memory import memory_over
from simcore.engine.layout import in_flight
from simcore.engine.points import Knob, Points
from simcore.engine.predict import Request, point_values, steps_of
from simcore.hardware.cluster import ClusterSpec

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Axis:
    """Points of one form on clusters of one kind.

    A row is a cluster and a micro-batch [R]; a point is a row and a number of micro-steps [C].
    """

    clusters: tuple[ClusterSpec, ...]
    row_cluster: NDArray[np.intp]
    row_micro_batch: Array
    row: NDArray[np.intp]
    grad_accum: Array

    def __len__(self) -> int:
        return len(self.row)

    @property
    def cluster(self) -> NDArray[np.intp]:
        """Index of each point's cluster [C]."""
        return self.row_cluster[self.row]

    @property
    def micro_batch(self) -> Array:
        """Samples a rank and micro-step of each point [C]."""
        return self.row_micro_batch[self.row]

    def take(self, points: NDArray[np.intp]) -> Axis:
        """Some of the points, with the rows that these are of."""
        rows, row = np.unique(self.row[points], return_inverse=True)
        return replace(
            self,
            row_cluster=self.row_cluster[rows],
            row_micro_batch=self.row_micro_batch[rows],
            row=row,
            grad_accum=self.grad_accum[points],
        )


@dataclass(frozen=True)
class Outcome:
    """What each point of an axis gives, arrays [C].

    ``memory_bytes`` is what the fullest device holds, ``needed_bytes`` what it must have for that,
    ``capacity_bytes`` what it has: one figure where all batches are equal, of the smallest device.

    Where twice of a resource was asked for, ``faster_s`` is the step with that, and
    ``busy_frac`` the share of the step in which devices compute.
    """

    step_time_s: Array
    memory_bytes: Array
    needed_bytes: Array
    capacity_bytes: Array | float
    busy_frac: Array | None = None
    faster_s: Array | None = None

    @property
    def fits(self) -> NDArray[np.bool_]:
        """Whether the fullest device holds it."""
        return self.needed_bytes <= self.capacity_bytes


def cluster_kind(cluster: ClusterSpec) -> tuple[object, ...]:
    """Clusters of equal kind differ in the number of nodes alone and share an axis."""
    groups = tuple((g.gpu.name, g.node, g.gpus_per_node) for g in cluster.groups)
    return (*groups, cluster.fabric, cluster.n_nodes > 1)


#: Terms of a step in which the device computes.
BUSY_TERMS = ("forward", "backward", "frozen", "accumulation", "optimizer", "ema")


def evaluate_axis(
    request: Request,
    axis: Axis,
    *,
    twice: Knob | None = None,
    wires: Sequence[Mapping[str, Any]] | None = None,
) -> Outcome:
    """Step time and memory of every point; ``request`` says the form, on any of the clusters.

    Equal to ``predict`` of each point. Cost grows with the points, not with devices. ``twice``
    asks for the step with twice of one resource too; ``wires``: ``point_values`` of the clusters
    where they are known already.
    """
    if wires is None:
        name = request.workload.name
        wires = [point_values(c, request.profile, name, 1.0, 1.0) for c in axis.clusters]
    library = {"library": wires[0]["library"]}  # of one kind of cluster all alike
    table = {key: np.array([w[key] for w in wires]) for key in wires[0] if key not in library}
    row = axis.row

    def values(rows: NDArray[np.intp], counts: Array) -> dict[str, Array]:
        found = {key: column[axis.row_cluster[rows]] for key, column in table.items()}
        return {**found, "micro_batch": axis.row_micro_batch[rows], "grad_accum": counts}

    def steps(rows: NDArray[np.intp], counts: Array) -> Array:
        return _steps(request, {**values(rows, counts), **library}, len(rows), twice)

    # An epoch's restart is shared by its steps, whose number is not convex in accumulation.
    many = len(row) >= _WORTH * len(axis.row_cluster) and request.loading is None
    found = at_counts(steps, row, axis.grad_accum) if many else steps(row, axis.grad_accum)
    step = found[0]
    memory, needed, capacity = _memory(request, values, row, axis.grad_accum)
    return Outcome(
        step_time_s=step,
        memory_bytes=memory,
        needed_bytes=needed,
        capacity_bytes=capacity,
        busy_frac=np.minimum(1.0, found[2] / step) if twice is not None else None,
        faster_s=found[1] if twice is not None else None,
    )


#: Points a row from which on evaluating few of them pays.
_WORTH = 6


def _steps(request: Request, values: dict[str, Any], n: int, twice: Knob | None) -> Array:
    """Step [1, n] in seconds; with ``twice`` [3, n]: also with twice of that, and its compute."""
    if twice is None:
        return steps_of(request, Points.of(values, n), terms=()).step_s[None, :]
    values = {k: v if k == "library" else np.concatenate([v, v]) for k, v in values.items()}
    values[twice] = values.get(twice, np.ones(2 * n)) * np.repeat([1.0, 2.0], n)
    found = steps_of(request, Points.of(values, 2 * n), terms=BUSY_TERMS)
    busy = sum((v for k, v in found.terms_s.items() if k in BUSY_TERMS), np.zeros(2 * n))
    return np.stack([found.step_s[:n], found.step_s[n:], busy[:n]])


def _memory(
    request: Request,
    values: Callable[[NDArray[np.intp], Array], dict[str, Array]],
    row: NDArray[np.intp],
    counts: Array,
) -> tuple[Array, Array, Array | float]:
    """Peak memory of every point, held and needed, and the capacity it has to stay within.

    Accumulation matters up to what a stage has in flight.
    """
    layout = request.placed.layout if request.placed else None
    most = max(2.0, float(in_flight(layout, 0, np.array(np.inf))) if layout else 2.0)
    cap = int(np.ceil(most))
    key = row * cap + np.minimum(counts, cap).astype(np.intp) - 1
    asked = np.zeros((int(row.max()) + 1) * cap, dtype=bool)
    asked[key] = True
    rows, times = np.divmod(np.flatnonzero(asked), cap)
    found = values(rows, times + 1.0)
    found_at: NDArray[np.intp] = (np.cumsum(asked) - 1)[key]
    capacities = [float(g.gpu.usable_memory_bytes) for g in request.kinds]
    if not request.shares:
        held, needed = _fullest(request, found, found["micro_batch"])
        return held[found_at], needed[found_at], min(capacities)
    each = [_fullest(request, found, np.full(len(rows), float(b))) for b in request.shares]
    fullest = np.stack([n / c for (_, n), c in zip(each, capacities, strict=True)]).argmax(axis=0)
    columns = np.arange(len(rows))
    held, needed = (np.stack(x)[fullest, columns] for x in zip(*each, strict=True))
    return held[found_at], needed[found_at], np.array(capacities)[fullest][found_at]


def _fullest(
    request: Request, values: Mapping[str, Array], micro_batch: Array
) -> tuple[Array, Array]:
    """Memory of the fullest stage with these micro-batches, held and needed."""
    stages = memory_over(
        request, micro_batch, values["grad_accum"], values["n_ranks"], values["n_nodes"]
    )
    needed = np.stack([m.needed for m in stages])
    fullest, columns = needed.argmax(axis=0), np.arange(needed.shape[1])
    return np.stack([m.device for m in stages])[fullest, columns], needed[fullest, columns]
