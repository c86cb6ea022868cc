"""The best points of a stream of points, and its Pareto front, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from simcore.base.arrays import Array, NDArray
from simcore.base.errors import UnknownName, UsageError
from simcore.hardware.cluster import ClusterSpec
from simcore.planning.points import COLUMNS, Batch, FormWords


@dataclass(frozen=True, kw_only=True)
class Point:
    """One configuration with its predicted time and memory."""

    form: FormWords
    cluster: str
    n_gpus: int
    n_nodes: int
    network: str
    micro_batch: int
    grad_accum: int
    global_batch: int
    step_time_s: float
    samples_per_s: float
    memory_bytes: float
    needed_bytes: float
    capacity_bytes: float

    @property
    def samples_per_s_per_gpu(self) -> float:
        """Samples per second and GPU."""
        return self.samples_per_s / self.n_gpus

    @property
    def tokens_per_s(self) -> float | None:
        """Tokens per second; None where samples are not text."""
        tokens = self.form.tokens_per_sample
        return self.samples_per_s * tokens if tokens else None

    @property
    def work_per_s(self) -> float:
        """Tokens per second where samples are text, else samples per second."""
        return self.samples_per_s if self.tokens_per_s is None else self.tokens_per_s

    @property
    def fits(self) -> bool:
        """Whether the configuration fits in the memory of the fullest device."""
        return self.needed_bytes <= self.capacity_bytes

    @property
    def lacking_bytes(self) -> float:
        """Memory that the fullest device lacks [bytes]; negative where memory remains free."""
        return self.needed_bytes - self.capacity_bytes

    def to_dict(self) -> dict[str, Any]:
        """The row that a sweep writes, with units in the names."""
        shared = self.form.columns()
        return {c: shared[c] if c in shared else getattr(self, c) for c in COLUMNS}


def network_of(cluster: ClusterSpec) -> str:
    """The network between nodes; empty for a single node."""
    return cluster.network if cluster.n_nodes > 1 else ""


def point_at(batch: Batch, index: int, clusters: tuple[ClusterSpec, ...]) -> Point:
    """Point ``index`` of a batch."""
    assert batch.form is not None
    cluster = clusters[int(batch.cluster[index])]
    micro, accum = int(batch.micro_batch[index]), int(batch.grad_accum[index])
    return Point(
        form=batch.form,
        cluster=str(cluster),
        n_gpus=cluster.n_gpus,
        n_nodes=cluster.n_nodes,
        network=network_of(cluster),
        micro_batch=micro,
        grad_accum=accum,
        global_batch=micro * accum * batch.form.layout.data_ranks(cluster.n_gpus),
        step_time_s=float(batch.step_time_s[index]),
        samples_per_s=float(batch.samples_per_s[index]),
        memory_bytes=float(batch.memory_bytes[index]),
        needed_bytes=float(batch.needed_bytes[index]),
        capacity_bytes=float(np.broadcast_to(batch.capacity_bytes, len(batch))[index]),
    )


#: Rankings: name -> (the column of a point, its sign, with which higher is better). Throughput is
#: that of tokens where samples are text; ``tokens`` refuses models without text.
SCORES: dict[str, tuple[str, float]] = {
    "throughput": ("work_per_s", 1.0),
    "per-gpu": ("work_per_s_per_gpu", 1.0),
    "tokens": ("work_per_s", 1.0),
    "samples": ("samples_per_s", 1.0),
    "step": ("step_time_s", -1.0),
    "memory": ("memory_bytes", -1.0),
}


@dataclass
class Leaders:
    """The best ``size`` points added so far, best first; among equal scores the earlier one stays.

    ``by``: the score, a name in ``SCORES``. ``points``: pairs of score and point.
    """

    clusters: tuple[ClusterSpec, ...]
    by: str = "throughput"
    size: int = 10
    points: list[tuple[float, Point]] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.by not in SCORES:
            raise UnknownName("ranking", self.by, SCORES)
        self._gpus = np.array([float(c.n_gpus) for c in self.clusters])

    def add(self, batch: Batch) -> None:
        """Add the points of a batch that fit."""
        if not len(batch) or not self.size:
            return
        fits = np.flatnonzero(batch.fits)
        if not len(fits):
            return
        form = batch.form
        if self.by == "tokens" and form is not None and not form.tokens_per_sample:
            raise UsageError(f"{form.model} has no tokens: rank by throughput or samples")
        column, sign = SCORES[self.by]
        per_gpu = column == "work_per_s_per_gpu"
        values = batch.work_per_s / self._gpus[batch.cluster] if per_gpu else (
            getattr(batch, column)
        )  # fmt: skip
        score = sign * values[fits]
        if len(self.points) == self.size:
            better = score > self.points[-1][0]
            fits, score = fits[better], score[better]
        order = np.argsort(-score, kind="stable")[: self.size]
        found = [(float(score[i]), point_at(batch, int(fits[i]), self.clusters)) for i in order]
        self.merge(found)

    def merge(self, found: Sequence[tuple[float, Point]]) -> None:
        """Add (score, point) pairs, sorted by score, best first, and keep the best ``size`` points.

        All of them are later than the points added so far, so they lose ties to those.
        """
        if found:
            both = [*self.points, *found]
            self.points = sorted(both, key=lambda p: -p[0])[: self.size]

    @property
    def best(self) -> list[Point]:
        """The points, best first."""
        return [p for _, p in self.points]


def front(
    resource: Array, gain: Array, ties: NDArray[Any], *, least: float = 0.0
) -> NDArray[np.bool_]:
    """Which rows are on the Pareto front: no row with as little ``resource`` has as much ``gain``.

    All arrays are [C]. Of rows with equal resource and gain, the one with the least ``ties`` stays.
    Rows with a gain of at most ``least`` are not on the front.
    """
    order = np.lexsort((ties, -gain, resource))
    before = np.concatenate([[least], np.maximum.accumulate(gain[order])[:-1]])
    on_front = np.zeros(len(gain), dtype=bool)
    on_front[order] = gain[order] > before
    return on_front


class Front:
    """The Pareto front of the points added so far, among those that fit.

    It trades throughput (``work_per_s``) against GPUs, or against memory where all clusters have
    the same number of GPUs.
    """

    def __init__(self, clusters: tuple[ClusterSpec, ...]) -> None:
        self.points: list[Point] = []
        self.resource = front_resource(clusters)
        self._clusters = clusters
        self._gpus = np.array([float(c.n_gpus) for c in clusters])
        self._known = np.array([])  # resource of each point on the front, ascending
        self._reached = np.array([0.0])  # throughput below, and from each of them on

    def add(self, batch: Batch) -> None:
        """Add the points of a batch that fit."""
        # A point below the floor of its resource cannot be on the front.
        if self.resource == "n_gpus":
            resource, floor = self._gpus[batch.cluster], self._floor(self._gpus)[batch.cluster]
        else:
            resource, floor = batch.memory_bytes, self._floor(batch.memory_bytes)
        rate = batch.work_per_s
        chosen = np.flatnonzero(batch.fits & (rate >= floor))
        if len(chosen):
            gain, memory = rate[chosen], batch.memory_bytes[chosen]
            chosen = chosen[front(resource[chosen], gain, memory)]
            self.merge([point_at(batch, int(i), self._clusters) for i in chosen])

    def _floor(self, resource: Array) -> Array:
        """Throughput that the front reaches with at most this much of the resource [C]."""
        return self._reached[np.searchsorted(self._known, resource, side="right")]

    def merge(self, points: Sequence[Point]) -> None:
        """Add points that fit; all of them are later than the points added so far."""
        if not points:
            return
        both = [*self.points, *points]
        resource = np.array([float(getattr(p, self.resource)) for p in both])
        gain = np.array([p.work_per_s for p in both])
        keep = np.flatnonzero(front(resource, gain, np.array([p.memory_bytes for p in both])))
        keep = keep[np.argsort(resource[keep])]
        self.points = [both[i] for i in keep]
        self._known = resource[keep]
        self._reached = np.concatenate([[0.0], gain[keep]])


def front_resource(clusters: Iterable[ClusterSpec]) -> str:
    """The column of the front's resource: GPUs, or memory where all clusters have equally many."""
    return "n_gpus" if len({c.n_gpus for c in clusters}) > 1 else "memory_bytes"


def merged(counts: Iterable[dict[str, int]]) -> dict[str, int]:
    """The sum of counts by reason, the most frequent reason first."""
    total: dict[str, int] = {}
    for part in counts:
        for reason, n in part.items():
            total[reason] = total.get(reason, 0) + n
    return dict(sorted(total.items(), key=lambda kv: -kv[1]))
