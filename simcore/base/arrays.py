"""The array types that signatures name. numpy.typing itself is left to type checkers: importing
it costs a tenth of what a whole prediction takes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray
else:
    from numpy import ndarray as NDArray

__all__ = ["TINY", "NDArray", "distinct_columns", "equal_neighbours", "keep_freed_memory"]

#: The least positive number: what a divisor that may be 0 is raised to. np.finfo is slow to ask.
TINY = float(np.finfo(np.float64).tiny)

#: Up to so many columns are told apart one by one.
_FEW = 100


def distinct_columns(rows: Sequence[NDArray[Any]]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Distinct columns of ``rows``, each [C]: where the first of each is, and which each is [C].

    Only runs of equal neighbours are sorted, row by row, and only rows that vary: many times
    faster than ``np.unique`` over an axis where, as along an axis of points, little changes.
    """
    n = len(rows[0])
    if n == 1:
        return np.zeros(1, dtype=np.intp), np.zeros(1, dtype=np.intp)
    if n <= _FEW:  # a prediction's axis: sorting takes ten times as long
        where: dict[tuple[float, ...], int] = {}
        columns = zip(*(row.tolist() for row in rows), strict=True)
        at = [where.setdefault(column, i) for i, column in enumerate(columns)]
        number = {i: k for k, i in enumerate(where.values())}
        return np.array([*number], dtype=np.intp), np.array([number[i] for i in at], dtype=np.intp)
    begins = np.ones(n, dtype=bool)
    np.any([row[1:] != row[:-1] for row in rows], axis=0, out=begins[1:])
    starts = np.flatnonzero(begins)
    code = np.zeros(len(starts), dtype=np.intp)
    for row in rows:
        values = row[starts]
        if len(values) and (values != values[0]).any():
            found, place = np.unique(values, return_inverse=True)
            code = code * len(found) + place
    _, first, which = np.unique(code, return_index=True, return_inverse=True)
    of: NDArray[np.intp] = which[np.cumsum(begins) - 1]
    return starts[first], of


def equal_neighbours(row: NDArray[Any]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Where each stretch of equal values begins in a row that is not empty, and its length."""
    starts = np.flatnonzero(np.concatenate([[True], row[1:] != row[:-1]]))
    return starts, np.diff(starts, append=len(row))


def keep_freed_memory() -> None:
    """Let this process keep the memory of freed arrays, where the C library is glibc.

    By default it returns every large array's pages to the system and faults them in again for
    the next one, which costs a sweep up to half of its time.
    """
    import ctypes
    import sys

    trim_threshold, mmap_threshold, most = -1, -3, 2**31 - 1
    if sys.platform == "linux":
        try:
            mallopt = ctypes.CDLL(None).mallopt
        except (AttributeError, OSError):
            return
        mallopt(mmap_threshold, most // 2)
        mallopt(trim_threshold, most)
