"""GPipe: all forwards, then all backwards."""

from __future__ import annotations

from collections.abc import Sequence

from simcore.base.arrays import Array
from simcore.step.schedules import SCHEDULES
from simcore.step.schedules.base import Cell, Schedule, mean_stage, works
from simcore.strategy.layout import Layout


class GPipe(Schedule):
    """All forwards, then all backwards (Huang et al. 2019); a stage holds every micro-batch."""

    name = "gpipe"
    meaning = "all forwards, then all backwards"
    formula = "(pp - 1) x (f + b)"
    source = "Huang et al. 2019"

    def order(self, layout: Layout, stage: int, micro_batches: int) -> list[Cell]:
        """All forwards, then all backwards, both from the first micro-batch on."""
        return [(w,) for w in works("forward", micro_batches) + works("backward", micro_batches)]

    def bubble_s(
        self,
        layout: Layout,
        forward_s: Array,
        backward_s: Array,
        stages: Sequence[int],
        micro_batches: Array,
    ) -> Array:
        """Exact, as two flow shops: all stages once and the slowest A - 1 times, each way."""
        once = mean_stage(forward_s, stages) + mean_stage(backward_s, stages)
        slowest = forward_s.max(axis=0) + backward_s.max(axis=0)
        whole = layout.pp * once + (micro_batches - 1.0) * slowest
        return whole - micro_batches * (forward_s + backward_s)


SCHEDULES.register(GPipe.name)(GPipe())
