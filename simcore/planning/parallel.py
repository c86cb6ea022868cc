"""Distributes a sweep over workers: ranges of pieces go out in order, results come in that order.

This process evaluates the first pieces itself. Their time determines the length of the ranges, and
for a small space no worker is started. The range of a worker that was lost is evaluated again.
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

#: Seconds of work that this process does before it starts workers.
HERE_S = 0.1
#: Ranges that are submitted in advance per worker, so that no worker waits for this process.
_AHEAD = 3
#: Least number of ranges per worker into which the remaining pieces are divided, so that the
#: workers end at about the same time: while the time of a piece is not known, and from then on.
_SHARES_UNKNOWN, _SHARES = 24, 2
#: Number of losses of workers without a result in between after which the sweep gives up.
_TRIES = 3
#: Weight of the newest range in the moving average of the time per piece.
_NEWEST = 0.3


def shared_parts(
    evaluator: Evaluator, workers: Workers, wanted: Wanted, spans: Sequence[Span]
) -> Iterator[Batch | Summary]:
    """The results of the ranges in order, as batches where points are wanted, else as summaries.

    Raises SimcoreError where the workers cannot be reached or keep being lost.
    """
    left = Unsubmitted(spans, evaluator.pieces_alike)
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
            (begin, end), ticket = waiting[0]
            try:
                answer = workers.answer(ticket)
            except WorkersLost as err:
                tries += 1
                if tries == _TRIES:
                    raise SimcoreError(f"{err}, {_TRIES} times without a result") from None
                workers.renew()
                waiting = deque(
                    (span, ticket if workers.holds(ticket) else workers.submit(*span))
                    for span, ticket in waiting
                )
                continue
            waiting.popleft()
            tries = 0
            cost.learn(answer.seconds / (end - begin))
            yield from answer.parts


class Unsubmitted:
    """The pieces that no worker has been given yet; ``pieces`` is their number.

    ``alike``: number of pieces, one after another, of which each is cheaper in a process that has
    evaluated another of them.
    """

    def __init__(self, spans: Sequence[Span], alike: int) -> None:
        self._spans = deque(span for span in spans if span[0] < span[1])
        self._alike = alike
        self.pieces = sum(last - first for first, last in self._spans)

    def take(self, most: int) -> Span:
        """The next range, of ``most`` pieces or as many as end with the last of pieces alike, if
        these are at most twice as many; fewer at the end of a given range.
        """
        first, last = self._spans.popleft()
        end, whole = first + most, round((first + most) / self._alike) * self._alike
        if first < whole <= end + most:
            end = whole
        end = min(last, end)
        if end < last:
            self._spans.appendleft((end, last))
        self.pieces -= end - first
        return first, end


class Cost:
    """Estimates the time of a piece [s] from finished ranges, and the length of the next range.

    The first pieces of a space may all be invalid and take almost no time. So until a first range
    is finished, only a share of the remaining pieces is submitted.
    """

    def __init__(self, piece_s: float) -> None:
        self._piece_s = piece_s
        self._answered = False

    def learn(self, piece_s: float) -> None:
        """Update the estimate with the time per piece of the newest range."""
        self._answered = True
        self._piece_s += _NEWEST * (piece_s - self._piece_s)

    def pieces(self, task_s: float, left: int, n_workers: int) -> int:
        """Pieces of the next range: ``task_s`` seconds of work; near the end less, but at least a
        quarter of that.
        """
        whole = task_s / max(self._piece_s, 1e-9)
        if not self._answered:
            return max(1, min(round(whole), int(left / (_SHARES_UNKNOWN * n_workers))))
        share = left / (_SHARES * n_workers)
        return max(1, min(left, round(max(whole / 4, min(whole, share)))))
