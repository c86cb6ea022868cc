"""Interleaved 1F1B: each stage has several chunks of layers, which divides the bubble."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from simcore.base.arrays import Array
from simcore.step.schedules import IN_CHUNKS
from simcore.step.schedules.base import Cell, Work, alternating
from simcore.step.schedules.one_f_one_b import OneFOneB
from simcore.strategy.layout import Layout


class Interleaved(OneFOneB):
    """1F1B over chunks, in rounds of micro-batches (Narayanan et al. 2021; Megatron-LM).

    A round has one for each stage, or ``Layout.vpp_group``.
    """

    meaning = "1F1B over the chunks of each stage, in rounds of as many micro-batches as stages"
    whole_rounds = True
    #: Backward of the last chunk follows its forward at once (Megatron-LM, schedules.py).
    waiting_head = "absent"

    def order(self, layout: Layout, stage: int, micro_batches: int) -> list[Cell]:
        """Rounds of micro-batches, chunk after chunk, some forwards ahead of the backwards.

        Micro-batches beyond a multiple of a round join the first: a smaller round after it would
        wait for itself.
        """
        pp, vpp, size = layout.pp, layout.vpp, layout.round_micro_batches
        first = micro_batches if micro_batches < size else size + micro_batches % size
        starts = [0, *range(first, micro_batches, size), micro_batches]
        chunks = [
            (m, chunk)
            for start, end in pairwise(starts)
            for chunk in range(vpp)
            for m in range(start, end)
        ]
        forward = [Work("forward", m, chunk) for m, chunk in chunks]
        backward = [Work("backward", m, vpp - 1 - chunk) for m, chunk in chunks]
        ahead = int(forwards_ahead(layout, pp - 1 - stage, first))
        return [(w,) for w in alternating(forward, backward, ahead)]

    def least_micro_batches(self, layout: Layout) -> int:
        """One for each stage."""
        return layout.pp

    def rounds_refused(self, layout: Layout, micro_batches: int) -> str:
        """Megatron-LM before 2024 takes multiples of the stages, later never fewer than these."""
        if micro_batches >= layout.pp:
            return ""
        return (
            f"vpp={layout.vpp} needs as many micro-batches as stages or more (pp={layout.pp}), not "
            f"grad-accum {micro_batches}: try grad-accum {layout.pp}"
        )

    def most_in_flight(self, layout: Layout, position: int | Array) -> float | Array:
        """The forwards ahead and the one in work, each 1/vpp of the stage."""
        behind = layout.pp - 1.0 - np.asarray(position, dtype=np.float64)
        return (forwards_ahead(layout, behind, layout.round_micro_batches) + 1) / layout.vpp

    def chunk_share(self, layout: Layout, position: int, layers: int, longest: int) -> float:
        """Embedding and loss count as layers where they shorten a chunk.

        The first chunk of the first stage and the last chunk of the last stage then have fewer
        layers, by ``longest`` - ``layers``. Micro-batches enter a chunk a round at a time
        (Megatron-LM, schedules.py), so that the first chunk holds most of them.
        """
        pp, vpp, short = layout.pp, layout.vpp, longest - layers
        size = layout.round_micro_batches
        if longest % vpp or not 0 < short <= longest // vpp or 0 < position < pp - 1:
            return 1.0
        chunks = [longest // vpp] * vpp
        chunks[0 if position == 0 else -1] -= short
        held = int(forwards_ahead(layout, pp - 1 - position, size)) + 1
        counts = [max(0, min(size, held - j * size)) for j in range(vpp)]
        counts[0] += held - sum(counts)
        inside = sum(n * size for n, size in zip(counts, chunks, strict=True))
        return inside / (held * layers / vpp)

    def exposed_messages_s(
        self,
        layout: Layout,
        behind: float | Array,
        micro_batches: Array,
        messages_s: Array,
        busy_s: tuple[Array, Array],
        slowdown: Array,
    ) -> Array:
        """Exposed seconds of a micro-step's messages, averaged over one stage's step [C].

        Megatron-Core's overlap_p2p_comm (core/pipeline_parallel/schedules.py, interleaved schedule
        only): while the pipeline is full, the message of a chunk's forward has to arrive only after
        the next chunk's backward, and the other way round. While the pipeline fills and empties,
        where forwards or backwards follow each other, every message is waited for before the next
        chunk.
        """
        half = 0.5 * messages_s  # forward's messages hide under backward, backward's under forward
        hidden = sum((np.minimum(half, busy) for busy in busy_s), np.zeros_like(messages_s))
        full = 1.0 - filling_frac(layout, behind, micro_batches)
        return messages_s - full * hidden * (1.0 - slowdown)


def forwards_ahead(layout: Layout, behind: float | Array, of_round: int) -> float | Array:
    """Chunks that a stage runs forward before its first backward, after the one it runs first.

    ``behind``: stages after this one; ``of_round``: micro-batches of the first round
    (Megatron-LM, schedules.py: num_warmup_microbatches).
    """
    return 2 * behind + (layout.vpp - 1) * of_round


def filling_frac(layout: Layout, behind: float | Array, micro_batches: Array) -> Array:
    """Share of a stage's messages that it sends while the pipeline fills and empties [C].

    The forwards ahead of the first backward, out of A v in all (Narayanan et al. 2021).
    """
    ahead = forwards_ahead(layout, behind, layout.round_micro_batches)
    return np.minimum(ahead / (micro_batches * layout.vpp), 1.0)


IN_CHUNKS.register(Interleaved.name)(Interleaved())
