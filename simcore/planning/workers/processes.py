"""Processes of this machine, by ``concurrent.futures``."""

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
from simcore.planning.workers import Answer, Workers, WorkersLost, evaluate_stretch

_held: tuple[Evaluator, Wanted] | None = None


def _begin(evaluator: Evaluator, wanted: Wanted) -> None:
    global _held
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    keep_freed_memory()
    _held = evaluator, wanted


def _end_with_parent() -> None:
    """End this process when its parent is killed: it would wait for work for ever."""
    if (parent := multiprocessing.parent_process()) is not None:
        parent.join()
        os._exit(1)


def _stretch(first: int, last: int) -> Answer:
    assert _held is not None
    return evaluate_stretch(*_held, first, last)


class Processes(Workers):
    """``n`` processes; one that is killed takes the pool with it, and a new pool goes on."""

    task_s = 0.5

    def __init__(self, n: int) -> None:
        self._n = n
        self._pool: ProcessPoolExecutor | None = None

    def start(self, evaluator: Evaluator, wanted: Wanted) -> None:
        """Start the processes."""
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
        self._asked = evaluator, wanted
        self._pool = ProcessPoolExecutor(self._n, initializer=_begin, initargs=self._asked)

    def count(self) -> int:
        """The number of processes."""
        return self._n

    def submit(self, first: int, last: int) -> Future[Answer]:
        """Ask the pool."""
        assert self._pool is not None
        try:
            return self._pool.submit(_stretch, first, last)
        except BrokenProcessPool as err:  # said where the answer is asked for
            lost: Future[Answer] = Future()
            lost.set_exception(err)
            return lost

    def answer(self, asked: Future[Answer]) -> Answer:
        """Wait for a stretch."""
        try:
            return asked.result()
        except BrokenProcessPool:
            raise WorkersLost("processes of the sweep ended: try fewer --jobs") from None

    def holds(self, asked: Future[Answer]) -> bool:
        """Answers that came before the pool broke are kept."""
        return asked.done() and asked.exception() is None

    def renew(self) -> None:
        """A new pool."""
        self._shut()
        self.start(*self._asked)

    def _shut(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Begun stretches end by themselves, and their processes with them."""
        self._shut()
