"""1F1B: each stage alternates one forward and one backward once the pipeline is full."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from simcore.base.arrays import Array
from simcore.step.schedules import SCHEDULES
from simcore.step.schedules.base import Cell, Schedule, alternating, works
from simcore.strategy.layout import DEFAULT_SCHEDULE, Layout


class OneFOneB(Schedule):
    """Stage k of p starts p - 1 - k forwards ahead (Narayanan et al. 2021; PipeDream-flush)."""

    name = DEFAULT_SCHEDULE
    meaning = "one forward, one backward in turn; with vpp in its interleaved form"
    formula = (
        "(pp - 1)/vpp x (f + b); with A < pp micro-batches (pp - A + (A - 1)/vpp) x (f + b); "
        "unequal stages, k the slowest: f + b of the stages before k + max(0, D - w f) + "
        "max(0, D - w b), D = f + b of the stages after k, w = pp - 1 - k"
    )
    source = "Narayanan et al. 2021"
    chunked = True

    def order(self, layout: Layout, stage: int, micro_batches: int) -> list[Cell]:
        """p - 1 - k forwards, then one forward and one backward in turn, then backwards."""
        forward, backward = (works(kind, micro_batches) for kind in ("forward", "backward"))
        return [(w,) for w in alternating(forward, backward, layout.pp - 1 - stage)]

    def refused(self, layout: Layout) -> list[str]:
        """Nothing: a single stage is a pipeline too, and chunks interleave."""
        return []

    def bubble_s(
        self,
        layout: Layout,
        forward_s: Array,
        backward_s: Array,
        stages: Sequence[int],
        micro_batches: Array,
    ) -> Array:
        """Seconds of a step beyond each run's own work: [R, C], by ``waiting_s``."""
        return waiting_s(forward_s, backward_s, stages, micro_batches, layout.vpp)

    def most_in_flight(self, layout: Layout, position: int | Array) -> float | Array:
        """p - k."""
        return layout.pp - np.asarray(position, dtype=np.float64)


def waiting_s(
    forward_s: Array,
    backward_s: Array,
    stages: Sequence[int],
    micro_batches: Array,
    chunks: int,
) -> Array:
    """Seconds of a step beyond a stage's own work if that stage is the pipeline's slowest: [R, C].

    Schedules: 1F1B, and interleaved over ``chunks`` (Narayanan et al. 2021). The wait is that on
    the longest path through the schedule that stays with one stage k of p. The path fills the
    stages before k and drains them (f + b of each once). It leaves k for the stages behind k until
    the first backward returns, and once more after the last forward. The w = p - 1 - k
    micro-batches that k may have in flight cover a part of either time:

        before + max(0, D - w f_k) + max(0, D - w b_k)      D: sum of f + b behind k

    Makespan = max over k of M (f_k + b_k) + this. Equal stages: (p - 1)(f + b), the closed form.
    With chunks, f and b are the times of one chunk, w = 2 (p - 1 - k) + (chunks - 1) min(p, M), and
    D includes the forwards (backwards) of the other chunks on all stages. Chunks do not shorten the
    path of a single micro-batch, p (f + b); with M < p equal stages wait p - M + (M - 1)/chunks
    times f + b. Exact where stages differ by up to a tenth; otherwise a lower bound, since paths
    that change the stage are left out (``tests/step/schedules/test_one_f_one_b.py`` compares it
    with the event-by-event schedule).

    ``forward_s``, ``backward_s`` [R, C]: seconds of one micro-batch on one stage of each run;
    ``stages`` [R]: number of stages in each run; ``micro_batches`` [C]. The result is for the last
    stage of each run, which waits longest among equal neighbours.
    """
    count = np.array(stages, dtype=np.float64)[:, None]
    n_stages = float(count.sum())
    each = forward_s + backward_s
    upto = np.cumsum(count * each, axis=0)
    before = upto - each
    behind = upto[-1] - upto
    left = n_stages - np.cumsum(count, axis=0)  # stages behind the run
    others = chunks - 1
    # An interleaved schedule processes rounds of p micro-batches, or of all if there are fewer.
    of_round = np.minimum(micro_batches, n_stages)
    flight = left if not others else 2.0 * left + others * of_round
    rounds = micro_batches * chunks
    filled = np.minimum(flight, rounds - 1.0)
    through = behind + others * (count * forward_s).sum(axis=0)
    back = behind + others * (count * backward_s).sum(axis=0)
    first = np.maximum(0.0, through - filled * forward_s)
    last = np.maximum(0.0, back - filled * backward_s)
    # With fewer micro-batches than may be in flight, the path leaves the stage once, not twice. The
    # last stage starts each round's backwards itself: the path leaves it before and after.
    twice = (rounds >= flight + 2.0) | (left == 0.0)
    idle = np.where(twice, first + last, np.maximum(first, last))
    return (before + idle) / chunks


SCHEDULES.register(DEFAULT_SCHEDULE)(OneFOneB())
