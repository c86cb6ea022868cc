"""What of the messages between an interleaved pipeline's stages stands in the way of compute.

Megatron-Core's overlap_p2p_comm (core/pipeline_parallel/schedules.py, of the schedule with
interleaving alone): while the pipeline is full, what a chunk's forward sends is waited for behind
the next chunk's backward, and the other way round. Before and after that, where forwards or
backwards follow each other, every message is waited for before the next chunk.

# C configs, all arrays [C]
"""

from __future__ import annotations

import numpy as np

from simcore.base.arrays import NDArray
from simcore.strategy.layout import Layout

Array = NDArray[np.float64]


def seen_s(
    layout: Layout,
    behind: int,
    micro_batches: Array,
    messages_s: Array,
    busy_s: tuple[Array, Array],
    slowdown: Array,
) -> Array:
    """Seconds seen of a micro-step's messages, on average over the step of one stage.

    ``behind``: stages behind this one. ``busy_s``: compute of a micro-step's forward and backward.
    What is hidden slows compute by ``slowdown`` of its own time.
    """
    half = 0.5 * messages_s  # forward hides under backward, and back under forward
    hidden = sum((np.minimum(half, busy) for busy in busy_s), np.zeros_like(messages_s))
    full = 1.0 - bare_frac(layout, behind, micro_batches)
    found: Array = messages_s - full * hidden * (1.0 - slowdown)
    return found


def bare_frac(layout: Layout, behind: int, micro_batches: Array) -> Array:
    """Of a stage's messages those of filling and emptying, with ``behind`` stages behind it.

    It runs 2 behind + (v - 1) p forwards ahead of its first backward, of A v in all (Narayanan et
    al. 2021; schedules.py, num_warmup_microbatches).
    """
    ahead = 2.0 * behind + (layout.vpp - 1) * layout.pp
    found: Array = np.minimum(ahead / (micro_batches * layout.vpp), 1.0)
    return found
