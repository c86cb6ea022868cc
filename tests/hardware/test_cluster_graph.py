"""The graph that paths are held against: shapes, folding, what is shared."""

from __future__ import annotations

import pytest

from simcore.hardware.cluster import parse_cluster
from tests.cluster_graph import (
    SWITCH,
    bottleneck,
    build_graph,
    pcie_roots,
    shared_nics,
    widest_path,
)


def gpus(node: int, n: int) -> list[str]:
    return [f"g0n{node}gpu{i}" for i in range(n)]


def test_pairs_of_a_dgx_share_a_root() -> None:
    graph = build_graph(parse_cluster("1x8xA100-SXM-80GB"))
    roots = pcie_roots(graph, gpus(0, 8))
    assert sorted(map(sorted, roots.values())) == [
        [f"g0n0gpu{i}", f"g0n0gpu{i + 1}"] for i in (0, 2, 4, 6)
    ]


def test_each_a6000ada_has_a_root_of_its_own() -> None:
    graph = build_graph(parse_cluster("1x8xA6000ada"))
    assert all(len(v) == 1 for v in pcie_roots(graph, gpus(0, 8)).values())
    sockets = {s for s in graph if graph.nodes[s]["kind"] == "socket"}
    assert len(sockets) == 2


def test_all_devices_of_a_node_share_its_nics() -> None:
    graph = build_graph(parse_cluster("2x8xA6000ada"))
    shared = shared_nics(graph, gpus(0, 8) + gpus(1, 8))
    assert shared == {"g0n0nic0": gpus(0, 8), "g0n1nic0": gpus(1, 8)}


def test_one_node_needs_no_network() -> None:
    assert SWITCH not in build_graph(parse_cluster("1x8xA6000ada"))


def test_equal_nodes_are_folded() -> None:
    graph = build_graph(parse_cluster("10000x8xA6000ada"))
    devices = [v for v in graph if graph.nodes[v]["kind"] == "gpu"]
    assert len(devices) == 16


def test_every_vertex_says_what_it_is() -> None:
    for text in ("2x8xA100", "2x8xRTX4090", "1x2xA100+1x3xT4", "2x72xGB200"):
        graph = build_graph(parse_cluster(text))
        assert all("kind" in graph.nodes[v] for v in graph)
        assert all(d["bw_bytes_per_s"] > 0 and d["link"] for *_, d in graph.edges(data=True))


def test_the_widest_path_prefers_nvlink_and_few_hops() -> None:
    graph = build_graph(parse_cluster("1x8xA100-SXM-80GB"))
    assert widest_path(graph, "g0n0gpu0", "g0n0gpu7") == ["g0n0gpu0", "g0n0nvlink", "g0n0gpu7"]


def test_between_nodes_the_nic_is_the_bottleneck() -> None:
    """One HDR100 port a node: 12.5 GB/s less its overhead, both ways of one ring."""
    graph = build_graph(parse_cluster("2x8xA6000ada", network="ib-hdr100"))
    rate, link, edge = bottleneck(graph, gpus(0, 8) + gpus(1, 8))
    assert link == "ib-hdr100"
    assert SWITCH in edge
    assert 0.8 * 12.5e9 < rate <= 12.5e9


def test_mixed_clusters_are_joined() -> None:
    graph = build_graph(parse_cluster("1x2xA100+1x3xT4"))
    path = widest_path(graph, "g0n0gpu0", "g1n0gpu2")
    assert SWITCH in path
    _, link, _ = bottleneck(graph, ["g0n0gpu0", "g1n0gpu0"])
    assert link == "eth-10"


@pytest.mark.parametrize("n", [2, 4, 8])
def test_a_ring_backwards_meets_the_same_bottleneck(n: int) -> None:
    graph = build_graph(parse_cluster("1x8xA6000ada"))
    assert bottleneck(graph, gpus(0, n))[0] == bottleneck(graph, gpus(0, n)[::-1])[0]
