"""The graph of ranks: messages pair up, bytes by hand, the engine's own durations give its step."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from simcore import api
from simcore.answer.replay import Replay
from simcore.base.errors import UsageError

LLAMA: dict[str, Any] = {"strategy": "zero1", "micro_batch": 1, "grad_accum": 4, "seq_len": 4096}
LAYOUTS: list[dict[str, Any]] = [
    {"tp": 4, "pp": 2}, {"tp": 2, "pp": 2, "vpp": 2}, {"tp": 2, "cp": 2, "pp": 2},
    {"pp": 4, "schedule": "zb-2p"}, {"tp": 8},
    {"pp": 4, "schedule": "dualpipe", "grad_accum": 8},
]  # fmt: skip


@pytest.mark.parametrize("layout", LAYOUTS)
def test_messages_pair_up_and_nothing_waits_for_what_comes_later(layout: dict[str, Any]) -> None:
    graph = api.replay("llama3-8b", "2x8xH100", **(LLAMA | layout))
    sent: Counter[tuple[int, int, int, float]] = Counter()
    received: Counter[tuple[int, int, int, float]] = Counter()
    for stage, nodes in enumerate(graph.stages):
        for i, node in enumerate(nodes):
            assert all(d < i for d in node.deps)
            if node.op == "send":
                sent[stage, stage + node.peer, node.tag, node.n_bytes] += 1
            if node.op == "recv":
                received[stage + node.peer, stage, node.tag, node.n_bytes] += 1
    assert sent == received
    pp, vpp = layout.get("pp", 1), layout.get("vpp", 1)
    micro_steps = layout.get("grad_accum", LLAMA["grad_accum"])
    assert sum(sent.values()) == 2 * micro_steps * (pp * vpp - 1)
    assert len({(a, b, tag) for a, b, tag, _ in sent}) == sum(sent.values())


def test_bytes_by_hand() -> None:
    """4,096 tokens x 4,096 wide x 2 bytes; 16 layers a stage, two all-reduces each way, and
    two inputs gathered again in backward, as much as another."""
    graph = api.replay("llama3-8b", "2x8xH100", **LLAMA, tp=4, pp=2)
    hidden = 4096 * 4096 * 2
    nodes = graph.stages[0]
    tensor = [n for n in nodes if n.group == "tensor"]
    assert Counter(n.n_bytes for n in tensor) == {16 * 2 * hidden: 4, 16 * 3 * hidden: 4}
    assert {n.op for n in tensor} == {"all_reduce"}
    assert {n.n_bytes for n in nodes if n.op == "send"} == {hidden / 4}
    whole = {"software": "megatron-whole-sends", "sequence_parallel": False}
    graph = api.replay("llama3-8b", "2x8xH100", **(LLAMA | whole), tp=4, pp=2)
    assert {n.n_bytes for n in graph.stages[0] if n.op == "send"} == {hidden}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_rank_is_in_one_group_of_each_dimension(layout: dict[str, Any]) -> None:
    graph = api.replay("llama3-8b", "2x8xH100", **(LLAMA | layout))
    for name, groups in graph.groups.items():
        ranks = [r for group in groups for r in group]
        assert sorted(ranks) == list(range(16)), name
    sizes = {name: len(groups[0]) for name, groups in graph.groups.items()}
    degree = {"tensor": layout.get("tp", 1), "context": layout.get("cp", 1)}
    for name, size in degree.items():
        assert sizes.get(name, 1) == size
    # Gradients are summed over context ranks as well.
    assert sizes["data"] == 16 // (layout.get("tp", 1) * layout.get("pp", 1))


def test_parameters_are_gathered_before_the_second_micro_batch() -> None:
    job = LLAMA | {"tp": 4, "pp": 2, "overlap": "grads,params"}
    nodes = api.replay("llama3-8b", "2x8xH100", **job).stages[0]
    gathers = [i for i, n in enumerate(nodes) if n.op == "all_gather" and n.group == "data"]
    work = [i for i, n in enumerate(nodes) if n.name.startswith("forward")]
    assert max(gathers) < min(work)
    assert gathers[0] in nodes[work[0]].deps and gathers[-1] in nodes[work[1]].deps
    others = api.replay("llama3-8b", "2x8xH100", **(job | {"overlap": "grads"})).stages[0]
    total = sum(n.n_bytes for n in others if n.op == "all_gather" and n.group == "data")
    assert sum(nodes[i].n_bytes for i in gathers) == pytest.approx(total)


def test_both_ends_sum_up_a_tied_table() -> None:
    graph = api.replay("gpt2", "2x4xA100", strategy="ddp", pp=4, grad_accum=8, micro_batch=1,
                       software="plain")  # fmt: skip
    assert graph.groups["tied table"] == ((0, 6), (1, 7))
    of = [[n.n_bytes for n in nodes if n.group == "tied table"] for nodes in graph.stages]
    assert of == [[50257 * 768 * 4], [], [], [50257 * 768 * 4]]


def test_expert_ranks_of_a_folded_layout_lie_side_by_side() -> None:
    graph = api.replay("mixtral-8x7b", "2x8xH100", **LLAMA, tp=2, ep=8)
    assert graph.groups["expert"] == (tuple(range(8)), tuple(range(8, 16)))
    assert {n.op for n in graph.stages[0] if n.group == "expert"} == {"all_to_all"}


def _longest_path_s(graph: Replay, sync_s: dict[str, float]) -> float:
    """The end of one rank's graph, with given seconds for its collectives."""
    ends: list[float] = []
    for node in graph.stages[0]:
        start = max((ends[d] for d in node.deps), default=0.0)
        ends.append(start + (sync_s[node.name] if node.op else node.seconds))
    return max(ends)


def test_with_the_engines_collectives_the_graph_takes_its_step() -> None:
    answer = api.predict("gpt2", "2x8xA100", strategy="ddp", issuer="graph", keep_timeline=True)
    line = answer.timeline
    assert line is not None
    seconds = {
        task.name: float(line.finish_s[i, 0] - line.start_s[i, 0])
        for i, task in enumerate(line.graph.tasks)
        if task.stream == "comm"
    }
    graph = api.replay("gpt2", "2x8xA100", strategy="ddp", issuer="graph")
    # In the graph a kernel waits for its issue; in the step the two overlap.
    assert 1.0 <= _longest_path_s(graph, seconds) / line.makespan_s[0] < 1.03
    n_params = answer.n_params
    assert sum(n.n_bytes for n in graph.stages[0]) == pytest.approx(4 * n_params)


def test_several_gpu_types_are_refused() -> None:
    with pytest.raises(UsageError, match="one type"):
        api.replay("gpt2", "1x2xA100+1x2xT4")
