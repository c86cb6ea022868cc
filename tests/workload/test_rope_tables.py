"""Sines and cosines that each layer looks up for its own samples, against torch's autograd."""

from __future__ import annotations

import torch

from simcore.step.transients import saved_bytes
from simcore.strategy.precision import PRECISIONS
from simcore.workload.models import MODELS


def _rotated(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-second, first), dim=-1) * sin


def test_each_look_up_is_kept_as_in_torch() -> None:
    """Of q and k: two tables each, of the samples' tokens and a head's width; not q or k."""
    seq, heads, dim = 6, 3, 8
    angles = torch.rand(2 * seq, dim).bfloat16()
    positions = torch.arange(seq)
    kept: dict[int, int] = {}

    def keep(t: torch.Tensor) -> torch.Tensor:
        storage = t.untyped_storage()
        kept[storage.data_ptr()] = storage.nbytes()
        return t

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda t: t):
        turned = [
            _rotated(
                torch.rand(seq, heads, dim).bfloat16().requires_grad_(),
                angles.cos()[positions][:, None], angles.sin()[positions][:, None],
            )
            for _ in "qk"
        ]  # fmt: skip
    assert turned[0].grad_fn is not None and sum(kept.values()) == 4 * seq * dim * 2


def test_a_layer_keeps_its_tables() -> None:
    """Four tables of 128 elements a token in 16 bit; with one kernel for positions none."""
    record, p = MODELS["llama3-8b"], PRECISIONS["bf16"]

    def kept(**settings: bool | int) -> float:
        built = record.build(**settings)
        return saved_bytes(next(b for b in built.blocks if b.recomputable).saved, p)

    tokens = record.build().tokens_per_sample
    eager = kept(fused_rope=False, rope_tables=4) - kept(fused_rope=False)
    assert eager == 4 * 128 * 2 * tokens
    assert kept(fused_rope=True, rope_tables=4) == kept(fused_rope=True)
