"""A sweep over several processes: units dealt out in order, answers taken in the same order.

Each process holds the space and evaluates stretches of units; batches come back as arrays. What
a process that ends early had begun is evaluated again by the others, once.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool

from simcore.base.arrays import keep_freed_memory
from simcore.base.errors import InvalidConfig, SimcoreError
from simcore.planning.points import Batch, batches
from simcore.planning.space import Space

#: Stretches that a process should get at least: the last ones end together.
_STRETCHES = 16
#: Times that a stretch is begun before the sweep gives up.
_TRIES = 3
_space: Space | None = None


def _start(space: Space) -> None:
    global _space
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    keep_freed_memory()
    _space = space


def _stretch(first: int, last: int) -> list[Batch]:
    assert _space is not None
    return list(batches(_space, first=(first, 0), last=last))


def job_problems(jobs: int) -> list[str]:
    """What is wrong with a number of processes."""
    return [] if 1 <= jobs <= 1000 else [f"--jobs must be 1 to 1,000, not {jobs}"]


def parallel_batches(
    space: Space, jobs: int, *, first: tuple[int, int] = (0, 0)
) -> Iterator[Batch]:
    """The batches of ``batches``, in its order, from ``jobs`` processes.

    Raises InvalidConfig for a wrong number of them, SimcoreError where processes keep dying.
    """
    if problems := job_problems(jobs):
        raise InvalidConfig(problems)
    n_units = space.n_forms * len(space.kinds())
    begin = first[0]
    if first[1]:  # a unit that was begun is finished here
        yield from batches(space, first=first, last=begin + 1)
        begin += 1
    size = max(1, min(64, (n_units - begin) // (_STRETCHES * jobs)))
    todo = deque((a, min(a + size, n_units)) for a in range(begin, n_units, size))
    for _ in range(_TRIES):
        try:
            yield from _run(space, jobs, todo)
        except BrokenProcessPool:
            continue
        return
    raise SimcoreError("processes of the sweep keep ending: try fewer --jobs")


def _run(space: Space, jobs: int, todo: deque[tuple[int, int]]) -> Iterator[Batch]:
    """Evaluate stretches; one is taken from ``todo`` once its batches have been given out."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    with ProcessPoolExecutor(jobs, initializer=_start, initargs=(space,)) as pool:
        waiting: deque[Future[list[Batch]]] = deque()
        ahead = 0
        try:
            while todo:
                while ahead < len(todo) and len(waiting) < 3 * jobs:
                    waiting.append(pool.submit(_stretch, *todo[ahead]))
                    ahead += 1
                found = waiting.popleft().result()
                todo.popleft()
                ahead -= 1
                yield from found
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
