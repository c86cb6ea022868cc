"""Benchmarks of memory-bound kernels: copies, elementwise ops, norms, softmax, sums, look-ups.

Traffic is counted as in the workload graph (``workload.trace.flop``): every input is read once,
every output written once; batch norm passes over its input twice, which counts as two reads.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final

from simcore.base.record import dataclass
from simcore.base.units import GIB, MIB
from simcore.calibrate.bench.case import (
    BRIEF_S,
    FAMILIES,
    Case,
    Device,
    Run,
    World,
    one_pass,
    shapes,
    tensor_options,
    width,
)
from simcore.workload.graph import KernelKind

#: (torch, rows, columns, keyword arguments of a new tensor) -> the call to time.
Build = Callable[[Any, int, int, dict[str, Any]], Callable[[], Any]]


@dataclass(frozen=True)
class MemoryOp:
    """An op: its kind of kernel, and the elements that it moves per element of its input."""

    kind: KernelKind
    moved: float
    build: Build


def _x(torch: Any, rows: int, cols: int, made: dict[str, Any]) -> Any:
    """A tensor [rows, cols] of one repeated random row: making many random numbers is slow."""
    return torch.randn(cols, **made).repeat(rows, 1)


def _of_equal(n: int, function: Callable[[Any], Callable[..., Any]]) -> Build:
    """``function(torch)`` called with ``n`` equal tensors."""

    def build(torch: Any, rows: int, cols: int, made: dict[str, Any]) -> Callable[[], Any]:
        tensors = [_x(torch, rows, cols, made) for _ in range(n)]
        return partial(function(torch), *tensors)

    return build


def _backward(function: Callable[[Any, Any], Any]) -> Build:
    """The gradient of ``function(torch, x)`` with respect to x."""

    def build(torch: Any, rows: int, cols: int, made: dict[str, Any]) -> Callable[[], Any]:
        x = _x(torch, rows, cols, made).requires_grad_()
        return one_pass(torch, lambda: function(torch, x), (x,), "bwd")

    return build


def _triad(torch: Any) -> Callable[..., Any]:
    return lambda out, x, y: torch.add(x, y, alpha=2.0, out=out)


def _transposed(torch: Any, rows: int, cols: int, made: dict[str, Any]) -> Callable[[], Any]:
    """A copy from [b, s, h, d] to [b, h, s, d], as before attention."""
    heads = max(1, cols // 64)
    x = torch.randn(max(1, rows // 128), min(rows, 128), heads, cols // heads, **made)
    return lambda: x.transpose(1, 2).contiguous()


#: (torch, x) -> a call with x, and the tensors whose gradients its backward pass computes.
OfTensor = Callable[[Any, Any], tuple[Callable[[], Any], tuple[Any, ...]]]


def _affine(torch: Any, x: Any, n: int, dtype: Any) -> tuple[Any, Any]:
    """The weight and bias of a norm over ``n`` features."""
    made = {"device": x.device, "dtype": dtype, "requires_grad": True}
    return torch.ones(n, **made), torch.zeros(n, **made)


def _layer_norm(torch: Any, x: Any) -> tuple[Callable[[], Any], tuple[Any, ...]]:
    w, b = _affine(torch, x, x.shape[1], x.dtype)
    return partial(torch.nn.functional.layer_norm, x, (x.shape[1],), w, b), (x, w, b)


def _batch_norm(
    torch: Any, x: Any, *, last: bool = False
) -> tuple[Callable[[], Any], tuple[Any, ...]]:
    """Batch norm over channels of 256 pixels, as in a convolutional network.

    Its weights are fp32, as under autocast. ``last``: channels are last in memory.
    """
    channels = max(8, x.shape[1] // 16)
    images = x.detach().view(-1, channels, 16, 16)
    if last:
        images = images.contiguous(memory_format=torch.channels_last)
    images.requires_grad_()
    w, b = _affine(torch, x, channels, torch.float32)
    norm = torch.nn.functional.batch_norm
    return partial(norm, images, None, None, w, b, training=True), (images, w, b)


def _norm(of: OfTensor, way: str) -> Build:
    """The forward or the backward pass of a norm."""

    def build(torch: Any, rows: int, cols: int, made: dict[str, Any]) -> Callable[[], Any]:
        call, inputs = of(torch, _x(torch, rows, cols, made).requires_grad_())
        return one_pass(torch, call, inputs, way)

    return build


def _embedding(torch: Any, rows: int, cols: int, made: dict[str, Any]) -> Callable[[], Any]:
    table = torch.randn(8192, cols, **made)
    at = torch.randint(0, 8192, (rows,), device=made["device"])
    return lambda: torch.nn.functional.embedding(at, table)


OPS: Final[dict[str, MemoryOp]] = {
    "copy": MemoryOp("copy", 2, _of_equal(2, lambda t: t.Tensor.copy_)),
    "transpose": MemoryOp("copy", 2, _transposed),
    "triad": MemoryOp("elementwise", 3, _of_equal(3, _triad)),
    "add": MemoryOp("elementwise", 3, _of_equal(2, lambda t: t.add)),
    "mul": MemoryOp("elementwise", 3, _of_equal(2, lambda t: t.mul)),
    "accumulate": MemoryOp("elementwise", 3, _of_equal(2, lambda t: t.Tensor.add_)),
    "relu": MemoryOp("elementwise", 2, _of_equal(1, lambda t: t.relu)),
    "gelu": MemoryOp("elementwise", 2, _of_equal(1, lambda t: t.nn.functional.gelu)),
    "silu": MemoryOp("elementwise", 2, _of_equal(1, lambda t: t.nn.functional.silu)),
    "relu_bwd": MemoryOp("elementwise", 3, _backward(lambda t, x: t.relu(x))),
    "gelu_bwd": MemoryOp("elementwise", 3, _backward(lambda t, x: t.nn.functional.gelu(x))),
    "ln": MemoryOp("norm", 2, _norm(_layer_norm, "fwd")),
    # gradient of the input (3 elements) and of the weights, which reads both tensors once more (2)
    "ln_bwd": MemoryOp("norm", 5, _norm(_layer_norm, "bwd")),
    "bn": MemoryOp("norm", 3, _norm(_batch_norm, "fwd")),
    "bn_bwd": MemoryOp("norm", 5, _norm(_batch_norm, "bwd")),
    "bn_last": MemoryOp("norm", 3, _norm(partial(_batch_norm, last=True), "fwd")),
    "bn_last_bwd": MemoryOp("norm", 5, _norm(partial(_batch_norm, last=True), "bwd")),
    "softmax": MemoryOp("softmax", 2, _of_equal(1, lambda t: lambda x: t.softmax(x, -1))),
    "log_softmax": MemoryOp("softmax", 2, _of_equal(1, lambda t: lambda x: t.log_softmax(x, -1))),
    "softmax_bwd": MemoryOp("softmax", 3, _backward(lambda t, x: t.softmax(x, -1))),
    "sum_rows": MemoryOp("reduction", 1, _of_equal(1, lambda t: lambda x: x.sum(0))),
    "mean_cols": MemoryOp("reduction", 1, _of_equal(1, lambda t: lambda x: x.mean(1))),
    "embedding": MemoryOp("gather", 2, _embedding),
}  # fmt: skip
#: Ops for GPUs alone: networks on a host keep channels first.
ON_GPU: Final = ("bn_last", "bn_last_bwd")
#: (rows, columns): 0.5 to 16 MB in fp32 on a host, the range of activations; up to 1 GiB on a GPU.
SHAPES: Final = {
    "cpu": shapes("512x256 1024x1024 2048x2048"),
    "cuda": shapes("1024x1024 4096x1024 4096x4096 16384x4096 16384x16384"),
}
#: Ops that only stream memory; they determine the peak bandwidth.
STREAMS: Final = ("copy", "triad")
#: Further shapes of these ops, larger than the caches.
STREAM_SHAPES: Final = {"cpu": ((4096, 4096),), "cuda": ()}
#: Rows of the streams that determine the memory's bandwidth, and so run first.
SHAPES_FIRST: Final = {"cpu": 4096, "cuda": 16384}
#: Up to about this size a host's caches still hold the output of the previous op.
WARM_BYTES: Final = 16 * MIB


def _call(op: str, dtype: str, rows: int, cols: int, device: Device) -> Run:
    import torch

    return OPS[op].build(torch, rows, cols, tensor_options(torch, dtype, device))


def _columns(device: Device, op: str, dtype: str, rows: int, cols: int) -> dict[str, Any]:
    n = rows * cols
    return {"gpu": device.name, "dtype": dtype, "op": op, "rows": rows, "cols": cols,
            "elements": n, "bytes": int(OPS[op].moved * n * width(dtype))}  # fmt: skip


def from_memory_bytes(device: Device) -> float:
    """The least bytes of a cold stream that is taken as one from memory: twice the last cache.

    A virtual machine reports its host's whole cache, which may exceed every stream. Then the bytes
    of the largest stream are returned: caches are flushed before each call, so it also reads from
    memory.
    """
    largest = max((*SHAPES[device.kind], *STREAM_SHAPES[device.kind]), key=math.prod)
    least = min(_columns(device, op, device.dtypes[-1], *largest)["bytes"] for op in STREAMS)
    return min(2.0 * device.cache_bytes, float(least))


@FAMILIES.register("memory-bound")
def cases(device: Device, world: World) -> Iterable[Case]:
    """Every op at every size; on a host also with warm caches, since a step meets both states."""
    dtypes = [d for d in device.dtypes if d != "tf32"]
    for dtype in dtypes:
        for op in OPS if device.kind != "cpu" else (o for o in OPS if o not in ON_GPU):
            more = STREAM_SHAPES[device.kind] if op in STREAMS else ()
            for rows, cols in (*SHAPES[device.kind], *more):
                columns = _columns(device, op, dtype, rows, cols)
                if 4 * columns["bytes"] > min(device.memory_bytes, 8 * GIB):
                    continue
                prepare = partial(_call, op, dtype, rows, cols)
                yield Case("memory-bound", "memory_bound", columns, prepare, cold=True,
                           how="queue", seconds=BRIEF_S[device.kind],
                           first=op in STREAMS and rows == SHAPES_FIRST[device.kind])  # fmt: skip
                if device.kind == "cpu" and columns["bytes"] <= WARM_BYTES:
                    yield Case("memory-bound", "memory_bound", columns, prepare, seconds=0.05)


#: (op, rows, columns) of the kernels that all ranks run at once, to measure their contention.
CROWD: Final = (("add", 1000, 1000), ("gelu", 1000, 1000), ("ln", 1000, 1000), ("add", 4000, 1000))


@FAMILIES.register("memory-crowd")
def crowd(device: Device, world: World) -> Iterable[Case]:
    """The same kernels on one rank alone and on all ranks together, without flushing caches.

    Sizes are chosen within the caches and beyond them.
    """
    if world.size < 2:
        return
    dtype = device.dtypes[0]
    for op, rows, cols in CROWD:
        for mode in ("alone", "together"):
            yield Case(
                "memory-crowd", "memory_bound", _columns(device, op, dtype, rows, cols),
                partial(_call, op, dtype, rows, cols), mode=mode, seconds=0.3, first=True,
            )  # fmt: skip
