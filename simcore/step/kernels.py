"""The kernel table: all kernels of a workload as arrays, ready to be priced.

# K kernels, P phases. With B blocks, phase b is the forward of block b, phase B + b its backward,
# and phase 2B + f the forward of frozen network f.
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
#: Matrix products that stay in 16 bit although other products of the job compute in 8 bits or
#: fewer: the head, and products of activations.
WIDE = "gemm_wide"
#: Matrix products of two activations, one per attention head or window. Every library has separate
#: (batched) kernels for them.
BATCHED = "gemm_batched"
#: 16-bit matrix products whose rows are too badly aligned for NVIDIA's matrix units to load: they
#: run on vector units.
UNALIGNED = "gemm_unaligned"
#: Convolutions that no kernel for matrix units supports: they run on vector units.
VECTOR_CONV = "conv_vector_units"
#: Matrix products of weights whose alignment lets matrix units load only this many elements at a
#: time: number of elements -> kind.
NARROW_LOADS = {elems: f"gemm_load{elems}" for elems in (1, 2, 4)}
#: The same for products of activations, such as attention as explicit matrix products over 197
#: tokens, or over the 49 tokens of a window.
BATCHED_LOADS = {elems: f"gemm_batched_load{elems}" for elems in NARROW_LOADS}
#: Bytes of one load from aligned rows.
FULL_LOAD_BYTES = 16.0
#: Depthwise convolutions (one channel per group) of channels-last tensors, which have other kernels
#: than channels-first tensors.
DEPTHWISE_LAST = "conv_depthwise_last"
#: Softmax of rows of at most ``WARP_ROW`` elements (32 per lane), which a warp keeps in its
#: registers. Longer rows take a thread block each, in another kernel (ATen SoftMax.cu; on P100 and
#: CDNA it reaches a fraction of the peak that is lower by a third and more).
SHORT_SOFTMAX, WARP_ROW = "softmax_short", 32 * 32
#: Kernels that convert the inputs of matrix products to the products' format.
CAST = "cast"
KINDS: tuple[str, ...] = (
    *get_args(KernelKind), WIDE, BATCHED, UNALIGNED, VECTOR_CONV, *NARROW_LOADS.values(),
    *BATCHED_LOADS.values(), DEPTHWISE_LAST, SHORT_SOFTMAX, CAST,
)  # fmt: skip
#: Bytes per element of the formats whose alignment matters (16 bit). fp32 on vector units has no
#: such demand.
UNALIGNED_BYTES = 2
COMPUTE_KINDS: tuple[KernelKind, ...] = ("gemm", *CONV_KINDS, *FLASH_KINDS)


@dataclass(frozen=True, eq=False)
class KernelTable:
    """The distinct kernels of each phase and how often each runs in its phase.

    Columns of kernels are [K]; affine ones are [K, 2]: a fixed part and a part per sample.

    ``kind``: index into ``KINDS``; ``flop``: per sample; ``count``: runs in the phase;
    ``launches``: device launches of one run.
    ``bytes_fixed``, ``bytes_per_sample``: memory traffic of parameters and of everything else.
    ``m``, ``n``, ``k``, ``groups`` [K, 2]: geometry of matrix products (``workload.graph.Kernel``).
    ``relaid_per_sample``: bytes that a conversion of channels-first tensors to channels last moves.
    ``indexed_per_sample``: elements that the kernel addresses or converts one by one.
    ``rows_per_sample``: rows of a kernel that runs one thread block per row; ``again``: the
    fraction of its bytes that it reads twice.
    ``channels`` [K, 2]: thread blocks of a kernel that runs one per channel; ``channel_clocks``:
    clocks per sample of all of them together.

    ``phase_start`` [P]: index of the first kernel of each phase, for ``np.add.reduceat``.
    ``launches_per_phase`` [P]: kernel launches. ``issues_per_phase`` [P]: host work in kernel
    issues (the host time of issuing one kernel), which includes calls that launch no kernel.
    ``unit_issues_per_phase`` [P]: kernel issues that FSDP's units add where there is more than one
    rank. ``awaited_per_phase`` [P, 2]: kernel issues of host work that the device waits for.

    Index arrays list the kernels to which a part of the cost model applies: ``matrix`` matrix
    products and convolutions, ``attention`` fused attention, ``attention_bwd`` its backward,
    ``relaid``, ``indexed``, ``rowwise`` and ``channelwise`` those whose column above is not 0.
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
        """m, n, k and groups of the kernels in ``matrix`` [4, len(matrix), 2]."""
        return np.stack([a[self.matrix] for a in (self.m, self.n, self.k, self.groups)])

    @cached_property
    def attention_sides(self) -> Array:
        """m, n, k and groups of the kernels in ``attention`` [4, len(attention), 2]."""
        return np.stack([a[self.attention] for a in (self.m, self.n, self.k, self.groups)])

    @cached_property
    def waits(self) -> bool:
        """Whether the device ever waits for host work that depends on the device's results."""
        return bool(self.awaited_per_phase.any())


def _row(kernel: Kernel, precision: Precision, kind: str = "") -> tuple[float, ...]:
    """The row of a kernel in the table, as the 23 numbers that ``kernel_table`` names.

    ``kind``: an entry of ``KINDS``, in place of the kind that follows from the kernel.
    """
    weight_bytes: float = (
        precision.low_bytes if kernel.kind in COMPUTE_KINDS else precision.param_bytes
    )
    per_sample: float = kernel.low * precision.low_bytes + kernel.high * precision.high_bytes
    low_precision = precision.operand_bytes and kernel.kind == "gemm"
    if low_precision and not kernel.wide:
        # Operands are in the products' format, results in 16 bit. A weight gradient is a result.
        weight_grad = kernel.k.per_sample > 0
        operands = kernel.low if weight_grad else kernel.cast
        per_sample -= operands * (precision.low_bytes - precision.operand_bytes)
        weight_bytes = precision.low_bytes if weight_grad else precision.operand_bytes

    launches = kernel.launches
    if min(kernel.low, kernel.high) < 0.0 < per_sample + kernel.raw_bytes:
        launches = 1.0  # A cast, which does not run where both widths are equal.

    if kernel.unaligned and precision.low_bytes == UNALIGNED_BYTES:
        kind = VECTOR_CONV if kernel.kind in CONV_KINDS else UNALIGNED
    elif kernel.load_elems * precision.low_bytes < FULL_LOAD_BYTES:
        loads = BATCHED_LOADS if _is_batched(kernel) else NARROW_LOADS
        kind = loads[kernel.load_elems]
    m, n, k, groups = kernel.m, kernel.n, kernel.k, kernel.groups
    return (
        KINDS.index(kind or _kind(kernel, bool(low_precision))),
        kernel.flop,
        kernel.weight * weight_bytes,
        per_sample + kernel.raw_bytes,
        m.fixed, m.per_sample,
        n.fixed, n.per_sample,
        k.fixed, k.per_sample,
        groups.fixed, groups.per_sample,
        launches,
        2.0 * precision.low_bytes * _relaid_elems(kernel, precision),  # read and written
        kernel.indexed * (per_sample + kernel.raw_bytes > 0.0)  # fp32 to fp32 is no cast
        + kernel.mixed * precision.autocasts,
        kernel.rows,
        kernel.again,
        kernel.channels,
        _channel_clocks(kernel, precision) if kernel.channels or kernel.instances else 0.0,
        launches if kernel.issues is None else kernel.issues,
        kernel.instances,
        kernel.awaited.fixed, kernel.awaited.per_sample,
    )  # fmt: skip


def _relaid_elems(kernel: Kernel, precision: Precision) -> float:
    """Elements per sample that a convolution on matrix units has converted to channels last."""
    is_16_bit = precision.low_bytes == UNALIGNED_BYTES
    reads_channels_first = is_16_bit and (kernel.planes or kernel.unaligned)
    return kernel.relaid * (kernel.kind in DENSE_CONVS and not reads_channels_first)


def _channel_clocks(kernel: Kernel, precision: Precision) -> float:
    """Clocks per sample of the thread blocks of all channels together."""
    low = kernel.low + kernel.raw_bytes / precision.low_bytes
    clocks = low * clocks_per_element(precision.low_bytes)
    return clocks + kernel.high * clocks_per_element(precision.high_bytes)


def _kind(kernel: Kernel, low_precision: bool) -> str:
    """The kind in ``KINDS``; ``low_precision``: products compute in 8 bits or fewer."""
    if kernel.kind == "softmax":
        return SHORT_SOFTMAX if 1.0 < kernel.n.fixed <= WARP_ROW else "softmax"
    if kernel.kind == "conv_depthwise":
        return kernel.kind if kernel.relaid else DEPTHWISE_LAST
    if kernel.kind != "gemm":
        return kernel.kind
    if low_precision:
        return WIDE if kernel.wide else "gemm"
    return BATCHED if _is_batched(kernel) else "gemm"


def _is_batched(kernel: Kernel) -> bool:
    """Whether the kernel is a batch of products of two activations."""
    return kernel.groups != ONE and not kernel.weight


def _cast(kernel: Kernel, precision: Precision) -> tuple[float, ...]:
    """The row of the cast that converts a product's input to the product's format.

    It costs no kernel issue here, because ``issue_over_torch`` includes it. It counts as one launch
    also for the operands of many experts: Transformer Engine casts them on parallel streams
    (cast.cu, nvte_multi_tensor_quantize).
    """
    moved = kernel.cast * precision.cast_traffic_bytes()
    return _row(Kernel(kind="elementwise", raw_bytes=moved, issues=0.0), precision, CAST)


def _weight_cast(kernel: Kernel, precision: Precision, backward: bool) -> tuple[float, ...]:
    """The row of the cast of a product's weight, where each product casts its own weight."""
    moved = kernel.weight * precision.weight_cast_bytes[backward] / precision.param_bytes
    return _row(Kernel(kind="elementwise", weight=moved, launches=0.0), precision, CAST)


def _autocast(kernel: Kernel, precision: Precision) -> tuple[float, ...]:
    """The row of the kernel by which autocast converts a tensor to the width that an op needs."""
    elems = kernel.autocasts
    return _row(Kernel(kind="elementwise", low=elems, high=elems, indexed=elems), precision)


def _weight_grad_cast(kernel: Kernel, precision: Precision) -> tuple[float, ...]:
    """The row of the cast of a weight's 16-bit gradient to the width of the parameter."""
    moved = precision.cast_bytes + precision.param_bytes
    return _row(
        Kernel(kind="elementwise", weight=kernel.weight * moved / precision.param_bytes), precision
    )


@lru_cache(maxsize=2048)
def _recomputed_weight_casts(
    key: Same[Block], precision: Precision
) -> Mapping[tuple[float, ...], float]:
    """Rows and counts of the weight casts that autocast repeats in a checkpointed block's backward.

    The checkpoint enters autocast a second time (torch/utils/checkpoint.py). The 16-bit copies of
    the forward pass no longer exist then, because the outermost exit from autocast clears its cache
    (ATen's autocast_mode.cpp).
    """
    moved = (precision.cast_bytes + precision.param_bytes) / precision.param_bytes
    sizes = [op.gemm_weight for op in key.it.ops if op.gemm_weight]
    rows = [_row(Kernel(kind="elementwise", weight=size * moved), precision) for size in sizes]
    return {row: float(rows.count(row)) for row in rows}


@lru_cache(maxsize=2048)
def _phase(
    key: Same[Block] | Same[Frozen], precision: Precision, backward: bool
) -> Mapping[tuple[float, ...], float]:
    """The distinct rows of a block's or a frozen network's kernels, and how often each runs.

    Forward recomputed for attention is not included (``_recomputed_attention_rows``). The results
    are cached because stages of a pipeline and jobs of one model share blocks.
    """
    kernels = [k for op in key.it.ops for k in (op.bwd if backward else op.fwd)]
    separate = _recomputed_attention(key.it) if backward else []
    rows = [_row(kernel, precision) for kernel in kernels if kernel not in separate]
    if precision.operand_bytes:
        rows += [_cast(kernel, precision) for kernel in kernels if kernel.cast]
    if precision.weight_cast_bytes[backward]:
        of_weight = (k for k in kernels if k.cast and k.weight and not k.k.per_sample)
        rows += [_weight_cast(kernel, precision, backward) for kernel in of_weight]
    if precision.autocasts:
        rows += [_autocast(kernel, precision) for kernel in kernels if kernel.autocasts]
    if precision.cast_bytes and backward:
        of_weight = (k for k in kernels if k.kind in COMPUTE_KINDS and k.weight and k.k.per_sample)
        rows += [_weight_grad_cast(kernel, precision) for kernel in of_weight]
    distinct: dict[tuple[float, ...], float] = {}
    for row in rows:
        distinct[row] = distinct.get(row, 0.0) + 1.0
    return distinct


def _recomputed_attention(part: Block | Frozen) -> list[Kernel]:
    """Forward kernels of fused attention that selective recompute runs in backward.

    They are separate from the kernels of backward because they run at forward's rate.
    """
    return [k for op in part.ops for k in op.bwd if k.kind in FLASH_KINDS and k in op.fwd]


@lru_cache(maxsize=2048)
def _recomputed_attention_rows(
    key: Same[Block], precision: Precision
) -> Mapping[tuple[float, ...], float]:
    """The distinct rows of ``_recomputed_attention``, and how often each runs."""
    distinct: dict[tuple[float, ...], float] = {}
    for row in (_row(kernel, precision) for kernel in _recomputed_attention(key.it)):
        distinct[row] = distinct.get(row, 0.0) + 1.0
    return distinct


@lru_cache(maxsize=2048)
def _recomputed_forward(
    key: Same[Block], precision: Precision
) -> Mapping[tuple[float, ...], float]:
    """Rows and counts of a block's forward without the last ops, which a recompute can omit."""
    ops = key.it.ops[: len(key.it.ops) - len(left_out(key.it))]
    return _phase(Same(Block(name=key.it.name, ops=ops, params=())), precision, False)


@lru_cache(maxsize=256)
def kernel_table(
    workload: Workload, precision: Precision, recompute: bool = False, stops_early: bool = False,
    by: Managed | None = None,
) -> KernelTable:  # fmt: skip
    """The kernel table of a workload; equal kernels of one phase become one row with a count.

    ``recompute``: recomputable blocks are checkpointed. ``stops_early``: their recompute stops once
    backward has what it needs, and the table counts it in the backward phase; otherwise the
    recompute is a whole forward phase, which the program adds (``ProgramBuilder.backward_row``).
    ``by``: Python work around modules (``host_calls.managed``).
    """

    # Per phase: pairs (rows and their counts, whether they run at backward's rate).
    phases = [[(_phase(Same(b), precision, False), False)] for b in workload.blocks]
    for b in workload.blocks:
        phases.append([(_phase(Same(b), precision, True), True)])
        if attention := _recomputed_attention_rows(Same(b), precision):
            phases[-1].append((attention, False))
        if recompute and stops_early and b.recomputable:
            phases[-1].append((_recomputed_forward(Same(b), precision), False))
        if recompute and b.recomputable and precision.cast_bytes:
            phases[-1].append((_recomputed_weight_casts(Same(b), precision), True))
    phases += [[(_phase(Same(f), precision, False), False)] for f in workload.frozen]
    rows: list[tuple[float, ...]] = []
    counts: list[float] = []
    starts: list[int] = []
    nothing = _row(Kernel(kind="copy", launches=0.0), precision)
    backward: list[bool] = []
    for parts in phases:
        starts.append(len(rows))
        for distinct, is_backward in parts:
            for row, count in (distinct or {nothing: 0.0}).items():
                rows.append(row)
                counts.append(count)
                backward.append(is_backward)
    table = np.array(rows)
    count_array = np.array(counts)
    start_array = np.array(starts)
    is_attention = np.isin(table[:, 0], [KINDS.index(kind) for kind in FLASH_KINDS])
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
        matrix=np.flatnonzero((table[:, 1] > 0) & ~is_attention),
        attention=np.flatnonzero((table[:, 1] > 0) & is_attention),
        attention_bwd=np.flatnonzero((table[:, 1] > 0) & is_attention & np.array(backward)),
        relaid=np.flatnonzero(table[:, 13] > 0),
        indexed=np.flatnonzero(table[:, 14] > 0),
        rowwise=np.flatnonzero(table[:, 15] > 0),
        channelwise=np.flatnonzero(table[:, 18] > 0),
    )


def table_of(workload: Workload, strategy: Strategy) -> KernelTable:
    """The kernel table of a workload under a strategy's precision, recompute and program."""
    return kernel_table(
        workload, strategy.precision, strategy.recompute == "full",
        strategy.program.recompute.stops_early,
        managed(strategy),
    )  # fmt: skip


@lru_cache(maxsize=256)
def joined_table(tables: tuple[KernelTable, ...]) -> KernelTable:
    """Several tables as one: the phases of the first, then those of the second, and so on.

    Index arrays are shifted by the number of kernels in the tables before.
    """
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
