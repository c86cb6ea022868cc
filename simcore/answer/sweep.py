"""Many configurations of one form in one call: clusters of one kind, batches and accumulation.

Points that share a step graph (same model, strategy and layout on the same kind of node) lie on one
configuration axis; ``planning.sweep`` divides a whole search space into such axes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np

from simcore.base.arrays import Array, NDArray
from simcore.base.record import dataclass
from simcore.hardware.cluster import ClusterSpec
from simcore.memory.together import StagesOver, fullest_over
from simcore.request.resolved import Request
from simcore.timing.convex import at_counts
from simcore.timing.evaluate import Steps, without_recompute
from simcore.timing.points import Knob, Points
from simcore.timing.steps import point_values, steps_of_alike
from simcore.workload.sharding import Stage


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

    def requests(self, request: Request) -> Iterator[tuple[int, Request]]:
        """(row, request with the point's cluster, micro-batch and micro-steps) of each point."""
        for row, accum in zip(self.row.tolist(), self.grad_accum.tolist(), strict=True):
            point = replace(
                request,
                cluster=self.clusters[int(self.row_cluster[row])],
                micro_batch=int(self.row_micro_batch[row]),
                grad_accum=int(accum),
            )
            yield row, point

    def equals(self, other: Axis) -> bool:
        """Whether both have the same points."""
        names = ("row_cluster", "row_micro_batch", "row", "grad_accum")
        return self is other or (
            self.clusters == other.clusters
            and all(np.array_equal(getattr(self, name), getattr(other, name)) for name in names)
        )

    def take(self, points: NDArray[np.intp]) -> Axis:
        """The axis with only some of the points, and the rows that they need."""
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
    """The result at each point of an axis, arrays [C].

    ``memory_bytes``: what the fullest device holds; ``needed_bytes``: what it must have for that;
    ``capacity_bytes``: what it has (a single number, of the smallest device, where all
    micro-batches are equal).

    If the caller passed ``twice``: ``faster_s`` is the step with that resource doubled,
    ``busy_frac`` the share of the step in which devices compute, and no other division of the
    pipeline goes below ``balanced_s`` (step time) or ``least_bytes`` (memory that a device needs).
    """

    step_time_s: Array
    memory_bytes: Array
    needed_bytes: Array
    capacity_bytes: Array | float
    busy_frac: Array | None = None
    faster_s: Array | None = None
    balanced_s: Array | None = None
    least_bytes: Array | None = None

    @property
    def fits(self) -> NDArray[np.bool_]:
        """Whether the job fits on the fullest device [C]."""
        return self.needed_bytes <= self.capacity_bytes


def cluster_kind(cluster: ClusterSpec) -> tuple[object, ...]:
    """Key of a cluster; clusters of equal key differ only in the number of nodes.

    On the graph of a fabric not even in that: each has its own flows.
    """
    groups = tuple((g.gpu.name, g.node, g.gpus_per_node) for g in cluster.groups)
    nodes = cluster.n_nodes > 1 if cluster.fabric.graph is None else cluster.n_nodes
    return (*groups, cluster.fabric, nodes)


#: Terms of a step during which the device computes.
BUSY_TERMS = ("forward", "backward", "frozen", "accumulation", "optimizer", "ema")


def evaluate_axis(
    request: Request,
    axis: Axis,
    *,
    twice: Knob | None = None,
    wires: Mapping[str, Any] | None = None,
    lacking: float = np.inf,
) -> Outcome:
    """Step time and memory of every point; ``request`` gives the form, on any of the clusters.

    Equal to ``predict`` of each point. The cost grows with the points, not with devices. ``twice``:
    also evaluate the step with this resource doubled. ``wires``: ``point_values`` of the clusters,
    if already computed. Points whose devices lack more than ``lacking`` bytes, however the pipeline
    is divided, are not timed: their times are NaN.
    """
    found = wires_of(request, axis.clusters) if wires is None else wires
    alone = Alike((request,), axis, found)
    return evaluate_pipelines([alone], twice=twice, lacking=lacking)[0][0]


class Alike(NamedTuple):
    """Requests that differ in recompute alone, on one axis.

    ``wires``: ``wires_of`` its clusters.
    """

    requests: tuple[Request, ...]
    axis: Axis
    wires: Mapping[str, Any]

    def values(self, rows: NDArray[np.intp], counts: Array) -> dict[str, Any]:
        """``point_values`` of points, given by their rows and numbers of micro-steps."""
        axis, wires = self.axis, dict(self.wires)
        library, cluster = wires.pop("library"), axis.row_cluster[rows]
        found = {key: column[cluster] for key, column in wires.items()}
        batch = axis.row_micro_batch[rows]
        return {**found, "library": library, "micro_batch": batch, "grad_accum": counts}


def evaluate_pipelines(
    each: Sequence[Alike], *, twice: Knob | None = None, lacking: float = np.inf
) -> list[list[Outcome]]:
    """``evaluate_axis`` of each request; all of them differ in recompute and pipeline alone."""
    bounded = each[0].requests[0].placed is not None and (twice is not None or lacking < np.inf)
    memories = _memories(each, bounded=bounded)
    return [_timed(*of, twice, lacking) for of in zip(each, memories, strict=True)]


def _timed(
    alike: Alike, memories: Sequence[_Memory], twice: Knob | None, lacking: float
) -> list[Outcome]:
    """The outcomes of requests whose ``memories`` are known."""
    requests, axis, _ = alike
    request, row = requests[0], axis.row
    wanted = [memory.least <= memory.capacity + lacking for memory in memories]
    timed = [n for n, points in enumerate(wanted) if points.any()]
    found = np.full((len(requests), 1 if twice is None else 4, len(row)), np.nan)

    def steps(rows: NDArray[np.intp], counts: Array) -> Array:
        of_timed = [requests[n] for n in timed]
        return _steps(of_timed, alike.values(rows, counts), len(rows), twice)

    # The restart at each epoch is divided by the epoch's steps, whose number is not convex in
    # accumulation; nor is the wait for the rank with most work.
    smooth = request.loading is None and not request.workload.work_sd_frac
    if request.placed is not None and not request.placed.schedule.has_closed_form:
        smooth = False
    many = len(row) >= _WORTH * len(axis.row_cluster) and smooth
    some = np.flatnonzero(np.any(wanted, axis=0))
    if len(some):
        used, counts = np.zeros(len(axis.row_cluster), dtype=bool), axis.grad_accum[some]
        used[row[some]] = True
        rows, place = np.flatnonzero(used), (np.cumsum(used) - 1)[row[some]]
        seconds = (
            at_counts(lambda i, n: steps(rows[i], n), place, counts)
            if many
            else steps(row[some], counts)
        )
        for n, own in zip(timed, seconds.reshape(len(timed), -1, len(some)), strict=True):
            found[n][:, some] = np.where(wanted[n][some], own, np.nan)
    return [
        _outcome(one, own, memory, axis.grad_accum)
        for one, own, memory in zip(requests, found, memories, strict=True)
    ]


def _outcome(request: Request, seconds: Array, memory: _Memory, grad_accum: Array) -> Outcome:
    """The outcome of one request from its ``_steps`` [1, C], or [4, C] with a resource doubled."""
    step = seconds[0]
    outcome = Outcome(step, memory.held, memory.needed, memory.capacity)
    if len(seconds) == 1:
        return outcome
    cut = request.placed is not None
    return replace(
        outcome,
        least_bytes=memory.least,
        faster_s=seconds[1],
        busy_frac=np.minimum(1.0, seconds[2] / step),
        balanced_s=_balanced_s(request, seconds[3], grad_accum) if cut else step,
    )


def wires_of(request: Request, clusters: Sequence[ClusterSpec]) -> dict[str, Any]:
    """``point_values`` of clusters of one kind, each an array; the ``library`` is equal for all."""
    name = request.workload.name
    each = [point_values(c, request.profile, name, 1.0, 1.0) for c in clusters]
    columns = {key: np.array([w[key] for w in each]) for key in each[0] if key != "library"}
    return {**columns, "library": each[0]["library"]}


def same_pipeline(one: Request, other: Request) -> bool:
    """Whether two requests that agree in ``whatever_pipeline`` differ in recompute alone."""
    a, b = one.placed, other.placed
    if a is None or b is None:
        return a is b
    return a.layout == b.layout and a.distinct_stages == b.distinct_stages


def whatever_pipeline(request: Request) -> tuple[object, ...]:
    """What decides about time and memory beside the model's parts, recompute and pipeline."""
    r, placed = request, request.placed
    layout = None if placed is None else replace(placed.layout, pp=1)
    held = r.peak_workload is None
    return (
        without_recompute(r.strategy),
        layout,
        r.cluster,
        r.profile,
        r.loading,
        r.shares,
        r.growing_segments,
        held,
    )


#: Points per row from which on it pays to evaluate few of them (``at_counts``).
_WORTH = 6


def _steps(
    requests: Sequence[Request], values: dict[str, Any], n: int, twice: Knob | None
) -> Array:
    """Step seconds of each request [requests, n].

    With ``twice`` [4 x requests, n]: of each also the step with that resource doubled, the compute
    of the step, and a micro-batch on all stages of the pipeline.
    """
    if twice is None:
        every = steps_of_alike(requests, Points.shared(values, n), terms=())
        return np.array([steps.step_s for steps in every])
    values = {k: v if k == "library" else np.concatenate([v, v]) for k, v in values.items()}
    values[twice] = values.get(twice, np.ones(2 * n)) * np.repeat([1.0, 2.0], n)
    every = steps_of_alike(requests, Points.shared(values, 2 * n), terms=BUSY_TERMS)
    each = [_with_doubled(r, steps, n) for r, steps in zip(requests, every, strict=True)]
    return np.concatenate(each)


def _with_doubled(request: Request, found: Steps, n: int) -> Array:
    """The four rows of a request in ``_steps`` [4, n] from steps on an axis twice as long."""
    busy = sum((v for k, v in found.terms_s.items() if k in BUSY_TERMS), np.zeros(2 * n))
    through = np.zeros(2 * n)
    if request.placed is not None and found.micro_steps_s is not None:
        times = [float(count) for _, count in request.placed.distinct_stages]
        through = np.array(times) @ found.micro_steps_s
    return np.stack([found.step_s[:n], found.step_s[n:], busy[:n], through[:n]])


#: Share by which a step's last micro-step may be shorter: its gradients are not added to a sum.
_LAST_LESS_FRAC = 0.05


def _balanced_s(request: Request, through_s: Array, micro_steps: Array) -> Array:
    """A lower bound of the step over all divisions of the pipeline [s].

    ``through_s``: seconds of a micro-batch on all stages.
    """
    placed = request.placed
    assert placed is not None
    least = placed.schedule.least_step_s(placed.layout, through_s, micro_steps)
    return least * (1.0 - _LAST_LESS_FRAC / micro_steps)


class _Stages(NamedTuple):
    """The pipeline stages whose memory is computed.

    Among stages with equal layers, the first needs the most memory and the last the least.
    ``evaluated``: all stages that are computed. ``first``, ``last``: indices in it of the first and
    of the last stage of each group of equal stages. The least memory of the last ones is a lower
    bound for every division of the layers, because some stage has at least as many layers.
    """

    evaluated: tuple[Stage, ...]
    first: slice = slice(None)
    last: list[int] | slice = slice(None)

    @classmethod
    def of(cls, request: Request, *, bounded: bool) -> _Stages:
        """The stages of a pipeline, the last ones only if memory is to be ``bounded``.

        The whole model where nothing divides it.
        """
        placed = request.placed
        if placed is None:
            return cls((Stage(request.held_workload, 0, 0),))
        first = [i for i, _ in placed.distinct_stages]
        last = [len(placed.stages) - 1 - n for n in placed.behind] if bounded else first
        which = list(dict.fromkeys([*first, *last]))
        return cls(
            tuple(placed.stages[i] for i in which),
            slice(len(first)),
            [which.index(i) for i in last],
        )


class _Memory(NamedTuple):
    """For each point: memory of the fullest device, its capacity, the least for any division."""

    held: Array
    needed: Array
    capacity: Array | float
    least: Array


def _memories(each: Sequence[Alike], *, bounded: bool) -> list[list[_Memory]]:
    """Peak memory of every point for each request of each.

    ``bounded``: ``least`` is a lower bound for any division of the pipeline, else it is for the
    given one.
    """
    asked: list[StagesOver] = []
    of_each: list[tuple[list[_Stages], NDArray[np.intp]]] = []
    for alike in each:
        requests = [request.held for request in alike.requests]
        stages = [_Stages.of(request, bounded=bounded) for request in requests]
        of_stages = [(r, s) for r, of in zip(requests, stages, strict=True) for s in of.evaluated]
        (batch, *others), found_at = _held_apart(alike)
        batches = [np.full(len(batch), float(b)) for b in requests[0].shares] or [batch]
        asked += [StagesOver(of_stages, b, *others) for b in batches]  # by the kind of rank
        of_each.append((stages, found_at))
    held = iter(fullest_over(asked))
    return [
        _of_requests(alike.requests[0], stages, found_at, held)
        for alike, (stages, found_at) in zip(each, of_each, strict=True)
    ]


def _of_requests(
    request: Request, stages: Sequence[_Stages], found_at: NDArray[np.intp],
    held: Iterator[tuple[Array, Array]],
) -> list[_Memory]:  # fmt: skip
    """The memories of requests alike; ``held``: what their stages hold, of each kind of rank."""
    capacities = [float(g.gpu.usable_memory_bytes) for g in request.kinds]
    if not request.shares:
        capacities = [min(capacities)]
    ends = [*accumulate(len(of.evaluated) for of in stages)]
    kinds: list[list[_Memory]] = []  # of each request
    for capacity, both in zip(capacities, held, strict=False):
        of_requests = zip(*(np.split(n_bytes, ends[:-1]) for n_bytes in both), strict=True)
        kinds.append([
            _of_fullest(device, needed, of, capacity)
            for (device, needed), of in zip(of_requests, stages, strict=True)
        ])  # fmt: skip
    return [_of_kinds(of_request, found_at) for of_request in zip(*kinds, strict=True)]


def _held_apart(alike: Alike) -> tuple[tuple[Array, Array, Array, Array], NDArray[np.intp]]:
    """The points that differ in memory, as for ``memory_over``, and which of them each point is.

    Accumulation matters only up to the micro-batches that a stage has in flight.
    """
    placed, row, counts = alike.requests[0].placed, alike.axis.row, alike.axis.grad_accum
    most = 2.0
    if placed is not None:
        most_held = placed.schedule.in_flight(placed.layout, 0, np.array(np.inf))
        held = float(most_held) * placed.schedule.directions
        most = max(most, min(held, float(counts.max())))  # GPipe holds all micro-batches
    cap = int(np.ceil(most))
    key = row * cap + np.minimum(counts, cap).astype(np.intp) - 1
    is_needed = np.zeros((int(row.max()) + 1) * cap, dtype=bool)
    is_needed[key] = True
    rows, times = np.divmod(np.flatnonzero(is_needed), cap)
    found = alike.values(rows, times + 1.0)
    names = ("micro_batch", "grad_accum", "n_ranks", "n_nodes")
    batch, accum, n_gpus, n_nodes = (found[name] for name in names)
    return (batch, accum, n_gpus, n_nodes), (np.cumsum(is_needed) - 1)[key]


def _of_fullest(device: Array, needed: Array, stages: _Stages, capacity: float) -> _Memory:
    """The memory of the fullest stage, from what devices of each hold and need [stages, C]."""
    at = needed[stages.first].argmax(axis=0), np.arange(needed.shape[1])
    return _Memory(device[at], needed[at], capacity, needed[stages.last].min(axis=0))


def _of_kinds(kinds: Sequence[_Memory], found_at: NDArray[np.intp]) -> _Memory:
    """The memory of the fullest kind of rank at each point."""
    if len(kinds) == 1:
        one = kinds[0]
        return _Memory(one.held[found_at], one.needed[found_at], one.capacity, one.least[found_at])
    capacities = [k.capacity for k in kinds]
    fullest = np.stack([k.needed / k.capacity for k in kinds]).argmax(axis=0)
    here = fullest, np.arange(len(fullest))
    held, needed, least = (np.stack([k[i] for k in kinds])[here][found_at] for i in (0, 1, 3))
    return _Memory(held, needed, np.array(capacities)[fullest][found_at], least)
