"""Benchmarks of matrix products and fused attention."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Final

from simcore.base.units import GIGA
from simcore.calibrate.bench.case import (
    BRIEF_S,
    FAMILIES,
    Case,
    Columns,
    Device,
    Mode,
    Run,
    World,
    one_pass,
    shapes,
    tensor_options,
)

#: (m, n, k) of a linear layer: sizes spaced logarithmically, and sizes that are no multiples of 8,
#: 64 or 128.
GEMM_SHAPES: Final = shapes(
    "64x256x256 256x256x256 512x512x128 128x1024x1024 1024x512x512 "
    "2048x256x1024 1024x1024x1024 512x3072x768 2048x2048x512 4096x512x256 "
    "100x300x500 777x333x1000 1023x1025x511 33x4097x255 1536x10x512 "
    "2048x2048x2048 4096x4096x1024 4096x4096x4096 8192x8192x2048 8192x8192x8192 "
    "16384x4096x4096 4095x8191x1023 "
)
#: Products that determine the rate of the matrix units; some are small enough for a host.
FIRST: Final = shapes("1024x1024x1024 2048x2048x512 1024x512x512 4096x4096x4096 8192x8192x2048")
#: (m, n, k) of a head over a vocabulary that is not padded (50,257) and one that is (50,304):
#: rows of 16-bit tensors that begin at no multiple of 16 bytes keep libraries from fast kernels.
HEADS: Final = {
    "linear": shapes("8192x50257x768 8192x50304x768 2048x50257x1024 "),
    "linear_dgrad": shapes("8192x768x50257 8192x768x50304 2048x1024x50257 "),
    "linear_wgrad": shapes("50257x768x8192 50304x768x8192 50257x1024x2048 "),
}
#: (groups, m, n, k) of batched products: of attention's scores, of experts' layers.
BATCHED: Final = shapes(
    "16x128x128x64 64x64x64x32 8x512x512x64 96x1024x1024x128 8x1024x3584x1024 8x512x1024x3584 "
)
#: (m, n, k) of products that all ranks compute at once, to measure their contention.
CROWD: Final = shapes("1024x1024x512 512x768x768")
#: BLAS layout (T: transposed, N: not) of a linear layer's forward and of its backward products.
LAYOUTS: Final = {"linear": "TN", "linear_dgrad": "NN", "linear_wgrad": "NT", "bmm": "NN"}
#: (batch, heads, sequence length, head dimension)
ATTENTION_SHAPES: Final = shapes(
    "2x4x128x64 8x4x256x32 4x6x200x64 1x8x512x64 2x12x384x64 "
    "1x4x1024x64 4x16x1024x64 1x16x4096x128 2x32x2048x128 8x12x512x80 "
)
#: Table -> least and most FLOP of a forward kernel, by kind of device. The largest product takes
#: about 50 ms on a core, and 24 ms on a GPU at 50 TFLOP/s.
FLOP_RANGE: Final = {
    "gemm": {"cpu": (0.0, 4.5 * GIGA), "cuda": (0.0, 1.2e3 * GIGA)},
    "attention": {"cpu": (0.0, 2.0 * GIGA), "cuda": (0.0, 1e3 * GIGA)},
}


def _in_range(table: str, device: Device, flop: float) -> bool:
    least, most = FLOP_RANGE[table][device.kind]
    return least <= flop <= most


def _gemm(op: str, dtype: str, shape: tuple[int, ...], device: Device) -> Run:
    """A product [m, k] @ [k, n] of a linear layer, laid out as in autograd, or a batched one."""
    import torch

    made = tensor_options(torch, dtype, device)
    groups, m, n, k = shape
    if op == "bmm":
        a, b = torch.randn(groups, m, k, **made), torch.randn(groups, k, n, **made)
        return lambda: torch.bmm(a, b)
    if op == "linear":
        x, w = torch.randn(m, k, **made), torch.randn(n, k, **made)
        return lambda: torch.nn.functional.linear(x, w)
    if op == "linear_dgrad":  # gradient [m, k] @ weight [k, n]
        x, w = torch.randn(m, k, **made), torch.randn(k, n, **made)
        return lambda: x @ w
    x, w = torch.randn(k, m, **made), torch.randn(k, n, **made)
    return lambda: x.t() @ w


def _gemm_columns(device: Device, dtype: str, op: str, shape: tuple[int, ...]) -> Columns:
    groups, m, n, k = shape
    return {"gpu": device.name, "dtype": dtype, "op": op, "m": m, "n": n, "k": k,
            "batch": groups, "layout": LAYOUTS[op]}  # fmt: skip


@FAMILIES.register("gemm")
def gemm_cases(device: Device, world: World) -> Iterable[Case]:
    """Every product that the device can do in reasonable time, by dtype."""
    layer = ("linear", "linear_dgrad", "linear_wgrad")
    products = [(op, (1, *shape)) for shape in GEMM_SHAPES for op in layer]
    products += [("bmm", shape) for shape in BATCHED]
    products += [(op, (1, *shape)) for op, of in HEADS.items() for shape in of]
    for dtype in device.dtypes:
        for op, shape in products:
            groups, m, n, k = shape
            if _in_range("gemm", device, 2.0 * groups * m * n * k):
                yield Case(
                    "gemm", "gemm", _gemm_columns(device, dtype, op, shape),
                    partial(_gemm, op, dtype, shape), cold=True, how="queue",
                    seconds=BRIEF_S[device.kind],
                    first=op == "linear" and (m, n, k) in FIRST,
                )  # fmt: skip


@FAMILIES.register("gemm-crowd")
def gemm_crowd(device: Device, world: World) -> Iterable[Case]:
    """The same products on one rank alone and on all ranks together.

    Caches are not flushed: a flush would be the heaviest memory traffic of all, and would disturb
    the measurement of the other ranks.
    """
    modes: tuple[Mode, ...] = ("alone", "together") if world.size > 1 else ()
    dtype = device.dtypes[0]
    for shape in ((1, *s) for s in CROWD):
        for mode in modes:
            yield Case(
                "gemm-crowd", "gemm", _gemm_columns(device, dtype, "linear", shape),
                partial(_gemm, "linear", dtype, shape), mode=mode, seconds=0.4, first=True,
            )  # fmt: skip


def _attention(dtype: str, shape: tuple[int, ...], causal: bool, way: str, device: Device) -> Run:
    """Fused attention (``scaled_dot_product_attention``)."""
    import torch

    made = tensor_options(torch, dtype, device)
    q, k, v = (torch.randn(*shape, **made).requires_grad_() for _ in range(3))
    attend = torch.nn.functional.scaled_dot_product_attention
    return one_pass(torch, lambda: attend(q, k, v, is_causal=causal), (q, k, v), way)


@FAMILIES.register("attention")
def attention_cases(device: Device, world: World) -> Iterable[Case]:
    """Every shape that the device can do in reasonable time, causal and not, both passes."""
    variants = [(causal, way) for causal in (False, True) for way in ("fwd", "bwd")]
    for dtype in (d for d in device.dtypes if d != "tf32"):
        for shape in ATTENTION_SHAPES:
            b, h, s, d = shape
            if not _in_range("attention", device, 4.0 * b * h * s * s * d):
                continue
            for causal, way in variants:
                columns: Columns = {
                    "gpu": device.name, "dtype": dtype, "batch": b, "heads": h, "kv_heads": h,
                    "seq_q": s, "seq_kv": s, "head_dim": d, "v_head_dim": d,
                    "causal": int(causal), "pass": way,
                }  # fmt: skip
                prepare = partial(_attention, dtype, shape, causal, way)
                yield Case("attention", "attention", columns, prepare, cold=True,
                           seconds=BRIEF_S[device.kind], how="queue")  # fmt: skip
