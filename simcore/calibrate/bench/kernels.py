"""Benchmarks of kernels that compute: matrix products, convolutions and fused attention."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Final

from simcore.base.units import GIGA
from simcore.calibrate.bench.case import (
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
#: (groups, m, n, k) of batched products.
BATCHED: Final = shapes("16x128x128x64 64x64x64x32 8x512x512x64 96x1024x1024x128 ")
#: (m, n, k) of products that all ranks compute at once, to measure their contention.
CROWD: Final = shapes("1024x1024x512 512x768x768")
#: BLAS layout (T: transposed, N: not) of a linear layer's forward and of its backward products.
LAYOUTS: Final = {"linear": "TN", "linear_dgrad": "NN", "linear_wgrad": "NT", "bmm": "NN"}
#: (batch, channels in, out, kernel, height and width, stride): stems, 3x3, 1x1, stride 2.
CONV_SHAPES: Final = shapes(
    "8x3x48x3x48x1 8x3x64x7x64x2 8x24x24x3x40x1 8x48x48x3x28x1 "
    "8x48x96x3x28x2 8x96x96x3x20x1 8x96x192x1x20x1 8x160x160x3x12x1 "
    "8x192x384x3x14x2 4x256x256x3x10x1 4x256x512x1x14x2 16x64x64x1x24x1 "
    "32x3x64x7x224x2 32x64x64x3x56x1 32x256x128x1x56x1 32x256x256x3x14x1 "
    "64x512x512x3x7x1 "
)
#: (batch, heads, sequence length, head dimension)
ATTENTION_SHAPES: Final = shapes(
    "2x4x128x64 8x4x256x32 4x6x200x64 1x8x512x64 2x12x384x64 "
    "1x4x1024x64 4x16x1024x64 1x16x4096x128 2x32x2048x128 8x12x512x80 "
)
#: Table -> least and most FLOP of a forward kernel, by kind of device. The largest product takes
#: about 50 ms on a core, and 24 ms on a GPU at 50 TFLOP/s.
FLOP_RANGE: Final = {
    "gemm": {"cpu": (0.0, 4.5 * GIGA), "cuda": (0.0, 1.2e3 * GIGA)},
    "conv": {"cpu": (0.0, 1.5 * GIGA), "cuda": (2.0 * GIGA, 1e3 * GIGA)},
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
    for dtype in device.dtypes:
        for op, shape in products:
            groups, m, n, k = shape
            if _in_range("gemm", device, 2.0 * groups * m * n * k):
                yield Case(
                    "gemm", "gemm", _gemm_columns(device, dtype, op, shape),
                    partial(_gemm, op, dtype, shape), cold=True,
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
                yield Case("attention", "attention", columns, prepare, cold=True)


def conv_flop(b: int, cin: int, cout: int, size: int, hw: int, stride: int) -> float:
    """Forward FLOP of a convolution with padding ``size // 2``; ``hw`` is height and width."""
    out = (hw + 2 * (size // 2) - size) // stride + 1
    return 2.0 * b * out * out * cout * cin * size * size


def _conv(dtype: str, shape: tuple[int, ...], way: str, device: Device) -> Run:
    """A convolution in PyTorch's default layout (NCHW)."""
    import torch

    b, cin, cout, size, hw, stride = shape
    made = tensor_options(torch, dtype, device)
    x = torch.randn(b, cin, hw, hw, **made).requires_grad_()
    w = torch.randn(cout, cin, size, size, **made).requires_grad_()
    conv = partial(torch.nn.functional.conv2d, x, w, stride=stride, padding=size // 2)
    return one_pass(torch, conv, (x, w), way)


@FAMILIES.register("conv")
def conv_cases(device: Device, world: World) -> Iterable[Case]:
    """Every shape in range: the forward pass, and a backward pass with both gradients."""
    chosen = [s for s in CONV_SHAPES if _in_range("conv", device, conv_flop(*s))]
    for dtype in device.dtypes:
        for shape in chosen:
            for way in ("fwd", "bwd"):
                b, cin, cout, size, hw, stride = shape
                columns: Columns = {
                    "gpu": device.name, "dtype": dtype, "batch": b, "cin": cin, "cout": cout,
                    "kernel_size": size, "in_hw": hw, "stride": stride, "pad": size // 2,
                    "pass": way,
                }  # fmt: skip
                yield Case("conv", "conv", columns, partial(_conv, dtype, shape, way), cold=True)
