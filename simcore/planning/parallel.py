"""A sweep shared out: stretches of pieces dealt in order, answers given out in the same order.

The first pieces are evaluated here: what they cost says how long a stretch must be, and a space
that ends with them starts nobody. A stretch that a lost worker had begun is evaluated again.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from typing import Any

from simcore.base.errors import SimcoreError
from simcore.planning.evaluator import Evaluator
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
    evaluator: Evaluator, workers: Workers, wanted: Wanted, *, first: int = 0
) -> Iterator[Batch | Summary]:
    """The pieces from ``first`` on, as batches where points are wanted, else as summaries.

    Raises SimcoreError where the workers cannot be reached or keep being lost.
    """
    with workers:
        at, stop = first, len(evaluator)
        started = time.perf_counter()
        while at < stop and (at == first or time.perf_counter() - started < HERE_S):
            yield from evaluator.batches(at, at + 1)
            at += 1
        if at == stop:
            return
        cost = Cost((time.perf_counter() - started) / (at - first))
        workers.start(evaluator, wanted)
        waiting: deque[tuple[tuple[int, int], Any]] = deque()
        tries = 0
        while at < stop or waiting:
            n_workers = workers.count()
            while at < stop and len(waiting) < _AHEAD * n_workers:
                last = at + cost.pieces(workers.task_s, stop - at, n_workers)
                waiting.append(((at, last), workers.submit(at, last)))
                at = last
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
