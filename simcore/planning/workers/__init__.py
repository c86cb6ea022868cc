"""Workers that evaluate ranges of pieces of a sweep: one interface, one module for each kind.

The kinds are processes of this machine (``concurrent.futures``) and a Dask cluster.
"""

from __future__ import annotations

import re
import time
from abc import ABC, abstractmethod
from math import inf
from types import TracebackType
from typing import TYPE_CHECKING, Any

from simcore.base.arrays import rare_collections
from simcore.base.errors import InvalidConfig, SimcoreError
from simcore.base.lookup import one_question
from simcore.base.record import dataclass
from simcore.base.units import number_problems
from simcore.planning.points import Batch
from simcore.planning.tally import Summary, Tally, Wanted

if TYPE_CHECKING:
    from simcore.planning.evaluator import Evaluator


_LOCAL = re.compile(r"local(?::(\d{1,4}))?")
_ADDRESS = re.compile(r"(?:tcp|tls|ucx|wss?)://\S+:\d+|inproc://\S+")


class WorkersLost(SimcoreError):
    """Workers ended before they returned their results; the work can be submitted again."""


@dataclass(frozen=True)
class Answer:
    """The results of a range of pieces, and the seconds of work that it took."""

    parts: tuple[Batch | Summary, ...]
    seconds: float


class Workers(ABC):
    """Processes that evaluate ranges of pieces of a space; a context manager that ends them.

    ``task_s``: seconds of work that a range should take.
    """

    task_s: float

    def __enter__(self) -> Workers:
        """Connect to the workers, if they exist already. Raises SimcoreError where that fails."""
        return self

    @abstractmethod
    def start(self, evaluator: Evaluator, wanted: Wanted) -> None:
        """Start the workers and send them what every range needs."""

    @abstractmethod
    def count(self) -> int:
        """Number of ranges that are evaluated at the same time, at least 1."""

    @abstractmethod
    def submit(self, first: int, last: int) -> Any:
        """Submit the pieces ``first`` up to, not including, ``last``; returns a ticket."""

    @abstractmethod
    def answer(self, ticket: Any) -> Answer:
        """Wait for the result of a ticket of ``submit``. Raises WorkersLost, SimcoreError."""

    def holds(self, ticket: Any) -> bool:
        """Whether the result of a ticket is available in spite of WorkersLost."""
        raise NotImplementedError(f"{type(self).__name__} replaces lost workers itself: {ticket}")

    def renew(self) -> None:
        """Start new workers after WorkersLost."""
        raise NotImplementedError(f"{type(self).__name__} replaces lost workers itself")

    @abstractmethod
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End the workers that were started here; unfinished ranges are abandoned."""


class Worker:
    """Evaluates ranges of pieces in one process.

    Of a range's best points it returns only those that no point of the ranges before exceeds: what
    hundreds of ranges have in common is made, sent and merged once.
    """

    def __init__(self, evaluator: Evaluator, wanted: Wanted) -> None:
        self._evaluator, self._wanted = evaluator, wanted
        self._before: tuple[int, Tally | None] = (0, None)  # where the last range ended

    @rare_collections()
    @one_question()
    def evaluate(self, first: int, last: int) -> Answer:
        """The result of a range of pieces: its points or their summary."""
        started = time.perf_counter()
        batches, wanted = self._evaluator.batches(first, last), self._wanted
        if wanted.points:
            return Answer(tuple(batches), time.perf_counter() - started)
        end, before = self._before
        in_order = end <= first  # not where another process was lost with an earlier range
        tally = Tally(self._evaluator.space.clusters, wanted, before if in_order else None)
        for batch in batches:
            tally.add(batch)
        self._before = last, tally
        return Answer((tally.summary(),), time.perf_counter() - started)


def workers_of(jobs: int, cluster: Any = None) -> Workers | None:
    """The workers for a sweep; None where this process evaluates it alone. Raises InvalidConfig.

    ``jobs``: number of processes; ``cluster``: text of ``--cluster``, or a ``distributed.Client``.
    """
    if problems := worker_problems(jobs, cluster):
        raise InvalidConfig(problems)
    if cluster is not None:
        from simcore.planning.workers.dask_cluster import DaskWorkers

        return DaskWorkers(cluster)
    if jobs > 1:
        from simcore.planning.workers.processes import Processes

        return Processes(jobs)
    return None


def worker_problems(jobs: int, cluster: Any = None) -> list[str]:
    """Error messages about the requested workers, to check before any is started."""
    problems = number_problems("--jobs", jobs, least=-inf, whole=True)
    if not problems and not 1 <= jobs <= 1000:
        problems = [f"--jobs must be 1 to 1,000, not {jobs}"]
    if cluster is None:
        return problems
    if not problems and jobs > 1:
        problems.append("give --jobs or --cluster, not both: they share the same work")
    if isinstance(cluster, str):
        local, address = _LOCAL.fullmatch(cluster), _ADDRESS.fullmatch(cluster)
        if not address and not (local and 1 <= int(local[1] or 1) <= 1000):
            problems.append(
                f"--cluster {cluster!r} is not tcp://HOST:PORT, local, or local:N (N processes)"
            )
    try:
        import distributed  # noqa: F401
    except ImportError:
        problems.append("--cluster needs dask: pip install '.[dask]', or use --jobs N")
    return problems
