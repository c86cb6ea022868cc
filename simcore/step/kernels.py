"""A workload flattened to a kernel table, ready to be priced as arrays.

# K kernels, P phases. Phases number the work of block b: forward b, backward B + b, frozen 2B + f.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property, lru_cache
from typing import Any, get_args

import numpy as np

from simcore.base.arrays import NDArray
from simcore.base.same import Same
from simcore.physics.channels import clocks_per_element
from simcore.step.host_calls import Managed, calls, managed, unit_calls
from simcore.strategy.precision import Precision
from simcore.strategy.strategy import Strategy
from simcore.workload.graph import (
    CONV_KINDS,
    DENSE_CONVS,
    FLASH_KINDS,
    ONE,
    Block,
    Frozen,
    Kernel,
    KernelKind,
    Workload,
)
from simcore.workload.recompute import left_out

Array = NDArray[np.float64]
#: Products that stay in 16 bit where others compute in fewer: the head, those of activations.
WIDE = "gemm_wide"
#: Products of activations alone, one a head or window: kernels of their own in every library.
BATCHED = "gemm_batched"
#: 16-bit products whose rows NVIDIA's matrix units cannot load: they run on vector units.
UNALIGNED = "gemm_unaligned"
#: The same of a convolution that no kernel of matrix units takes.
VECTOR_CONV = "conv_vector_units"
#: Products of weights whose rows let matrix units load so many elements at a time, by that number.
NARROW_LOADS = {elems: f"gemm_load{elems}" for elems in (1, 2, 4)}
#: The same of products of activations: attention written out over 197 tokens, 49 of a window.
BATCHED_LOADS = {elems: f"gemm_batched_load{elems}" for elems in NARROW_LOADS}
#: Bytes that a load takes where rows are aligned.
FULL_LOAD_BYTES = 16.0
#: Convolutions of one channel a group between tensors that are channels last: other kernels.
DEPTHWISE_LAST = "conv_depthwise_last"
#: Softmax of rows up to 32 elements a lane, which a warp keeps in its registers; longer ones are a
#: block's, another kernel (ATen SoftMax.cu; shares of P100 and CDNA fall by a third and more).
SHORT_SOFTMAX, WARP_ROW = "softmax_short", 32 * 32
#: What brings the inputs of products to their format.
CAST = "cast"
KINDS: tuple[str, ...] = (
    *get_args(KernelKind), WIDE, BATCHED, UNALIGNED, VECTOR_CONV, *NARROW_LOADS.values(),
    *BATCHED_LOADS.values(), DEPTHWISE_LAST, SHORT_SOFTMAX, CAST,
)  # fmt: skip
#: Bytes of an element in which alignment decides: fp32 on vector units has no such demand.
UNALIGNED_BYTES = 2
COMPUTE_KINDS: tuple[KernelKind, ...] = ("gemm", *CONV_KINDS, *FLASH_KINDS)


@dataclass(frozen=True, eq=False)
class KernelTable:
    """Distinct kernels of each phase and how often they run there; all arrays [K] or [K, 2].

    Affine columns are (fixed, per sample). ``phase_start`` [P] indexes the first kernel of each
    phase, for ``np.add.reduceat``; ``matrix`` and ``attention`` index products of either form,
    ``attention_bwd`` attention's of backward, ``relaid`` convolutions of tensors that are channels
    first, which bringing to channels last moves ``relaid_per_sample`` bytes, ``indexed`` kernels
    that address or convert ``indexed_per_sample`` elements one by one, ``rowwise`` kernels of a
    block a row, of which they have ``rows_per_sample`` and read ``again`` of their bytes twice,
    ``channelwise`` those of a block a channel, all of which are ``channel_clocks`` a sample.
    ``issues_per_phase``: what the host issues, in kernels' worth: ``launches_per_phase`` and calls
    without kernels of their own; ``unit_issues_per_phase``: what FSDP's units add to that where
    there is more than one rank. ``awaited_per_phase`` [P, 2]: what it does beside that while the
    device waits for it.
    """

    kind: NDArray[np.intp]
    flop: Array
    bytes_fixed: Array
    bytes_per_sample: Array
    relaid_per_sample: Array
    indexed_per_sample: Array
    rows_per_sample: Array
    again: Array
    channels: Array
    channel_clocks: Array
    m: Array
    n: Array
    k: Array
    groups: Array
    launches: Array
    count: Array
    phase_start: NDArray[np.intp]
    n_phases: int
    launches_per_phase: Array
    issues_per_phase: Array
    awaited_per_phase: Array
    unit_issues_per_phase: Array
    matrix: NDArray[np.intp]
    attention: NDArray[np.intp]
    attention_bwd: NDArray[np.intp]
    relaid: NDArray[np.intp]
    indexed: NDArray[np.intp]
    rowwise: NDArray[np.intp]
    channelwise: NDArray[np.intp]

    @cached_property
    def matrix_sides(self) -> Array:
        """m, n, k and groups of ``matrix``, [4, n, 2]."""
        return np.stack([a[self.matrix] for a in (self.m, self.n, self.k, self.groups)])

    @cached_property
    def attention_sides(self) -> Array:
        """The same of ``attention``."""
        return np.stack([a[self.attention] for a in (self.m, self.n, self.k, self.groups)])

    @cached_property
    def waits(self) -> bool:
        """Whether the device ever waits for what its host does between results."""
        return bool(self.awaited_per_phase.any())


def _row(kernel: Kernel, precision: Precision, named: str = "") -> tuple[float, ...]:
    weight_bytes: float = (
        precision.low_bytes if kernel.kind in COMPUTE_KINDS else precision.param_bytes
    )
    per_sample: float = kernel.low * precision.low_bytes + kernel.high * precision.high_bytes
    narrow = precision.operand_bytes and kernel.kind == "gemm"
    if narrow and not kernel.wide:
        # All but the result is in the products' format: the weight's gradient is one.
        of_weight = kernel.k.per_sample > 0
        operands = kernel.low if of_weight else kernel.cast
        per_sample -= operands * (precision.low_bytes - precision.operand_bytes)
        weight_bytes = precision.low_bytes if of_weight else precision.operand_bytes

    launches = kernel.launches
    if min(kernel.low, kernel.high) < 0.0 < per_sample + kernel.raw_bytes:
        launches = 1.0  # a cast: none where both widths are one

    if kernel.unaligned and precision.low_bytes == UNALIGNED_BYTES:
        named = VECTOR_CONV if kernel.kind in CONV_KINDS else UNALIGNED
    elif kernel.load_elems * precision.low_bytes < FULL_LOAD_BYTES:
        loads = BATCHED_LOADS if _is_batched(kernel) else NARROW_LOADS
        named = loads[kernel.load_elems]
    m, n, k, groups = kernel.m, kernel.n, kernel.k, kernel.groups
    return (
        KINDS.index(named or _kind(kernel, bool(narrow))),
        kernel.flop,
        kernel.weight * weight_bytes,
        per_sample + kernel.raw_bytes,
        m.fixed, m.per_sample,
        n.fixed, n.per_sample,
        k.fixed, k.per_sample,
        groups.fixed, groups.per_sample,
        launches,
        2.0 * precision.low_bytes * _turned(kernel, precision),  # read, written
        kernel.indexed * (per_sample + kernel.raw_bytes > 0.0)  # a cast of fp32 to fp32 is none
        + kernel.mixed * precision.autocasts,
        kernel.rows,
        kernel.again,
        kernel.channels,
        _channel_clocks(kernel, precision) if kernel.channels or kernel.instances else 0.0,
        launches if kernel.issues is None else kernel.issues,
        kernel.instances,
        kernel.awaited.fixed, kernel.awaited.per_sample,
    )  # fmt: skip


def _turned(kernel: Kernel, precision: Precision) -> float:
    """Elements that a convolution on matrix units brings to channels last."""
    narrow = precision.low_bytes == UNALIGNED_BYTES
    as_they_lie = narrow and (kernel.planes or kernel.unaligned)
    return kernel.relaid * (kernel.kind in DENSE_CONVS and not as_they_lie)


def _channel_clocks(kernel: Kernel, precision: Precision) -> float:
    """Clocks a sample that the blocks of all channels take together."""
    low = kernel.low + kernel.raw_bytes / precision.low_bytes
    clocks = low * clocks_per_element(precision.low_bytes)
    return clocks + kernel.high * clocks_per_element(precision.high_bytes)


def _kind(kernel: Kernel, narrow: bool) -> str:
    if kernel.kind == "softmax":
        return SHORT_SOFTMAX if 1.0 < kernel.n.fixed <= WARP_ROW else "softmax"
    if kernel.kind == "conv_depthwise":
        return kernel.kind if kernel.relaid else DEPTHWISE_LAST
    if kernel.kind != "gemm":
        return kernel.kind
    if narrow:
        return WIDE if kernel.wide else "gemm"
    return BATCHED if _is_batched(kernel) else "gemm"


def _is_batched(kernel: Kernel) -> bool:
    return kernel.groups != ONE and not kernel.weight


def _cast(kernel: Kernel, precision: Precision) -> tuple[float, ...]:
    """What brings a product's input to its format; its issue is in ``issue_over_torch``.

    One kernel's start also for the operands of many experts: Transformer Engine casts them on
    streams side by side (cast.cu, nvte_multi_tensor_quantize).
    """
    moved = kernel.cast * precision.cast_traffic_bytes()
    return _row(Kernel(kind="elementwise", raw_bytes=moved, issues=0.0), precision, CAST)


def _weight_cast(kernel: Kernel, precision: Precision, backward: bool) -> tuple[float, ...]:
    """What brings a product's weight to its format, where each product does so for itself."""
    moved = kernel.weight * precision.weight_cast_bytes[backward] / precision.param_bytes
    return _row(Kernel(kind="elementwise", weight=moved, launches=0.0), precision, CAST)


def _autocast(kernel: Kernel, precision: Precision) -> tuple[float, ...]:
    """The kernel by which autocast brings a tensor to the width that an op asks for."""
    elems = kernel.autocasts
    return _row(Kernel(kind="elementwise", low=elems, high=elems, indexed=elems), precision)


def _weight_grad_cast(kernel: Kernel, precision: Precision) -> tuple[float, ...]:
    """What brings the gradient of a 16-bit copy to the width of the parameter."""
    moved = precision.cast_bytes + precision.param_bytes
    return _row(
        Kernel(kind="elementwise", weight=kernel.weight * moved / precision.param_bytes), precision
    )


@lru_cache(maxsize=2048)
def _cast_again(of: Same[Block], precision: Precision) -> Mapping[tuple[float, ...], float]:
    """Copies of a checkpointed block's weights that autocast makes anew in its backward.

    The checkpoint enters autocast again (torch/utils/checkpoint.py), whose copies of forward went
    when that was left (ATen's autocast_mode.cpp: the outermost exit clears the cache).
    """
    moved = (precision.cast_bytes + precision.param_bytes) / precision.param_bytes
    sizes = [op.gemm_weight for op in of.it.ops if op.gemm_weight]
    rows = [_row(Kernel(kind="elementwise", weight=size * moved), precision) for size in sizes]
    return {row: float(rows.count(row)) for row in rows}


@lru_cache(maxsize=2048)
def _phase(
    of: Same[Block] | Same[Frozen], precision: Precision, backward: bool
) -> Mapping[tuple[float, ...], float]:
    """Distinct kernels of a block or a network, and how often each runs; kept, since stages of a
    pipeline and jobs of one model have blocks in common.
    """
    kernels = [k for op in of.it.ops for k in (op.bwd if backward else op.fwd)]
    apart = _attention_again(of.it) if backward else []
    found = [_row(kernel, precision) for kernel in kernels if kernel not in apart]
    if precision.operand_bytes:
        found += [_cast(kernel, precision) for kernel in kernels if kernel.cast]
    if precision.weight_cast_bytes[backward]:
        of_weight = (k for k in kernels if k.cast and k.weight and not k.k.per_sample)
        found += [_weight_cast(kernel, precision, backward) for kernel in of_weight]
    if precision.autocasts:
        found += [_autocast(kernel, precision) for kernel in kernels if kernel.autocasts]
    if precision.cast_bytes and backward:
        of_weight = (k for k in kernels if k.kind in COMPUTE_KINDS and k.weight and k.k.per_sample)
        found += [_weight_grad_cast(kernel, precision) for kernel in of_weight]
    distinct: dict[tuple[float, ...], float] = {}
    for row in found:
        distinct[row] = distinct.get(row, 0.0) + 1.0
    return distinct


def _attention_again(of: Block | Frozen) -> list[Kernel]:
    """Attention's forward kernels that selective recompute puts before backward's, which run at
    forward's rate there too.
    """
    return [k for op in of.ops for k in op.bwd if k.kind in FLASH_KINDS and k in op.fwd]


@lru_cache(maxsize=2048)
def _again(of: Same[Block], precision: Precision) -> Mapping[tuple[float, ...], float]:
    """Distinct ones of ``_attention_again``, and how often each runs."""
    found: dict[tuple[float, ...], float] = {}
    for row in (_row(kernel, precision) for kernel in _attention_again(of.it)):
        found[row] = found.get(row, 0.0) + 1.0
    return found


@lru_cache(maxsize=2048)
def _needed(of: Same[Block], precision: Precision) -> Mapping[tuple[float, ...], float]:
    """Forward of a block as far as its backward needs it."""
    ops = of.it.ops[: len(of.it.ops) - len(left_out(of.it))]
    return _phase(Same(Block(name=of.it.name, ops=ops, params=())), precision, False)


@lru_cache(maxsize=256)
def kernel_table(
    workload: Workload, precision: Precision, recompute: bool = False, stops_early: bool = False,
    by: Managed | None = None,
) -> KernelTable:  # fmt: skip
    """Flatten a workload; equal kernels of one phase become one row with a count.

    ``recompute``: its recomputable blocks run under a checkpoint each. With ``stops_early`` what is
    run again is part of backward here, and no whole forward beside it. ``by``: what manages its
    parameters.
    """

    phases = [[(_phase(Same(b), precision, False), False)] for b in workload.blocks]
    for b in workload.blocks:
        phases.append([(_phase(Same(b), precision, True), True)])
        if again := _again(Same(b), precision):
            phases[-1].append((again, False))
        if recompute and stops_early and b.recomputable:
            phases[-1].append((_needed(Same(b), precision), False))
        if recompute and b.recomputable and precision.cast_bytes:
            phases[-1].append((_cast_again(Same(b), precision), True))
    phases += [[(_phase(Same(f), precision, False), False)] for f in workload.frozen]
    rows: list[tuple[float, ...]] = []
    counts: list[float] = []
    starts: list[int] = []
    nothing = _row(Kernel(kind="copy", launches=0.0), precision)
    backward: list[bool] = []
    for parts in phases:
        starts.append(len(rows))
        for distinct, behind in parts:
            for row, count in (distinct or {nothing: 0.0}).items():
                rows.append(row)
                counts.append(count)
                backward.append(behind)
    table = np.array(rows)
    count_array = np.array(counts)
    start_array = np.array(starts)
    attends = np.isin(table[:, 0], [KINDS.index(kind) for kind in FLASH_KINDS])
    launches, issues = (
        np.add.reduceat(count_array * table[:, column], start_array) for column in (12, 19)
    )
    return KernelTable(
        kind=table[:, 0].astype(np.intp),
        flop=table[:, 1],
        bytes_fixed=table[:, 2],
        bytes_per_sample=table[:, 3],
        relaid_per_sample=table[:, 13],
        indexed_per_sample=table[:, 14],
        rows_per_sample=table[:, 15],
        again=table[:, 16],
        channels=table[:, [17, 20]],
        channel_clocks=table[:, 18],
        m=table[:, 4:6],
        n=table[:, 6:8],
        k=table[:, 8:10],
        groups=table[:, 10:12],
        launches=table[:, 12],
        count=count_array,
        phase_start=start_array,
        n_phases=len(phases),
        launches_per_phase=launches,
        issues_per_phase=issues + calls(workload, issues, recompute, stops_early, by),
        unit_issues_per_phase=unit_calls(workload, by),
        awaited_per_phase=np.add.reduceat(count_array[:, None] * table[:, 21:23], start_array),
        matrix=np.flatnonzero((table[:, 1] > 0) & ~attends),
        attention=np.flatnonzero((table[:, 1] > 0) & attends),
        attention_bwd=np.flatnonzero((table[:, 1] > 0) & attends & np.array(backward)),
        relaid=np.flatnonzero(table[:, 13] > 0),
        indexed=np.flatnonzero(table[:, 14] > 0),
        rowwise=np.flatnonzero(table[:, 15] > 0),
        channelwise=np.flatnonzero(table[:, 18] > 0),
    )


def table_of(workload: Workload, strategy: Strategy) -> KernelTable:
    """The kernels of a workload as a strategy runs them."""
    return kernel_table(
        workload, strategy.precision, strategy.recompute == "full",
        strategy.program.recompute.stops_early,
        managed(strategy),
    )  # fmt: skip


@lru_cache(maxsize=256)
def joined_table(tables: tuple[KernelTable, ...]) -> KernelTable:
    """Several tables as one: the phases of the first, then those of the second, and so on."""
    if len(tables) == 1:
        return tables[0]
    begins = np.cumsum([0, *(len(t.kind) for t in tables[:-1])])

    def joined(name: str) -> NDArray[Any]:
        return np.concatenate([getattr(t, name) for t in tables])

    def shifted(name: str) -> NDArray[Any]:
        parts = [getattr(t, name) + at for t, at in zip(tables, begins, strict=True)]
        return np.concatenate(parts).astype(np.intp)

    indices = ("phase_start", "matrix", "attention", "attention_bwd", "relaid", "indexed",
               "rowwise", "channelwise")  # fmt: skip
    columns = [f.name for f in fields(KernelTable) if f.name not in (*indices, "n_phases")]
    return KernelTable(
        **{name: joined(name) for name in columns},
        **{name: shifted(name) for name in indices},
        n_phases=sum(t.n_phases for t in tables),
    )
