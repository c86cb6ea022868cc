"""Parts of a step that all data-parallel strategies share: messages by ranks, tasks of forward."""

from __future__ import annotations

import math
from typing import Any

import pytest
from strategies import block, strategy, workload

from simcore.step.parallel import FORWARD_PARTS, split_experts
from simcore.step.parallel.layer_ranks import LayerRanks
from simcore.timing.evaluate import program_of


@pytest.mark.parametrize(
    ("words", "n_bytes", "of_experts", "parts"),
    [
        ({"expert_ranks": 4}, 100.0, 30.0, [("all", 70.0), ("experts", 30.0)]),
        ({"expert_ranks": 0.5}, 100.0, 30.0, [("all", 70.0), ("experts", 30.0)]),
        ({"expert_ranks": 4}, 100.0, 100.0, [("experts", 100.0)]),
        ({"expert_ranks": 4}, 100.0, 0.0, [("all", 100.0)]),
        ({"expert_ranks": 1}, 100.0, 30.0, [("all", 100.0)]),
        ({"expert_ranks": 4, "shard_ranks": 2}, 100.0, 30.0, [("all", 100.0)]),
    ],
)  # fmt: skip
def test_ranks_with_the_same_experts_exchange_these_alone(
    words: dict[str, Any], n_bytes: float, of_experts: float, parts: list[tuple[str, float]]
) -> None:
    assert split_experts(strategy("zero3", **words), "all", n_bytes, of_experts) == parts


@pytest.mark.parametrize("runs", [1, 2, 7, FORWARD_PARTS, FORWARD_PARTS + 1, 3 * FORWARD_PARTS])
def test_forward_is_a_task_for_each_run_of_equal_blocks_up_to_a_number(runs: int) -> None:
    """Two blocks in turn, each three times: equal numbers of runs a task where there are many."""
    model = workload(
        [block("a", [1]), block("b", [1])], [n % 2 for n in range(runs) for _ in "abc"]
    )
    tasks = program_of(model, strategy("ddp", optimizer="sgd-plain"), 1).graph.tasks
    forward = [t for t in tasks if t.name == "forward" and t.term == "forward"]
    each = math.ceil(runs / FORWARD_PARTS)
    assert len(forward) == math.ceil(runs / each) <= FORWARD_PARTS


def test_exchanges_of_which_nothing_is_said_are_in_all_layers_and_exposed() -> None:
    plain = LayerRanks(ranks=2, stride=1.0, sample_bytes=1.0, forward=1.0, backward=1.0)
    assert (plain.layers_frac, plain.seen_frac) == (1.0, 1.0)
    assert (plain.pairs, plain.nic_ranks, plain.hidden_backward_frac) == ((), 0, 0.0)
    assert not plain.host_waits and not plain.beside_others
