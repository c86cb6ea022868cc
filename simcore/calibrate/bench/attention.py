"""Benchmarks of fused attention (``scaled_dot_product_attention``), forward and backward."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from simcore.base.units import GIGA
from simcore.calibrate.bench.case import (
    FAMILIES,
    Case,
    Columns,
    Device,
    Prepare,
    Run,
    World,
    of_dtype,
    shapes,
)

#: (batch, heads, sequence length, head dimension)
SHAPES: Final = shapes(
    "2x4x128x64 8x4x256x32 4x6x200x64 1x8x512x64 2x12x384x64 "
    "1x4x1024x64 4x16x1024x64 1x16x4096x128 2x32x2048x128 8x12x512x80 "
)
#: FLOP of the largest case, by kind of device.
LARGEST: Final = {"cpu": 2.0 * GIGA, "cuda": 1e3 * GIGA}


def prepare_of(dtype: str, shape: tuple[int, int, int, int], causal: bool, back: bool) -> Prepare:
    """The function that makes the tensors of one case; ``back``: the backward pass is timed."""

    def prepare(device: Device) -> Run:
        import torch

        made = {"dtype": of_dtype(torch, dtype), "device": device.kind}
        q, k, v = (torch.randn(*shape, **made).requires_grad_() for _ in range(3))
        attend = torch.nn.functional.scaled_dot_product_attention

        def forward() -> None:
            attend(q, k, v, is_causal=causal)

        if not back:
            return forward
        y = attend(q, k, v, is_causal=causal)
        g = torch.randn_like(y)

        def backward() -> None:
            torch.autograd.grad(y, (q, k, v), g, retain_graph=True)

        return backward

    return prepare


@FAMILIES.register("attention")
def cases(device: Device, world: World) -> Iterable[Case]:
    """Every shape that the device can do in reasonable time, causal and not, both passes."""
    for dtype in device.dtypes:
        if dtype == "tf32":
            continue
        for b, h, s, d in SHAPES:
            if 4.0 * b * h * s * s * d > LARGEST[device.kind]:
                continue
            for causal in (False, True):
                for way in ("fwd", "bwd"):
                    columns: Columns = {"gpu": device.name, "dtype": dtype, "batch": b, "heads": h,
                               "kv_heads": h, "seq_q": s, "seq_kv": s, "head_dim": d,
                               "v_head_dim": d, "causal": int(causal), "pass": way}  # fmt: skip
                    prepare = prepare_of(dtype, (b, h, s, d), causal, way == "bwd")
                    yield Case("attention", "attention", columns, prepare, cold=True)
