"""The array types that signatures name. numpy.typing itself is left to type checkers: importing
it costs a tenth of what a whole prediction takes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from numpy.typing import NDArray
else:
    from numpy import ndarray as NDArray

__all__ = ["NDArray"]
