"""Keys that attention computes beyond a window, against a count of all tiles."""

from __future__ import annotations

import numpy as np
import pytest

from simcore.hardware.estimates import edge_keys
from simcore.hardware.spec import GPUS
from simcore.workload.ops.products import WindowKernel, sdpa


@pytest.mark.parametrize("window", [384, 4096, 7936])
@pytest.mark.parametrize(
    ("gpu", "backward", "rows"),
    [("H100-SXM-80GB", False, 128), ("GB200", False, 256), ("GB200", True, 128)],
)
def test_tiles_at_an_edge_of_a_window_are_computed_whole(
    gpu: str, backward: bool, rows: int, window: int
) -> None:
    """Every tile of 128 keys that holds a key of a window or of the causal triangle: beyond the
    keys attended to, queries that reach the window's edge have half a tile of queries more."""
    queries = 8192

    def beyond(reach: int) -> float:
        attended = sum(min(q + 1, reach) for q in range(queries))
        computed = 0
        for first in range(0, queries, rows):
            begin, end = max(0, first - reach + 1), first + rows
            computed += rows * 128 * (-(-end // 128) - begin // 128)
        return (computed - attended) / queries

    more = beyond(window) - beyond(queries)
    kernel = sdpa("a", 1, 1, 1, queries, queries, 128, causal=True, window=window).fwd[0]
    assert isinstance(kernel, WindowKernel)
    edges = np.array([kernel.edges, 0.0, 2 * kernel.edges])
    one, none, two = edge_keys(GPUS[gpu], edges, np.array([backward] * 3))
    assert (one, none, two) == (pytest.approx(more, rel=0.1), 0.0, 2 * one)


@pytest.mark.parametrize("causal", [True, False])
def test_edges_vanish_as_a_window_grows_to_the_sequence(causal: bool) -> None:
    kernels = [
        sdpa("a", 1, 1, 1, 4096, 4096, 128, causal=causal, window=window).fwd[0]
        for window in (1, 1024, 4000, 4095)
    ]
    edges = [getattr(kernel, "edges", 0.0) for kernel in kernels]
    assert edges == sorted(edges, reverse=True)
    assert edges[0] > 0.99 and edges[-1] < 0.001
