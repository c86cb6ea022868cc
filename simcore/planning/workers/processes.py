"""Workers that are processes of this machine (``concurrent.futures``)."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from types import TracebackType

from simcore.base.arrays import keep_freed_memory
from simcore.planning.evaluator import Evaluator
from simcore.planning.tally import Wanted
from simcore.planning.workers import Answer, Worker, Workers, WorkersLost

_worker: Worker | None = None


def _begin(evaluator: Evaluator, wanted: Wanted) -> None:
    global _worker
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    keep_freed_memory()
    _worker = Worker(evaluator, wanted)


def _end_with_parent() -> None:
    """End this process when its parent is killed; otherwise it would wait for work forever."""
    if (parent := multiprocessing.parent_process()) is not None:
        parent.join()
        os._exit(1)


def _evaluate(first: int, last: int) -> Answer:
    assert _worker is not None
    return _worker.evaluate(first, last)


class Processes(Workers):
    """``n`` processes. Where one is killed, the whole pool ends, and a new pool continues."""

    task_s = 0.5

    def __init__(self, n: int) -> None:
        self._n = n
        self._pool: ProcessPoolExecutor | None = None

    def start(self, evaluator: Evaluator, wanted: Wanted) -> None:
        """Start the processes."""
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
        self._work = evaluator, wanted
        self._pool = ProcessPoolExecutor(self._n, initializer=_begin, initargs=self._work)

    def count(self) -> int:
        """The number of processes."""
        return self._n

    def submit(self, first: int, last: int) -> Future[Answer]:
        """Submit a range to the pool; returns its future."""
        assert self._pool is not None
        try:
            return self._pool.submit(_evaluate, first, last)
        except BrokenProcessPool as err:  # raised when the result is requested
            lost: Future[Answer] = Future()
            lost.set_exception(err)
            return lost

    def answer(self, ticket: Future[Answer]) -> Answer:
        """Wait for the result of a range. Raises WorkersLost."""
        try:
            return ticket.result()
        except BrokenProcessPool:
            raise WorkersLost("processes of the sweep ended: try fewer --jobs") from None

    def holds(self, ticket: Future[Answer]) -> bool:
        """Whether the range was finished before the pool broke."""
        return ticket.done() and ticket.exception() is None

    def renew(self) -> None:
        """Start a new pool."""
        self._shut()
        self.start(*self._work)

    def _shut(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Shut the pool down; ranges that have begun still run to their end in its processes."""
        self._shut()
