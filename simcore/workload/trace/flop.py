"""The CUDA kernels of one dispatched op: FLOP, geometry and number of launches."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch._prims_common import suggest_memory_format

from simcore.workload.graph import NATIVE_NORM, KernelKind
from simcore.workload.ops.lookup import BLOCK_ROW
from simcore.workload.ops.norm import NORM_BWD_REREAD_FRAC, NORM_REREAD_FRAC, native_norm
from simcore.workload.ops.products import DRAWN_SCORE, conv_kind, plane_bytes
from simcore.workload.trace.indexed import indexed_elements
from simcore.workload.trace.kinds import kind_of
from simcore.workload.trace.lookups import lookup_kernels
from simcore.workload.trace.record import KernelRecord, Piece
from simcore.workload.trace.recurrent import is_recurrent, recurrent_kernels

#: The kinds of attention with a mask tensor (lm_attention.MASKED), and with one that has a
#: gradient, which CUTLASS's kernel alone computes (attention_backward.cu, grad_bias).
_MASKED: KernelKind = "attention_masked"
_TRAINED_MASK: KernelKind = "attention_v1"
#: Products that are added to something, and all products whose geometry is known.
_ADDED = ("addmm", "baddbmm", "addbmm", "addmv")
_PRODUCTS = (*_ADDED, "mm", "_scaled_mm", "bmm", "mv", "dot", "vdot")
#: Position of the argument ``is_causal`` of torch's own operators of attention (2.13's
#: aten/src/ATen/native/native_functions.yaml); of simcore's operators it is the last.
_CAUSAL_AT = {
    "_scaled_dot_product_flash_attention_for_cpu": 4,
    "_scaled_dot_product_flash_attention_for_cpu_backward": 7,
    "_scaled_dot_product_flash_attention": 4,
    "_scaled_dot_product_flash_attention_backward": 11,
    "_scaled_dot_product_efficient_attention": 6,
    "_scaled_dot_product_efficient_attention_backward": 11,
    "_scaled_dot_product_cudnn_attention": 6,
    "_scaled_dot_product_cudnn_attention_backward": 14,
}
Pieces = tuple[Piece, ...]
Dims = tuple[int, int, int, int]


def _attention(name: str, args: Any) -> tuple[int, Dims]:
    """FLOP and geometry of fused attention, with the keys that a query attends to on average.

    Forward has two matrix products, backward five; a causal mask halves both (Dao 2022).
    """
    back = name.endswith("backward")
    q, k, v = args[1:4] if back else args[:3]
    at = _CAUSAL_AT.get(name, -1)
    causal = at < len(args) and bool(args[at])
    *lead, rows, width = q.shape
    keys = k.shape[-2]
    flop = 2 * math.prod(lead) * rows * keys * (width + v.shape[-1])
    flop = flop * 5 // 2 if back else flop
    if causal and rows == keys:
        flop, keys = flop // 2, keys // 2
    return flop, (rows, width, keys, math.prod(lead))


def _gemm(name: str, args: Any) -> tuple[int, Dims] | None:
    """FLOP and geometry of a matrix product; None if they are not known."""
    if name not in _PRODUCTS:
        return None
    first = int(name in _ADDED)  # what the product is added to comes before its operands
    a, b = args[first : first + 2]
    *groups, rows, depth = (1, *a.shape) if a.dim() == 1 else a.shape
    columns = b.shape[-1] if b.dim() > 1 else 1
    count = math.prod(groups)
    return 2 * rows * columns * depth * count, (rows, columns, depth, count)


def _conv(x: Any, weight: Any, out: Any, transposed: bool, groups: int) -> tuple[int, Dims]:
    """FLOP and geometry of a convolution as an implicit matrix product in ``groups`` groups."""
    pixels, channels = (x, x.shape[1]) if transposed else (out, out.shape[1])
    rows = pixels.shape[0] * math.prod(pixels.shape[2:])
    depth = math.prod(weight.shape[1:])
    return 2 * rows * channels * depth, (rows, channels // groups, depth, groups)


def _kind(
    x: Any, weight: Any, stride: Any, dilation: Any, transposed: bool, groups: int
) -> KernelKind:
    """The kind of a convolution's kernels."""
    return conv_kind(
        tuple(weight.shape[2:]), stride=max(stride), dilation=max(dilation), groups=groups,
        transposed=transposed, channels=x.shape[1],
    )  # fmt: skip


def _channels_first(x: Any, weight: Any) -> bool:
    """Whether cuDNN receives channels-first tensors, because neither is channels last.

    Strides decide (ATen ``ConvUtils.h``, ``cudnn_conv_suggest_memory_format``).
    """
    return all(suggest_memory_format(t) == torch.contiguous_format for t in (x, weight))


def _planes(kind: KernelKind, x: Any, relaid: int) -> tuple[int, ...]:
    """``KernelRecord.planes``: elements whose products read channels-first tensors directly."""
    return plane_bytes(kind, math.prod(x.shape[2:])) if relaid else ()


def _batch_norm(
    x: Any, reads: Pieces, writes: Pieces, *, backward: bool
) -> tuple[KernelRecord, ...]:
    """PyTorch's own kernels of a batch norm in training, and cuDNN's.

    Statistics and result are two passes over the input (in backward: over both inputs).
    """
    whole = tuple(p for p in reads if p.numel >= writes[0].numel)
    first = x.dim() > 2 and suggest_memory_format(x) == torch.contiguous_format
    channels, maps = int(x.shape[1]), x.shape[0] * x.shape[1]
    native = native_norm(x.numel(), channels, maps, channels_first=first, backward=backward)
    own = [
        KernelRecord(
            NATIVE_NORM, 0, (whole * 2)[: k.reads], writes[: k.writes], launches=k.launches,
            indexed=k.indexed, blocks=int(k.blocks), block_clocks=k.block_clocks,
        )
        for k in native
    ]  # fmt: skip
    cudnn = KernelRecord("batch_norm", 0, (*reads, *whole), writes, blocks=channels * first)
    return *own, cudnn


def _conv_backward(args: Any, out: Any, of: Any) -> tuple[KernelRecord, ...]:
    """Kernels of a convolution's backward: one per gradient (weight, input, bias) that it needs."""
    grad, x, weight = args[0], args[1], args[2]
    transposed, groups, mask = bool(args[7]), args[9], args[10]
    flop, (rows, columns, depth, _) = _conv(x, weight, grad, transposed, groups)
    kind = _kind(x, weight, args[4], args[6], transposed, groups)
    relaid = (x.numel() + grad.numel()) * _channels_first(x, weight)
    layout = {"relaid": relaid, "planes": _planes(kind, x, relaid)}
    kernels = []
    if mask[1]:
        dims = (depth, columns, rows, groups)
        kernels.append(KernelRecord(kind, flop, (of(grad), of(x)), (of(out[1]),), dims, **layout))
    if mask[0]:
        pixels = x.shape[0] * math.prod(x.shape[2:])
        inner = x.shape[1] // groups
        dims = (pixels, inner, max(1, flop // (2 * pixels * inner * groups)), groups)
        kernels.append(
            KernelRecord(kind, flop, (of(grad), of(weight)), (of(out[0]),), dims, **layout)
        )
    if mask[2]:
        kernels.append(KernelRecord("reduction", 0, (of(grad),), (of(out[2]),)))
    return tuple(kernels)


def _streamed(name: str, reads: Pieces, writes: Pieces) -> tuple[KernelRecord, ...]:
    """The kernel of a softmax whose rows are too long for a thread block to hold, as two halves.

    Each of its passes reads operands from memory (ATen SoftMax.cu): the first half are the reads
    that another pass repeats, the second the pass that writes the result.
    """
    again = reads * 2  # Forward: for the maximum and for the sum.
    if name.endswith("backward_data"):
        again = reads[:1] if name.startswith("_log") else reads  # For the sum.
    first = KernelRecord("elementwise", 0, again, (), launches=0.5)
    return first, KernelRecord("elementwise", 0, reads, writes, launches=0.5)


def _likelihood(logs: Any, reads: Pieces, writes: Pieces, of: Any) -> KernelRecord:
    """The kernels of a negative log likelihood of ``logs``, of which they touch one element a row.

    Backward fills its result with zeros first (ATen native/cuda/NLLLoss.cu).
    """
    whole = of(logs).numel
    few = tuple(p for p in reads if p.numel < whole)
    return KernelRecord("elementwise", 0, few, writes, launches=1 + (writes[0].numel >= whole))


def kernels_of(
    name: str, args: Any, out: Any, reads: Pieces, writes: Pieces, of: Any
) -> tuple[KernelRecord, ...]:
    """The CUDA kernels of the aten op ``name``; ``of(tensor)`` returns a tensor's ``Piece``.

    Several kernels on CUDA are: a convolution with bias (the bias is added by a second kernel), the
    backward of a convolution (one per gradient), of LayerNorm (two) and of flash attention (three).
    """
    kind = kind_of(name)
    if kind == "conv" and name.endswith("backward"):
        return _conv_backward(args, out, of)
    if kind == "conv":
        transposed, groups = bool(args[6]), args[8]
        flop, dims = _conv(args[0], args[1], out, transposed, groups)
        kind = _kind(args[0], args[1], args[3], args[5], transposed, groups)
        # Kernels of the forward pass can write either layout, so only the input is converted.
        relaid = args[0].numel() * _channels_first(args[0], args[1])
        main = KernelRecord(
            kind, flop, (of(args[0]), of(args[1])), writes, dims, relaid=relaid,
            planes=_planes(kind, args[0], relaid),
        )  # fmt: skip
        if args[2] is None:
            return (main,)
        added = (of(out), of(args[2]))
        bias = KernelRecord("elementwise", 0, added, writes, indexed=out.numel())
        return main, bias
    if kind == "attention":
        flop, dims = _attention(name, args)
        launches, drawn = 3 if name.endswith("backward") else 1, 0.0
        if name.startswith("attention"):  # the package's own operator (trace.attention)
            mask, drop, _ = args[-3:]
            if mask is not None:
                kind = _TRAINED_MASK if mask.requires_grad else _MASKED
            drawn = DRAWN_SCORE * dims[0] * dims[2] * dims[3] * (drop > 0.0)
        return (KernelRecord(kind, flop, reads, writes, dims, launches, indexed=drawn),)
    if is_recurrent(name, args):
        return recurrent_kernels(name, args, of)
    if kind == "gather" and (several := lookup_kernels(name, args, out, of)) is not None:
        return several
    if kind == "gemm":
        product = _gemm(name, args)
        flop, dims = product or (0, (1, 1, 1, 1))
        return (KernelRecord(kind, flop, reads, writes, dims),)
    if name in ("native_layer_norm_backward", "_fused_rms_norm_backward"):
        # In both norms args[1] is the input and args[2] the normalized shape.
        columns = math.prod(args[2])
        rows = args[1].numel() // columns
        back = KernelRecord(kind, 0, reads, writes[:1], rows=rows, reread_frac=NORM_BWD_REREAD_FRAC)
        copies = _made_contiguous(args[:2], of)
        if len(writes) == 1:
            return (*copies, back)
        x = max(reads, key=lambda p: p.numel)
        sums = KernelRecord("reduction", 0, (x, x), writes[1:], (rows, columns, 1, 1))
        return (*copies, back, sums)
    if name in ("native_layer_norm", "_fused_rms_norm"):
        rows = args[0].numel() // math.prod(args[1])
        norm = KernelRecord(kind, 0, reads, writes, rows=rows, reread_frac=NORM_REREAD_FRAC)
        return (*_made_contiguous(args[:1], of), norm)
    if name == "native_group_norm":
        x = reads[0]
        return KernelRecord(kind, 0, (x,), ()), KernelRecord("elementwise", 0, reads, writes)
    if "batch_norm" in name:
        if "no_training" in name:
            return (KernelRecord("batch_norm", 0, reads, writes),)
        return _batch_norm(args[0], reads, writes, backward=name.endswith("backward"))
    if name.startswith(("_softmax", "_log_softmax")) and out.shape[-1] > BLOCK_ROW:
        return _streamed(name, reads, writes)
    if name in ("nll_loss_forward", "nll_loss_backward"):
        return (_likelihood(args[name.endswith("backward")], reads, writes, of),)
    indexed = indexed_elements(kind, name, args, out)
    widths = {p.width for p in (*reads, *writes) if p.numel > 1 and p.width != "raw"}
    mixed = out.numel() if kind == "elementwise" and not indexed and len(widths) > 1 else 0
    return (KernelRecord(kind, 0, reads, writes, indexed=indexed, mixed=mixed),)


def _made_contiguous(tensors: Iterable[Any], of: Any) -> Iterator[KernelRecord]:
    """Copies of a norm's strided inputs (layer_norm_kernel.cu, expect_contiguous)."""
    for t in tensors:
        if not t.is_contiguous():
            yield KernelRecord("copy", 0, (of(t),), (of(t),), indexed=t.numel())
