"""Collectives on a torus against times worked out by hand and a published measurement."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from strategies import group

from simcore.hardware.cluster import parse_cluster
from simcore.hardware.profile import load_profile
from simcore.physics.collectives import Collective, Group, collective_time_s
from simcore.physics.collectives.pairwise import exchange_s
from simcore.physics.collectives.torus import exchange_s_per_byte
from simcore.timing.points import Points
from simcore.timing.steps import point_values

GB = 1e9


def one(op: Collective, n_bytes: float, on: Group) -> float:
    return float(collective_time_s(op, np.array([[n_bytes]]), on)[0, 0])


def torus(chips: float, axes: int, ring: int, *, slices: float = 1.0, **rates: Any) -> Group:
    """Slices whose links carry 10 GB/s each way."""
    rates = {"intra_bw": 2 * axes * 10.0 * GB, **rates}
    return group(chips * slices, slices, torus=(axes, ring), **rates)


def test_all_gather_uses_all_links_of_a_torus() -> None:
    """64 chips, 4x4x4 of rings: 63/64 GB over six links of 10 GB/s."""
    on = torus(64.0, 3, 4)
    assert one("all_gather", GB, on) == pytest.approx(63 / 64 / 60, rel=1e-9)
    assert one("reduce_scatter", GB, on) == one("all_gather", GB, on)
    assert one("all_reduce", GB, on) == pytest.approx(2 * 63 / 64 / 60, rel=1e-9)


def test_lines_halve_an_axis() -> None:
    """16 of v5e are 4x4 without wraparound: two links; 256 are 16x16 rings: four."""
    assert one("all_gather", GB, torus(16.0, 2, 16)) == pytest.approx(15 / 16 / 20, rel=1e-9)
    assert one("all_gather", GB, torus(256.0, 2, 16)) == pytest.approx(255 / 256 / 40, rel=1e-9)


def test_hops_are_those_of_the_longest_way() -> None:
    """8x8x8 rings: 12 hops; an all-reduce goes there and back."""
    on = torus(512.0, 3, 4, intra_hop_s=1e-6)
    flat = torus(512.0, 3, 4)
    assert one("all_gather", 1.0, on) - one("all_gather", 1.0, flat) == pytest.approx(12e-6)
    assert one("all_reduce", 1.0, on) - one("all_reduce", 1.0, flat) == pytest.approx(24e-6)


def test_all_to_all_on_rings() -> None:
    """How to Scale Your Model: V/(4 W) for a vector V over a ring of bandwidth W both ways.

    4x4 rings, 1 GB a chip: an axis moves the 4 GB of its ring, 4 / (4 * 20) seconds.
    """
    on = torus(16.0, 2, 4)
    assert one("all_to_all", GB, on) == pytest.approx(4 / (4 * 20), rel=1e-9)


def test_slices_meet_over_their_networks() -> None:
    """Two slices of 64: within as before, and half a vector over each slice's 5 GB/s."""
    on = torus(64.0, 3, 4, slices=2.0, inter_bw=5 * GB)
    assert one("all_gather", GB, on) == pytest.approx(63 / 64 / 60 + 0.5 / 5, rel=1e-9)
    assert one("all_reduce", GB, on) == pytest.approx(2 * 63 / 64 / 60 + 1.0 / 5, rel=1e-9)


def test_messages_pass_from_slice_to_slice() -> None:
    """Three slices: two hops between them, four for an all-reduce, none within one."""
    near, far = (torus(64.0, 3, 4, slices=3.0, inter_hop_s=hop) for hop in (0.0, 1e-3))
    for op, hops in (("all_gather", 2), ("reduce_scatter", 2), ("all_reduce", 4)):
        assert one(op, 1.0, far) - one(op, 1.0, near) == pytest.approx(hops * 1e-3)  # type: ignore[arg-type]
    alone = [one("all_reduce", 1.0, torus(64.0, 3, 4, inter_hop_s=hop)) for hop in (0.0, 1e-3)]
    assert alone[0] == alone[1]


def test_no_ring_of_nccl_runs_on_a_torus() -> None:
    """A ring at the rate of all links would be too fast for a group on one axis."""
    assert one("all_reduce", GB, torus(2.0, 3, 4)) == pytest.approx(2 * 0.5 / 10, rel=1e-9)


@pytest.mark.parametrize(
    ("sent_mb", "published_us"), [(25.17, 155.4), (100.66, 576.0), (402.65, 2252.0)]
)
def test_measured_all_gather_of_four_chips(sent_mb: float, published_us: float) -> None:
    """AI-Hypercomputer/tpu-recipes, all_gather.md: bytes into a chip of 2x2 and seconds.

    Both cores of a chip gather the same three parts, so that 4/3 of the bytes are the vector.
    """
    cluster = parse_cluster("1x4xTPU-v7x")
    points = Points.of(point_values(cluster, load_profile(), "x", 1, 1), 1)
    found = one("all_gather", sent_mb * 1e6 * 4 / 3, points.group(points.n_ranks, points.n_nodes))
    assert found * 1e6 == pytest.approx(published_us, rel=0.06)


def test_a_slice_of_one_chip_exchanges_nothing() -> None:
    alone, pair = (exchange_s_per_byte(torus(chips, 2, 16)) for chips in (1.0, 2.0))
    assert alone.tolist() == [0.0] < pair.tolist()


def test_a_broadcast_over_slices_of_one_chip_crosses_the_network_alone() -> None:
    """Slices of four pass it on over two links of 10 GB/s a chip as well."""
    alone, four = (torus(n, 2, 16, slices=3.0, inter_bw=5 * GB) for n in (1.0, 4.0))
    assert one("broadcast", GB, alone) == pytest.approx(1 / 5)
    assert one("broadcast", GB, four) == pytest.approx(1 / 20 + 1 / 5)
    assert one("broadcast", GB, torus(4.0, 2, 16)) == pytest.approx(1 / 20)


def test_exchanges_between_slices_pass_the_network_of_the_slice() -> None:
    """Two slices of 16, 1 GB a chip: half of each of 16 vectors over 5 GB/s, after 0.05 within."""
    on = torus(16.0, 2, 4, slices=2.0, inter_bw=5 * GB, inter_hop_s=1e-3)
    assert one("all_to_all", GB, on) - 16 / 2 / 5 - 1e-3 == pytest.approx(4 / (4 * 20))


def test_less_traffic_within_a_slice_takes_less_of_its_links() -> None:
    """Of two slices of 16 half of each vector stays; links of a quarter of the usual rate."""
    on = torus(16.0, 2, 4, slices=2.0, inter_bw=1e15)
    whole, half = (float(exchange_s(np.array([[GB]]), on, 1.0, part)[0, 0]) for part in (1.0, 0.5))
    assert whole == pytest.approx(4 / (4 * 20) / 2) and half == pytest.approx(whole / 2)
