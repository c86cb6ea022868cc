"""Collectives against hand-derived times and the bounds that no algorithm can beat."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations, product
from math import gcd, inf
from typing import get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import group, groups, on_by_default

from simcore.base.database import read_yaml, shipped_root
from simcore.hardware.cluster import parse_cluster
from simcore.hardware.profile import load_profile
from simcore.physics.collectives import ALGORITHMS, Collective, Group, Library, ways
from simcore.physics.collectives import collective_time_s as time_s
from simcore.physics.collectives.pairwise import once_each_frac
from simcore.timing.points import Points
from simcore.timing.steps import point_values

OPS: tuple[Collective, ...] = get_args(Collective)
GB = 1e9
BYTES = st.floats(1.0, 1e12)


def one(op: Collective, n_bytes: float, on: Group) -> float:
    """Time of one message on one group."""
    return float(time_s(op, np.array([[n_bytes]]), on)[0, 0])


def test_ring_all_reduce_of_four_ranks_by_hand() -> None:
    """2 * 3/4 * 1 GB / 10 GB/s = 0.15 s; six hops in a node; one launch."""
    bare = group(4.0)
    assert one("all_reduce", GB, bare) == pytest.approx(0.15, rel=1e-12)
    late = group(4.0, intra_hop_s=1e-3, base_s=5e-4)
    assert one("all_reduce", GB, late) == pytest.approx(0.15 + 6e-3 + 5e-4, rel=1e-12)


def test_ring_over_two_nodes_by_hand() -> None:
    """8 ranks on 2 nodes, slowest link 5 GB/s: 2 * 7/8 / 5; 14 hops, 4 of them between nodes."""
    on = group(8.0, 2.0, inter_bw=5e9, intra_hop_s=1e-4, inter_hop_s=1e-3)
    ring = ALGORITHMS["Ring"].time_s("all_reduce", np.array([[GB]]), on)[0, 0]
    assert ring == pytest.approx(0.35 + 10 * 1e-4 + 4 * 1e-3, rel=1e-12)


def test_a_ring_of_one_rank_a_node_has_no_hops_within_nodes() -> None:
    on = group(4.0, 4.0, intra_hop_s=1.0, inter_hop_s=1e-3)
    ring = ALGORITHMS["Ring"].time_s("all_gather", np.zeros((1, 1)), on)[0, 0]
    assert ring == pytest.approx(4e-3)  # as many hops as nodes


def test_slowest_of_the_links_in_use_sets_the_rate() -> None:
    assert one("all_reduce", GB, group(2.0, 2.0, intra_bw=1.0)) == pytest.approx(0.1)
    assert one("all_reduce", GB, group(2.0, 1.0, inter_bw=1.0)) == pytest.approx(0.1)


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("algorithm", list(ALGORITHMS))
def test_one_rank_costs_nothing(op: Collective, algorithm: str) -> None:
    alone = group(1.0, intra_bw=np.inf, inter_bw=np.inf, intra_hop_s=1.0, base_s=1.0)
    assert ALGORITHMS[algorithm].time_s(op, np.array([[GB]]), alone) == 0.0
    assert one(op, GB, alone) == 0.0


@given(groups(), BYTES)
def test_halves_of_an_all_reduce_carry_its_bytes(on: Group, n_bytes: float) -> None:
    """The bandwidth part (the slope in bytes) of RS plus AG is that of a ring all-reduce."""
    ring = ALGORITHMS["Ring"]

    def slope(op: Collective) -> float:
        near, far = ring.time_s(op, np.array([[n_bytes], [2 * n_bytes]]), on)[:, 0]
        return float(far - near)

    whole = float(ring.time_s("all_reduce", np.array([[n_bytes]]), on)[0, 0])
    assert slope("reduce_scatter") + slope("all_gather") == pytest.approx(
        slope("all_reduce"), rel=1e-6, abs=1e-12 * whole
    )


@given(groups(), BYTES, st.sampled_from(OPS))
def test_never_faster_than_the_wire(on: Group, n_bytes: float, op: Collective) -> None:
    """Lower bounds: all-reduce 2(n-1)/n, RS and AG (n-1)/n, rooted one whole vector."""
    n = float(on.n_ranks[0])
    passes = {"all_reduce": 2 * (n - 1) / n, "reduce_scatter": (n - 1) / n,
              "all_gather": (n - 1) / n,
              "all_to_all": 0.0}.get(op, float(n > 1))  # by hand below  # fmt: skip
    spent = one(op, n_bytes, on)
    assert np.isfinite(spent)
    # NCCL's tree drives both directions of the links; its bandwidth must not beat the ring's.
    assert spent >= passes * n_bytes / float(on.bus_bw_bytes_per_s[0]) * (1 - 1e-9)


@given(groups(), BYTES, BYTES, st.sampled_from(OPS))
def test_more_bytes_take_no_less_time(on: Group, a: float, b: float, op: Collective) -> None:
    assert one(op, min(a, b), on) <= one(op, max(a, b), on) * (1 + 1e-12)


@given(groups(), BYTES, st.sampled_from(OPS), st.sampled_from(["intra", "inter"]))
def test_a_faster_link_never_slows(on: Group, n_bytes: float, op: Collective, link: str) -> None:
    fields = {
        "intra_bw": on.intra_bw_bytes_per_s,
        "inter_bw": on.inter_bw_bytes_per_s,
    }
    fields[f"{link}_bw"] = 2 * fields[f"{link}_bw"]
    faster = group(
        on.n_ranks, on.n_nodes, intra_hop_s=on.intra_hop_s, inter_hop_s=on.inter_hop_s,
        base_s=on.base_s, **fields,
    )  # fmt: skip
    assert one(op, n_bytes, faster) <= one(op, n_bytes, on) * (1 + 1e-12)


def test_trees_win_small_messages_on_many_nodes_and_rings_large_ones() -> None:
    on = group(512.0, 64.0, intra_hop_s=3e-6, inter_hop_s=14e-6, base_s=8e-6)
    sizes = np.array([[1e3], [1e10]])
    ring, tree = (
        ALGORITHMS[name].time_s("all_reduce", sizes, on)[:, 0] for name in ("Ring", "Tree")
    )
    assert tree[0] < ring[0] / 3
    assert ring[1] < tree[1]
    chosen = time_s("all_reduce", sizes, on)[:, 0]
    assert chosen.tolist() == [tree[0], ring[1]]
    # by hand: up and down a chain of 8 in the node and a tree 6 deep between 64 nodes
    latency = 8e-6 + 2 * (7 * 3e-6 + 6 * 14e-6)
    assert tree[0] == pytest.approx(latency + 2 * 1e3 / (0.92 * 1e10), rel=1e-12)


def test_star_grows_linearly_with_the_devices() -> None:
    times = [one("one_to_all", GB, group(n)) for n in (2.0, 3.0, 5.0, 9.0)]
    assert times == pytest.approx([0.1, 0.2, 0.4, 0.8], rel=1e-12)
    assert one("all_to_one", GB, group(3.0)) == pytest.approx(0.2)
    assert np.isinf(ALGORITHMS["star"].time_s("all_reduce", np.array([[1.0]]), group(2.0))).all()


@given(st.lists(st.tuples(st.integers(1, 64), st.integers(1, 16)), min_size=1, max_size=20))
def test_a_column_equals_the_same_configuration_alone(shapes: list[tuple[int, int]]) -> None:
    nodes = np.array([float(a) for a, _ in shapes])
    ranks = nodes * np.array([float(b) for _, b in shapes])
    hops = np.linspace(1e-6, 2e-5, len(shapes))
    sizes = np.array([[1e3], [1e7], [3e9]])
    together = {
        op: time_s(op, sizes, group(ranks, nodes, intra_hop_s=hops, inter_hop_s=2 * hops))
        for op in OPS
    }
    for c in range(len(shapes)):
        alone = group(ranks[c], nodes[c], intra_hop_s=hops[c], inter_hop_s=2 * hops[c])
        for op in OPS:
            assert time_s(op, sizes, alone)[:, 0].tolist() == together[op][:, c].tolist()


def test_the_formula_knows_no_loop_over_ranks() -> None:
    """Eighty thousand ranks are one column like any other."""
    assert time_s("all_reduce", np.array([[GB]]), group(80_000.0, 10_000.0)).shape == (1, 1)


def test_all_to_all_by_hand() -> None:
    """4 ranks on 2 nodes, 1 GB each: 1/4 GB to the neighbour, 2 x 1/2 GB over the node's NICs."""

    def time(nodes: float, intra: float, inter: float) -> float:
        on = Group(*(np.array([v]) for v in (4.0, nodes, intra, inter, 0.0, 0.0, 0.0)))
        return one("all_to_all", 1e9, on)

    assert time(2.0, 1e11, 1e10) == pytest.approx(2 * 0.5e9 / 1e10)
    assert time(2.0, 1e9, 1e12) == pytest.approx(0.25e9 / 1e9)
    assert time(1.0, 1e11, 1e10) == pytest.approx(0.75e9 / 1e11)


def test_between_latency_and_rate_a_collective_loses_the_ramp() -> None:
    """Where both are equal the loss is largest: ramp / 2 of their sum."""
    bent = replace(group(2.0, intra_bw=1e9, base_s=1e-3), ramp=1.5)
    sizes = np.array([[1e3], [1e6], [1e9]])  # transfers of 1 us, 1 ms, 1 s beside 1 ms
    plain = time_s("all_reduce", sizes, replace(bent, ramp=0.0))
    found = time_s("all_reduce", sizes, bent)
    assert (found / plain)[1, 0] == pytest.approx(1.75)
    assert (found / plain)[[0, 2], 0] == pytest.approx(1.047, abs=1e-3)


def test_measured_curves_inside_a_node_are_met() -> None:
    """NVSwitch, 2 to 8 ranks, 256 KiB to 1 GiB, NCCL's ways: one rate and one ramp for all."""
    data = read_yaml(shipped_root() / "hardware_db" / "calibrations" / "collectives.yaml")
    profile = load_profile()
    errors: dict[tuple[str, str, int], list[float]] = {}
    for curve in data["curves"]:
        op, sizes = curve["collective"], np.array(curve["bytes"], dtype=float)
        if curve["path"] != "nvswitch" or op not in ("all_reduce", "all_gather", "reduce_scatter"):
            continue
        cluster = parse_cluster(f"{curve['ranks']}x{curve['gpu']}")
        points = Points.of(point_values(cluster, profile, "", 1, 1), 1)
        large = (sizes >= 2**18) & (sizes <= 2**30)
        if not large.any():
            continue
        told = time_s(op, sizes[large, None], points.group(points.n_ranks, points.n_nodes))[:, 0]
        key = curve["gpu"], op, curve["ranks"]
        errors.setdefault(key, []).extend(told / (np.array(curve["us"])[large] * 1e-6) - 1.0)
    assert len(errors) >= 36
    mean = {key: float(np.abs(e).mean()) for key, e in errors.items()}
    assert np.mean(list(mean.values())) < 0.17
    assert abs(np.median(np.concatenate(list(errors.values())))) < 0.05
    # One node of Hopper reduces in its switch: rings alone are 40 % too slow.
    assert mean["H100-SXM-80GB", "all_reduce", 8] < 0.15


@given(groups(), st.integers(-1, 3), st.booleans(), st.sampled_from([0.0, 4e11]), st.booleans())
def test_a_reduce_scatter_costs_what_an_all_gather_does(
    on: Group, generation: int, nvlink: bool, switch: float, sharp: bool
) -> None:
    """``options_of`` asks algorithms for one of them: each must treat both alike."""
    library = Library(
        generation=generation, nvlink=nvlink, nvls_bw_bytes_per_s=switch, sharp=sharp
    )  # fmt: skip
    on = replace(on, library=library, nvls_bw_bytes_per_s=np.full(1, switch))
    sizes = np.array([[1e3], [1e9]])
    for name in ALGORITHMS:
        both = [ALGORITHMS[name].time_s(op, sizes, on) for op in ("reduce_scatter", "all_gather")]
        assert np.array_equal(both[0], both[1]), name


@pytest.mark.parametrize("generation", range(4))
@pytest.mark.parametrize("op", OPS)
def test_one_rank_costs_nothing_with_nccl_either(op: Collective, generation: int) -> None:
    """Next to a configuration with eight ranks, whose launch and hops take time."""
    on = group(
        np.array([1.0, 8.0]), intra_hop_s=1.0, base_s=1.0, generation=generation, nvlink=True,
        nvls_bw_bytes_per_s=1e11,
    )  # fmt: skip
    alone, several = time_s(op, np.array([[GB]]), on)[0]
    assert alone == 0.0 < several


@pytest.mark.parametrize("op", OPS)
def test_a_single_node_has_no_uplinks(op: Collective) -> None:
    """Whatever the switches between nodes are, ranks of one node meet inside it."""
    plain = one(op, GB, group(8.0, generation=2, nvlink=True))
    thin = group(8.0, generation=2, nvlink=True, oversubscription=7.0, leaf_nodes=4.0, rails=True)
    assert one(op, GB, thin) == plain > 0.0


def test_a_library_of_which_nothing_is_known_has_rings_trees_and_no_bottleneck() -> None:
    """No reduction in switches, no restriction, no ramp: the ring is 2 * 7/8 * 1 GB / 10 GB/s."""
    on = group(8.0, 4.0)
    assert {w[:2] for w in ways("all_reduce", GB, on)} == {("Ring", ""), ("Tree", "")}
    assert {w[0]: w[2] for w in ways("all_reduce", GB, on)}["Ring"] == pytest.approx(0.175)
    assert Library() == Library(
        generation=-1, nvlink=False, amd_host=False, nvls_bw_bytes_per_s=0.0, sharp=False,
        nic_latency_s=0.0, channel_bw_bytes_per_s=0.0, intra_chunk_ramp=0.0, inter_chunk_ramp=0.0,
        leaf_nodes=np.inf, oversubscription=1.0, rails=False, fabric=None, node_stride=1.0,
        torus=(), release=(2, 30),
    )  # fmt: skip
    assert (on.ramp, on.nvls_bw_bytes_per_s, on.node_stride) == (0.0, 0.0, 1.0)


def test_copies_of_a_token_meet_in_random_places() -> None:
    """By counting: two copies to two places meet in half of the four cases, 1.5 places in the mean.

    Chosen groups: with one of two groups on two places both copies go to one place; with one of
    four groups on two places (two groups a place) as well; with two of four, the pairs of groups
    share a place in 2 of 6 cases (1 place), else the two copies are spread at random (1.5).
    """
    two = np.array([2.0])
    assert once_each_frac(two, 2.0) == pytest.approx(1.5 / 2)
    assert once_each_frac(np.array([1.0, 4.0]), 3.0) == pytest.approx([1 / 3, 37 / 16 / 3])
    assert once_each_frac(two, 2.0, groups=2, chosen=1) == pytest.approx(0.5)
    assert once_each_frac(np.array([0.5]), 3.0) == pytest.approx([1 / 3])  # one place at least
    assert once_each_frac(two, 2.0, groups=4, chosen=1) == pytest.approx(0.5)
    some = once_each_frac(two, 2.0, groups=4, chosen=2)
    assert some == pytest.approx((2 * 1.0 + 4 * 1.5) / 6 / 2)


@pytest.mark.parametrize(
    ("places", "groups_", "chosen", "copies"),
    [(2, 3, 1, 2), (2, 3, 2, 2), (2, 3, 2, 3), (3, 4, 2, 2), (3, 5, 4, 2), (4, 2, 1, 3),
     (1, 3, 1, 2), (3, 3, 2, 2), (2, 3, 3, 2)],
)  # fmt: skip
def test_copies_within_chosen_groups_by_enumeration(
    places: int, groups_: int, chosen: int, copies: int
) -> None:
    """Experts in order over places and groups: all choices of groups and of experts in them."""
    each = places * groups_ // gcd(places, groups_) // groups_  # experts of a group
    expert_places = [e * places // (groups_ * each) for e in range(groups_ * each)]
    distinct = [
        len({expert_places[e] for e in picked})
        for taken in combinations(range(groups_), chosen)
        for picked in product([g * each + i for g in taken for i in range(each)], repeat=copies)
    ]
    found = once_each_frac(np.array([float(places)]), float(copies), groups_, chosen)
    assert found == pytest.approx(sum(distinct) / len(distinct) / copies)


def test_ranks_that_no_algorithm_serves_wait_for_ever_and_one_alone_for_nothing() -> None:
    """Trees run no all-gather."""
    on = group(np.array([1.0, 8.0]))
    assert ALGORITHMS["Tree"].time_s("all_gather", np.array([[GB]]), on).tolist() == [[0.0, inf]]
    four = once_each_frac(np.array([4.0]), 2.0, groups=2, chosen=1)  # the group has two places
    assert four == pytest.approx(1.5 / 2)


class Recorded:
    """A fabric that gives every pattern half of a node's rate, and remembers what was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, float]] = []

    def share(self, sends: str, n_nodes: np.ndarray, stride: float) -> np.ndarray:
        self.asked.append((sends, stride))
        return np.full(n_nodes.shape, 0.5)


def test_nodes_apart_in_groups_that_are_apart_lie_at_the_product_of_both() -> None:
    """Every third node of groups whose nodes are two apart, with leaf switches of 24 nodes."""
    fabric = Recorded()
    apart = replace(
        group(8.0, 8.0, inter_bw=10e9, fabric=fabric, node_stride=2.0, leaf_nodes=24.0),
        node_stride=3.0,
    )
    assert apart.across("tree")[0] == 5e9 and fabric.asked == [("tree", 6.0)]
    assert apart.leaf_nodes == 4.0
    assert replace(apart, node_stride=30.0).leaf_nodes == 1.0


def test_a_rank_is_on_one_node_and_a_place_is_one() -> None:
    assert group([2.0, 4.0, 6.0], 4.0).a_node.tolist() == [1.0, 1.0, 1.5]
    one, less = (once_each_frac(np.array([m]), 4.0) for m in (1.0, 0.5))
    assert one == less == pytest.approx(0.25)


def test_an_exchange_over_two_nodes_of_a_leaf_each_climbs_whole() -> None:
    """Half of 1 GB leaves the node at 10 GB/s, or at half of that over uplinks 2 : 1."""
    uplinks = {"leaf_nodes": 1.0, "oversubscription": 2.0}
    two = group(2.0, 2.0, intra_bw=1e15, **uplinks)
    assert one("all_to_all", GB, two) == pytest.approx(0.1)
    assert one("all_to_all", GB, group(2.0, 2.0, intra_bw=1e15)) == pytest.approx(0.05)
    assert one("all_to_all", GB, group(4.0, 1.0, **uplinks)) == pytest.approx(0.075)


def test_channels_limit_rings_of_ll128_between_nodes() -> None:
    """300 GB/s in 8 channels of 20 GB/s: LL128 gets 160, Simple 300, of 92 % and all."""
    on = group(16.0, 2.0, intra_bw=1e15, inter_bw=300e9, generation=1, nvlink=True,
               channel_bw_bytes_per_s=37.5e9)  # fmt: skip
    rates = {o.protocol: 15 / 16 / float(o.s_per_byte[0]) for o in
             ALGORITHMS["Ring"].options("all_gather", on)}  # fmt: skip
    assert rates["LL128"] == pytest.approx(160e9)
    assert rates["Simple"] == pytest.approx(300e9)
    pcie = replace(on, library=replace(on.library, nvlink=False))
    plain = {o.protocol: 15 / 16 / float(o.s_per_byte[0]) for o in
             ALGORITHMS["Ring"].options("all_gather", pcie)}  # fmt: skip
    assert plain == {"LL": pytest.approx(rates["LL"]), "Simple": pytest.approx(300e9)}


def test_a_library_and_a_group_assume_nothing_of_their_hardware() -> None:
    """Neither NVLink, switches that reduce, latencies nor rails; a generation that is not known."""
    assert on_by_default(Library, Group) == {
        "generation": -1, "leaf_nodes": np.inf, "oversubscription": 1.0, "node_stride": 1.0,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("ranks", "nodes", "offered"), [(1, 1, 0), (2, 2, 1), (8, 8, 1), (4, 2, 0)]
)
@pytest.mark.parametrize("op", ["all_gather", "reduce_scatter"])
def test_pat_by_hand(op: Collective, ranks: int, nodes: int, offered: int) -> None:
    """8 us + log2(n) (14 us + 2 latencies of the NIC) / 3.5 + 2.8 us n, at 3/4 of the bandwidth.

    Only with one rank a node, of which there are several; of an all-reduce there is none.
    """
    on = group(float(ranks), float(nodes), inter_bw=4e9, generation=2, nic_latency_s=3e-6)
    options = ALGORITHMS["PAT"].options(op, on)
    assert len(options) == offered
    assert not ALGORITHMS["PAT"].options("all_reduce", on)
    if offered:
        found = options[0].time_s(np.array([[3e9]]))[0, 0]
        fixed = 8e-6 + np.log2(ranks) * 20e-6 / 3.5 + 2.8e-6 * ranks
        sent = 3e9 * (ranks - 1) / ranks if False else 3e9
        assert found == pytest.approx(fixed + sent / (0.75 * 4e9), rel=1e-6)


def test_what_no_algorithm_offers_never_ends_but_with_one_rank_alone() -> None:
    on = group([1.0, 2.0], 1.0)
    on.known_options["all_reduce"] = []
    assert time_s("all_reduce", np.array([[GB]]), on).tolist() == [[0.0, inf]]
