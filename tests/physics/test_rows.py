"""Kernels of a block a row: what L2 holds of a row."""

from __future__ import annotations

import numpy as np
import pytest

from simcore.physics.rows import LEAVES, STAYS, missed_frac


def test_l2_holds_rows_until_those_in_flight_are_more() -> None:
    """16 rows on each of 108 SMs, 40 MiB: rows of 8 KiB are 0.34 of it, of 32 KiB 1.35."""
    per_byte = 16 * 108 / (40 * 2**20)
    assert missed_frac(8192.0, per_byte) == 0.0
    share = (32768 * per_byte - STAYS) / (LEAVES - STAYS)
    assert missed_frac(32768.0, per_byte) == pytest.approx(share) == pytest.approx(0.75)
    assert missed_frac(65536.0, per_byte) == 1.0
    assert missed_frac(65536.0, 0.0) == 0.0  # not known
    lengths = missed_frac(np.geomspace(1e3, 1e6, 50), per_byte)
    assert (np.diff(lengths) >= 0.0).all()
