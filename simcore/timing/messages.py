"""Exposed time of the messages between the stages of an interleaved pipeline.

Megatron-Core's overlap_p2p_comm (core/pipeline_parallel/schedules.py, interleaved schedule only):
while the pipeline is full, the message of a chunk's forward has to arrive only after the next
chunk's backward, and the other way round. While the pipeline fills and empties, where forwards or
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
    """Exposed seconds of a micro-step's messages, averaged over one stage's step [C].

    ``behind``: number of stages after this one. ``messages_s``: all messages of a micro-step.
    ``busy_s``: compute of a micro-step's forward and backward. Hidden time costs ``slowdown`` of
    itself in slower compute.
    """
    half = 0.5 * messages_s  # forward's messages hide under backward, backward's under forward
    hidden = sum((np.minimum(half, busy) for busy in busy_s), np.zeros_like(messages_s))
    full = 1.0 - bare_frac(layout, behind, micro_batches)
    found: Array = messages_s - full * hidden * (1.0 - slowdown)
    return found


def bare_frac(layout: Layout, behind: int, micro_batches: Array) -> Array:
    """Share of a stage's messages that it sends while the pipeline fills and empties [C].

    With ``behind`` stages after it, a stage runs 2 behind + (v - 1) p forwards ahead of its first
    backward, out of A v in all (Narayanan et al. 2021; schedules.py, num_warmup_microbatches).
    """
    ahead = 2.0 * behind + (layout.vpp - 1) * layout.pp
    found: Array = np.minimum(ahead / (micro_batches * layout.vpp), 1.0)
    return found
