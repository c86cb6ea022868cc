"""Workers of a Dask cluster: an existing one (``tcp://HOST:PORT``), or a local one.

The evaluator is sent to the cluster once, as a task on which the others depend, so that Dask makes
it again where the worker that holds it is lost. The scheduler also gives the ranges of a lost
worker to the others. The number of ranges on the cluster is bounded at any time.
"""

from __future__ import annotations

import logging
import os
import pickle
import re
import signal
import time
import warnings
from collections.abc import Iterator
from concurrent.futures import CancelledError
from contextlib import contextmanager
from functools import lru_cache
from multiprocessing import resource_tracker
from types import TracebackType
from typing import Any

from simcore.base.arrays import keep_freed_memory
from simcore.base.errors import SimcoreError
from simcore.planning.evaluator import Evaluator
from simcore.planning.tally import Wanted
from simcore.planning.workers import Answer, Worker, Workers

#: Seconds after which a cluster that does not answer, or that has lost all workers, is given up.
_CONNECT_S, _NO_WORKERS_S = 10.0, 60.0
_POLL_S = 2.0
_MISSING = re.compile(r"No module named [\\'\"]*([\w.]+)")


def about() -> dict[str, str]:
    """The versions that must be the same on all machines."""
    import distributed

    import simcore

    return {"simcore": simcore.__version__, "distributed": distributed.__version__}


@lru_cache(maxsize=1)
def _opened(blob: bytes) -> Worker:
    """The worker of this process; one for all ranges of a sweep."""
    keep_freed_memory()
    return Worker(*pickle.loads(blob))


def _evaluate(blob: bytes, first: int, last: int) -> Answer:
    return _opened(blob).evaluate(first, last)


def _n_cores() -> int:
    """Number of processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """Block Ctrl-C within a ``with`` block, and for good in threads and processes started there, so
    that only this process handles it.

    Multiprocessing's resource tracker unblocks interrupts when it starts, so it is started first.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


#: Settings of a local cluster: no sampling of stacks and rare ticks, which would cost an eighth of
#: its time, and one memory arena for all threads.
_LOCAL = {
    "distributed.worker.profile.enabled": False,
    "distributed.admin.tick.interval": "1s",
    "distributed.admin.tick.cycle": "10s",
    "distributed.nanny.pre-spawn-environ.MALLOC_ARENA_MAX": 1,
}


def local_cluster(n: int) -> Any:
    """A ``LocalCluster`` of ``n`` processes with one thread each, which ignore Ctrl-C."""
    import dask
    from distributed import LocalCluster

    with dask.config.set(_LOCAL), _interrupts_held():
        return LocalCluster(
            n_workers=n, threads_per_worker=1, memory_limit=None, silence_logs=logging.CRITICAL,
            dashboard_address="127.0.0.1:0",
        )  # fmt: skip


class DaskWorkers(Workers):
    """A Dask cluster, given as its address, ``local``, ``local:N`` (N processes) or a client.

    A given client is left open, one that is made here is closed.
    """

    task_s = 0.5

    def __init__(self, cluster: Any) -> None:
        self._where = cluster if isinstance(cluster, str) else "the cluster"
        self._given = None if isinstance(cluster, str) else cluster
        self._client: Any = self._given
        self._local: Any = None

    def __enter__(self) -> DaskWorkers:
        """Connect, start a local cluster if asked to, and compare versions. Raises SimcoreError."""
        if self._client is None:
            try:
                self._connect()
            except BaseException:
                self._close()
                raise
        try:
            self._wait_for_one()
            self._same_versions()
        except BaseException:
            self._close()
            raise
        return self

    def _connect(self) -> None:
        from distributed import Client

        address: Any = self._where
        if "://" not in self._where:
            n = int(self._where.partition(":")[2] or _n_cores())
            logging.getLogger("distributed").setLevel(logging.CRITICAL)
            address = self._local = local_cluster(n)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # versions are compared below
            try:
                self._client = Client(address, timeout=_CONNECT_S, set_as_default=False)
            except (OSError, ValueError, TypeError) as err:
                reason = str(err).splitlines()[0] if str(err) else type(err).__name__
                raise SimcoreError(f"--cluster {self._where} cannot be reached: {reason}") from None

    def _wait_for_one(self) -> None:
        try:
            self._client.wait_for_workers(1, timeout=_CONNECT_S)
        except TimeoutError:
            raise SimcoreError(f"--cluster {self._where} has no workers: start some") from None

    def _same_versions(self) -> None:
        own = about()
        try:
            found = list(self._client.run(about).values())
            found.append(self._client.run_on_scheduler(about))
        except Exception as err:  # errors of workers that lack a module differ by version of Dask
            missing = _MISSING.search(str(err))
            if missing is None:
                raise
            raise SimcoreError(
                f"--cluster {self._where} has no {missing[1]!r}: install simcore "
                f"{own['simcore']} with its dask extra on the scheduler and every worker"
            ) from None
        for there in found:
            for name, version in own.items():
                if there[name] != version:
                    raise SimcoreError(
                        f"--cluster {self._where} runs {name} {there[name]}, this machine "
                        f"{version}: install the same version on both"
                    )

    def start(self, evaluator: Evaluator, wanted: Wanted) -> None:
        """Send the evaluator to the cluster."""
        blob = pickle.dumps((evaluator, wanted))
        self._name = f"simcore-{os.getpid()}-{time.monotonic_ns()}"
        self._held = self._client.submit(bytes, blob, key=f"{self._name}-evaluator", pure=False)

    def count(self) -> int:
        """Number of threads of all workers that are connected now, at least 1."""
        return max(1, sum(int(n) for n in self._client.nthreads().values()))

    def submit(self, first: int, last: int) -> Any:
        """Submit a range to the cluster, where earlier ranges have priority; returns its future.

        Keys of one group let the scheduler hold ranges back until a worker has a thread for them
        (``worker-saturation``). Others go to the worker that has the evaluator, at once.
        """
        key = (f"{self._name}-range", first, last)
        return self._client.submit(_evaluate, self._held, first, last, key=key, priority=-first)

    def answer(self, ticket: Any) -> Answer:
        """Wait for the result of a range. Raises SimcoreError."""
        from distributed import KilledWorker

        alone_s = 0.0
        while True:
            try:
                return ticket.result(timeout=_POLL_S)
            except KilledWorker:
                raise SimcoreError(
                    f"--cluster {self._where}: workers keep ending at the same points of the "
                    "sweep: they may lack memory"
                ) from None
            except TimeoutError:
                alone_s = 0.0 if self._workers_left() else alone_s + _POLL_S
                if alone_s >= _NO_WORKERS_S:
                    raise SimcoreError(f"--cluster {self._where} has no workers left") from None
            except (CancelledError, OSError) as err:
                raise self._gone(err) from None

    def _workers_left(self) -> bool:
        try:
            return bool(self._client.nthreads())
        except OSError as err:
            raise self._gone(err) from None

    def _gone(self, err: BaseException) -> SimcoreError:
        return SimcoreError(f"--cluster {self._where} ended the connection ({type(err).__name__})")

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Drop the futures, which cancels unfinished ranges, and close what was opened here."""
        self._close()

    def _close(self) -> None:
        self._held = None
        if self._given is None:
            for one in (self._client, self._local):
                if one is not None:
                    one.close(timeout=_CONNECT_S)
            self._client = self._local = None
