"""Zero-bubble schedules: backward of the weights fills the time that stages would wait."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from simcore.base.arrays import Array
from simcore.base.record import dataclass
from simcore.step.schedules import SCHEDULES
from simcore.step.schedules.base import WEIGHTS_FRAC, Cell, Schedule, alternating, mean_stage, works
from simcore.strategy.layout import Layout


@dataclass(frozen=True)
class ZeroBubble(Schedule):
    """Backward is split, so that weight gradients fill the bubble (Qi et al. 2023).

    ``limit``: micro-batches that a stage may hold, in units of pp: 1 is ZB-1p (their ZB-H1), 2 is
    ZB-2p (ZB-H2).
    """

    name: str
    limit: int
    meaning: str
    formula: str
    source: str = "Qi et al. 2023, table 1"
    splits_backward = True
    fills_and_drains = False
    #: Backward of inputs follows each forward on the last stage (figures 2 and 3): what the loss
    #: saved is freed, and its 16-bit gradient remains for the head's weight gradient
    #: (WeightGradStore in zero-bubble's layers.py takes input and gradient).
    waiting_head = "gradient"

    def order(self, layout: Layout, stage: int, micro_batches: int) -> list[Cell]:
        """1F1B in which backward of the weights stays as many micro-batches behind.

        ZB-H1 (their figure 2): p - 1 - k forwards ahead, weights k micro-batches behind; ZB-H2
        (figure 3): twice as many of both.
        """
        forward, backward, weights = (
            works(kind, micro_batches) for kind in ("forward", "backward", "weights")
        )
        ahead, later = self.limit * (layout.pp - 1 - stage), self.limit * stage
        found: list[Cell] = []
        for work in alternating(forward, backward, ahead):
            found.append((work,))
            if work.kind == "backward" and work.micro_batch >= later:
                found.append((weights[work.micro_batch - later],))
        return found + [(w,) for w in weights[max(0, micro_batches - later) :]]

    def bubble_s(
        self,
        layout: Layout,
        forward_s: Array,
        backward_s: Array,
        stages: Sequence[int],
        micro_batches: Array,
    ) -> Array:
        """(p - 1) max(0, F + B - limit W) of the average stage.

        B and W: the backward passes of inputs and of weights.
        """
        backward = mean_stage(backward_s, stages)
        weights = WEIGHTS_FRAC * backward
        once = mean_stage(forward_s, stages) + (backward - weights) - self.limit * weights
        return np.broadcast_to((layout.pp - 1.0) * np.maximum(0.0, once), forward_s.shape)

    def most_in_flight(self, layout: Layout, position: int | Array) -> float | Array:
        """limit p on every stage, since weight gradients are postponed (section 4)."""
        return self.limit * layout.pp


for _schedule in (
    ZeroBubble("zb-1p", 1, "1F1B whose weight gradients fill the bubble, in the memory of 1F1B",
               "(pp - 1) x (f + b - 2 w)"),
    ZeroBubble("zb-2p", 2, "no bubble, for twice the micro-batches in flight",
               "(pp - 1) x max(0, f + b - 3 w)"),
):  # fmt: skip
    SCHEDULES.register(_schedule.name)(_schedule)
