"""Rows that the host may have limited are found by calls with next to no work."""

from __future__ import annotations

import numpy as np

from simcore.calibrate.bench.store import RawRow
from simcore.calibrate.machine.row_kernels import host_limits

MICRO = 1e-6


def row(seconds: float, op: str, sd: float = 0.01, timing: str = "cold_call") -> RawRow:
    return RawRow("memory_bound", {"op": op, "timing": timing}, seconds, sd, "")


def test_gradients_that_took_as_long_as_empty_ones_are_the_hosts() -> None:
    """Tiny gradients take up to 100 us: 90 us of a large one may be the host's, 300 us are not."""
    tiny = [row(s * MICRO, "relu_bwd") for s in (40, 60, 80, 100)]
    large = [row(90 * MICRO, "gelu_bwd"), row(300 * MICRO, "gelu_bwd"), row(90 * MICRO, "add")]
    least_s = np.array([1.0] * 4 + [80.0, 250.0, 80.0]) * MICRO
    host_s, limited = host_limits([*tiny, *large], least_s)
    assert 80 * MICRO < host_s["backward"] <= 100 * MICRO
    assert list(limited[4:]) == [True, False, False]


def test_a_kind_of_call_without_tiny_ones_takes_at_least_as_long_as_simpler_calls() -> None:
    rows = [row(8 * MICRO, "add"), row(9 * MICRO, "ln"), row(7 * MICRO, "ln_bwd")]
    host_s, limited = host_limits(rows, np.array([1.0, 50.0, 50.0]) * MICRO)
    assert host_s["recording"] == host_s["backward"] == 8 * MICRO
    assert list(limited) == [True, False, True]


def test_calls_that_scatter_as_no_device_does_are_limited_whatever_they_took() -> None:
    rows = [row(1.0, "add", sd=0.3), row(1.0, "add", sd=0.05)]
    assert list(host_limits(rows, np.array([0.9, 0.9]))[1]) == [True, False]


def test_kernels_of_a_replayed_graph_wait_for_no_host() -> None:
    graph = RawRow("host", {"op": "graph"}, 200 * MICRO, 0.01, "")
    host_s, limited = host_limits([graph, row(90 * MICRO, "add")], np.array([1.0, 80.0]) * MICRO)
    assert not limited.any() and host_s["plain"] == 0.0


def test_each_way_of_timing_has_its_own_limit() -> None:
    """Kernels of a captured graph do not wait for the host, however long it took for calls."""
    rows = [row(50 * MICRO, "relu_bwd"), row(5 * MICRO, "relu_bwd", timing="graph"),
            row(40 * MICRO, "relu_bwd"), row(40 * MICRO, "relu_bwd", timing="graph")]  # fmt: skip
    assert list(host_limits(rows, np.array([1.0, 1.0, 30.0, 30.0]) * MICRO)[1][2:]) == [True, False]
