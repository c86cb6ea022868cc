"""A fabric: its switches and links with the job's nodes, and the share that each group gets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from simcore.answer.fabric_groups import FabricView
from simcore.hardware.fabrics.record import node_range
from simcore.report.plots.canvas import (
    BLUE,
    GREY,
    INK,
    LIGHT,
    ORANGE,
    SMALL,
    WHITE,
    Drawing,
    canvas,
    finish,
)

#: Beyond so many vertices the ports of nodes are left out, and beyond so many switches the rest.
_MOST_DRAWN = 200


def draw(view: FabricView) -> Drawing:
    """Left the graph: the job's nodes filled, those of others hatched; width of a line by its rate.
    Right a bar for each kind of group.
    """
    figure = canvas(10.0, 4.2)
    left, right = figure.subplots(1, 2, width_ratios=[1.5, 1.0])
    _graph(left, view)
    names = [f"{g.name}, {g.sends}" for g in view.groups]
    shares = [g.share for g in view.groups]
    right.barh(range(len(names)), shares, color=BLUE, height=0.6)
    for at, group in enumerate(view.groups):
        text = f"{group.share:.2f}" + f"  {group.link}" * bool(group.link)
        inside = group.share > 0.5
        right.text(group.share + (-0.02 if inside else 0.02), at, text, va="center",
                   ha="right" if inside else "left", fontsize=SMALL,
                   color=WHITE if inside else INK)  # fmt: skip
    right.set_yticks(range(len(names)), names)
    right.set_xlim(0, 1)
    right.invert_yaxis()
    finish(right, f"groups of {view.job}", "share of the nodes' network", "")
    return figure


def _in_tiers(graph: Any, nodes: list[int]) -> dict[int, tuple[float, float]]:
    """Nodes in a row, and each tier of switches above what it joins."""
    import networkx as nx

    layers: Any = nx.bfs_layers(graph, nodes)
    at: dict[int, tuple[float, float]] = {}
    for level, layer in enumerate(layers):
        below = [[at[v][0] for v in graph[switch] if v in at] for switch in layer]
        places = [float(np.mean(row)) if row else 0.0 for row in below]
        if len(set(places)) < len(places):  # several above the same ones, and the nodes
            places = list(np.linspace(0.0, max(len(nodes) - 1.0, 1.0), 2 * len(places) + 1)[1::2])
        at |= {v: (x, float(level)) for v, x in zip(layer, places, strict=True)}
    return at


def _graph(axes: Any, view: FabricView) -> None:
    import networkx as nx

    topology = view.shares.topology
    graph = topology.graph().to_undirected()
    if len(graph) > _MOST_DRAWN and not topology.forwards:
        graph.remove_nodes_from(range(topology.n_ports))
    graph = graph.subgraph(list(graph)[:_MOST_DRAWN])
    if topology.forwards or not any(graph.nodes[v]["node"] >= 0 for v in graph):
        at = nx.spring_layout(graph, seed=1, iterations=200)
    else:
        at = _in_tiers(graph, [v for v in graph if graph.nodes[v]["node"] >= 0])
    rates = np.array([rate for *_, rate in graph.edges(data="bytes_per_s")])
    widths = 0.5 + 3.0 * np.sqrt(rates / max(rates.max(initial=0.0), 1.0))
    for (a, b), width in zip(graph.edges(), widths, strict=True):
        axes.plot(*zip(at[a], at[b], strict=True), color=GREY, linewidth=width, zorder=1)
    others = {n for job in view.record.jobs for n in node_range(job.nodes)}
    own = set(view.shares.nodes.tolist())
    kinds: tuple[tuple[str, str, str, Callable[[int], bool]], ...] = (
        ("switch", WHITE, "s", lambda n: n < 0),
        ("node of the job", BLUE, "o", lambda n: n in own),
        ("node of another job", ORANGE, "^", lambda n: n in others and n not in own),
        ("free node", LIGHT, "o", lambda n: n >= 0 and n not in own and n not in others),
    )
    for label, colour, marker, has in kinds:
        places = [at[v] for v, node in graph.nodes(data="node") if has(node)]
        if places:
            axes.scatter(*zip(*places, strict=True), s=36, c=colour, edgecolors=INK, marker=marker,
                         linewidths=0.7, label=label, zorder=2)  # fmt: skip
    axes.set_axis_off()
    axes.legend(fontsize=SMALL, frameon=False, loc="lower center", ncols=2,
                bbox_to_anchor=(0.5, -0.12))  # fmt: skip
    axes.set_title(f"{view.record.name}: {view.record.in_words()}", fontsize=SMALL)
