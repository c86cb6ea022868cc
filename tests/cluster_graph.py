"""The cluster as a graph: devices, PCIe roots, sockets, NICs, switches, links with rates.

What ``hardware.paths`` says in closed form is held against flows through this graph. Equal nodes
are folded: at most ``shown_nodes`` of each group are drawn, however many there are.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import networkx as nx

from simcore.hardware.cluster import ClusterSpec, NodeGroup, link_named
from simcore.hardware.paths import mesh_share, over_nvlink, port_share

SWITCH = "network"


def build_graph(cluster: ClusterSpec, shown_nodes: int = 2) -> Any:
    """A ``networkx.Graph``; edges carry ``bw_bytes_per_s`` and ``link``.

    Node names: ``g0n1gpu2`` (group, node, device), ``…root0``, ``…socket0``, ``…nic0``,
    ``…nvlink`` (the NVLink fabric), ``network``.
    """
    graph = nx.Graph()
    for index, group in enumerate(cluster.groups):
        for n in range(min(group.n_nodes, shown_nodes)):
            _add_node(graph, f"g{index}n{n}", group, networked=cluster.n_nodes > 1)
    return graph


def _add_node(graph: Any, prefix: str, group: NodeGroup, *, networked: bool) -> None:
    gpu, node = group.gpu, group.node
    port = link_named(node.pcie_link)
    port_bw = port.bw.value * port.payload_frac.value
    sockets = node.cpu.sockets
    n_roots = -(-node.max_gpus // node.gpus_per_pcie_root)
    switched = over_nvlink(group)
    for i in range(group.gpus_per_node):
        name, root = f"{prefix}gpu{i}", i // node.gpus_per_pcie_root
        graph.add_node(name, kind="gpu", type=gpu.name)
        graph.add_edge(
            name,
            f"{prefix}root{root}",
            link=port.name,
            bw_bytes_per_s=port_bw * port_share(gpu, port),
        )
        graph.nodes[f"{prefix}root{root}"]["kind"] = "pcie_root"
        socket = root * sockets // n_roots
        graph.add_edge(
            f"{prefix}root{root}", f"{prefix}socket{socket}", link=port.name,
            bw_bytes_per_s=port_bw,
        )  # fmt: skip
        graph.nodes[f"{prefix}socket{socket}"]["kind"] = "socket"
        if switched and gpu.nvlink_bw is not None:
            graph.add_edge(
                name, f"{prefix}nvlink", link="nvlink",
                bw_bytes_per_s=gpu.nvlink_bw.value * mesh_share(node, group.gpus_per_node),
            )  # fmt: skip
            graph.nodes[f"{prefix}nvlink"]["kind"] = "nvlink_fabric"
    if node.socket_link is not None:
        socket_link = link_named(node.socket_link)
        rate = socket_link.bw.value * socket_link.payload_frac.value
        present = [s for s in range(sockets) if f"{prefix}socket{s}" in graph]
        for a, b in pairwise(present):
            graph.add_edge(
                f"{prefix}socket{a}", f"{prefix}socket{b}", link=socket_link.name,
                bw_bytes_per_s=rate,
            )  # fmt: skip
    if networked:
        count = 0
        for nic in node.nics:
            link = link_named(nic.link)
            for _ in range(nic.count):
                name = f"{prefix}nic{count}"
                graph.add_node(name, kind="nic")
                graph.add_edge(
                    name, f"{prefix}socket0",
                    link="pcie", bw_bytes_per_s=float("inf"),
                )  # fmt: skip
                graph.add_edge(
                    name, SWITCH, link=link.name,
                    bw_bytes_per_s=link.bw.value * link.payload_frac.value,
                )  # fmt: skip
                count += 1
        graph.nodes[SWITCH]["kind"] = "switch"


def widest_path(graph: Any, source: str, target: str) -> list[str]:
    """The path between two vertices whose narrowest link is widest; ties by fewest hops."""
    rates = sorted({d["bw_bytes_per_s"] for *_, d in graph.edges(data=True)}, reverse=True)
    for rate in rates:
        wide = nx.subgraph_view(
            graph, filter_edge=lambda u, v, r=rate: graph[u][v]["bw_bytes_per_s"] >= r
        )
        if nx.has_path(wide, source, target):
            path: list[str] = nx.shortest_path(wide, source, target)
            return path
    raise nx.NetworkXNoPath(f"no path from {source} to {target}")


def bottleneck(graph: Any, ranks: Iterable[str]) -> tuple[float, str, tuple[str, str]]:
    """(bytes/s, link name, edge) that limits a ring over ``ranks`` in the given order.

    Hops that share a link in the same direction share its rate.
    """
    order = list(ranks)
    load: dict[tuple[str, str], int] = {}
    for a, b in zip(order, order[1:] + order[:1], strict=True):
        path = widest_path(graph, a, b)
        for edge in pairwise(path):
            load[edge] = load.get(edge, 0) + 1
    worst = min(load, key=lambda e: graph.edges[e]["bw_bytes_per_s"] / load[e])
    data = graph.edges[worst]
    return data["bw_bytes_per_s"] / load[worst], data["link"], worst


def pcie_roots(graph: Any, ranks: Iterable[str]) -> dict[str, list[str]]:
    """Which of ``ranks`` share which PCIe root."""
    shared: dict[str, list[str]] = {}
    for rank in ranks:
        for neighbour in graph[rank]:
            if graph.nodes[neighbour]["kind"] == "pcie_root":
                shared.setdefault(neighbour, []).append(rank)
    return shared


def shared_nics(graph: Any, ranks: Iterable[str]) -> dict[str, list[str]]:
    """NICs of each node, and the ranks whose traffic to other nodes they carry together."""
    by_node: dict[str, list[str]] = {}
    for rank in ranks:
        by_node.setdefault(rank.split("gpu")[0], []).append(rank)
    return {
        vertex: by_node[prefix]
        for prefix in by_node
        for vertex in graph.nodes
        if vertex.startswith(prefix + "nic")
    }
