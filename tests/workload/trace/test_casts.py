"""Casts of a traced module's activations under autocast, beside those that torch makes."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

from simcore.workload.graph import Kernel  # noqa: E402
from simcore.workload.trace import convert  # noqa: E402
from simcore.workload.trace.autocast import cuda_policy  # noqa: E402
from simcore.workload.trace.tracer import trace  # noqa: E402

ROWS, WIDTH, BATCH = 5, 24, 2


class Branch(nn.Module):
    """A residual branch behind a norm, scaled by 16-bit numbers, as in a diffusion transformer."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.scales = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.norm, self.second = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Any) -> Any:
        x = x + self.first(x)
        return x + self.second(self.norm(x) * self.scales(x))


class Casts(TorchDispatchMode):  # type: ignore[misc]
    """Counts conversions of whole activations between fp32 and 16 bit."""

    def __init__(self) -> None:
        super().__init__()
        self.to: list[Any] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if func is torch.ops.aten._to_copy.default and out.numel() == BATCH * ROWS * WIDTH:
            self.to.append(out.dtype)
        return out


def _loss(out: Any) -> Any:
    """A loss whose gradient is a whole tensor."""
    return (out * out).sum()


def _traced(model: nn.Module, *shape: int) -> list[Kernel]:
    pair = tuple(trace(model, (torch.zeros(b, *shape),), loss=_loss) for b in (2, 3))
    workload, _ = convert.converted(
        pair, (2, 3), name="net", sample_unit="sample", tokens_per_sample=0.0
    )
    return [k for b in workload.blocks for op in b.ops for k in (*op.fwd, *op.bwd)]


def test_activations_are_cast_as_torch_casts_them() -> None:
    model = Branch()
    x = torch.randn(BATCH, ROWS, WIDTH)
    with Casts() as made, cuda_policy():
        with torch.autocast("cpu", torch.bfloat16):
            out = model(x)
        _loss(out).backward()
    casts = [k for k in _traced(model, ROWS, WIDTH) if k.low < 0.0 < k.high]
    assert all(k.high == -k.low == 3.0 * ROWS * WIDTH for k in casts)
    to_fp32 = [k for k in casts if k.indexed]
    assert len(to_fp32) == made.to.count(torch.float32)
    assert len(casts) - len(to_fp32) == made.to.count(torch.bfloat16)


def test_norms_copy_inputs_whose_rows_are_strided() -> None:
    """Forward and backward each (expect_contiguous in ATen's layer_norm_kernel.cu)."""

    class Turned(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.LayerNorm(WIDTH)

        def forward(self, x: Any) -> Any:
            return self.norm(x.transpose(1, 2))

    copies = [k for k in _traced(Turned(), WIDTH, ROWS) if k.kind == "copy" and k.indexed]
    assert [k.indexed for k in copies] == [ROWS * WIDTH] * 2
