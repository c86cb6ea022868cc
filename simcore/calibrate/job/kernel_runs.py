"""Synthetic operators of the kinds, shapes and traffic of kernels, to time them one by one.

A kernel table has work, traffic and geometry of a kernel, not the operator. Each kind here has an
operator that moves the same bytes, or computes the same FLOP in the same shape. Imports torch:
import it only to time kernels.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final

import numpy as np
import torch
from torch.nn import functional

from simcore.base.record import dataclass
from simcore.calibrate.bench.case import Run
from simcore.calibrate.job.kernels_of_step import group_of
from simcore.physics.fill import own_sides
from simcore.step.kernels import KINDS
from simcore.step.transients import COMPUTE_KINDS
from simcore.strategy.precision import Precision
from simcore.timing.rates import STANDS_FOR

aten = torch.ops.aten
#: Length of rows where a kernel does not say it.
ROW: Final = 768
#: Random numbers beyond which a row of them is repeated.
MANY: Final = 1_000_000
#: Rows of a table that a look-up reads from.
TABLE_ROWS: Final = 8192
#: Numbers of taps of common convolutions.
TAPS: Final = (1, 9, 25, 49, 4, 16, 64, 196, 256, 3, 5, 7, 121)
#: Kinds that autocast runs in 16 bit; others are fp32 under it.
_LOW: Final = ("batch_norm", *COMPUTE_KINDS)
_DTYPES: Final = {"bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass(frozen=True)
class Shape:
    """A kernel at a batch: amounts are totals. ``of_weight``: a product's depth is the batch.

    ``weight_bytes``: the part of ``n_bytes`` that does not depend on the batch.
    """

    group: str
    kind: str
    backward: bool
    batch: float
    flop: float
    n_bytes: float
    weight_bytes: float
    m: int
    n: int
    k: int
    groups: int
    of_weight: bool
    launches: float
    indexed: bool
    rows: int
    row_bytes: float
    channels: int


def shape_of(kernel: np.void, batch: float) -> Shape:
    """The shape of one kernel of a table at a batch."""
    kind = KINDS[int(kernel["kind"])]
    fixed, per_sample = own_sides(kernel["sides"]).T
    sides = fixed + per_sample * batch
    m, n, k, groups = (max(1, round(float(side))) for side in sides)
    channels = kernel["blocks"][0] + kernel["blocks"][1] * batch
    return Shape(
        group=group_of(kind, False)[0], kind=STANDS_FOR.get(kind, kind),
        backward=bool(kernel["backward"]), batch=batch, flop=float(kernel["flop"] * batch),
        n_bytes=float(kernel["n_bytes"][0] + kernel["n_bytes"][1] * batch),
        weight_bytes=float(kernel["n_bytes"][0]), m=m, n=n, k=k, groups=groups,
        of_weight=bool(kernel["sides"][2, 1] > 0.0), launches=float(kernel["launches"]),
        indexed=bool(kernel["indexed"]), rows=round(float(kernel["rows"] * batch)),
        row_bytes=float(kernel["row_bytes"]), channels=round(float(channels)),
    )  # fmt: skip


@dataclass(frozen=True)
class Maker:
    """Makes tensors on a device in the dtypes of a precision."""

    device: str
    precision: Precision
    channels_last: bool = False

    def dtype(self, group: str) -> Any:
        """The dtype of a group's tensors."""
        low = _DTYPES.get(self.precision.peak, torch.float32)
        return low if group in _LOW or not self.precision.autocasts else torch.float32

    def __call__(self, group: str, *shape: int) -> Any:
        """Random numbers of a group's dtype; a repeated row, since many of them take long."""
        made = {"dtype": self.dtype(group), "device": self.device}
        if len(shape) > 1 and math.prod(shape) > MANY:
            return torch.randn(*shape[1:], **made).expand(shape).clone()
        return torch.randn(*shape, **made)

    def elements(self, s: Shape) -> float:
        """Elements that a kernel moves."""
        return s.n_bytes / int(torch.empty((), dtype=self.dtype(s.group)).element_size())


#: A call to time, and the kernel's work over the call's.
Made = tuple[Run, float]


def _product(s: Shape, make: Maker) -> Made:
    """A product laid out as in a linear layer's forward, data or weight gradient, or a batch."""
    scale = s.flop / (2.0 * s.m * s.n * s.k * s.groups)
    if s.groups > 1:
        a, b = make("gemm", s.groups, s.m, s.k), make("gemm", s.groups, s.k, s.n)
        return lambda: torch.bmm(a, b), scale
    if not s.backward:
        x, w = make("gemm", s.m, s.k), make("gemm", s.n, s.k)
        return lambda: functional.linear(x, w), scale
    a = make("gemm", s.k, s.m).t() if s.of_weight else make("gemm", s.m, s.k)
    b = make("gemm", s.k, s.n)
    return lambda: a @ b, scale


def _attention(s: Shape, make: Maker) -> Made:
    """Fused attention; causal where its FLOP are half of all pairs'."""
    whole = 4.0 * s.m * s.k * s.n * s.groups * (2.5 if s.backward else 1.0)
    causal = s.flop < 0.75 * whole and s.m == s.k
    q = make("attention", 1, s.groups, s.m, s.n)
    k, v = (make("attention", 1, s.groups, s.k, s.n) for _ in range(2))
    mask = make("attention", s.m, s.k) if s.kind in ("attention_v1", "attention_masked") else None
    causal = causal and mask is None
    attend = partial(functional.scaled_dot_product_attention, attn_mask=mask, is_causal=causal)
    scale = s.flop / (whole * (0.5 if causal else 1.0))
    if not s.backward:
        return lambda: attend(q, k, v), scale
    leaves = [t.requires_grad_() for t in (q, k, v)]
    y = attend(*leaves)
    g = torch.randn_like(y)
    return lambda: torch.autograd.grad(y, leaves, g, retain_graph=True), scale


def _stride(squared: float) -> tuple[int, float]:
    """The stride whose square is nearest, and how far off its logarithm is."""
    stride = max(1, round(math.sqrt(squared)))
    return stride, abs(math.log(max(squared, 1e-6)) / 2.0 - math.log(stride))


#: Channels of images, by which patches are told from other strided convolutions.
_COLOURS: Final = (3, 4)


@dataclass(frozen=True)
class Conv:
    """Geometry of a convolution: images of height and width, a kernel, channels of each group."""

    images: int
    out: tuple[int, int]
    taps: tuple[int, int]
    stride: int
    cin: int
    cout: int
    groups: int


def conv_geometry(s: Shape, elements: float, weight: float) -> Conv:
    """A convolution of a kernel's shape.

    ``elements``: of its input and output together; ``weight``: of its weight. Forward and weight
    gradient say ``cin * taps``, so that the number of taps is the one for which input and output
    fit a stride best, the smallest of several. The data gradient says all.
    """
    if s.backward and not s.of_weight:
        pixels_in, cin = s.m, s.n
        out_elements = max(1.0, elements - pixels_in * cin * s.groups)
        taps = max(1, round(s.flop / (2.0 * out_elements * cin)))
        cout = max(1, round(weight / (cin * taps)))
        stride = max(1, round(math.sqrt(pixels_in * cout / out_elements)))
        pixels = max(1, pixels_in // stride**2)
    else:
        pixels, depth = (s.k, s.m) if s.of_weight else (s.m, s.k)
        cout = s.n * s.groups
        in_elements = max(1.0, elements - pixels * cout)

        def fit(taps: int) -> tuple[float, bool, int]:
            stride, off = _stride(in_elements * taps / (depth * s.groups * pixels))
            patches = stride**2 == taps and depth // taps in _COLOURS
            plain = taps == stride == 1 and s.kind == "conv"  # that would be a pointwise one
            return round(off, 2) + plain, not patches, taps

        fixed = {"conv_pointwise": (1,), "conv_winograd": (9,)}.get(s.kind, TAPS)
        taps = min([t for t in fixed if depth % t == 0] or [1], key=fit)
        stride = _stride(in_elements * taps / (depth * s.groups * pixels))[0]
        cin = depth // taps
    images = max(1, math.gcd(pixels, round(s.batch)))
    side = math.isqrt(pixels // images)
    out = (side, side) if side * side * images == pixels else (1, pixels // images)
    root = math.isqrt(taps)
    kernel = (root, root) if root * root == taps and out[0] > 1 else (1, taps)
    return Conv(images, out, kernel, stride, cin, max(1, cout // s.groups), s.groups)


def _conv(s: Shape, make: Maker) -> Made:
    """A convolution's forward, data or weight gradient."""
    width = torch.empty((), dtype=make.dtype("conv")).element_size()
    g = conv_geometry(s, (s.n_bytes - s.weight_bytes) / width, s.weight_bytes / width)
    strides = [g.stride if o > 1 else 1 for o in g.out]
    pads = [0 if r <= stride else r // 2 for r, stride in zip(g.taps, strides, strict=True)]
    sizes = [
        out * stride + min(0, r - stride)
        for out, r, stride in zip(g.out, g.taps, strides, strict=True)
    ]
    x = make("conv", g.images, g.cin * g.groups, *sizes)
    w = make("conv", g.cout * g.groups, g.cin, *g.taps)
    if make.channels_last:
        x, w = (t.contiguous(memory_format=torch.channels_last) for t in (x, w))
    forward = partial(aten.convolution, x, w, None, strides, pads, [1, 1], False, [0, 0], g.groups)
    y = forward()
    scale = s.flop / (2.0 * y.numel() * g.cin * math.prod(g.taps))
    if not s.backward:
        return forward, scale
    grad = torch.randn_like(y)
    return partial(
        aten.convolution_backward, grad, x, w, None, strides, pads, [1, 1], False, [0, 0],
        g.groups, [not s.of_weight, s.of_weight, False],
    ), scale  # fmt: skip


def _rows_of(s: Shape, make: Maker, tensors: int, row: int = 0) -> tuple[int, int]:
    """(rows, length of one) of a kernel that moves ``tensors`` tensors of rows."""
    numel = max(1.0, make.elements(s) / tensors)
    if not row and s.rows:
        row = round(numel / s.rows)
    row = min(max(1, row or ROW), round(numel))
    return max(1, round(numel / row)), row


def _norm(s: Shape, make: Maker) -> Made:
    rows, row = _rows_of(s, make, 3 if s.backward else 2)
    x = make("norm", rows, row)
    w = make("norm", row)
    if not s.backward:
        return lambda: aten.native_layer_norm(x, [row], w, w, 1e-5), 1.0
    _, mean, rstd = aten.native_layer_norm(x, [row], w, w, 1e-5)
    g = torch.randn_like(x)
    needed = [True, False, False]
    return lambda: aten.native_layer_norm_backward(g, x, [row], mean, rstd, w, w, needed), 1.0


def _batch_norm(s: Shape, make: Maker) -> Made:
    numel = make.elements(s) / (5 if s.backward else 3)
    channels = s.channels or round(s.weight_bytes / 16) or 64
    images = max(1, round(s.batch))
    side = max(1, math.isqrt(round(numel / images / channels)))
    x = make("batch_norm", images, channels, side, side)
    if make.channels_last:
        x = x.contiguous(memory_format=torch.channels_last)
    w = torch.ones(channels, device=make.device)
    forward = partial(aten.native_batch_norm, x, w, w, None, None, True, 0.1, 1e-5)
    scale = numel / x.numel()
    if not s.backward:
        return forward, scale
    _, mean, invstd = forward()
    g, needed = torch.randn_like(x), [True, True, True]
    return partial(aten.native_batch_norm_backward, g, x, w, None, None, mean, invstd, True, 1e-5,
                   needed), scale  # fmt: skip


def _softmax(s: Shape, make: Maker) -> Made:
    rows, row = _rows_of(s, make, 3 if s.backward else 2, s.n if s.n > 1 else 0)
    x = make("softmax", rows, row)
    if not s.backward:
        return lambda: torch.softmax(x, -1), 1.0
    y, g = torch.softmax(x, -1), torch.randn_like(x)
    return lambda: aten._softmax_backward_data(g, y, -1, x.dtype), 1.0


def _reduction(s: Shape, make: Maker) -> Made:
    rows, row = _rows_of(s, make, 1, round(s.weight_bytes / 4))
    x = make("reduction", rows, row)
    return lambda: x.sum(0), 1.0


def _gather(s: Shape, make: Maker) -> Made:
    rows, row = _rows_of(s, make, 2)
    entries = max(1, round(s.weight_bytes / 4 / row)) if s.backward else TABLE_ROWS
    at = torch.randint(0, entries, (rows,), device=make.device)
    if s.backward:
        g = make("gather", rows, row)
        return lambda: aten.embedding_dense_backward(g, at, entries, -1, False), 1.0
    table = make("gather", entries, row)
    return lambda: functional.embedding(at, table), 1.0


def _copy(s: Shape, make: Maker) -> Made:
    rows, row = _rows_of(s, make, 2)
    x = make("copy", rows, row)
    return (lambda: x.t().contiguous()) if s.indexed else x.clone, 1.0


#: Function by a word of an op's name: (forward, backward of gradient and input).
_FUNCTIONS: Final[dict[str, tuple[Callable[..., Any], Callable[..., Any]]]] = {
    "gelu": (functional.gelu, aten.gelu_backward),
    "silu": (functional.silu, aten.silu_backward),
    "relu": (torch.relu, lambda g, x: aten.threshold_backward(g, x, 0)),
    "tanh": (torch.tanh, aten.tanh_backward),
    "sigmoid": (torch.sigmoid, aten.sigmoid_backward),
    "exp": (torch.exp, torch.mul),
    "dropout": (lambda x: functional.dropout(x, 0.1), torch.mul),
}  # fmt: skip


def function_in(name: str) -> str:
    """The elementwise function that an op's name says; empty for sums, products and others."""
    words = name.lower().replace("_", ".").split(".")
    return next((f for f in _FUNCTIONS if f in words), "")


def _elementwise(s: Shape, make: Maker, name: str = "") -> Made:
    """An elementwise kernel, or several that follow each other; a sum where no name says more."""
    times = max(1, round(s.launches))
    tensors = 2 if name and not s.backward else 3
    numel = max(1, round(make.elements(s) / tensors / times))
    rows, row = max(1, numel // ROW), min(numel, ROW)
    x, y = make("elementwise", rows, row), make("elementwise", rows, row)
    if name:
        ahead, back = _FUNCTIONS[name]
        call: Run = partial(back, y, x) if s.backward else partial(ahead, x)
    elif s.indexed:
        call = partial(torch.add, x, y[0])
    else:
        call = partial(torch.add, x, y)

    def run() -> Any:
        for _ in range(times):
            out = call()
        return out

    return run, numel / (rows * row)


_MAKERS: Final[dict[str, Callable[[Shape, Maker], Made]]] = {
    "gemm": _product, "attention": _attention, "conv": _conv, "norm": _norm,
    "batch_norm": _batch_norm, "softmax": _softmax, "reduction": _reduction, "gather": _gather,
    "copy": _copy, "elementwise": _elementwise,
}  # fmt: skip


def made(s: Shape, make: Maker, name: str = "") -> Made:
    """The call to time for a kernel, and the kernel's work over the call's.

    ``name``: an elementwise function. Raises KeyError for a kind without operator.
    """
    if s.group == "elementwise":
        return _elementwise(s, make, name)
    return _MAKERS[s.group](s, make)


def functions_of(names: Iterable[str]) -> list[str]:
    """The functions to time for a kernel that ops of these names share, one for each op."""
    return [function_in(name) for name in names] or [""]
