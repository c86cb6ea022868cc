"""Pipelines of a plan in chunks of layers (interleaved 1F1B), wherever that can change its answer.

A plan that is not told of chunks evaluates every point without. In chunks a pipeline waits less and
holds a little more, and its messages lie beside compute. Points whose bound in the most chunks does
not beat the best that is known of their cluster, or of the last cluster that will be listed, stay
as they are; of the others the most promising of each cluster are asked, sixty at most, with the
numbers of chunks that divide their layers.

# C candidates; all arrays [C]
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from simcore.base.arrays import NDArray
from simcore.engine.request import make_request
from simcore.engine.resolved import Request
from simcore.engine.stages import with_balanced_stages
from simcore.engine.sweep import Outcome
from simcore.hardware.profile import load_profile
from simcore.planning.candidates import Candidates
from simcore.planning.goal import Goal
from simcore.planning.recut import bars, evaluated, objective_of
from simcore.planning.space import Space
from simcore.strategy.cuts import AUTO, MOST_CHUNKS, chunk_counts
from simcore.workload.sharding import layer_counts

Array = NDArray[np.float64]

#: Points asked before the bar is looked at again, and at most.
_AT_ONCE, _MOST = 5, 60
#: What chunks may hide of the messages between stages, as a share of the step: a guess that says
#: where to look, so what is left out is no proof (docs/plan.md).
_HIDDEN_FRAC = 0.02


def with_chunks(c: Candidates, goal: Goal, samples: float | None, top: int) -> Candidates:
    """The candidates in chunks wherever that could be one of the ``top`` clusters' best."""
    pending = _can_be_chunked(c)
    if not pending.any():
        return c
    hoped = objective_of(replace(c, step_s=_least_s(c)), goal, samples)
    room = 1.0 - goal.margin_frac
    for _ in range(_MOST // _AT_ONCE):
        bar = bars(c, objective_of(c, goal, samples), top)[c.cluster]
        worth = np.flatnonzero(pending & (hoped < bar))
        if not len(worth):
            break
        promising = worth[np.argsort(hoped[worth], kind="stable")]
        first = np.unique(c.cluster[promising], return_index=True)[1]  # of each cluster
        chosen = promising[np.sort(first)[:_AT_ONCE]]
        pending[chosen] = False
        for i in chosen.tolist():
            taken = _taken(c, i, room)
            if taken is None:  # others of its batch hold as much, however many there are
                pending &= ~_alike(c, i)
            else:
                c = taken
    return c


def _alike(c: Candidates, i: int) -> NDArray[np.bool_]:
    """Which candidates differ from one in nothing but more micro-batches."""
    found: NDArray[np.bool_] = (
        (c.form == c.form[i]) & (c.cluster == c.cluster[i])
        & (c.micro_batch == c.micro_batch[i]) & (c.grad_accum >= c.grad_accum[i])
    )  # fmt: skip
    return found


def can_have_chunks(space: Space) -> bool:
    """Whether some pipelines of a space may be, since nobody said how they are cut."""
    axes = dict(space.axes)
    return max(axes.get("pp", (1,))) > 1 and not {"vpp", "stages"} & axes.keys()


def _can_be_chunked(c: Candidates) -> NDArray[np.bool_]:
    """Which candidates are such a pipeline in whole rounds of micro-batches, which Megatron-LM's
    interleaved schedule asks for."""
    if not can_have_chunks(c.space):
        return np.zeros(len(c), dtype=bool)
    pp = np.array([f.layout.pp for f in c.forms], dtype=np.float64)
    plain = np.array([f.layout.schedule == "1f1b" for f in c.forms], dtype=bool) & (pp > 1)
    found: NDArray[np.bool_] = plain[c.form] & (np.mod(c.grad_accum, pp[c.form]) == 0)
    return found & np.isfinite(c.step_s)


def _least_s(c: Candidates) -> Array:
    """What a step takes at least in the most chunks v: S / (v (1 - (1 - 1/(M v))^p)).

    From ``balanced_s``, which is that of one chunk (``engine.sweep``).
    """
    pp = np.array([f.layout.pp for f in c.forms], dtype=np.float64)[c.form]
    n, m = float(MOST_CHUNKS), c.grad_accum
    one, most = (1.0 - (1.0 - 1.0 / k) ** pp for k in (m, m * n))
    found: Array = c.balanced_s * one / (n * most) * (1.0 - _HIDDEN_FRAC)
    return found


def _taken(c: Candidates, i: int, share: float) -> Candidates | None:
    """The candidates with one of them in its best number of chunks, where that is faster.

    None where it fits in no number of them, cut evenly.
    """
    asked = partial(_request, c, i)
    plain = asked(1)
    assert plain.placed is not None
    if not plain.strategy.program.pipeline.interleaves:
        return None
    room = share * c.capacity_bytes[i]
    counts = chunk_counts(layer_counts(plain.placed.part), plain.placed.layout.pp)
    found: list[tuple[Outcome, Request]] = []
    for request in map(asked, reversed(counts)):
        out = evaluated(c, i, request)
        if out.needed_bytes[0] > room:  # the fewer chunks, the more is in flight
            break
        found.append((out, request))
    if not found:
        return None
    best = min(found, key=_seconds)
    cut = with_balanced_stages(best[1])
    balanced = evaluated(c, i, cut)
    if balanced.needed_bytes[0] <= room:
        best = min(best, (balanced, cut), key=_seconds)
    faster = _seconds(best) < c.step_s[i] or c.needed_bytes[i] > room
    return _changed(c, i, *best) if faster else c


def _seconds(found: tuple[Outcome, Request]) -> float:
    return float(found[0].step_time_s[0])


def _request(c: Candidates, i: int, chunks: int) -> Request:
    """The job of a candidate in so many chunks, its pipeline cut evenly."""
    form = c.forms[int(c.form[i])]
    words = {k: v for k, v in form.options if k != "calibration"} | {"vpp": chunks}
    return make_request(
        c.space.models[0], c.space.clusters[int(c.cluster[i])],
        profile=load_profile(dict(c.space.fixed).get("calibration")),
        micro_batch=int(c.micro_batch[i]), grad_accum=int(c.grad_accum[i]), **words,
    )  # fmt: skip


def _changed(c: Candidates, i: int, out: Outcome, request: Request) -> Candidates:
    """The candidates, one of them as it is in chunks."""
    assert request.placed is not None
    layout = request.placed.layout
    stages = {k: v for k, v in c.stages.items() if k != i}
    if layout.stages and layout.stages != AUTO:
        stages[i] = layout.stages
    changed = c.with_outcome(i, out)
    return replace(changed, stages=stages, chunks={**c.chunks, i: layout.vpp})
