"""The order of DualPipe: micro-batches enter a pipeline from both ends.

After DeepSeek-AI's implementation (github.com/deepseek-ai/DualPipe, dualpipe.py, eight steps;
DeepSeek-V3 2024, arXiv:2412.19437, section 3.2.1). Rank r works on stage r for the micro-batches
that enter at rank 0 (direction 0) and on stage pp - 1 - r for the others.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from simcore.timing.pipeline_order import Cell, Work


class _Rank:
    """Counts what one rank has done in each direction; phases are counted from its nearer end."""

    def __init__(self, pp: int, rank: int, micro_steps: int) -> None:
        self.second_half = rank >= pp // 2
        self.half = micro_steps // 2
        self.forwards, self.backwards = [0, 0], [0, 0]
        self.waiting: deque[Work] = deque()

    def _work(self, counts: list[int], kind: str, phase: int) -> Work:
        direction = phase ^ self.second_half
        micro_batch = counts[direction] + direction * self.half
        counts[direction] += 1
        return Work(kind, micro_batch, direction)  # type: ignore[arg-type]

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


def dualpipe_order(pp: int, rank: int, micro_steps: int) -> list[Cell]:
    """The pieces of work of one rank in order. Raises ValueError below 2 pp micro-batches."""
    if micro_steps < 2 * pp:
        raise ValueError(
            f"schedule dualpipe needs {2 * pp} micro-batches for pp {pp}, twice the stages, "
            f"not {micro_steps}"
        )
    return list(_cells(_Rank(pp, rank, micro_steps), pp, min(rank, pp - 1 - rank)))


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
