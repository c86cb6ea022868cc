"""NCCL's algorithms and protocols against its own tables, worked out by hand, and by invariants."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import group

from simcore.physics.collectives import (
    ALGORITHMS,
    Allowed,
    Collective,
    Group,
    collective_time_s,
    nccl,
    ways,
)
from simcore.physics.collectives.pairwise import exchange_s

US = 1e-6
MIB = 2**20
H100 = {"generation": 2, "nvlink": True, "nvls_bw_bytes_per_s": 500e9}


def h100(ranks: int, nodes: int = 1, **more: Any) -> Group:
    """H100 on links of 400 GB/s within a node, 300 GB/s between."""
    return group(float(ranks), float(nodes), intra_bw=400e9, inter_bw=300e9, **{**H100, **more})


def way(on: Group, op: Collective, n_bytes: float, name: str, protocol: str) -> float:
    """Seconds of one way to run it."""
    return next(s for a, p, s in ways(op, n_bytes, on) if (a, p) == (name, protocol))


def test_ring_of_eight_by_hand() -> None:
    """14 steps of 0.6, 1.9 and 3.4 us; LL at most 141 GB/s, LL128 0.92 of the bus, Simple all."""
    on, size = h100(8), 16.0 * MIB
    moved = (14 + 0.5) / 8 * size  # 14 pieces over each link, and what the loop's ends leave open
    assert way(on, "all_reduce", size, "Ring", "LL") == pytest.approx(15.0 * US + moved / 141e9)
    assert way(on, "all_reduce", size, "Ring", "LL128") == pytest.approx(40.6 * US + moved / 368e9)
    assert way(on, "all_reduce", size, "Ring", "Simple") == pytest.approx(56.0 * US + moved / 400e9)
    gathered = 8.4 + 7 * 3.4
    assert way(on, "all_gather", size, "Ring", "Simple") == pytest.approx(
        gathered * US + (7 + 0.5) / 8 * size / 400e9
    )


@pytest.mark.parametrize("op", ["all_gather", "reduce_scatter", "all_reduce"])
def test_few_ranks_reach_less_of_a_link_and_many_the_bandwidth_optimum(op: Collective) -> None:
    """The open step is one piece of n: a quarter at two ranks, nothing at many; one node only."""

    def over_optimum(on: Group, ranks: int) -> float:
        crossed = (2 if op == "all_reduce" else 1) * (ranks - 1) / ranks
        one, two = (way(on, op, b, "Ring", "Simple") for b in (1e12, 2e12))
        bus = float(np.ravel(on.bus_bw_bytes_per_s)[0])
        return (two - one) * bus / (crossed * 1e12)

    found = [over_optimum(h100(n), n) for n in (2, 4, 8)]
    steps = 2 if op == "all_reduce" else 1
    assert found == pytest.approx([1 + 0.5 / (steps * (n - 1)) for n in (2, 4, 8)], rel=1e-3)
    assert over_optimum(h100(2, 2), 2) == pytest.approx(1.0, rel=1e-3)


def test_switch_of_eight_by_hand() -> None:
    """25 us and 7 of 8 heads; seven ranks lose one more, five are the fewest, four ring."""
    moved = 2 * 7 / 8 * 1e9
    assert way(h100(8), "all_reduce", 1e9, "NVLS", "Simple") == pytest.approx(
        25 * US + moved / (500e9 * 7 / 8)
    )
    assert [w[0] for w in ways("all_reduce", 1e9, h100(4))].count("NVLS") == 0
    assert ways("all_reduce", 1e9, h100(8))[0][:2] == ("NVLS", "Simple")
    assert ways("all_reduce", 1e4, h100(8))[0][1] == "LL"
    assert ways("all_gather", 1e9, h100(8))[0][:2] == ("Ring", "Simple")


def test_tree_of_switches_by_hand() -> None:
    """16 nodes: 25 + 8 x 20.9 us at the NICs' rate; two nodes exchange at twice that."""
    moved = 2 * 127 / 128 * 1e9
    assert way(h100(128, 16), "all_reduce", 1e9, "NVLSTree", "Simple") == pytest.approx(
        (25 + 8 * 20.9) * US + moved / 300e9
    )
    assert way(h100(16, 2), "all_reduce", 1e9, "NVLSTree", "Simple") == pytest.approx(
        (25 + 2 * 20.9) * US + 2 * 15 / 16 * 1e9 / (500e9 * 7 / 8)
    )


def test_a_nics_own_latency_counts_twice_where_data_is_flushed() -> None:
    """Four nodes, 35 us: 25 + 4 (20.9 + 70) us; LL waits once: 2 (7 x 0.6 + 2 x 40) + 6.8."""
    far = h100(32, 4, nic_latency_s=35 * US)
    assert way(far, "all_reduce", 0.0, "NVLSTree", "Simple") == pytest.approx(388.6 * US)
    assert way(far, "all_reduce", 0.0, "Tree", "LL") == pytest.approx(175.2 * US)


def test_ring_over_nodes_by_hand() -> None:
    """2 nodes of 8: 28 steps in nodes at least as long as posting (1 us), 2 between at 2.7 us."""
    on = h100(16, 2)
    assert way(on, "all_reduce", 0.0, "Ring", "LL") == pytest.approx((6.6 + 28 + 2 * 2.7) * US)
    amd = h100(16, 2, amd_host=True)
    assert way(amd, "all_reduce", 0.0, "Ring", "Simple") == pytest.approx(
        (8.4 + 28 * 6.0 + 2 * 14) * US
    )
    # LL128 posts once a step as LL does: 2 us with AMD's hosts, more than the hop of 1.9
    assert way(amd, "all_reduce", 0.0, "Ring", "LL128") == pytest.approx(
        (14.0 + 28 * 2.0 + 2 * 4.0) * US
    )


def test_channels_between_nodes_have_limits() -> None:
    """16 nodes, 8 channels of 37.5 GB/s: a tree's LL128 takes 29 of each, a ring's 36.7."""
    on = h100(128, 16, channel_bw_bytes_per_s=37.5e9)

    def rate(name: str, protocol: str, passes: float) -> float:
        near, far = (way(on, "all_reduce", s, name, protocol) for s in (1e9, 2e9))
        return passes * 1e9 / (far - near)

    assert rate("Tree", "LL128", 2.0) == pytest.approx(29e9 * 8)
    assert rate("Tree", "Simple", 2.0) == pytest.approx(0.92 * 300e9)
    assert rate("Ring", "LL128", 2 * 127 / 128) == pytest.approx(0.92 * 300e9)
    quick = replace(on, library=replace(on.library, channel_bw_bytes_per_s=50e9))
    near, far = (way(quick, "all_reduce", s, "Tree", "Simple") for s in (1e9, 2e9))
    assert 2e9 / (far - near) == pytest.approx(300e9 * 36 / 50)


def test_a_broadcast_streams_the_vector_once_round() -> None:
    """Eight ranks: 7 hops of 3.4 us and the whole vector, without an open step of the loop."""
    size = 16.0 * MIB
    assert way(h100(8), "broadcast", size, "Ring", "Simple") == pytest.approx(
        (8.4 + 7 * 3.4) * US + size / 400e9
    )
    assert way(h100(16, 2), "reduce", 0.0, "Ring", "LL") == pytest.approx(
        (6.6 + 14 * 1.0 + 2.7) * US  # 14 of 15 hops within nodes, at least as long as posting
    )


def test_a_ring_of_one_rank_a_node_hops_as_a_tree_does() -> None:
    """Four nodes: 6 steps of 5 us, where two ranks a node take 2.7 for each between nodes."""
    assert way(h100(4, 4), "all_reduce", 0.0, "Ring", "LL") == pytest.approx((6.6 + 6 * 5.0) * US)
    assert way(h100(8, 4), "all_reduce", 0.0, "Ring", "LL") == pytest.approx(
        (6.6 + 8 * 1.0 + 6 * 2.7) * US
    )
    # two to four nodes are one and two levels up and down
    for nodes, levels in ((2, 1), (4, 2), (7, 2), (8, 3)):
        assert way(h100(nodes, nodes), "all_reduce", 0.0, "Tree", "LL") == pytest.approx(
            (6.8 + 2 * levels * 5.0) * US
        )


def test_the_oldest_generation_has_nccls_ways_but_no_switch_within_the_node() -> None:
    on = h100(16, 16, generation=0, sharp=True)
    protocols = {(name, p) for name in ("Ring", "Tree") for p in ("LL", "LL128", "Simple")}
    collnet = {("CollNetDirect", "Simple"), ("CollNetChain", "Simple")}
    assert {w[:2] for w in ways("all_reduce", 1e6, on)} == protocols | collnet
    assert ("PAT", "Simple") in {w[:2] for w in ways("all_gather", 1e6, on)}
    plain = h100(16, 16, generation=-1, sharp=True)
    assert {w[0] for w in ways("all_reduce", 1e6, plain)} == {"Ring", "Tree"}
    assert {w[0] for w in ways("all_gather", 1e6, plain)} == {"Ring"}


def test_pat_takes_one_rank_a_node() -> None:
    """16 ranks: 8 + 4 x 14/3.5 + 16 x 2.8 us, and 0.75 of the NIC."""
    on = h100(16, 16)
    assert way(on, "all_gather", 3e8, "PAT", "Simple") == pytest.approx(
        (8 + 16 + 44.8) * US + 3e8 / 225e9
    )
    assert "PAT" not in {w[0] for w in ways("all_gather", 1.0, h100(16, 2))}
    assert "PAT" not in {w[0] for w in ways("all_reduce", 1.0, on)}


def test_switches_of_the_network_reduce_where_they_can() -> None:
    """With SHARP: NVLS over nodes 43 us, twice the NICs or the NVLink switch; CollNet half."""
    assert not {"CollNetChain", "CollNetDirect", "NVLS"} & {
        w[0] for w in ways("all_reduce", 1e9, h100(32, 4))
    }
    on = h100(32, 4, sharp=True)
    assert way(on, "all_reduce", 1e9, "NVLS", "Simple") == pytest.approx(
        43 * US + 2 * 31 / 32 * 1e9 / 437.5e9
    )
    assert way(on, "all_reduce", 0.0, "CollNetChain", "Simple") == pytest.approx(69.2 * US)
    assert way(on, "all_reduce", 0.0, "CollNetDirect", "Simple") == pytest.approx(44.0 * US)


def test_over_pcie_there_is_no_ll128_and_no_switch() -> None:
    on = h100(8, nvlink=False, nvls_bw_bytes_per_s=0.0)
    assert {w[:2] for w in ways("all_reduce", 1e6, on)} == {
        ("Ring", "LL"), ("Ring", "Simple"), ("Tree", "LL"), ("Tree", "Simple"),
    }  # fmt: skip


def test_what_is_named_is_taken_and_what_cannot_be_is_not() -> None:
    held = h100(8, allowed=Allowed(("Ring",), ("Simple",)))
    assert {w[:2] for w in ways("all_reduce", 1e3, held)} == {("Ring", "Simple")}
    trees = h100(8, allowed=Allowed(("Tree",)))
    assert {w[0] for w in ways("all_reduce", 1e9, trees)} == {"Tree"}
    rings = h100(8, allowed=Allowed(("Ring",)))
    assert ways("all_gather", 1e9, trees) == ways("all_gather", 1e9, rings)  # has no tree
    assert {w[0] for w in ways("all_gather", 1e9, rings)} == {"Ring"}


def test_restrictions_of_one_collective_are_not_those_of_its_reverse() -> None:
    """16 nodes of one rank: an all-gather by PAT alone leaves a reduce-scatter all its ways."""
    on = h100(16, 16, allowed=Allowed(algorithms_of=(("all_gather", ("PAT",)),)))
    assert {w[0] for w in ways("all_gather", 1e6, on)} == {"PAT"}
    assert {w[0] for w in ways("reduce_scatter", 1e6, on)} == {"PAT", "Ring"}


def test_direct_collnet_by_hand() -> None:
    """Two nodes of eight: 2 (3.7 + 7 x 0.4) + 31 us; since Hopper 0.85 of the bus, of up to 8."""

    def per_byte(generation: int, name: str = "CollNetDirect") -> float:
        on = h100(16, 2, sharp=True, generation=generation)
        one, two = (way(on, "all_reduce", b, name, "Simple") for b in (1e9, 2e9))
        return (two - one) / 1e9

    on = h100(16, 2, sharp=True)
    assert way(on, "all_reduce", 0.0, "CollNetDirect", "Simple") == pytest.approx(44.0 * US)
    assert per_byte(2) == per_byte(3) == pytest.approx(2 / (0.85 * 300e9))
    assert per_byte(1) == pytest.approx(2 / 300e9) == per_byte(2, "CollNetChain")
    one_a_node = h100(4, 4, sharp=True)
    for name, base in (("CollNetDirect", 31.0), ("CollNetChain", 30.0)):
        found = way(one_a_node, "all_reduce", 0.0, name, "Simple")
        assert found == pytest.approx(base * US)
    two_a_node = h100(8, 4, sharp=True)
    assert way(two_a_node, "all_reduce", 0.0, "CollNetDirect", "Simple") == pytest.approx(39.2 * US)

    def direct(**more: object) -> bool:
        found = ways("all_reduce", 1e6, h100(**{"nodes": 2, "sharp": True, **more}))  # type: ignore[arg-type]
        return any(w[0] == "CollNetDirect" for w in found)

    assert direct(ranks=16) and not direct(ranks=18) and not direct(ranks=16, nvlink=False)
    assert not direct(ranks=8, nodes=1)
    assert not {"CollNetDirect", "CollNetChain"} & {w[0] for w in ways("all_gather", 1e6, on)}


def test_without_a_switch_in_the_node_there_is_no_nvls_whatever_the_network() -> None:
    on = h100(16, 2, sharp=True, nvls_bw_bytes_per_s=0.0)
    assert not any("NVLS" in w[0] for w in ways("all_reduce", 1e6, on))
    three = group(np.full(3, 8.0), generation=2, nvlink=True)
    assert ALGORITHMS["NVLS"].options("all_reduce", three) == []


@pytest.mark.parametrize(("generation", "least"), [(2, 5), (3, 6)])
def test_a_switch_reduces_from_so_many_ranks_on(generation: int, least: int) -> None:
    """And up to eight heads: a rack of 16 ranks loses an eighth as a node of eight does."""
    for ranks in (least - 1, least):
        on = h100(ranks, generation=generation)
        found = any(w[0] == "NVLS" for w in ways("all_reduce", 1e6, on))
        assert found == (ranks == least)
    assert not any("NVLS" in w[0] for w in ways("all_reduce", 1e6, h100(8, generation=1)))
    on = h100(16, generation=generation)
    one, two = (way(on, "all_reduce", b, "NVLS", "Simple") for b in (1e9, 2e9))
    assert two - one == pytest.approx(2 * 15 / 16 * 1e9 / (500e9 * 7 / 8))
    gathered = [way(on, "all_gather", b, "NVLS", "Simple") for b in (1e9, 2e9)]
    assert gathered[1] - gathered[0] == pytest.approx(1e9 / (500e9 * 7 / 8 * 15 / 16 / 2))


def test_choice_moves_from_low_latency_to_full_rate_as_nccl_logs_it() -> None:
    """One node of H100 (H200's log in ml-engineering): LL up to 1 MiB, NVLS from 2 MiB on."""
    sizes = [2.0**k for k in range(10, 34)]
    chosen = [ways("all_reduce", s, h100(8))[0][:2] for s in sizes]
    assert chosen[0] == ("Ring", "LL") or chosen[0] == ("Tree", "LL")
    assert chosen[-1] == ("NVLS", "Simple")
    assert chosen.index(("NVLS", "Simple")) in range(8, 13)  # 256 KiB to 4 MiB


libraries = st.fixed_dictionaries(
    {
        "generation": st.integers(0, 3),
        "nvlink": st.booleans(),
        "amd_host": st.booleans(),
        "nvls_bw_bytes_per_s": st.sampled_from([0.0, 4e11]),
        "sharp": st.booleans(),
        "nic_latency_s": st.floats(0.0, 1e-4),
        "channel_bw_bytes_per_s": st.sampled_from([0.0, 2.5e10, 1e11]),
        "intra_chunk_ramp": st.floats(0.0, 2.0),
        "inter_chunk_ramp": st.floats(0.0, 2.0),
        "leaf_nodes": st.sampled_from([1.0, 4.0, 32.0]),
        "oversubscription": st.sampled_from([1.0, 2.0, 7.0]),
        "rails": st.booleans(),
    }
)
OPS: tuple[Collective, ...] = get_args(Collective)


@st.composite
def clusters(draw: st.DrawFn) -> tuple[Group, Group]:
    """A group, and the same with one of its links slower."""
    nodes = draw(st.integers(1, 300))
    ranks = nodes * draw(st.integers(1, 16))
    rates = {"intra_bw": draw(st.floats(1e8, 1e12)), "inter_bw": draw(st.floats(1e8, 1e12))}
    library = draw(libraries)
    slower, by = dict(rates), draw(st.floats(0.05, 1.0))
    slower[draw(st.sampled_from(sorted(rates)))] *= by
    nvls = {**library, "nvls_bw_bytes_per_s": library["nvls_bw_bytes_per_s"] * by}
    return (
        group(float(ranks), float(nodes), **rates, **library),
        group(float(ranks), float(nodes), **slower, **nvls),
    )


@given(clusters(), st.floats(1.0, 1e11), st.sampled_from(OPS))
def test_a_slower_link_never_saves_time(
    pair: tuple[Group, Group], n_bytes: float, op: Collective
) -> None:
    size = np.array([[n_bytes]])
    fast, slow = (float(collective_time_s(op, size, on)[0, 0]) for on in pair)
    assert np.isfinite(fast)
    assert slow >= fast * (1 - 1e-12)


@given(clusters(), st.floats(1.0, 1e11), st.sampled_from(OPS))
def test_the_quickest_way_is_the_answer(
    pair: tuple[Group, Group], n_bytes: float, op: Collective
) -> None:
    told = ways(op, n_bytes, pair[0])
    assert told[0][2] == float(collective_time_s(op, np.array([[n_bytes]]), pair[0])[0, 0])
    assert {w[0] for w in told} <= set(ALGORITHMS)


def test_a_ring_leaves_a_leaf_once_whatever_the_nodes_on_it() -> None:
    """64 nodes, uplinks 4:1: eight nodes a leaf send one node's worth out; two cannot."""
    plain = h100(512, 64)
    for leaf, share in ((8.0, 1.0), (4.0, 1.0), (2.0, 0.5), (1.0, 0.25)):
        on = h100(512, 64, oversubscription=4.0, leaf_nodes=leaf)
        assert on.bus_bw_bytes_per_s / plain.bus_bw_bytes_per_s == pytest.approx(share)
    inside = h100(64, 8, oversubscription=4.0, leaf_nodes=8.0)
    assert inside.bus_bw_bytes_per_s == pytest.approx(300e9)


def test_all_to_all_over_thin_uplinks_by_hand() -> None:
    """16 nodes of 8, leaves of 4, 4:1: 12 of 15 other nodes are far, at a quarter of the rate."""

    def time(**more: Any) -> float:
        return float(exchange_s(np.array([[1e9]]), h100(128, 16, **more))[0, 0])

    across = 120 / 128 * 1e9 * 8 / 300e9
    assert time() == pytest.approx(across)
    thin = time(oversubscription=4.0, leaf_nodes=4.0)
    assert thin == pytest.approx(across * 12 / 15 * 4)


def test_rails_hand_over_inside_the_node_or_cross_the_spine() -> None:
    """Within a leaf of rails: with NVLink nothing climbs; without, 7 of 8 messages do."""

    def time(nvlink: bool) -> float:
        on = h100(64, 8, oversubscription=2.0, leaf_nodes=32.0, rails=True, nvlink=nvlink)
        return float(exchange_s(np.array([[1e9]]), on)[0, 0])

    across = 56 / 64 * 1e9 * 8 / 300e9
    assert time(True) == pytest.approx(across)
    assert time(False) == pytest.approx(across * 7 / 8 * 2)
    # over a slow NVLink: 7 of 64 parts for neighbours, 7 of 8 of the other 56 to another rail
    slow = group(64.0, 8.0, intra_bw=1e9, inter_bw=1e15, rails=True, **H100)
    found = float(exchange_s(np.array([[1e9]]), slow)[0, 0])
    assert found == pytest.approx(7 / 64 + 56 / 64 * 7 / 8)


def test_shares_of_traffic_across_and_inside_a_node() -> None:
    """Two nodes of 8: half the traffic between nodes takes half the time, while nodes limit it."""
    size, on = np.array([[1e9]]), h100(16, 2)
    whole, half, none = (float(exchange_s(size, on, f)[0, 0]) for f in (1.0, 0.5, 0.0))
    assert whole == pytest.approx(8 / 16 * 1e9 * 8 / 300e9)
    assert half == pytest.approx(whole / 2)
    assert none == pytest.approx(7 / 16 * 1e9 / 400e9)
    inside = float(exchange_s(size, on, 0.0, 0.25)[0, 0])
    assert inside == pytest.approx(none / 4)
    # a leaf of one node: all of it climbs, at a quarter of the rate
    thin = h100(16, 2, oversubscription=4.0, leaf_nodes=1.0)
    assert float(exchange_s(size, thin)[0, 0]) == pytest.approx(4 * whole)


def test_an_exchange_waits_for_one_hop_within_a_node_or_between_nodes() -> None:
    near, far = (
        group(8.0, nodes, intra_hop_s=1e-3, inter_hop_s=5e-3, base_s=1e-4) for nodes in (1.0, 2.0)
    )
    for on, hop in ((near, 1e-3), (far, 5e-3)):
        assert float(exchange_s(np.zeros((1, 1)), on)[0, 0]) == pytest.approx(hop + 1e-4)


def test_half_of_a_group_of_interleaved_nodes_shares_its_leaf() -> None:
    on = replace(h100(64, 8, oversubscription=4.0, leaf_nodes=8.0), node_stride=4.0)
    assert on.leaf_nodes == 2.0
    assert on.across("ring") == pytest.approx(150e9)


def test_two_limits_of_blackwell_since_release_2_32() -> None:
    """Eight channels of 37.5 GB/s: 31.67 and, since 2.32, 36.7 each; others have not changed."""

    def per_byte(release: tuple[int, ...], nodes: int, generation: int = 3) -> float:
        more = {"generation": generation, "release": release, "channel_bw_bytes_per_s": 37.5e9}
        on = group(8.0 * nodes, float(nodes), intra_bw=1e15, inter_bw=300e9, **{**H100, **more})
        one, two = (way(on, "all_reduce", b, "Tree", "LL128") for b in (1e12, 2e12))
        return (two - one) / 1e12

    assert per_byte((2, 30), 2) == pytest.approx(2 / (8 * 31.67e9))
    assert per_byte((2, 31, 2), 2) == per_byte((2, 30), 2)
    assert per_byte((2, 32, 3), 2) == pytest.approx(2 / (0.9375 * 0.92 * 300e9))  # no longer bound
    assert per_byte((2, 32), 4) == per_byte((2, 30), 4)
    assert per_byte((2, 32), 2, generation=2) == per_byte((2, 30), 2, generation=2)


#: The tables of NCCL's own cost model (NVIDIA/nccl at 1fc949c5, src/tuning/cost_model.cc, lines of
#: ncclTunerConstantsDefaults): latencies [us] of LL, LL128 and Simple, and largest rates [GB/s] on
#: one, two and four nodes, by generation.
BASE = {"TREE": (6.8, 14.0, 8.4), "RING": (6.6, 14.0, 8.4)}
HOPS = {
    "NVLINK": {"TREE": (0.6, 1.25, 4.0), "RING": (0.6, 1.9, 3.4)},
    "PCIE": {"TREE": (1.0, 1.9, 4.0), "RING": (1.0, 2.5, 5.7)},
    "NET": {"TREE": (5.0, 8.5, 14.0), "RING": (2.7, 4.0, 14.0)},
}
LL_MOST = ((39.0, 39.0, 20.4), (87.7, 22.5, 19.0), (141.0,), (282.0,))
CHANNELS = {
    "RING_LL128_CHANNEL": ((20.0, 20.0), (20.0, 20.0), (36.7, 36.7), (40.0, 40.0)),
    "TREE_LL128_CHANNEL": ((20.0, 20.0), (20.0, 20.0), (36.7, 29.0), (31.67, 20.0)),
    "TREE_CHANNEL": ((18.5, 10.0), (23.6, 17.8), (41.4, 36.0), (42.8, 24.0)),
}


def test_latencies_are_those_of_nccls_source() -> None:
    for name, row in BASE.items():
        assert getattr(nccl, f"{name}_BASE_S")[:, 0] == pytest.approx(np.array(row) * US)
    for link, by_name in HOPS.items():
        for name, row in by_name.items():
            assert getattr(nccl, f"{name}_{link}_S")[:, 0] == pytest.approx(np.array(row) * US)


@pytest.mark.parametrize("generation", range(4))
def test_ll_is_limited_by_the_device_on_one_node_and_by_the_host_on_more(generation: int) -> None:
    """Generations 0 and 1 of NCCL's table state Intel's and AMD's hosts for several nodes."""
    for amd in (False, True):
        limits = [
            float(nccl.ll_limit(h100(8 * n, n, generation=generation, amd_host=amd))[0]) / 1e9
            for n in (1, 2, 3)
        ]
        assert limits == pytest.approx([LL_MOST[generation][0], *LL_MOST[amd][1:]])
    assert nccl.depth(np.array([1.0, 2.0, 3.0, 4.0, 9.0])).tolist() == [0, 1, 1, 2, 3]
    since = h100(8, generation=generation, release=(2, 32))
    assert float(nccl.ll_limit(since)[0]) / 1e9 == (282.4 if generation == 3 else limits[0])


@pytest.mark.parametrize("name", CHANNELS)
def test_each_channel_between_nodes_has_its_limit(name: str) -> None:
    for generation, row in enumerate(CHANNELS[name]):
        for nodes, each in ((2, row[0]), (3, row[1])):
            on = h100(8 * nodes, nodes, generation=generation, channel_bw_bytes_per_s=37.5e9)
            found = nccl.channel_limit(on, getattr(nccl, name))
            assert found == pytest.approx(8 * each * 1e9)  # 8 channels of the 300 GB/s
    assert np.isinf(nccl.channel_limit(h100(8, channel_bw_bytes_per_s=37.5e9), nccl.TREE_CHANNEL))


def test_shares_of_a_trees_rate_by_protocol() -> None:
    """LL 1/3.8; LL128 7/9 on one node, and 120 of 128 bytes between nodes (tuning.cc)."""

    def rate(on: Group, protocol: str) -> float:
        one, two = (way(on, "all_reduce", b, "Tree", protocol) for b in (1e9, 2e9))
        return 2e9 / (two - one)

    alone = group(8.0, intra_bw=100e9, generation=3, nvlink=True)
    tree = 0.92 * 100e9
    assert rate(alone, "LL") == pytest.approx(tree / 3.8)
    assert rate(alone, "LL128") == pytest.approx(tree * 7 / 9)
    apart = group(16.0, 2.0, intra_bw=1e15, inter_bw=10e9, generation=3, nvlink=True)
    assert rate(apart, "LL128") == pytest.approx(0.92 * 10e9 * 120 / 128)


def test_a_longer_path_over_pcie_adds_what_exceeds_one_port() -> None:
    """A hop of 7 us, where NCCL's figure for Simple is 5.7: 1.3 us more at each of 14 steps."""
    pcie = {"nvlink": False, "nvls_bw_bytes_per_s": 0.0}
    near, far = (
        way(group(8.0, intra_bw=1e10, intra_hop_s=hop, **{**H100, **pcie}), "all_reduce", 0.0,
            "Ring", "LL")
        for hop in (0.0, 7.0 * US)
    )  # fmt: skip
    assert near == pytest.approx((6.6 + 14 * 1.0) * US)
    assert far - near == pytest.approx(14 * 1.3 * US)


def test_the_nics_latency_counts_twice_where_data_is_flushed() -> None:
    """LL and LL128 carry flags beside the data; Simple flushes it before its flag."""
    on = h100(16, 2, nic_latency_s=5 * US)
    hops = nccl.nets_s(on, np.full((3, 1), 3 * US), slice(None))
    assert hops[:, 0] == pytest.approx([8 * US, 8 * US, 13 * US])
