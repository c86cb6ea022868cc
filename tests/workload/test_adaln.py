"""Modulation of a norm, beside what torch keeps and runs of it."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from simcore.workload.graph import Op
from simcore.workload.models import MODELS
from simcore.workload.ops.adaln import gate, modulate

ROWS, WIDTH = 6, 8
FP32 = 4


def kept_bytes(graded: bool, gated: bool) -> int:
    """Bytes of activations that torch keeps of ``x (1 + scale) + shift`` or of ``gate x``."""
    x = torch.randn(ROWS, WIDTH, requires_grad=True) * 1.0
    scale, shift = (torch.randn(1, WIDTH, requires_grad=graded) * 1.0 for _ in range(2))
    kept: dict[int, int] = {}

    def pack(t: Tensor) -> Tensor:
        kept[t.untyped_storage().data_ptr()] = t.untyped_storage().nbytes()
        return t

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        out = scale * x if gated else x * (1 + scale) + shift
    kept.pop(scale.untyped_storage().data_ptr() if gated else -1, None)  # a view: counted elsewhere
    out.sum().backward()
    return sum(kept.values())


def counted(op: Op) -> float:
    return FP32 * (op.saved.low + op.saved.high)


@pytest.mark.parametrize("graded", [True, False])
def test_what_is_kept_of_a_modulated_norm(graded: bool) -> None:
    """A frozen scale needs no copy of what it multiplies."""
    elems = float(ROWS * WIDTH)
    assert counted(modulate("m", elems, WIDTH, graded=graded)) == kept_bytes(graded, gated=False)
    assert counted(gate("g", elems, WIDTH, graded=graded)) == kept_bytes(graded, gated=True)


def test_adapters_elsewhere_leave_shifts_and_gates_without_gradient() -> None:
    """Less is kept of a layer unless the product that makes them has an adapter of its own."""

    def kept(targets: str) -> float:
        layers = MODELS["cogvideox-2b"].build(lora_rank=4, lora_targets=targets).blocks
        ops = [op for op in layers[1].ops if "modulate" in op.name or op.name.endswith(".gate")]
        return sum(op.saved.high + op.saved.low for op in ops)

    whole = sum(
        op.saved.high + op.saved.low
        for op in MODELS["cogvideox-2b"].build().blocks[1].ops
        if "modulate" in op.name or op.name.endswith(".gate")
    )
    assert kept("all-linear") == whole
    assert kept("to_q,to_k,to_v,to_out.0") < 0.001 * whole
