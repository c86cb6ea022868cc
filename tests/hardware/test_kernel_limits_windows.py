"""Keys that attention computes beyond a window, against a count of all tiles."""

from __future__ import annotations

import numpy as np
import pytest

from simcore.hardware.kernel_limits import edge_keys
from simcore.hardware.spec import GPUS


@pytest.mark.parametrize(
    ("gpu", "backward", "rows"),
    [("H100-SXM-80GB", False, 128), ("GB200", False, 256), ("GB200", True, 128)],
)
def test_tiles_at_an_edge_of_a_window_are_computed_whole(
    gpu: str, backward: bool, rows: int
) -> None:
    """Every tile of 128 keys that holds a key of a window of 384 or of the causal triangle: beyond
    the keys attended to a window has half a tile of queries more than the triangle has."""
    queries, window = 8192, 384

    def beyond(reach: int) -> float:
        attended = sum(min(q + 1, reach) for q in range(queries))
        computed = 0
        for first in range(0, queries, rows):
            begin, end = max(0, first - reach + 1), first + rows
            computed += rows * 128 * (-(-end // 128) - begin // 128)
        return (computed - attended) / queries

    more = beyond(window) - beyond(queries)
    # the first queries have no keys before them: fewer tiles than the others'
    edges = np.array([1.0, 0.0, 2.0])
    one, none, two = edge_keys(GPUS[gpu], edges, np.array([backward] * 3))
    assert (one, none, two) == (pytest.approx(more, rel=0.1), 0.0, 2 * one)
