"""Finds the best split of pipelines into stages for a plan, by branch and bound.

A plan first evaluates every point with layers split evenly over the stages. No other split is
better than the bounds ``Candidates.balanced_s`` and ``least_bytes``. A point keeps its even split
if its bound is no better than the best known point of its cluster, or than the last cluster that
will be listed. The best splits of the other points are computed exactly (``answer.stages``), the
most promising points first.

# C candidates; all arrays [C]
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import replace

import numpy as np

from simcore.answer.stages import LayerCosts, layer_costs_over, with_stages
from simcore.answer.sweep import cluster_kind
from simcore.base.arrays import Array, NDArray
from simcore.memory.stages import StageLimits
from simcore.planning.alike import Alike
from simcore.planning.candidates import Candidates
from simcore.planning.constraints import judge
from simcore.planning.goal import Goal
from simcore.request.resolved import Request
from simcore.step.schedules import schedule_of
from simcore.strategy.balanced_cut import balanced_cut, holds_all
from simcore.strategy.cuts import least_layers
from simcore.workload.sharding import even_cut, layer_counts

#: Layers per stage.
Sizes = tuple[int, ...]

#: Points whose splits are computed before the thresholds are updated.
_AT_ONCE = 8


def with_cuts(c: Candidates, goal: Goal, samples: float | None, top: int) -> Candidates:
    """The candidates with their best split, wherever that could put them among the results.

    ``top``: number of clusters that the plan lists.
    """
    pending = can_be_cut(c)
    if not pending.any():
        return c
    hoped = judge(replace(c, step_s=c.balanced_s, needed_bytes=c.least_bytes), goal, samples).value
    cuts = _Cuts(1.0 - goal.margin_frac, Alike(c))
    while True:
        now = judge(c, goal, samples).value
        bar = bars(c, now, top)[c.cluster]
        worth = np.flatnonzero(pending & (hoped < bar))
        if not len(worth):
            return c
        chosen = worth[np.argsort(hoped[worth], kind="stable")[:_AT_ONCE]]
        pending[chosen] = False
        for i in chosen.tolist():
            c = cuts.taken(c, i, worth)


def can_be_cut(c: Candidates) -> NDArray[np.bool_]:
    """Which candidates have a pipeline whose split into stages is not given."""
    if "stages" in dict(c.space.axes):
        return np.zeros(len(c), dtype=bool)
    layouts = (form.layout for form in c.forms)
    open_ = np.array([x.pp > 1 and schedule_of(x).takes_stages for x in layouts], dtype=bool)
    return open_[c.form]


def bars(c: Candidates, value: Array, top: int) -> Array:
    """For each cluster, the threshold that a candidate must beat to change the plan's list.

    It is the best value of the cluster, or that of the last listed cluster where that is smaller.
    """
    best = np.full(len(c.space.clusters), np.inf)
    np.minimum.at(best, c.cluster, value)
    last = np.partition(best, top - 1)[top - 1] if top <= len(best) else np.inf
    return np.minimum(best, last)


class _Cuts:
    """Finds the best splits of candidates, with caches of what several candidates share.

    ``share``: share of a device's memory that may be used.
    """

    def __init__(self, share: float, alike: Alike) -> None:
        self._share, self._alike = share, alike
        self._costs: dict[Hashable, LayerCosts] = {}
        self._limits: dict[Hashable, tuple[StageLimits, dict[int, int]]] = {}
        self._found: dict[Hashable, Sizes | None] = {}

    def taken(self, c: Candidates, i: int, worth: NDArray[np.intp]) -> Candidates:
        """The candidates with the best split for candidate ``i``, where that is faster or fits.

        ``worth``: candidates that may follow; they are evaluated together with this one.
        """
        request = self._alike.request(i)
        placed = request.placed
        assert placed is not None
        found = self._best(c, i, request, worth)
        if found is None or found == even_cut(layer_counts(placed.part), placed.layout.pp):
            return c
        cut = with_stages(request, found)
        assert cut.placed is not None
        out = self._alike.outcome(i, cut, found, np.isin(np.arange(len(c)), worth))
        usable_bytes = self._share * c.capacity_bytes[i]
        fitted = c.needed_bytes[i] <= usable_bytes
        if out.needed_bytes[0] > usable_bytes or (fitted and out.step_time_s[0] >= c.step_s[i]):
            return c
        return replace(c.with_outcome(i, out), stages={**c.stages, i: cut.placed.layout.stages})

    def _best(
        self, c: Candidates, i: int, request: Request, worth: NDArray[np.intp]
    ) -> Sizes | None:
        """Layers per stage of the best split; None where no split fits.

        It depends on the number of micro-batches only through the number in flight, which is part
        of the cache key.
        """
        placed = request.placed
        assert placed is not None
        layout = placed.layout
        most = max(2.0, float(placed.schedule.in_flight(layout, 0, np.array(np.inf))))
        row = int(c.form[i]), int(c.cluster[i]), float(c.micro_batch[i])
        key = *row, min(float(c.grad_accum[i]), most)
        if key in self._found:
            return self._found[key]
        n_layers = layer_counts(placed.part)
        least = least_layers(layout.pp, layout.vpp)
        if sum(least) > n_layers:  # more chunks than layers: some chunks are empty
            least = least_layers(layout.pp, 1)
        fits = self._fits(c, i, request, worth)
        found: Sizes | None = None
        if c.needed_bytes[i] <= self._share * c.capacity_bytes[i] or holds_all(
            n_layers, least, fits
        ):
            if row not in self._costs:
                self._cost(c, i, request, worth)
            found = balanced_cut(self._costs[row].stage_s, n_layers, least, fits)
        self._found[key] = found
        return found

    def _cost(self, c: Candidates, i: int, request: Request, worth: NDArray[np.intp]) -> None:
        """Find what layers of candidate ``i`` cost.

        Also on the clusters and with the micro-batches of all of the same form and kind of cluster.
        """
        rows = list(dict.fromkeys(
            (int(c.form[j]), int(c.cluster[j]), float(c.micro_batch[j]))
            for j in (i, *self._like(c, i, worth).tolist())
        ))  # fmt: skip
        over = [(c.space.clusters[cluster], batch) for _, cluster, batch in rows]
        self._costs.update(zip(rows, layer_costs_over(request, over), strict=True))

    def _like(self, c: Candidates, i: int, among: NDArray[np.intp]) -> NDArray[np.intp]:
        """Those of ``among`` of the same form and kind of cluster as candidate ``i``."""
        clusters = c.space.clusters
        kind = cluster_kind(clusters[int(c.cluster[i])])
        alike = among[c.form[among] == c.form[i]]
        same = [cluster_kind(clusters[k]) == kind for k in c.cluster[alike].tolist()]
        return alike[np.array(same, dtype=bool)]

    def _fits(
        self, c: Candidates, i: int, request: Request, worth: NDArray[np.intp]
    ) -> Callable[[int, int, int], bool]:
        """A function that says whether a stage with given layers fits, for candidate ``i``.

        The memory is evaluated together for all candidates of the same form and kind of cluster.
        """
        kind = int(c.form[i]), cluster_kind(request.cluster)
        limits, places = self._limits.get(kind, (None, {}))
        if limits is None or i not in places:
            points = self._like(c, i, worth)
            columns = (c.micro_batch, c.grad_accum, c.n_gpus, c.n_nodes)
            micro_batch, grad_accum, n_gpus, n_nodes = (column[points] for column in columns)
            limits = StageLimits(
                request,
                (micro_batch, grad_accum, n_gpus, n_nodes),
                self._share * c.capacity_bytes[points],
            )
            places = {int(j): n for n, j in enumerate(points)}
            self._limits[kind] = limits, places
        return limits.of_point(places[i])
