"""Batch norms of a block a channel: how often blocks fill a device, what each takes."""

from __future__ import annotations

import numpy as np

from simcore.physics.channels import clocks_per_element, waves


def test_the_last_wave_counts_whole() -> None:
    """108 SMs with three blocks each."""
    assert waves(np.array([1.0, 64.0, 324.0, 325.0, 648.0, 2048.0]), 324.0).tolist() == [
        1, 1, 1, 2, 2, 7,
    ]  # fmt: skip


def test_a_narrow_element_takes_a_block_longer() -> None:
    """It has as many loads in flight, each of half the bytes."""
    assert 1.5 < clocks_per_element(2.0) / clocks_per_element(4.0) < 2.5
    assert clocks_per_element(8.0) == clocks_per_element(4.0)
