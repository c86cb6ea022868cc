"""Number of micro-batches whose activations a pipeline stage holds at the same time."""

from __future__ import annotations

import numpy as np

from simcore.base.arrays import NDArray
from simcore.strategy.layout import Layout

Array = NDArray[np.float64]


def in_flight(layout: Layout, position: int | Array, micro_steps: Array) -> Array:
    """Micro-batches whose activations stage ``position`` (a number or [C]) holds at its peak.

    1F1B: pp - position. Interleaved: the warm-up of 2(pp - position - 1) + (vpp - 1) pp chunks and
    the one in work, each 1/vpp of the stage (Megatron-LM, schedules.py). Zero-bubble: the limit of
    the schedule on every stage, since weight gradients are postponed (Qi et al. 2023, section 4).
    GPipe: all. DualPipe: (pp + 1)/2 of each of a rank's two stages (DeepSeek-AI 2024, table 2).
    """
    micro_steps = micro_steps / layout.directions
    left = layout.pp - np.asarray(position, dtype=np.float64)
    if layout.schedule == "gpipe":
        held = np.full_like(left, np.inf)
    elif layout.schedule == "dualpipe":
        held = np.full_like(left, (layout.pp + 1) / 2)
    elif layout.zero_bubble:
        held = np.full_like(left, layout.in_flight_limit * layout.pp)
    elif layout.vpp == 1:
        held = left
    else:
        held = (2.0 * (left - 1) + (layout.vpp - 1) * layout.pp + 1) / layout.vpp
    found: Array = np.minimum(micro_steps, np.maximum(1.0, held))
    return found


def chunk_share(layout: Layout, position: int, layers: int, longest: int) -> float:
    """Layers that an interleaved stage holds in flight, over those with chunks of equal length.

    Embedding and loss count as layers: the first chunk of the first stage and the last chunk of the
    last stage have fewer layers, by ``longest`` - ``layers``. Micro-batches enter a chunk pp at a
    time (Megatron-LM, schedules.py), so that the first chunk holds most of them.
    """
    pp, vpp, short = layout.pp, layout.vpp, longest - layers
    if vpp == 1 or longest % vpp or not 0 < short <= longest // vpp:
        return 1.0
    if 0 < position < pp - 1:
        return 1.0
    chunks = [longest // vpp] * vpp
    chunks[0 if position == 0 else -1] -= short
    held = 2 * (pp - position - 1) + (vpp - 1) * pp + 1
    counts = [max(0, min(pp, held - j * pp)) for j in range(vpp)]
    counts[0] += held - sum(counts)
    inside = sum(n * size for n, size in zip(counts, chunks, strict=True))
    return inside / (held * layers / vpp)
