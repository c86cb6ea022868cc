"""What every kind of fabric keeps: routes are shortest paths of its graph, files are checked."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from simcore.base.errors import DataError, InvalidConfig, UnknownName
from simcore.hardware.fabrics import topology
from simcore.hardware.fabrics.record import (
    FABRICS,
    KINDS,
    FabricRecord,
    fabric_named,
    host_list,
    node_range,
    rate_of,
    read_fabric,
)

nx = pytest.importorskip("networkx")

#: A fabric of each kind for nodes of 100 GB/s, its nodes, and its cut by hand [GB/s].
EXAMPLES = {
    "fat-tree": ("tiers: [{members: 3, oversubscription: 2}]", 12, 6 * 100 / 2),
    "rail-optimised": ("rails: 2\ntiers: [{members: 3, oversubscription: 2}]", 12, 6 * 100 / 2),
    # two rows of cables around the long dimension, 100 / 4 each
    "torus": ("shape: [6, 3]", 18, 2 * 3 * 25),
    # group 0 to 2, 3, 4 and 1 to 2, 3, 4 and half of group 2 to the rest: 5 x 4 links and locals
    "dragonfly": ("groups: 4\nswitches: 2\nswitch_nodes: 2\nglobal_link: 50 Gbit/s", 16, 4 * 6.25),
    "links": (
        "nodes: n[0-3]\nlinks:\n"
        "  - {between: 'n[0-1]', to: a, rate: 400 Gbit/s}\n"
        "  - {between: 'n[2-3]', to: b, rate: 400 Gbit/s}\n"
        "  - {between: a, to: 'c[0-1]', rate: 200 Gbit/s}\n"
        "  - {between: 'c[0-1]', to: b, rate: 200 Gbit/s}",
        4,
        50,
    ),
}
RATE = 100e9


def fabric(kind: str, text: str = "", name: str = "made") -> FabricRecord:
    return read_fabric(f"name: {name}\nkind: {kind}\n{text or EXAMPLES[kind][0]}\n", "made.yaml")


def test_every_kind_has_an_example() -> None:
    assert set(EXAMPLES) == set(KINDS)


@pytest.mark.parametrize("kind", EXAMPLES)
def test_routes_are_shortest_paths_and_carry_everything(kind: str) -> None:
    """At every vertex of a flow as much goes out as comes in; hops weighted by share are those of
    networkx's shortest path.
    """
    made = fabric(kind).topology(EXAMPLES[kind][1], RATE)
    graph = made.graph()
    ports = np.arange(made.n_ports)
    source, target = (x.ravel() for x in np.meshgrid(ports, ports))
    routes = made.routes(source, target)
    hops = np.bincount(routes.flow, routes.frac, len(source))
    for f, (a, b) in enumerate(zip(source, target, strict=True)):
        between = graph if made.forwards else graph.subgraph(
            [v for v in graph if v >= made.n_ports or v in (a, b)]
        )  # fmt: skip
        assert hops[f] == pytest.approx(nx.shortest_path_length(between, a, b))
    v = len(made.names)
    out = np.bincount(routes.flow * v + made.tail[routes.link], routes.frac, len(source) * v)
    into = np.bincount(routes.flow * v + made.head[routes.link], routes.frac, len(source) * v)
    left = (out - into).reshape(-1, v)
    for f, (a, b) in enumerate(zip(source, target, strict=True)):
        expected = np.zeros(v)
        if a != b:
            expected[a], expected[b] = 1.0, -1.0
        assert left[f] == pytest.approx(expected)


@pytest.mark.parametrize("kind", ["rail-optimised", "dragonfly", "links"])
def test_routes_found_in_small_portions_are_the_same(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = fabric(kind).topology(EXAMPLES[kind][1], RATE)
    source, target = (x.ravel() for x in np.meshgrid(*2 * [np.arange(made.n_ports)]))
    whole = made.routes(source, target)
    monkeypatch.setattr(topology, "_CANDIDATES", 3)
    monkeypatch.setattr(topology, "_AT_ONCE", 2)
    portions = made.routes(source, target)

    def loads(found: topology.Routes) -> np.ndarray:
        key = found.flow * len(made.tail) + found.link
        return np.bincount(key, found.frac, len(source) * len(made.tail))

    assert loads(portions) == pytest.approx(loads(whole))


@pytest.mark.parametrize("kind", EXAMPLES)
def test_the_cut_between_halves_is_that_by_hand(kind: str) -> None:
    _, n_nodes, cut = EXAMPLES[kind]
    topology = fabric(kind).topology(n_nodes, RATE)
    assert topology.cut_bytes_per_s(n_nodes // 2) == pytest.approx(cut * 1e9)


@pytest.mark.parametrize("kind", EXAMPLES)
def test_records_say_what_they_are_and_how_large(kind: str) -> None:
    record = fabric(kind)
    assert record.in_words()
    assert record.oversubscription >= 1.0
    assert record.by_rails == (kind == "rail-optimised")
    with pytest.raises(InvalidConfig, match=r"has [\d,]+ nodes for a job, not"):
        record.placed(record.most_nodes + 1)


@pytest.mark.parametrize("kind", [k for k in EXAMPLES if k not in ("torus",)])
def test_hashed_flows_take_one_of_the_shortest_paths(kind: str) -> None:
    more = "spines: 2\n" if "tree" in kind or "rail" in kind else ""
    record = fabric(kind, f"{more}routing: hashed\n{EXAMPLES[kind][0]}")
    topology = record.topology(EXAMPLES[kind][1], RATE)
    source, target = np.zeros(200, dtype=np.intp), np.full(200, topology.n_ports - 1)
    routes = topology.routes(source, target)
    assert (routes.frac == 1.0).all()
    assert len(np.unique(np.bincount(routes.flow))) == 1  # as many hops each
    if kind in ("fat-tree", "rail-optimised", "links"):  # both ways are taken about equally
        used = np.bincount(routes.link)
        used = used[(used > 0) & (used < 200)]
        assert len(used) == 4
        assert used == pytest.approx(100, abs=30)


def test_shipped_fabrics_have_a_source() -> None:
    assert FABRICS.names()
    for record in FABRICS.all():
        assert record.full_name
        assert record.source
        assert not record.jobs


def test_the_cluster_of_llama_3() -> None:
    """2 x 192 nodes a pod; a seventh of 384 leaves it: 2,560 GPUs' network in nodes is 54.9."""
    record = fabric_named("meta-24k")
    assert (record.name, record.most_nodes) == ("llama3-24k", 3072)
    topology = record.topology(3072, RATE)
    assert topology.cut_bytes_per_s(1536) == pytest.approx(4 * 384 * RATE / 7)


def test_other_jobs_leave_the_rest_to_the_job() -> None:
    record = fabric("fat-tree", "tiers: [{members: 4}]\njobs: [{nodes: '0-1,4'}]")
    assert record.placed(3) == (2, 3, 5)
    chosen = fabric("fat-tree", "tiers: [{members: 4}]\njob_nodes: 0-8:4\njobs: [{nodes: 1}]"
                    .replace("nodes: 1}", "nodes: '1'}"))  # fmt: skip
    assert chosen.placed(2) == (0, 4)
    with pytest.raises(InvalidConfig, match="has 3 nodes for a job, not 4"):
        chosen.placed(4)


def test_words_of_nodes_hosts_and_rates() -> None:
    assert node_range("0-2,8-12:2") == (0, 1, 2, 8, 10, 12)
    assert host_list("leaf[0-1]") == ("leaf0", "leaf1")
    assert host_list("spine") == ("spine",)
    assert rate_of("400 Gbit/s") == 50e9
    assert rate_of("8xib-ndr") == 8 * rate_of("ib-ndr")
    for wrong in ("", "3-1", "a", "0-99999999", "1-5:0"):
        with pytest.raises(ValueError, match="nodes"):
            node_range(wrong)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[1, 2]", "needs a kind"),
        ("name: a\nkind: ring", "one of fat-tree, rail-optimised"),
        ("name: a\nkind: fat-tree", "'tiers' is missing"),
        ("name: a\nkind: fat-tree\ntiers: [{members: 0}]", "greater than or equal to 1"),
        ("name: a\nkind: fat-tree\ntiers: [{members: 1}]\nnodes: 20000", "leaf switches"),
        ("name: a\nkind: fat-tree\ntiers: [{member: 1}]", "did you mean 'members'"),
        ("name: a\nkind: fat-tree\ntiers: [{members: 4}]\nrouting: hashed", "number of spines"),
        ("name: a\nkind: torus\nshape: [200, 200]", "at most 4,096 nodes"),
        ("name: a\nkind: torus\nshape: [4]", "at least 2"),
        ("name: a\nkind: torus\nshape: [4, 4]\nlink: 3 apples", "apples"),
        ("name: a\nkind: torus\nshape: [4, 4]\nlink: pcie4-x16", "does not join nodes"),
        ("name: a\nkind: dragonfly\ngroups: 90\nswitches: 90\nswitch_nodes: 1", "switches are"),
        ("name: a\nkind: links\nnodes: n[0-1]\nlinks: []", "at least 1"),
        ("name: a\nkind: links\nnodes: n[0-1]\nlinks: [{between: n0, to: n0, rate: ib-ndr}]",
         "to itself"),
        ("name: a\nkind: links\nnodes: n[0-1]\nlinks: [{between: n0, to: s, rate: ib-ndr}]",
         "n1 has no link"),
        ("name: a\nkind: links\nnodes: n[0-1999]\n"
         "links: [{between: 'n[0-1999]', to: 's[0-99]', rate: ib-ndr}]", "more than 40,000 cables"),
        ("name: a\nkind: fat-tree\ntiers: &t [{members: 4}]", "anchors"),
        ("name: a\nkind: fat-tree\ntiers: [{members: 4}]\njobs:\n"
         + "  - {nodes: '1', busy: 0.5}\n" * 6, "at most 5 jobs"),
    ],
)  # fmt: skip
def test_a_bad_file_ends_in_one_sentence(text: str, says: str) -> None:
    with pytest.raises(DataError, match=says) as error:
        read_fabric(text, "bad.yaml")
    assert str(error.value).startswith("bad.yaml")


def test_a_large_file_is_not_read(tmp_path: Path) -> None:
    file = tmp_path / "large.yaml"
    file.write_text("name: a\n" + "#" * 70_000)
    with pytest.raises(DataError, match="larger than 64 KiB"):
        fabric_named(str(file))


def test_unknown_names_and_missing_files() -> None:
    with pytest.raises(UnknownName, match="did you mean 'superpod-h100'"):
        fabric_named("superpod-h10")
    with pytest.raises(DataError, match="no such fabric file"):
        fabric_named("nowhere.yaml")
    apart = "nodes: n[0-1]\nlinks:\n  - {between: n0, to: a, rate: ib-ndr}\n"
    lost = fabric("links", f"{apart}  - {{between: n1, to: b, rate: ib-ndr}}")
    with pytest.raises(InvalidConfig, match="has no path from a"):
        lost.topology(2, RATE).routes(np.array([0]), np.array([1]))
