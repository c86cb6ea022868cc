"""The array types that signatures name. numpy.typing itself is left to type checkers: importing
it costs a tenth of what a whole prediction takes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from numpy.typing import NDArray
else:
    from numpy import ndarray as NDArray

__all__ = ["NDArray", "keep_freed_memory"]


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
