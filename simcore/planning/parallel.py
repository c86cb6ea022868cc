"""A sweep shared out: stretches of pieces dealt in order, answers given out in the same order.

The first pieces are evaluated here: what they cost says how long a stretch must be, and a space
that ends with them starts nobody. A stretch that a lost worker had begun is evaluated again.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

from simcore.base.errors import SimcoreError
from simcore.planning.evaluator import Evaluator
from simcore.planning.parts import Span
from simcore.planning.points import Batch
from simcore.planning.tally import Summary, Wanted
from simcore.planning.workers import Workers, WorkersLost

#: Work done here before others are asked.
HERE_S = 0.1
#: Stretches that lie ready for each worker, so that none waits for this process.
_AHEAD = 3
#: Stretches that each worker should get at least of what is left: the last ones end together.
_SHARES = 8
#: Losses without one answer in between until the sweep gives up.
_TRIES = 3
#: What the newest stretch counts for in the cost of a piece.
_NEWEST = 0.3


def shared_parts(
    evaluator: Evaluator, workers: Workers, wanted: Wanted, spans: Sequence[Span]
) -> Iterator[Batch | Summary]:
    """The pieces of the spans in order, as batches where points are wanted, else as summaries.

    Raises SimcoreError where the workers cannot be reached or keep being lost.
    """
    left = Unasked(spans)
    if not left.pieces:
        return
    with workers:
        started, here = time.perf_counter(), 0
        while left.pieces and (not here or time.perf_counter() - started < HERE_S):
            yield from evaluator.batches(*left.take(1))
            here += 1
        if not left.pieces:
            return
        cost = Cost((time.perf_counter() - started) / here)
        workers.start(evaluator, wanted)
        waiting: deque[tuple[Span, Any]] = deque()
        tries = 0
        while left.pieces or waiting:
            n_workers = workers.count()
            while left.pieces and len(waiting) < _AHEAD * n_workers:
                span = left.take(cost.pieces(workers.task_s, left.pieces, n_workers))
                waiting.append((span, workers.submit(*span)))
            (begin, end), asked = waiting[0]
            try:
                answer = workers.answer(asked)
            except WorkersLost as err:
                tries += 1
                if tries == _TRIES:
                    raise SimcoreError(f"{err}, {_TRIES} times without an answer") from None
                workers.renew()
                waiting = deque(
                    (span, held if workers.holds(held) else workers.submit(*span))
                    for span, held in waiting
                )
                continue
            waiting.popleft()
            tries = 0
            cost.learn(answer.seconds / (end - begin))
            yield from answer.parts


class Unasked:
    """The pieces of spans that nobody has been asked for yet; ``pieces`` is their number."""

    def __init__(self, spans: Sequence[Span]) -> None:
        self._spans = deque(span for span in spans if span[0] < span[1])
        self.pieces = sum(last - first for first, last in self._spans)

    def take(self, most: int) -> Span:
        """The next ``most`` pieces, fewer at the end of a span."""
        first, last = self._spans.popleft()
        end = min(last, first + most)
        if end < last:
            self._spans.appendleft((end, last))
        self.pieces -= end - first
        return first, end


class Cost:
    """Seconds a piece takes, from the stretches seen.

    The first pieces of a space may be none that can be, and cost next to nothing: until a stretch
    has been answered, no more than a share of what is left goes out.
    """

    def __init__(self, piece_s: float) -> None:
        self._piece_s = piece_s
        self._answered = False

    def learn(self, piece_s: float) -> None:
        """Take in what a piece of the newest stretch took."""
        self._answered = True
        self._piece_s += _NEWEST * (piece_s - self._piece_s)

    def pieces(self, task_s: float, left: int, n_workers: int) -> int:
        """Pieces of the next stretch: ``task_s`` of work, less near the end, never half of it."""
        whole = task_s / max(self._piece_s, 1e-9)
        share = left / (_SHARES * n_workers)
        if not self._answered:
            return max(1, min(round(whole), int(share / _AHEAD)))
        return max(1, min(left, round(max(whole / 2, min(whole, share)))))
