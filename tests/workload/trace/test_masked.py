"""Attention under a mask that is a tensor: another kernel, and a trained one has a gradient."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from simcore.workload.trace.tracer import trace

_HEADS, _ROWS, _WIDTH = 3, 10, 8


class Biased(nn.Module):
    """Self-attention with a bias of positions: none, fixed or trained."""

    def __init__(self, bias: str) -> None:
        super().__init__()
        self.qkv = nn.Linear(_HEADS * _WIDTH, 3 * _HEADS * _WIDTH)
        table = torch.zeros(1, _HEADS, _ROWS, _ROWS)
        self.bias = nn.Parameter(table) if bias == "trained" else None
        self.fixed = nn.Buffer(table) if bias == "fixed" else None

    def forward(self, x: Tensor) -> Tensor:
        parts = self.qkv(x).unflatten(-1, (3, _HEADS, _WIDTH)).permute(2, 0, 3, 1, 4)
        mask = self.fixed if self.bias is None else self.bias
        out = F.scaled_dot_product_attention(*parts.unbind(0), attn_mask=mask)
        return out.transpose(1, 2).flatten(2)


@pytest.mark.parametrize(
    ("bias", "kind"),
    [("none", "attention"), ("fixed", "attention_masked"), ("trained", "attention_v1")],
)  # fmt: skip
def test_a_mask_takes_the_kernel_that_reads_one(bias: str, kind: str) -> None:
    batch = 4
    found = trace(Biased(bias), (torch.randn(batch, _ROWS, _HEADS * _WIDTH),))
    kernels = {op.name: op.kernels for op in found.ops if "attention" in op.name}
    assert {k.kind for ks in kernels.values() for k in ks} == {kind}
    (back,) = next(ks for name, ks in kernels.items() if name.endswith("backward"))
    scores = batch * _HEADS * _ROWS * _ROWS
    written = [piece.numel for piece in back.writes]
    assert (scores in written) == (bias == "trained")
    sums = [op for op in found.ops if op.phase == "backward" and op.name.startswith("sum")
            for k in op.kernels if scores in [p.numel for p in k.reads]]  # fmt: skip
    assert len(sums) == (bias == "trained")  # over the batch, of which the bias knows nothing
