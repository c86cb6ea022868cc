"""Kernels that CUDA graphs of parts of a layer replay, which the host does not issue."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from simcore.step.kernels import kernel_table, table_of
from simcore.strategy.precision import PRECISIONS
from simcore.strategy.programs.mechanisms import Issuer
from simcore.strategy.strategy import OPTIMIZERS, Strategy
from simcore.workload.archs.transformer import build
from simcore.workload.graph import Block, ExpertPart, Kernel, Op, Workload

BF16 = PRECISIONS["bf16"]


def op(name: str, forward: int, backward: int, part: ExpertPart = "") -> Op:
    """An op of so many kernels, which the host issues one by one."""
    fwd, bwd = (tuple(Kernel(kind="copy", low=1.0) for _ in range(n)) for n in (forward, backward))
    return Op(name=name, fwd=fwd, bwd=bwd, part=part)


LAYER = (
    op("norm1", 1, 2), op("qkv", 3, 4),
    replace(op("attention.residual", 1, 1), role="mixer_sum"),
    op("norm2", 1, 2), op("router", 5, 6), op("dispatch", 4, 1, "exchange"),
    op("experts.up", 7, 14, "experts"), op("shared.up", 2, 3, "shared"), op("mlp.residual", 1, 1),
)  # fmt: skip


def issues(parts: tuple[Any, ...], *ops: Op, exchanges: int = 0) -> list[float]:
    block = Block(name="layer", ops=ops, exchanges=exchanges)
    model = Workload(name="x", sample_unit="row", blocks=(block,), order=(0,))
    found = kernel_table(model, BF16, replayed=parts).issues_per_phase
    return [float(x) for x in found]


def test_a_part_in_a_graph_is_one_launch_each_way() -> None:
    assert issues((), *LAYER) == [25.0, 34.0]
    # attention: 5 kernels forward and 7 backward
    assert issues(("attention",), *LAYER) == [25.0 - 5 + 1, 34.0 - 7 + 1]
    # norm2, router and the shared expert: 8 and 11
    assert issues(("routing",), *LAYER) == [25.0 - 8 + 1, 34.0 - 11 + 1]
    # both are neighbours, and one graph holds them
    assert issues(("attention", "routing"), *LAYER) == [25.0 - 13 + 1, 34.0 - 18 + 1]


def test_half_of_the_collectives_among_tensor_ranks_are_attentions() -> None:
    plain = issues((), *LAYER, exchanges=4)
    assert plain == [25.0 + 4 * 2, 34.0 + 4 * 2]
    assert issues(("attention",), *LAYER, exchanges=4) == [25.0 - 5 + 1 + 4, 34.0 - 7 + 1 + 4]
    assert issues(("routing",), *LAYER, exchanges=4) == [25.0 - 8 + 1 + 8, 34.0 - 11 + 1 + 8]


def test_a_layer_without_experts_has_no_routing() -> None:
    dense = (*LAYER[:4], op("up", 2, 4), LAYER[-1])
    assert issues(("routing",), *dense) == issues((), *dense)
    assert issues(("attention", "routing"), *dense) == issues(("attention",), *dense)


def test_a_mixer_in_place_of_attention_is_in_its_graph() -> None:
    ends = replace(op("mixer.residual", 1, 1), role="mixer_sum")
    recurrent = (op("norm1", 1, 2), op("mixer.scan", 5, 24), ends)
    assert issues(("attention", "routing"), *recurrent) == [1.0, 1.0]
    assert issues(("routing",), *recurrent) == issues((), *recurrent)


def test_a_layer_of_experts_alone_keeps_all_but_its_routing() -> None:
    assert issues(("attention",), *LAYER[3:]) == issues((), *LAYER[3:])
    assert issues(("attention", "routing"), *LAYER[3:]) == issues(("routing",), *LAYER[3:])


@pytest.mark.parametrize(
    ("issuer", "most"), [("megatron_graphs", 0.6), ("megatron_routing_graphs", 0.85)]
)
def test_a_mixture_keeps_the_issues_of_its_experts(issuer: Issuer, most: float) -> None:
    model = build(
        name="x", layers=2, hidden=64, heads=4, vocab=100, seq_len=32, positions="rope",
        norm="rmsnorm", bias=False, mlp="swiglu", experts=4, top_k=2, expert_ffn=48,
        fused_pointwise=True, weighed_early=True,
    )  # fmt: skip
    eager = Strategy(precision=BF16, optimizer=OPTIMIZERS["adamw"], issuer="megatron")
    plain, found = (
        table_of(model, how).issues_per_phase for how in (eager, replace(eager, issuer=issuer))
    )
    at = next(i for i, b in enumerate(model.blocks) if b.recomputable)
    experts = sum(
        sum(k.launches if k.issues is None else k.issues for k in o.fwd)
        for o in model.blocks[at].ops
        if o.part == "experts"
    )
    assert experts < found[at] < most * plain[at]
    assert replace(eager, issuer=issuer).replayed[-1] == "routing"
    assert eager.replayed == ()
