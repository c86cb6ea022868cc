"""Finds the best number of chunks per pipeline rank (interleaved 1F1B) for a plan.

A plan whose number of chunks is not given first evaluates every point with one chunk. More chunks
shrink the bubble, take a little more memory, and overlap messages between stages with compute. A
point stays as it is if its lower bound with the most chunks is no better than the best known point
of its cluster, or than the last cluster that will be listed. Of the other points, the most
promising of each cluster are evaluated, sixty at most, with the numbers of chunks that divide their
layers.

# C candidates; all arrays [C]
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from simcore.answer.stages import with_balanced_stages
from simcore.answer.sweep import Outcome
from simcore.base.arrays import Array, NDArray
from simcore.planning.alike import Alike
from simcore.planning.candidates import Candidates
from simcore.planning.constraints import judge
from simcore.planning.goal import Goal
from simcore.planning.space import Space
from simcore.planning.stage_search import bars
from simcore.request.resolved import Request
from simcore.step.schedules import SCHEDULES
from simcore.strategy.cuts import MOST_CHUNKS, chunk_counts
from simcore.strategy.layout import AUTO
from simcore.workload.sharding import layer_counts

#: Points evaluated before the thresholds are updated, and in all.
_AT_ONCE, _MOST = 5, 60
#: Share of the step that chunks may save by overlapping messages between stages. It is a guess that
#: guides the search, so the search is not proven to find the best point (docs/plan.md).
_HIDDEN_FRAC = 0.02


def with_chunks(c: Candidates, goal: Goal, samples: float | None, top: int) -> Candidates:
    """The candidates with the best number of chunks, wherever that could put them among the best of
    the ``top`` clusters.
    """
    pending = _can_be_chunked(c)
    if not pending.any():
        return c
    hoped = judge(replace(c, step_s=_least_s(c)), goal, samples).value
    usable_frac, alike = 1.0 - goal.margin_frac, Alike(c)
    for _ in range(_MOST // _AT_ONCE):
        bar = bars(c, judge(c, goal, samples).value, top)[c.cluster]
        worth = np.flatnonzero(pending & (hoped < bar))
        if not len(worth):
            break
        promising = worth[np.argsort(hoped[worth], kind="stable")]
        first = np.unique(c.cluster[promising], return_index=True)[1]  # the best of each cluster
        chosen = promising[np.sort(first)[:_AT_ONCE]]
        pending[chosen] = False
        for i in chosen.tolist():
            changed = _with_best_chunks(c, i, usable_frac, alike, pending & (hoped < bar))
            if changed is None:  # with more micro-batches it needs as much memory or more
                pending &= ~_needs_more(c, i)
            else:
                c = changed
    return c


def _needs_more(c: Candidates, i: int) -> NDArray[np.bool_]:
    """Which candidates are like candidate ``i``, with as many micro-batches or more [C]."""
    return (
        (c.form == c.form[i]) & (c.cluster == c.cluster[i])
        & (c.micro_batch == c.micro_batch[i]) & (c.grad_accum >= c.grad_accum[i])
    )  # fmt: skip


def can_have_chunks(space: Space) -> bool:
    """Whether a space has pipelines whose chunks and stages are not given."""
    axes = dict(space.axes)
    return max(axes.get("pp", (1,))) > 1 and not {"vpp", "stages"} & axes.keys()


def _can_be_chunked(c: Candidates) -> NDArray[np.bool_]:
    """Which candidates are such a pipeline with a multiple of pp micro-batches [C].

    Megatron-LM's interleaved schedule requires such a multiple.
    """
    if not can_have_chunks(c.space):
        return np.zeros(len(c), dtype=bool)
    pp = np.array([f.layout.pp for f in c.forms], dtype=np.float64)
    plain = np.array([SCHEDULES[f.layout.schedule].chunked for f in c.forms], dtype=bool) & (pp > 1)
    found: NDArray[np.bool_] = plain[c.form] & (np.mod(c.grad_accum, pp[c.form]) == 0)
    return found & np.isfinite(c.step_s)


def _least_s(c: Candidates) -> Array:
    """Lower bound of the step time [s] with the most chunks v: S / (v (1 - (1 - 1/(M v))^p)).

    It is scaled from ``balanced_s``, the bound for one chunk (``answer.sweep``). M: micro-batches;
    p: pipeline stages; S: compute of a step.
    """
    pp = np.array([f.layout.pp for f in c.forms], dtype=np.float64)[c.form]
    n, m = float(MOST_CHUNKS), c.grad_accum
    one, most = (1.0 - (1.0 - 1.0 / k) ** pp for k in (m, m * n))
    return c.balanced_s * one / (n * most) * (1.0 - _HIDDEN_FRAC)


def _with_best_chunks(
    c: Candidates, i: int, usable_frac: float, alike: Alike, among: NDArray[np.bool_]
) -> Candidates | None:
    """The candidates with the best number of chunks for candidate ``i``, where that is faster.

    ``usable_frac``: share of a device's memory that may be used; ``among``: candidates that may
    follow [C]. None where the training program has no such schedule, or no number of chunks fits
    with layers split evenly.
    """
    plain = alike.request(i, vpp=1)
    assert plain.placed is not None
    if not plain.strategy.program.pipeline.interleaves:
        return None
    usable_bytes = usable_frac * c.capacity_bytes[i]
    counts = chunk_counts(layer_counts(plain.placed.part), plain.placed.layout.pp)
    found: list[tuple[Outcome, Request]] = []
    for n in reversed(counts):
        request = alike.request(i, vpp=n)
        out = alike.outcome(i, request, n, among)
        if out.needed_bytes[0] > usable_bytes:  # fewer chunks hold more micro-batches in flight
            break
        found.append((out, request))
    if not found:
        return None
    best = min(found, key=_seconds)
    cut = with_balanced_stages(best[1])
    assert cut.placed is not None
    balanced = alike.outcome(i, cut, cut.placed.layout, among)
    if balanced.needed_bytes[0] <= usable_bytes:
        best = min(best, (balanced, cut), key=_seconds)
    faster = _seconds(best) < c.step_s[i] or c.needed_bytes[i] > usable_bytes
    return _changed(c, i, *best) if faster else c


def _seconds(found: tuple[Outcome, Request]) -> float:
    return float(found[0].step_time_s[0])


def _changed(c: Candidates, i: int, out: Outcome, request: Request) -> Candidates:
    """The candidates with candidate ``i`` replaced by the outcome of a request in chunks."""
    assert request.placed is not None
    layout = request.placed.layout
    stages = {k: v for k, v in c.stages.items() if k != i}
    if layout.stages and layout.stages != AUTO:
        stages[i] = layout.stages
    changed = c.with_outcome(i, out)
    return replace(changed, stages=stages, chunks={**c.chunks, i: layout.vpp})
