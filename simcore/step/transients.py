"""Memory that an op holds in addition to what it saves: operands of its kernels, bytes per sample.

Kernels record the bytes that they move, not the tensors that they hold. Two rules give the latter:
a forward kernel holds what it reads and writes; a backward kernel holds the gradients of both,
which have the same shapes. Whatever else it reads was saved by forward and is counted there.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from math import prod
from typing import NamedTuple

from simcore.base.units import FP32_BYTES
from simcore.strategy.precision import Precision
from simcore.workload.graph import (
    CONV_KINDS,
    FLASH_KINDS,
    RECURRENT,
    Kernel,
    KernelKind,
    Op,
    Workload,
)
from simcore.workload.saved import NOTHING, Saved

#: Kinds of kernels whose arithmetic matters: products, convolutions and fused attention.
COMPUTE_KINDS: tuple[KernelKind, ...] = ("gemm", RECURRENT, *CONV_KINDS, *FLASH_KINDS)
_WHOLE = frozenset((*COMPUTE_KINDS, "softmax"))
#: Flash attention sums the gradient of q in fp32 (Dao 2023, flash_attn mha_bwd dq_accum).


class Backward(NamedTuple):
    """Bytes per sample held while an op's backward runs, and of the gradient that it hands on."""

    held: float
    handed_on: float


def storages(saved: Saved, p: Precision) -> tuple[float, ...]:
    """Bytes per sample of the storages that an op saves, by class; empty ones are left out."""
    if saved is NOTHING:
        return ()
    sizes = (
        saved.low * p.low_bytes,
        saved.high * p.high_bytes,
        saved.raw_bytes,
        saved.matmul * p.product_bytes,
        saved.matmul_copy * p.input_bytes,
        saved.autocast * p.low_bytes * p.autocasts,
        saved.narrowed * p.low_bytes * (p.low_bytes < FP32_BYTES),
    )
    return tuple(s for s in sizes if s)


def saved_bytes(saved: Saved, p: Precision) -> float:
    """Bytes per sample that are held until backward."""
    return sum(storages(saved, p))


def _moved(kernel: Kernel, p: Precision) -> float:
    moved = kernel.low * p.low_bytes + kernel.high * p.high_bytes + kernel.raw_bytes
    # The launches of a chain of elementwise kernels run one after another; softmax and loss are
    # two halves of one operation.
    return moved if kernel.kind in _WHOLE else moved / max(kernel.launches, 1)


def _converts(kernel: Kernel) -> bool:
    """Whether it is a trace's cast of a tensor that is counted as wide as the next op needs it."""
    return kernel.kind == "copy" and kernel.low < 0.0


def _product(kernel: Kernel, p: Precision) -> float:
    """Bytes per sample of the result of a matrix product; 0 for a weight's gradient."""
    sides = (kernel.m, kernel.n, kernel.groups)
    varying = [s.per_sample for s in sides if s.per_sample]
    fixed = prod(s.fixed for s in sides if not s.per_sample)
    return varying[0] * fixed * p.low_bytes if len(varying) == 1 else 0.0


def _sides(kernel: Kernel, p: Precision) -> tuple[float, float]:
    """Bytes per sample of a kernel's input and output, or of a cast's output and input."""
    low, wide = kernel.low * p.low_bytes, kernel.high * p.high_bytes or kernel.raw_bytes
    if kernel.kind == "copy" and low and wide:  # a cast, or one to a fixed width
        return low, wide
    half = _moved(kernel, p) / 2
    return half, half


def output_bytes(op: Op, p: Precision) -> float:
    """Bytes per sample of the output that an op's forward hands to the next op."""
    if stated := saved_bytes(op.result, p):
        return stated
    for kernel in reversed([] if op.sink else [k for k in op.fwd if not _converts(k)]):
        product = kernel.kind in COMPUTE_KINDS
        made = _product(kernel, p) if product else max(_sides(kernel, p))
        if made:
            return made
    return 0.0


def backward_bytes(op: Op, p: Precision) -> Backward:
    """Bytes per sample that an op's backward holds in addition to what forward saved."""
    if op.in_place:
        return Backward(0.0, 0.0)
    if op.gradient_in_place:
        return Backward(output_bytes(op, p), 0.0)
    if op.sink:  # only the gradient that is written; everything else read was saved
        made = max((_moved(k, p) / 2 for k in op.bwd), default=0.0)
        return Backward(made, made)
    forward = max((_moved(k, p) for k in op.fwd if not _converts(k)), default=0.0)
    held = handed_on = 0.0
    for kernel in op.bwd:
        if _converts(kernel):
            continue
        moved = _moved(kernel, p)
        made = moved / 2
        if kernel.kind in FLASH_KINDS:
            # dO, dq, dk, dv: half of what also reads q, k, v, o; and the fp32 sum of dq
            q = kernel.m.fixed * kernel.n.fixed * kernel.groups.per_sample
            moved = moved / 2 + q * FP32_BYTES
        elif kernel.kind in COMPUTE_KINDS:
            made = _product(kernel, p)
        elif forward:
            made = min(_sides(kernel, p)) if moved <= forward else forward / 2
            moved = min(moved, forward)
        held, handed_on = max(held, moved), max(handed_on, made)
    return Backward(held, min(held, handed_on))


def just_written(ops: Sequence[Op], p: Precision, backward: bool) -> list[tuple[Kernel, float]]:
    """The kernels of ops in their order, each with the bytes that it reads just after a write.

    Bytes per sample of one tensor, which each launch of the kernel reads: in forward the result of
    the kernel before it, in backward the gradient of the op's result. 0 for kernels whose rate was
    measured with operands in the cache: products, convolutions and fused attention.
    """
    found: list[list[tuple[Kernel, float]]] = []
    before = 0.0
    for op in reversed(ops) if backward else ops:
        result = output_bytes(op, p)
        before = result if backward and result else before
        found.append([])
        for kernel in op.bwd if backward else op.fwd:
            moved, fresh = _moved(kernel, p), 0.0
            if kernel.kind in COMPUTE_KINDS:
                before = _product(kernel, p) or before
            else:
                fresh = min(before, moved if kernel.kind == "reduction" else moved / 2)
                before = before if backward else moved / 2
            found[-1].append((kernel, max(fresh, 0.0)))
        before = before if backward or op.in_place else result
    return [pair for pairs in (reversed(found) if backward else found) for pair in pairs]


def context_of(ops: Sequence[Op], j: int, p: Precision, backward: bool) -> tuple[Op, ...]:
    """Op ``j`` with the ops of its block that decide what it reads just after a write.

    In forward those before it, from the last one that is not in place; in backward those after it,
    whose backward runs before its own, up to the first that has a result.
    """
    if backward:
        last = next((k for k in range(j, len(ops)) if output_bytes(ops[k], p)), len(ops) - 1)
        return tuple(ops[j : last + 1])
    first = next((k for k in range(j - 1, -1, -1) if not ops[k].in_place), 0)
    return tuple(ops[first : j + 1])


def swapped_base(workload: Workload, p: Precision, blocks: int) -> float:
    """Bytes of the adapters' frozen base in the first ``blocks`` repeated blocks."""
    repeated = (b for b in workload.instances() if b.recomputable)
    return sum(b.base_bytes(p.base_bytes) for b in islice(repeated, blocks))
