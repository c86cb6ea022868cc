"""Matrix products: a linear layer's forward and both backward layouts, and batched products."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from simcore.base.units import GIGA
from simcore.calibrate.bench.case import FAMILIES, Case, Device, Run, World, of_dtype

#: (m, n, k) of a linear layer: log-spaced, and awkward: no multiple of 8, 64 or 128.
SHAPES: Final = (
    (64, 256, 256), (256, 256, 256), (512, 512, 128), (128, 1024, 1024), (1024, 512, 512),
    (2048, 256, 1024), (1024, 1024, 1024), (512, 3072, 768), (2048, 2048, 512), (4096, 512, 256),
    (100, 300, 500), (777, 333, 1000), (1023, 1025, 511), (33, 4097, 255), (1536, 10, 512),
    (2048, 2048, 2048), (4096, 4096, 1024), (4096, 4096, 4096), (8192, 8192, 2048),
    (8192, 8192, 8192), (16384, 4096, 4096), (4095, 8191, 1023),
)  # fmt: skip
#: (groups, m, n, k)
BATCHED: Final = ((16, 128, 128, 64), (64, 64, 64, 32), (8, 512, 512, 64), (96, 1024, 1024, 128))
#: Work of the largest product [FLOP]: about 50 ms of a core, 5 ms of a GPU at 50 TFLOP/s.
LARGEST: Final = {"cpu": 4.5 * GIGA, "cuda": 1.2e3 * GIGA}


def linear(op: str, dtype: str, m: int, n: int, k: int) -> object:
    """``prepare`` of one product [m, k] @ [k, n] in the layout that autograd uses."""

    def prepare(device: Device) -> Run:
        import torch

        torch.backends.cuda.matmul.allow_tf32 = dtype == "tf32"
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


def _batched(dtype: str, groups: int, m: int, n: int, k: int) -> object:
    def prepare(device: Device) -> Run:
        import torch

        made = {"dtype": of_dtype(torch, dtype), "device": device.kind}
        a, b = torch.randn(groups, m, k, **made), torch.randn(groups, k, n, **made)
        return lambda: _drop(torch.bmm(a, b))

    return prepare


@FAMILIES.register("gemm")
def cases(device: Device, world: World) -> Iterable[Case]:
    """Every shape that the device can do in reasonable time."""
    layouts = {"linear": "TN", "linear_dgrad": "NN", "linear_wgrad": "NT"}
    for dtype in device.dtypes:
        for m, n, k in SHAPES:
            if 2.0 * m * n * k > LARGEST[device.kind]:
                continue
            for op, layout in layouts.items():
                columns = {"gpu": device.name, "dtype": dtype, "op": op, "m": m, "n": n, "k": k,
                           "batch": 1, "layout": layout}  # fmt: skip
                yield Case("gemm", "gemm", columns, linear(op, dtype, m, n, k), cold=True)  # type: ignore[arg-type]
        for g, m, n, k in BATCHED:
            if 2.0 * g * m * n * k > LARGEST[device.kind]:
                continue
            columns = {"gpu": device.name, "dtype": dtype, "op": "bmm", "m": m, "n": n, "k": k,
                       "batch": g, "layout": "NN"}  # fmt: skip
            yield Case("gemm", "gemm", columns, _batched(dtype, g, m, n, k), cold=True)  # type: ignore[arg-type]


#: What every rank computes at once, to see what they take from each other.
CROWD: Final = ((1024, 1024, 512), (512, 768, 768))


@FAMILIES.register("gemm-crowd")
def crowd(device: Device, world: World) -> Iterable[Case]:
    """The same products alone and on all ranks together."""
    if world.size < 2:
        return
    dtype = device.dtypes[0]
    for m, n, k in CROWD:
        columns = {"gpu": device.name, "dtype": dtype, "op": "linear", "m": m, "n": n, "k": k,
                   "batch": 1, "layout": "TN"}  # fmt: skip
        for mode in ("alone", "together"):
            yield Case("gemm-crowd", "gemm", columns, linear("linear", dtype, m, n, k),  # type: ignore[arg-type]
                       mode=mode, cold=True, seconds=0.4)  # type: ignore[arg-type]  # fmt: skip
