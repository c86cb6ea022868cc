"""Time that pipeline stages wait for each other, from the time of a micro-batch on each stage.

# R runs of neighbouring stages that take equally long, C configs
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from simcore.base.arrays import NDArray

Array = NDArray[np.float64]


def bubble_s(
    schedule: str,
    forward_s: Array,
    backward_s: Array,
    stages: Sequence[int],
    micro_batches: Array,
    chunks: int = 1,
) -> Array:
    """Bubble time [s] of each run's stages in one step, by the pipeline's schedule: [R, C].

    Arguments as for ``waiting_s``. gpipe: exact, as two flow shops. zb-1p and zb-2p:
    (p - 1)(F + B - W) and (p - 1)(F + B - 2 W) of the average stage, where B and W are the backward
    passes of inputs and of weights, each half of backward (Qi et al. 2023, table 1: ZB-H1, ZB-H2).
    dualpipe: (p/2 - 1)(F + B + W + B - 3 W) with B here all of backward (DeepSeek-AI 2024, table
    2); a rank's times are those of two stages.
    """
    count = np.array(stages, dtype=np.float64)[:, None]
    ranks = count.sum()
    if ranks == 1:
        return np.zeros_like(forward_s)
    if schedule == "1f1b":
        return waiting_s(forward_s, backward_s, stages, micro_batches, chunks)
    forward, backward = ((count * x).sum(axis=0) / ranks for x in (forward_s, backward_s))
    if schedule == "gpipe":
        slowest = forward_s.max(axis=0) + backward_s.max(axis=0)
        whole = ranks * (forward + backward) + (micro_batches - 1.0) * slowest
        found: Array = whole - micro_batches * (forward_s + backward_s)
        return found
    if schedule == "dualpipe":
        once = (forward + backward - 0.5 * backward) / 2.0
        return np.broadcast_to((ranks / 2.0 - 1.0) * once, forward_s.shape)
    weights = 0.5 * backward * {"zb-1p": 1.0, "zb-2p": 2.0}[schedule]
    idle = (ranks - 1.0) * np.maximum(0.0, forward + 0.5 * backward - weights)
    return np.broadcast_to(idle, forward_s.shape)


def waiting_s(
    forward_s: Array,
    backward_s: Array,
    stages: Sequence[int],
    micro_batches: Array,
    chunks: int = 1,
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
    that change the stage are left out (``tests/physics/test_pipeline.py`` compares it with the
    event-by-event schedule).

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
    result: Array = (before + idle) / chunks
    return result
