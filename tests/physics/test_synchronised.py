"""A loop that asks the device at each tensor, played event by event."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simcore.physics.synchronised import synchronised_s

ISSUE_S = 10e-6


def played(kernels_s: list[float], per_tensor: int) -> float:
    """Host and device: each tensor's kernels are issued in turn; behind the first of them the host
    waits until the device has run it, as a norm that a branch reads."""
    host = device = 0.0
    for kernel_s in kernels_s:
        for i in range(per_tensor):
            host += ISSUE_S
            device = max(device, host) + kernel_s
            if i == 0:
                host = max(host, device)
    return max(host, device)


@given(st.lists(st.floats(1e-7, 1e-3), min_size=1, max_size=40), st.integers(2, 24))
def test_never_less_than_the_slower_and_near_the_events(
    kernels_s: list[float], per_tensor: int
) -> None:
    device = np.array(kernels_s)[:, None] * per_tensor
    issued = per_tensor * ISSUE_S
    total = float(synchronised_s(device, issued, ISSUE_S).sum())
    assert total >= max(float(device.sum()), issued * len(kernels_s))
    assert total == pytest.approx(
        played(kernels_s, per_tensor), abs=len(kernels_s) * (ISSUE_S + max(kernels_s))
    )


def test_small_tensors_take_what_the_host_does_and_large_ones_what_the_device_does() -> None:
    device = np.array([[1e-6], [5e-3]])
    assert synchronised_s(device, 2e-4, 1e-5).ravel() == pytest.approx([2.1e-4, 5.01e-3])
