"""How long a device is idle since its host reads the numbers of experts' rows."""

from __future__ import annotations

from typing import Any

import pytest

from simcore.answer.request import make_request
from simcore.step.kernels import table_of
from simcore.workload.archs.transformer import build
from simcore.workload.graph import NONE, Kernel

SMALL: dict[str, Any] = {
    "layers": 1, "hidden": 64, "heads": 4, "vocab": 100, "seq_len": 32, "positions": "rope",
    "norm": "rmsnorm", "bias": False, "mlp": "swiglu", "top_k": 2, "expert_ffn": 48,
    "fused_pointwise": True,
}  # fmt: skip


def waits(**settings: Any) -> float:
    """Kernel issues of host work that a forward of the model waits for."""
    model = build(name="small", **SMALL, **settings)
    kernels: list[Kernel] = [k for b in model.blocks for op in b.ops for k in op.fwd]
    assert all(k.awaited == NONE for b in model.blocks for op in b.ops for k in op.bwd)
    return sum(k.awaited.fixed for k in kernels)


def test_eight_experts_are_the_gaps_of_nvidias_timeline() -> None:
    """1.4 ms on Grace, where a kernel issue in 8 bits takes 10 us x 8.1 x 1.5 x 1.43."""
    found = waits(experts=8, weighed_early=True, waits_for_counts=True)
    assert found * 10e-3 * 8.1 * 1.5 * 1.43 == pytest.approx(1.4, rel=0.03)
    # a launch in each of four loops for each further expert
    more = waits(experts=16, weighed_early=True, waits_for_counts=True)
    assert more - found == pytest.approx(8 * 4 * 0.075)


def test_one_kernel_for_all_experts_leaves_what_is_there_whatever_their_number() -> None:
    few, many = (waits(experts=n, fused_experts=True, waits_for_counts=True) for n in (8, 64))
    assert 0 < few == many < waits(experts=8, waits_for_counts=True)


def test_a_host_that_knows_the_rows_waits_for_nothing() -> None:
    assert waits(experts=8, weighed_early=True) == 0.0


@pytest.mark.parametrize(
    ("changes", "idle"),
    [
        ({}, True),
        ({"expert_capacity": 1.25}, False),  # as many rows as slots
        ({"expert_capacity": 1.25, "expert_padding": False}, True),
        ({"software": "torchtitan"}, False),
    ],
)
def test_which_programs_wait(changes: dict[str, Any], idle: bool) -> None:
    words: dict[str, Any] = {"software": "megatron", "ep": 8, "micro_batch": 1} | changes
    request = make_request("mixtral-8x7b", "1x8xH100", **words)
    assert request.placed is not None
    table = table_of(request.placed.stages[0].workload, request.strategy)
    assert bool(table.awaited_per_phase.any()) == idle
