"""Benchmarks of matrix products: a linear layer's forward and backward ones, and batched ones."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from simcore.base.units import GIGA
from simcore.calibrate.bench.case import (
    FAMILIES,
    Case,
    Columns,
    Device,
    Mode,
    Prepare,
    Run,
    World,
    of_dtype,
    set_tf32,
    shapes,
)

#: (m, n, k) of a linear layer: sizes spaced logarithmically, and sizes that are no multiples of 8,
#: 64 or 128.
SHAPES: Final = shapes(
    "64x256x256 256x256x256 512x512x128 128x1024x1024 1024x512x512 "
    "2048x256x1024 1024x1024x1024 512x3072x768 2048x2048x512 4096x512x256 "
    "100x300x500 777x333x1000 1023x1025x511 33x4097x255 1536x10x512 "
    "2048x2048x2048 4096x4096x1024 4096x4096x4096 8192x8192x2048 8192x8192x8192 "
    "16384x4096x4096 4095x8191x1023 "
)
#: Products that determine the rate of the matrix units; some are small enough for a host.
FIRST: Final = shapes("1024x1024x1024 2048x2048x512 1024x512x512 4096x4096x4096 8192x8192x2048")
#: (groups, m, n, k)
BATCHED: Final = shapes("16x128x128x64 64x64x64x32 8x512x512x64 96x1024x1024x128 ")
#: FLOP of the largest product, by kind of device: about 50 ms on a core, and 24 ms on a GPU at
#: 50 TFLOP/s.
LARGEST: Final = {"cpu": 4.5 * GIGA, "cuda": 1.2e3 * GIGA}


def linear(op: str, dtype: str, m: int, n: int, k: int) -> Prepare:
    """The function that makes the tensors of a product [m, k] @ [k, n], laid out as in autograd."""

    def prepare(device: Device) -> Run:
        import torch

        set_tf32(torch, dtype)
        made = {"dtype": of_dtype(torch, dtype), "device": device.kind}
        if op == "linear":  # x [m, k], weight [n, k]
            x, w = torch.randn(m, k, **made), torch.randn(n, k, **made)
            return lambda: _drop(torch.nn.functional.linear(x, w))
        if op == "linear_dgrad":  # gradient [m, k] @ weight [k, n]
            x, w = torch.randn(m, k, **made), torch.randn(k, n, **made)
            return lambda: _drop(x @ w)
        x, w = torch.randn(k, m, **made), torch.randn(k, n, **made)
        return lambda: _drop(x.t() @ w)

    return prepare


def _drop(_: object) -> None:
    return None


def _batched(dtype: str, groups: int, m: int, n: int, k: int) -> Prepare:
    def prepare(device: Device) -> Run:
        import torch

        set_tf32(torch, dtype)
        made = {"dtype": of_dtype(torch, dtype), "device": device.kind}
        a, b = torch.randn(groups, m, k, **made), torch.randn(groups, k, n, **made)
        return lambda: _drop(torch.bmm(a, b))

    return prepare


def _columns(device: Device, dtype: str, op: str, shape: tuple[int, ...]) -> Columns:
    groups, m, n, k = shape
    return {"gpu": device.name, "dtype": dtype, "op": op, "m": m, "n": n, "k": k,
            "batch": groups, "layout": LAYOUTS[op]}  # fmt: skip


#: BLAS layout (T: transposed, N: not) of a linear layer's forward and of its backward products.
LAYOUTS: Final = {"linear": "TN", "linear_dgrad": "NN", "linear_wgrad": "NT", "bmm": "NN"}


@FAMILIES.register("gemm")
def cases(device: Device, world: World) -> Iterable[Case]:
    """Every product that the device can do in reasonable time, by dtype."""
    for dtype in device.dtypes:
        for m, n, k in SHAPES:
            if 2.0 * m * n * k > LARGEST[device.kind]:
                continue
            for op in ("linear", "linear_dgrad", "linear_wgrad"):
                columns = _columns(device, dtype, op, (1, m, n, k))
                yield Case("gemm", "gemm", columns, linear(op, dtype, m, n, k), cold=True,
                           first=op == "linear" and (m, n, k) in FIRST)  # fmt: skip
        for g, m, n, k in BATCHED:
            if 2.0 * g * m * n * k <= LARGEST[device.kind]:
                columns = _columns(device, dtype, "bmm", (g, m, n, k))
                yield Case("gemm", "gemm", columns, _batched(dtype, g, m, n, k), cold=True)


#: (m, n, k) of products that all ranks compute at once, to measure their contention.
CROWD: Final = shapes("1024x1024x512 512x768x768")


@FAMILIES.register("gemm-crowd")
def crowd(device: Device, world: World) -> Iterable[Case]:
    """The same products on one rank alone and on all ranks together.

    Caches are not flushed: a flush would be the heaviest memory traffic of all, and would disturb
    the measurement of the other ranks.
    """
    if world.size < 2:
        return
    dtype = device.dtypes[0]
    for m, n, k in CROWD:
        columns = _columns(device, dtype, "linear", (1, m, n, k))
        for mode in MODES:
            yield Case(
                "gemm-crowd", "gemm", columns, linear("linear", dtype, m, n, k),
                mode=mode, seconds=0.4, first=True,
            )  # fmt: skip


MODES: Final[tuple[Mode, ...]] = ("alone", "together")
