"""What quantised products keep on autograd's nodes, against PyTorch's checkpoints."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest
import torch
from torch.utils.checkpoint import checkpoint

import simcore
from simcore.workload.models import MODELS
from simcore.workload.recompute import held_by_nodes
from simcore.workload.saved import NOTHING

TOKENS = 1024
#: Elements a token that products of a layer of Llama 2 7B read: two norms, attention, activation.
INPUTS = 3 * 4096 + 11008


class Hung(torch.autograd.Function):
    """A product that keeps its input as bitsandbytes does: as an attribute of the node."""

    @staticmethod
    def forward(ctx: Any, a: torch.Tensor) -> torch.Tensor:
        if ctx.needs_input_grad[0]:
            ctx.tensors = (a,)
        return 2 * a

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        return 2 * grad


@pytest.mark.parametrize("reentrant", [True, False])
def test_what_hangs_on_a_node_outlives_checkpoints_that_are_not_reentrant(reentrant: bool) -> None:
    seen: list[weakref.ref[torch.Tensor]] = []

    def layer(x: torch.Tensor) -> torch.Tensor:
        inner = x * 3
        seen.append(weakref.ref(inner))
        return Hung.apply(inner)

    out = checkpoint(layer, torch.ones(4, requires_grad=True), use_reentrant=reentrant)
    gc.collect()
    assert (seen[0]() is None) is reentrant
    out.sum().backward()


def _llama(base: str, **settings: Any) -> Any:
    return MODELS["llama2-7b"].build(
        lora_rank=8, lora_targets="q_proj,v_proj", quantised_base=base, seq_len=TOKENS, **settings
    )


def test_a_layer_keeps_each_input_of_its_products_once() -> None:
    built = _llama("int8")
    layer, held = (next(b for b in w.blocks if b.recomputable)
                   for w in (built, held_by_nodes(built)))  # fmt: skip
    kept = held.boundary - layer.boundary
    assert kept.low + kept.high == TOKENS * INPUTS
    new = _llama("nf4")
    assert [b.boundary for b in held_by_nodes(new).blocks] == [b.boundary for b in new.blocks]
    old = next(b for b in _llama("nf4", frozen_inputs=True).blocks if b.recomputable)
    assert sum((op.held_by_node for op in old.ops), NOTHING).low == TOKENS * INPUTS


def test_a_base_in_8_bits_needs_reentrant_checkpoints() -> None:
    job: dict[str, Any] = {
        "model": "llama2-7b", "gpus": "A100-80GB", "lora_rank": 8, "quantised_base": "int8",
        "lora_targets": "q_proj,v_proj", "recompute": "full", "precision": "bf16-true",
        "seq_len": TOKENS, "micro_batch": 4, "software": "transformers",
    }  # fmt: skip
    plain, again = (
        simcore.predict(**job, reentrant=reentrant).memory.terms["activations"]
        for reentrant in (False, True)
    )
    assert plain - again == pytest.approx(32 * 4 * TOKENS * INPUTS * 2, rel=0.03)
