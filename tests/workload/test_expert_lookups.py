"""Experts between look-ups of rows, against the operators that PyTorch dispatches for them."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
import torch
from torch import Tensor

from simcore.step.transients import saved_bytes
from simcore.strategy.precision import PRECISIONS
from simcore.workload.graph import AUXILIARY, Op
from simcore.workload.ops import embedding
from simcore.workload.ops.expert_lookups import (
    combine_looked_up,
    dispatch_looked_up,
    route_looked_up,
)
from simcore.workload.ops.lookup import DIGIT_BITS, index_bits, radix_sort, sort_launches
from tests.workload.reference import measure

TOKENS, WIDTH, EXPERTS, TOP_K = 600, 64, 8, 2
CARD = Path(__file__).parents[2] / "validate" / "cards" / "h200-2026-11-27" / "kernels.jsonl"


def _routed(scores: Tensor) -> tuple[Tensor, Tensor]:
    """As MixtralTopKRouter.forward, after its product."""
    best, at = torch.topk(torch.softmax(scores.float(), dim=-1), TOP_K, dim=-1)
    best /= best.sum(dim=-1, keepdim=True)
    return best, at


def _mixed(x: Tensor, best: Tensor, at: Tensor) -> Tensor:
    """As grouped_mm_experts_forward, with experts that return their input."""
    weights, numbers = best.reshape(-1), at.reshape(-1)
    ordered, place = torch.sort(numbers)
    rows, weights = x[place // TOP_K], weights[place]
    torch.cumsum(torch.histc(ordered.float(), EXPERTS, 0, EXPERTS - 1), 0, dtype=torch.int32)
    weighed = rows * weights.unsqueeze(-1)
    back = torch.empty_like(place)
    back[place] = torch.arange(place.numel())
    return weighed[back].view(TOKENS, TOP_K, WIDTH).sum(dim=1).to(x.dtype)


def _launches(*ops: Op) -> tuple[float, float]:
    forward, backward = (
        sum(k.launches for op in ops for k in side(op) if k.kind != AUXILIARY)
        for side in (lambda op: op.fwd, lambda op: op.bwd)
    )
    return forward, backward


def test_kernels_are_the_operators_that_torch_dispatches() -> None:
    scores = torch.randn(TOKENS, EXPERTS, dtype=torch.bfloat16, requires_grad=True)
    x = torch.randn(TOKENS, WIDTH, dtype=torch.bfloat16, requires_grad=True)
    forward, backward = measure.dispatched(
        torch.nn.Identity(), lambda: _mixed(x, *_routed(scores)).sum()
    )
    ours = _launches(
        route_looked_up("route", TOKENS, EXPERTS, TOP_K),
        dispatch_looked_up("dispatch", TOKENS, WIDTH, TOP_K),
        combine_looked_up("combine", TOKENS, WIDTH, TOP_K),
    )
    total = 1  # the sum over all that the step returns
    assert ours == (forward.total() - total, pytest.approx(backward.total(), abs=1))


def test_what_the_combination_keeps_is_what_autograd_keeps() -> None:
    rows = TOKENS * TOP_K
    kept = combine_looked_up("combine", TOKENS, WIDTH, TOP_K).saved
    product, weights, order = 2 * rows * WIDTH, 4 * rows, 8 * rows
    assert saved_bytes(kept, PRECISIONS["bf16-true"]) == product + weights + order


@pytest.mark.parametrize(("bits", "passes"), [(1, 1), (8, 1), (9, 2), (16, 2), (17, 3), (64, 8)])
def test_a_sort_has_a_pass_a_digit_of_eight_bits(bits: int, passes: int) -> None:
    assert sort_launches(bits) == 4 + 2 * passes
    # the histogram reads each key; a pass reads and writes key and place
    assert radix_sort(1000.0, bits).raw_bytes == 1000.0 * 8 * (1 + 4 * passes)


def test_passes_on_a_card_are_as_many_as_counted() -> None:
    """Eight layers sort once by 64 bits and three times by the bits of 4,096 or 8,192 rows."""
    profiles = {row["id"]: row for row in map(json.loads, CARD.read_text().splitlines())}

    def passes(row: str) -> int:
        found = Counter[str]()
        for name, times, _ in profiles[row]["longest"]:
            found["DeviceRadixSortOnesweepKernel" in name] += times
        return found[True]

    of_row = -(-index_bits(8192) // DIGIT_BITS)
    assert passes("mixtral-bf16-b4") == 8 * (8 + 3 * of_row) + 8
    assert passes("lstm-amp-b64") == 8


def test_a_compiler_adds_an_embeddings_gradient_without_a_sort() -> None:
    eager, fused = (embedding("tokens", 2048.0, 64, 1000, fused=f) for f in (False, True))
    assert eager.fwd == fused.fwd and len(fused.bwd) == 1
    # zeros, a range, the sort, seven kernels between, the sums of each ten rows, and of these
    assert sum(k.launches for k in eager.bwd) == 1 + 1 + 20 + 7 + 1 + 1
