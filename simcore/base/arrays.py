"""Array types for signatures, and helpers on arrays.

Only type checkers import numpy.typing: at run time that would take a tenth of a prediction's time.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray
else:
    from numpy import ndarray as NDArray

__all__ = [
    "TINY", "Array", "NDArray", "distinct_columns", "equal_neighbours", "keep_freed_memory",
    "rare_collections",
]  # fmt: skip

#: Floats, of any shape.
Array = NDArray[np.float64]
#: Smallest positive normal float, the lower bound for divisors that may be 0. A constant, since
#: np.finfo is slow.
TINY = float(np.finfo(np.float64).tiny)

#: Largest number of columns that ``distinct_columns`` compares in a Python loop.
_FEW = 100


def distinct_columns(rows: Sequence[NDArray[Any]]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """(index of the first of each distinct column [D], number of each column among these [C]).

    ``rows``: arrays [C]; a column is the tuple of their values at one index. Only the first of
    equal neighbours is sorted, row by row, and only rows that vary. That is many times faster than
    ``np.unique`` over an axis along which little changes, such as a configuration axis.
    """
    n = len(rows[0])
    if n == 1:
        return np.zeros(1, dtype=np.intp), np.zeros(1, dtype=np.intp)
    if n <= _FEW:  # the axis of a prediction: sorting would take ten times as long
        first_index: dict[tuple[float, ...], int] = {}
        columns = zip(*(row.tolist() for row in rows), strict=True)
        equal = [first_index.setdefault(column, i) for i, column in enumerate(columns)]
        number = {i: k for k, i in enumerate(first_index.values())}
        numbers = np.array([number[i] for i in equal], dtype=np.intp)
        return np.array([*number], dtype=np.intp), numbers
    begins = np.ones(n, dtype=bool)
    np.any([row[1:] != row[:-1] for row in rows], axis=0, out=begins[1:])
    starts = np.flatnonzero(begins)
    code = np.zeros(len(starts), dtype=np.intp)
    for row in rows:
        values = row[starts]
        if len(values) and (values != values[0]).any():
            distinct, index = np.unique(values, return_inverse=True)
            code = code * len(distinct) + index
    _, first, number_of_run = np.unique(code, return_index=True, return_inverse=True)
    number_of_column: NDArray[np.intp] = number_of_run[np.cumsum(begins) - 1]
    return starts[first], number_of_column


def equal_neighbours(row: NDArray[Any]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """First index and length of each run of equal neighbours in a row, which must not be empty."""
    starts = np.flatnonzero(np.concatenate([[True], row[1:] != row[:-1]]))
    return starts, np.diff(starts, append=len(row))


def keep_freed_memory() -> None:
    """Make glibc, where it is the C library, keep the memory of freed arrays in this process.

    By default glibc returns the pages of every large array to the system, which maps them in again
    for the next array. That takes up to half of a sweep's time.
    """
    import ctypes
    import sys

    # Option numbers of mallopt (M_TRIM_THRESHOLD, M_MMAP_THRESHOLD), and its largest value.
    trim_threshold, mmap_threshold, most = -1, -3, 2**31 - 1
    if sys.platform == "linux":
        try:
            mallopt = ctypes.CDLL(None).mallopt
        except (AttributeError, OSError):
            return
        mallopt(mmap_threshold, most // 2)
        mallopt(trim_threshold, most)


#: New objects after which Python looks for unreachable cycles (its own default: 700).
_OBJECTS = 100_000


@contextmanager
def rare_collections() -> Iterator[None]:
    """Let Python look for unreachable cycles rarely within a ``with`` block or a function.

    It goes through all objects, of which a sweep keeps many (graphs and kernels of each form) and
    hardly any in cycles. That takes a tenth of a sweep's time. In the end all objects count as old
    ones, which Python would otherwise go through at once.
    """
    before = gc.get_threshold()
    gc.set_threshold(_OBJECTS, *before[1:])
    try:
        yield
    finally:
        if not gc.get_freeze_count():  # else the caller's own objects would no longer be frozen
            gc.freeze()
            gc.unfreeze()
        gc.set_threshold(*before)
