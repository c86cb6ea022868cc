"""Shares of groups on small fabrics against sums by hand, and against the closed forms."""

from __future__ import annotations

import math

import numpy as np
import pytest

from simcore.hardware.fabrics.record import Pattern, read_fabric
from simcore.hardware.torus import exchange_load
from simcore.physics.collectives import Group, Library
from simcore.physics.fabric_shares import Bottleneck, shares_on

RATE = 100e9
TREE = "kind: fat-tree\ntiers: [{{members: {}, oversubscription: {}}}]\n"


def got(
    text: str, n: int, sends: Pattern, size: int, apart: int = 1, *, across: bool = False
) -> Bottleneck:
    record = read_fabric(f"name: made\n{text}", "made.yaml")
    return shares_on(record, n, RATE, across).bottleneck(sends, size, apart)


def test_1_a_ring_leaves_each_leaf_once() -> None:
    """Uplinks of 4/8 nodes carry the traffic of one: half."""
    found = got(TREE.format(4, 8), 16, "ring", 16)
    assert found.share == pytest.approx(0.5)
    assert "spine0" in found.link


def test_2_two_interleaved_rings_leave_each_leaf_twice() -> None:
    assert got(TREE.format(4, 8), 16, "ring", 8, 2).share == pytest.approx(0.25)


def test_3_a_ring_within_a_leaf_is_not_limited() -> None:
    assert got(TREE.format(4, 8), 16, "ring", 4) == Bottleneck(1.0, "")


def test_4_all_to_all_of_two_leaves() -> None:
    """4 nodes send 4/7 of their rate over uplinks of 4/2: 2 / (16/7)."""
    assert got(TREE.format(4, 2), 8, "all-to-all", 8).share == pytest.approx(7 / 8)


def test_5_a_double_tree_over_four_leaves() -> None:
    """Six edges leave the second leaf, each with a quarter of a node's rate: 1.5 on 4/8.

    Of the first tree of 16 nodes the edges 0-8, 2-4, 4-8, 8-12 and 10-12 join leaves of four:
    leaf 1 (nodes 4 to 7) has two of them, leaf 2 four. The second tree is mirrored, so that leaf 1
    has four of its edges.
    """
    assert got(TREE.format(4, 8), 16, "tree", 16).share == pytest.approx(0.5 / 1.5)


def test_6_a_torus_has_one_link_to_each_neighbour() -> None:
    """4 x 4, links of a quarter of a node's rate. The ring's hops use no link twice."""
    found = got("kind: torus\nshape: [4, 4]\n", 16, "ring", 16)
    assert found.share == pytest.approx(0.25)
    # 3 x 3, all to all: 8 others at 1/8; along a dimension 3 x 1 of them go one way, 3 the other
    assert got("kind: torus\nshape: [3, 3]\n", 9, "all-to-all", 9).share == pytest.approx(
        0.25 / (3 / 8)
    )


@pytest.mark.parametrize("shape", [(4, 4), (5, 5), (8, 8), (4, 4, 8)])
def test_an_exchange_on_a_torus_is_that_of_the_closed_form(shape) -> None:
    """s/8 vectors on the busiest link of an axis of s chips, of which (n-1)/n go to other chips.

    Where the other side of an axis is as far both ways round, half goes each way.
    """
    n, axes = math.prod(shape), len(shape)
    longest = shape[-1]
    load = longest / 8.0 if longest % 2 == 0 else (longest - 1 / longest) / 8.0
    assert longest % 2 or load == exchange_load(n, axes, 4)
    found = got(f"kind: torus\nshape: {list(shape)}\n", n, "all-to-all", n)
    assert found.share == pytest.approx((n - 1) / n / (2 * axes) / load)


def test_7_a_mesh_has_its_ends_open() -> None:
    """A chain of 4 x 1 and back: the ring's last hop crosses every link backwards, beside no other.

    Forward 0-1-2-3 one hop each, back 3 to 0 over all three: each direction is used once. All to
    all: 2 x 2 of 12 pairs cross the middle each way, 4/3 of a node's rate over 1/4.
    """
    text = "kind: torus\nshape: [4, 1]\nwraps: false\n"
    assert got(text, 4, "ring", 4).share == pytest.approx(0.25)
    assert got(text, 4, "all-to-all", 4).share == pytest.approx(0.25 / (4 / 3))


def test_8_a_dragonfly_of_three_groups() -> None:
    """One global link of a quarter of a node's rate between groups of two nodes.

    All to all of six nodes: 2 x 2 pairs between two groups at 1/5 each: 0.8 over 0.25.
    """
    text = "kind: dragonfly\ngroups: 3\nswitches: 2\nswitch_nodes: 1\nglobal_link: 200 Gbit/s\n"
    assert got(text, 6, "all-to-all", 6).share == pytest.approx(0.25 / 0.8)
    assert got(text, 6, "ring", 6).share == pytest.approx(0.25)


def test_9_own_links_of_unequal_rates() -> None:
    """Node 3 hangs on 25 GB/s: a ring through it gets a quarter, one without it three quarters."""
    text = (
        "kind: links\nnodes: n[0-3]\nlinks:\n"
        "  - {between: 'n[0-2]', to: s, rate: 600 Gbit/s}\n"
        "  - {between: n3, to: s, rate: 200 Gbit/s}\n"
    )
    assert got(text, 4, "ring", 4) == Bottleneck(pytest.approx(0.25), "s to n3")
    assert got(text, 3, "ring", 3).share == pytest.approx(0.75)


def test_9b_the_limit_is_the_full_link_on_which_no_flow_has_more() -> None:
    """0 to 2 gets the 25 GB/s of node 2, 1 to 3 what that leaves of the 100 between the switches.

    Both links are full; that of the switches does not limit the slower flow.
    """
    text = (
        "kind: links\nnodes: n[0-3]\nlinks:\n"
        "  - {between: 'n[0-1]', to: a, rate: 1600 Gbit/s}\n"
        "  - {between: a, to: b, rate: 800 Gbit/s}\n"
        "  - {between: n2, to: b, rate: 200 Gbit/s}\n"
        "  - {between: n3, to: b, rate: 1600 Gbit/s}\n"
    )
    assert got(text, 4, "ring", 2, 2) == Bottleneck(pytest.approx(0.25), "b to n2")


def test_10_two_jobs_share_a_spine() -> None:
    """A ring of every second node beside an all-to-all of the others, on leaves of four at 4:1.

    One flow of the ring and 2 x 6/7 of the other job's leave each leaf: 1 / (1 + 12/7).
    """
    text = TREE.format(4, 4) + "job_nodes: 0-14:2\njobs: [{nodes: '1-15:2', sends: all-to-all}]\n"
    assert got(text, 8, "ring", 8).share == pytest.approx(7 / 19)
    half = text.replace("all-to-all}", "all-to-all, busy: 0.25}")
    assert got(half, 8, "ring", 8).share == pytest.approx(0.75 + 0.25 * 7 / 19)


def test_11_rails_without_nvlink_cross_the_spine() -> None:
    """Leaves of 2 nodes a rail, 2 rails, 4 nodes, no oversubscription: never limited.

    At 2:1 the uplinks of a leaf's two ports carry one port's rate. On its rail a port sends 2/3 to
    the other leaf: 4/3 over 1. Across rails: of 3 x 2 ports of other nodes one is on its own leaf,
    so 5/6 climb: 2 x 5/6 over 1.
    """
    text = "kind: rail-optimised\nrails: 2\ntiers: [{members: 2, oversubscription: 2}]\n"
    assert got(text, 4, "all-to-all", 4).share == pytest.approx(3 / 4)
    assert got(text, 4, "all-to-all", 4, across=True).share == pytest.approx(3 / 5)
    assert got(text.replace("n: 2", "n: 1"), 4, "all-to-all", 4, across=True).share == 1.0


def test_12_pipeline_stages_on_a_tiered_tree() -> None:
    """Two pods of 4 nodes at 4:1 above them; stages of 2 nodes. 2 nodes send over 1."""
    text = "kind: fat-tree\ntiers: [{members: 2}, {members: 2, oversubscription: 4}]\n"
    found = got(text, 8, "chain", 4, 2)
    assert found.share == pytest.approx(0.5)
    assert found.link in ("pod0 to spine0", "spine0 to pod1")


@pytest.mark.parametrize("over", [1.0, 2.0, 4.0, 8.0, 16.0])
@pytest.mark.parametrize("leaf", [4, 8, 16])
@pytest.mark.parametrize(("size", "apart"), [(64, 1), (32, 1), (16, 4), (8, 8), (16, 2), (4, 16)])
def test_closed_forms_of_leaves_are_the_same(leaf: int, over: float, size: int, apart: int) -> None:
    """Rings and exchanges to 1e-9. Trees: the closed form counts two nodes' traffic of an aligned
    leaf, the trees themselves 1.5, so that the graph is never slower.
    """
    library = Library(leaf_nodes=float(leaf) if over > 1 else np.inf, oversubscription=over)
    one = np.array([float(size)])
    group = Group(
        n_ranks=one, n_nodes=one, intra_bw_bytes_per_s=one * np.inf,
        inter_bw_bytes_per_s=np.array([RATE]), intra_hop_s=one, inter_hop_s=one, base_s=one,
        node_stride=float(apart), library=library,
    )  # fmt: skip
    text = TREE.format(leaf, over)
    ring = got(text, 64, "ring", size, apart).share
    assert ring == pytest.approx(float(group.across("ring")[0]) / RATE, rel=1e-9)
    each = max(1.0, leaf / apart)
    up = (size - min(each, size)) / (size - 1)
    all_to_all = got(text, 64, "all-to-all", size, apart).share
    assert all_to_all == pytest.approx(1.0 / max(1.0, up * over), rel=1e-9)
    tree = got(text, 64, "tree", size, apart).share
    assert tree >= float(group.across("tree")[0]) / RATE * (1 - 1e-9)


@pytest.mark.parametrize("spines", [1, 4, 8])
def test_any_number_of_spines_with_spread_traffic_is_the_same(spines: int) -> None:
    text = TREE.format(8, 4) + f"spines: {spines}\n"
    for sends in ("ring", "all-to-all"):
        assert got(text, 32, sends, 32).share == pytest.approx(  # type: ignore[arg-type]
            got(TREE.format(8, 4), 32, sends, 32).share  # type: ignore[arg-type]
        )


def test_flows_hashed_to_spines_collide() -> None:
    """Where all have room in the mean, the flow that meets most others gets half or less."""
    text = TREE.format(16, 1) + "spines: 16\n"
    assert got(text, 64, "ring", 16, 4).share == 1.0
    assert got(text + "routing: hashed\n", 64, "ring", 16, 4).share <= 0.5


def test_a_share_is_never_above_one() -> None:
    text = "kind: torus\nshape: [2, 2]\nlink: 9000 Gbit/s\n"
    assert got(text, 4, "all-to-all", 4) == Bottleneck(1.0, "")


def test_shares_of_an_axis_are_those_of_each_size_and_one_within_a_node() -> None:
    """Leaves of two nodes with uplinks of 2/8. Alone a pair of one leaf uses none of them; pairs
    of every second node are two on each uplink, with a node's rate each: 1/4 / 2."""
    record = read_fabric(f"name: made\n{TREE.format(2, 8)}", "made.yaml")
    sizes = np.array([1.0, 2.0, 4.0, 2.0])
    found = shares_on(record, 4, RATE, False)
    assert found.share("ring", sizes) == pytest.approx([1.0, 1.0, 0.25, 1.0])
    assert found.share("ring", sizes[:2], 2.0) == pytest.approx([1.0, 0.125])
