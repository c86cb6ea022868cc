"""Pipelines of a plan cut anew, wherever that can change its answer: branch and bound.

A plan evaluates every point with its pipeline cut evenly. No cut is faster than its bound
(``Candidates.balanced_s``, ``least_bytes``), so a point whose bound does not beat the best that is
known of its cluster, or of the last cluster that will be listed, is left as it is. Of the others
the most promising is cut first, exactly (``engine.stages``).

# C candidates; all arrays [C]
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import replace

import numpy as np

from simcore.base.arrays import NDArray
from simcore.engine.layout import in_flight
from simcore.engine.resolved import Request
from simcore.engine.stages import (
    LayerCosts,
    balanced_stages,
    fastest_stages,
    layer_costs,
    with_stages,
)
from simcore.engine.sweep import Axis, evaluate_axis
from simcore.planning.candidates import Candidates, runs_of
from simcore.planning.constraints import constraints_of, passing
from simcore.planning.goal import Goal
from simcore.workload.sharding import even_cut, layer_counts

Array = NDArray[np.float64]
#: Layers of each stage.
Sizes = tuple[int, ...]

#: Points cut before the bar is looked at again.
_AT_ONCE = 8


def with_cuts(
    c: Candidates, goal: Goal, samples: float | None, request: Callable[[int], Request], top: int
) -> Candidates:
    """The candidates with the best cut wherever it could be one of the ``top`` clusters' best."""
    pending = can_be_cut(c)
    if not pending.any():
        return c
    hoped = _objective(replace(c, step_s=c.balanced_s, needed_bytes=c.least_bytes), goal, samples)
    cuts = _Cuts(request)
    while True:
        now = _objective(c, goal, samples)
        bar = _bars(c, now, top)[c.cluster]
        worth = np.flatnonzero(pending & (hoped < bar))
        if not len(worth):
            return c
        chosen = worth[np.argsort(hoped[worth], kind="stable")[:_AT_ONCE]]
        pending[chosen] = False
        for i in chosen.tolist():
            c = cuts.taken(c, i, 1.0 - goal.margin_frac)


def can_be_cut(c: Candidates) -> NDArray[np.bool_]:
    """Which candidates have a pipeline that nobody said how to cut."""
    if "stages" in dict(c.space.axes):
        return np.zeros(len(c), dtype=bool)
    layouts = (form.layout for form in c.forms)
    open_ = np.array([x.pp > 1 and x.directions == 1 for x in layouts], dtype=bool)
    found: NDArray[np.bool_] = open_[c.form]
    return found


def _objective(c: Candidates, goal: Goal, samples: float | None) -> Array:
    """What each candidate is at; infinite where it breaks a limit."""
    runs = runs_of(c, goal, samples)
    value = runs.of(goal.objective, c)
    meets = passing(constraints_of(c, runs, goal), len(c)) & np.isfinite(value)
    return np.where(meets, value, np.inf)


def _bars(c: Candidates, value: Array, top: int) -> Array:
    """What a candidate of each cluster must beat to be listed, or to be listed in place of one."""
    best = np.full(len(c.space.clusters), np.inf)
    np.minimum.at(best, c.cluster, value)
    last = np.partition(best, top - 1)[top - 1] if top <= len(best) else np.inf
    bars: Array = np.minimum(best, last)
    return bars


class _Cuts:
    """The best cuts of candidates; what several of them share is worked out once."""

    def __init__(self, request: Callable[[int], Request]) -> None:
        self._request = request
        self._costs: dict[Hashable, tuple[LayerCosts, Sizes | None]] = {}
        self._found: dict[Hashable, Sizes | None] = {}

    def taken(self, c: Candidates, i: int, share: float) -> Candidates:
        """The candidates with one of them on its best cut, where that is faster or fits.

        ``share`` of a device's memory that may be used.
        """
        request = self._request(i)
        placed = request.placed
        assert placed is not None
        found = self._best(c, i, request)
        room = share * c.capacity_bytes[i]
        fitted = c.needed_bytes[i] <= room
        if found is None or found == even_cut(layer_counts(placed.part), placed.layout.pp):
            return c
        cut = with_stages(request, found)
        assert cut.placed is not None
        one = np.zeros(1, dtype=np.intp)
        axis = Axis((cut.cluster,), one, c.micro_batch[i : i + 1], one, c.grad_accum[i : i + 1])
        out = evaluate_axis(cut, axis, twice="inter")
        assert out.faster_s is not None and out.busy_frac is not None
        if out.needed_bytes[0] > room or (fitted and out.step_time_s[0] >= c.step_s[i]):
            return c
        changes = {
            "step_s": out.step_time_s, "faster_s": out.faster_s, "busy_frac": out.busy_frac,
            "memory_bytes": out.memory_bytes, "needed_bytes": out.needed_bytes,
        }  # fmt: skip
        columns = {name: getattr(c, name).copy() for name in changes}
        for name, value in changes.items():
            columns[name][i] = value[0]
        return replace(c, **columns, stages={**c.stages, i: cut.placed.layout.stages})

    def _best(self, c: Candidates, i: int, request: Request) -> Sizes | None:
        """Layers of each stage; of accumulation only what stages hold in flight decides on it."""
        placed = request.placed
        assert placed is not None
        layout = placed.layout
        most = max(2.0, float(in_flight(layout, 0, np.array(np.inf))))
        row = int(c.form[i]), int(c.cluster[i]), float(c.micro_batch[i])
        key = *row, min(float(c.grad_accum[i]), most)
        if key not in self._found:
            if row not in self._costs:
                costs = layer_costs(request)
                self._costs[row] = costs, fastest_stages(costs, layout)
            self._found[key] = balanced_stages(request, *self._costs[row])
        return self._found[key]
