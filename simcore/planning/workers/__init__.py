"""Who evaluates the stretches of a sweep: one file a kind, one interface.

Processes of this machine (``concurrent.futures``) by default, a Dask cluster where one is named.
"""

from __future__ import annotations

import re
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass
from math import inf
from types import TracebackType
from typing import TYPE_CHECKING, Any

from simcore.base.errors import InvalidConfig, SimcoreError
from simcore.base.numbers import number_problems
from simcore.planning.points import Batch
from simcore.planning.tally import Summary, Tally, Wanted

if TYPE_CHECKING:
    from simcore.planning.evaluator import Evaluator


_LOCAL = re.compile(r"local(?::(\d{1,4}))?")
_ADDRESS = re.compile(r"(?:tcp|tls|ucx|wss?)://\S+:\d+|inproc://\S+")


class WorkersLost(SimcoreError):
    """Workers ended before they answered; what they had begun can be asked again."""


@dataclass(frozen=True)
class Answer:
    """What a stretch gave, and the seconds of work it took."""

    parts: tuple[Batch | Summary, ...]
    seconds: float


class Workers(ABC):
    """Processes that evaluate stretches of a space. A context: what was started ends with it.

    ``task_s``: work that a stretch should be.
    """

    task_s: float

    def __enter__(self) -> Workers:
        """Reach those that are named. Raises SimcoreError where that fails."""
        return self

    @abstractmethod
    def start(self, evaluator: Evaluator, wanted: Wanted) -> None:
        """Hand out what every stretch asks."""

    @abstractmethod
    def count(self) -> int:
        """Stretches that are evaluated at the same time, at least 1."""

    @abstractmethod
    def submit(self, first: int, last: int) -> Any:
        """Ask for the pieces ``first`` up to, not including, ``last``."""

    @abstractmethod
    def answer(self, asked: Any) -> Answer:
        """Wait for what ``submit`` asked. Raises WorkersLost, SimcoreError."""

    def holds(self, asked: Any) -> bool:
        """After WorkersLost: whether this answer is there all the same."""
        raise NotImplementedError(f"{type(self).__name__} sees to lost workers itself: {asked}")

    def renew(self) -> None:
        """Begin anew after WorkersLost."""
        raise NotImplementedError(f"{type(self).__name__} sees to lost workers itself")

    @abstractmethod
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End what was started; what is under way is given up."""


def evaluate_stretch(evaluator: Evaluator, wanted: Wanted, first: int, last: int) -> Answer:
    """A stretch, in whichever process this is: its points, or what they come to."""
    started = time.perf_counter()
    parts: tuple[Batch | Summary, ...]
    if wanted.points:
        parts = tuple(evaluator.batches(first, last))
    else:
        tally = Tally(evaluator.space.clusters, wanted)
        for batch in evaluator.batches(first, last):
            tally.add(batch)
        parts = (tally.summary(),)
    return Answer(parts, time.perf_counter() - started)


def workers_of(jobs: int, cluster: Any = None) -> Workers | None:
    """Who shares a sweep: None where this process does it alone. Raises InvalidConfig.

    ``cluster``: the text of ``--cluster``, or a ``distributed.Client``.
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
    """What is wrong with the workers asked for, before any is started."""
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
        problems.append("--cluster needs dask: pip install 'simcore[dask]', or use --jobs N")
    return problems
