"""Work on the rows of tables, shared out over processes; what comes back is in the rows' order.

Neighbours in a table are of one source and often of one model: a process gets stretches of them,
so that what it keeps of one serves the next.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence
from typing import TypeVar

from simcore.base.errors import SimcoreError

T = TypeVar("T")
R = TypeVar("R")

#: Rows that a process does at a time.
STRETCH = 24
#: Rows below which another process costs more than it saves: its start, and what it keeps anew.
LEAST_ROWS = 100
#: More processes gain nothing: reading the tables and the last stretches are not shared.
MOST = 8


def default_jobs() -> int:
    """Processes that this machine has processors for."""
    usable = getattr(os, "sched_getaffinity", None)  # Linux: those this process may run on
    return min(MOST, len(usable(0)) if usable else os.cpu_count() or 1)


def in_order(function: Callable[[T], R], rows: Sequence[T], jobs: int) -> list[R]:
    """``function`` of each row, in their order, by up to ``jobs`` processes.

    The function is one of a module, and what it takes and gives can be pickled. Few rows are done
    here. Raises SimcoreError where processes are killed.
    """
    jobs = min(jobs, len(rows) // LEAST_ROWS)
    if jobs < 2:
        return [function(row) for row in rows]
    # Few tables are large: the others are spared what these import.
    from concurrent.futures import ProcessPoolExecutor
    from concurrent.futures.process import BrokenProcessPool

    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    pool = ProcessPoolExecutor(jobs, initializer=_begin)
    try:
        return list(pool.map(function, rows, chunksize=STRETCH))
    except BrokenProcessPool:
        raise SimcoreError("processes that predicted rows ended: try fewer --jobs") from None
    finally:  # after Ctrl-C what has begun ends by itself
        pool.shutdown(wait=False, cancel_futures=True)


def _begin() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
