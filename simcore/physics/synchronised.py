"""A loop over tensors that waits for an answer of the device at each of them."""

from __future__ import annotations

import numpy as np

from simcore.base.arrays import NDArray

Array = NDArray[np.float64]


def synchronised_s(device_s: Array, issued_s: Array | float, answer_s: Array | float) -> Array:
    """Seconds [n, C] of each tensor's turn, of what its kernels take on the device and to issue.

    What the host was ahead by is lost at the first answer: each turn takes as long as the slower of
    both. ``answer_s``: the device has nothing to do from the answer to the next kernel.
    """
    slower: Array = np.maximum(device_s, issued_s)
    return slower + answer_s
