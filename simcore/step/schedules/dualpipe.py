"""DualPipe: micro-batches enter a pipeline from both ends.

After DeepSeek-AI's implementation (github.com/deepseek-ai/DualPipe, dualpipe.py, eight steps;
DeepSeek-V3 2024, arXiv:2412.19437, section 3.2.1). Rank r works on stage r for the micro-batches
that enter at rank 0 (direction 0) and on stage pp - 1 - r for the others.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

import numpy as np

from simcore.base.arrays import Array
from simcore.step.schedules import SCHEDULES
from simcore.step.schedules.base import WEIGHTS_FRAC, Cell, Kind, Schedule, Work, mean_stage
from simcore.strategy.layout import Layout


class DualPipe(Schedule):
    """Each rank holds two stages, and overlaps a forward of one with a backward of the other."""

    name = "dualpipe"
    meaning = "micro-batches enter from both ends, each rank holds two stages"
    formula = "(pp/2 - 1) x (f + 2 b - 3 w)"
    source = "DeepSeek-AI 2024, table 2"
    directions = 2
    takes_stages = False
    splits_backward = True
    fills_and_drains = False
    multiple_of = 2

    def order(self, layout: Layout, stage: int, micro_batches: int) -> list[Cell]:
        """The eight steps of DeepSeek-AI's implementation."""
        if problem := self.undrawn(layout, micro_batches):
            raise ValueError(problem)
        pp = layout.pp
        return list(_cells(_Rank(pp, stage, micro_batches), pp, min(stage, pp - 1 - stage)))

    def undrawn(self, layout: Layout, micro_batches: int) -> str:
        """Its order needs 2 pp micro-batches."""
        if micro_batches >= 2 * layout.pp:
            return ""
        return (
            f"schedule dualpipe needs {2 * layout.pp} micro-batches for pp {layout.pp}, twice the "
            f"stages, not {micro_batches}"
        )

    def refused(self, layout: Layout) -> list[str]:
        """An odd number of ranks, besides the usual rules."""
        odd = [f"schedule {self.name} needs an even pp, not {layout.pp}"] if layout.pp % 2 else []
        return super().refused(layout) + odd

    def bubble_s(
        self,
        layout: Layout,
        forward_s: Array,
        backward_s: Array,
        stages: Sequence[int],
        micro_batches: Array,
    ) -> Array:
        """(p/2 - 1)(F + B + W + B - 3 W) of one of a rank's two stages, where B + W = backward."""
        backward = mean_stage(backward_s, stages)
        once = (mean_stage(forward_s, stages) + (1.0 - WEIGHTS_FRAC) * backward) / 2.0
        return np.broadcast_to((layout.pp / 2.0 - 1.0) * once, forward_s.shape)

    def most_in_flight(self, layout: Layout, position: int | Array) -> float | Array:
        """(p + 1)/2 of each of a rank's two stages (table 2)."""
        return (layout.pp + 1) / 2


class _Rank:
    """Counts what one rank has done in each direction; phases are counted from its nearer end."""

    def __init__(self, pp: int, rank: int, micro_steps: int) -> None:
        self.second_half = rank >= pp // 2
        self.half = micro_steps // 2
        self.forwards, self.backwards = [0, 0], [0, 0]
        self.waiting: deque[Work] = deque()

    def _work(self, counts: list[int], kind: Kind, phase: int) -> Work:
        direction = phase ^ self.second_half
        micro_batch = counts[direction] + direction * self.half
        counts[direction] += 1
        return Work(kind, micro_batch, direction)

    def forward(self, phase: int) -> Cell:
        return (self._work(self.forwards, "forward", phase),)

    def backward(self, phase: int, *, later: bool = False) -> Cell:
        """Backward of the input; backward of the weights follows at once unless it is ``later``."""
        work = self._work(self.backwards, "backward", phase)
        weights = Work("weights", work.micro_batch, work.chunk)
        if later:
            self.waiting.append(weights)
            return (work,)
        return work, weights

    def weights(self) -> Cell:
        return (self.waiting.popleft(),)

    def both(self, forward: int, backward: int) -> Cell:
        """A forward and a backward whose kernels and exchanges overlap: one piece of work."""
        return self.forward(forward) + self.backward(backward)


def _cells(r: _Rank, pp: int, near: int) -> Iterator[Cell]:
    """``near``: ranks between this one and the nearer end."""
    inner = pp // 2 - near - 1  # ranks between this one and the middle
    for _ in range(2 * inner):  # 1
        yield r.forward(0)
    for _ in range(near + 1):  # 2
        yield r.forward(0)
        yield r.forward(1)
    for _ in range(inner):  # 3
        yield r.backward(1, later=True)
        yield r.weights()
        yield r.forward(1)
    for i in range(r.half - pp + near + 1):  # 4, the main step
        if i == 0 and inner == 0:  # the middle ranks do not overlap these two
            yield r.forward(0)
            yield r.backward(1)
        else:
            yield r.both(0, 1)
        yield r.both(1, 0)
    for _ in range(inner):  # 5
        yield r.backward(1)
        yield r.both(1, 0)
    later = False
    for i in range(near + 1):  # 6: the second half leaves its weights
        later = later or (i == (near + 1) // 2 and near % 2 == 1)
        yield r.backward(1, later=later)
        later = later or (i == (near + 1) // 2 and near % 2 == 0)
        yield r.backward(0, later=later)
    for _ in range(inner):  # 7
        yield r.weights()
        yield r.backward(0, later=True)
    for _ in range(near + 1):  # 8
        yield r.weights()


SCHEDULES.register(DualPipe.name)(DualPipe())
