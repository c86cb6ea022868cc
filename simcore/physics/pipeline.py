"""How long the stages of a pipeline wait for each other, from what each takes for a micro-batch.

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
    """Seconds that each run's stage waits for others in one step, by the pipeline's schedule.

    Arrays and ``chunks`` as of ``waiting_s``. gpipe: two flow shops, exactly. zb-1p and zb-2p:
    (p - 1)(F + B - W) and (p - 1)(F + B - 2 W) of the average stage, B and W the backward of
    inputs and weights, each half of backward (Qi et al. 2023, table 1: ZB-H1, ZB-H2). dualpipe:
    (p/2 - 1)(F + B + W + B - 3 W) with B here all of backward (DeepSeek-AI 2024, table 2); a
    rank's times are those of two stages.
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
    """Seconds beyond its own work until the pipeline of which a stage is the slowest is empty.

    1F1B, and interleaved over ``chunks`` (Narayanan et al. 2021): the longest path through the
    schedule that stays with one stage k of p. It fills the stages before k and empties them
    (every f + b once), and leaves k for those behind it until the first backward is back and
    again from the last forward on, as far as the micro-batches that k may have in flight,
    w = p - 1 - k, do not fill that time:

        before + max(0, D - w f_k) + max(0, D - w b_k)      D: sum of f + b behind k

    Makespan = max over k of M (f_k + b_k) + this. Equal stages: (p - 1)(f + b), the closed form.
    With chunks the times are a chunk's, w = 2 (p - 1 - k) + (chunks - 1) min(p, M), and D has the
    other chunks' forwards (backwards) of all stages: no chunks shorten the way of one micro-batch,
    p (f + b), and M < p equal stages wait p - M + (M - 1)/chunks times f + b. Exact where stages
    differ by a tenth; else a lower
    bound, since paths that change the stage are left out (``tests/physics/test_pipeline.py``
    holds it against the event by event schedule).

    ``forward_s``, ``backward_s`` [R, C]: one micro-batch on one stage of each run; ``stages`` [R]:
    how many stages a run has; ``micro_batches`` [C]. Returns [R, C], for each run's last stage:
    of equal neighbours it waits longest.
    """
    count = np.array(stages, dtype=np.float64)[:, None]
    n_stages = float(count.sum())
    each = forward_s + backward_s
    upto = np.cumsum(count * each, axis=0)
    before = upto - each
    behind = upto[-1] - upto
    left = n_stages - np.cumsum(count, axis=0)  # stages behind the run
    others = chunks - 1
    # An interleaved schedule deals out rounds of p micro-batches, or of all where there are fewer.
    of_round = np.minimum(micro_batches, n_stages)
    flight = left if not others else 2.0 * left + others * of_round
    rounds = micro_batches * chunks
    filled = np.minimum(flight, rounds - 1.0)
    through = behind + others * (count * forward_s).sum(axis=0)
    back = behind + others * (count * backward_s).sum(axis=0)
    first = np.maximum(0.0, through - filled * forward_s)
    last = np.maximum(0.0, back - filled * backward_s)
    # Fewer micro-batches than may be in flight: the stage is left once, not twice; but the last
    # stage turns each round itself, and is left before and after.
    twice = (rounds >= flight + 2.0) | (left == 0.0)
    idle = np.where(twice, first + last, np.maximum(first, last))
    result: Array = (before + idle) / chunks
    return result
