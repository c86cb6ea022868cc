"""The kernel table: all kernels of a workload as named columns, ready to be priced.

# K kernels, P phases. With B blocks, phase b is the forward of block b, phase B + b its backward,
# and phase 2B + f the forward of frozen network f.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields, replace
from functools import cached_property, lru_cache
from typing import Any, NamedTuple, get_args

import numpy as np

from simcore.base.arrays import NDArray
from simcore.base.record import Same, dataclass
from simcore.base.units import FP32_BYTES, HALF_BYTES
from simcore.hardware.class_figures import host_work
from simcore.physics.kernel import clocks_per_element
from simcore.step.host_calls import Managed, calls, managed, unit_calls, weight_casts
from simcore.step.transients import COMPUTE_KINDS, just_written
from simcore.strategy.precision import Precision
from simcore.strategy.strategy import LayerPart, Strategy
from simcore.workload.graph import (
    AUXILIARY,
    CONV_KINDS,
    CUDNN_NORM,
    DENSE_CONVS,
    FLASH_KINDS,
    NATIVE_NORM,
    NONE,
    ONE,
    Block,
    Frozen,
    Kernel,
    KernelKind,
    Op,
    Workload,
)

Array = NDArray[np.float64]
_Rows = NDArray[np.void]  # of ``COLUMNS``
#: Products that stay in 16 bit where others compute in fewer: the head, products of activations.
WIDE = "gemm_wide"
#: Matrix products of two activations, one per attention head or window: batched kernels.
BATCHED = "gemm_batched"
#: 16-bit products of rows too badly aligned for NVIDIA's matrix units to load: on vector units.
UNALIGNED = "gemm_unaligned"
#: fp32 and TF32 products for gradients of weights, of which no operand is contiguous along the
#: depth: asynchronous matrix units take only 16-bit operands so.
ACROSS = "gemm_across"
#: fp32 and TF32 convolutions that are products of ``planes`` where matrix units take that layout.
PLANES = "conv_planes"
#: Convolutions that no kernel for matrix units supports: they run on vector units.
VECTOR_CONV = "conv_vector_units"
#: Products of weights aligned so that matrix units load only so many elements: elements -> kind.
NARROW_LOADS = {elems: f"gemm_load{elems}" for elems in (1, 2, 4)}
#: The same where one operand (backward's product for the input) or both (forward's) have rows along
#: the depth: elements and operands -> kind. Gradients of weights have none.
DEPTH_LOADS = {(e, n): f"gemm_load{e}_deep{n}" for e in NARROW_LOADS for n in (1, 2)}
#: The same for products of activations, such as attention op by op over 197 or 49 tokens.
BATCHED_LOADS = {elems: f"gemm_batched_load{elems}" for elems in NARROW_LOADS}
FEW_LOADED = (*NARROW_LOADS.values(), *DEPTH_LOADS.values(), *BATCHED_LOADS.values())
#: Bytes of one load from aligned rows.
FULL_LOAD_BYTES = 16.0
#: Depthwise convolutions (one channel per group) of channels-last tensors: kernels of their own.
DEPTHWISE_LAST = "conv_depthwise_last"
#: Softmax of rows of at most ``WARP_ROW`` elements (32 per lane), which a warp keeps in its
#: registers. Longer rows take a thread block each, in another kernel (ATen SoftMax.cu; on P100 and
#: CDNA it reaches a fraction of the peak that is lower by a third and more).
SHORT_SOFTMAX, WARP_ROW = "softmax_short", 32 * 32
#: Kernels that convert the inputs of matrix products to the products' format.
CAST = "cast"
#: Kernels of linear attention, whose ``Kernel.block_clocks`` are units of work: FLOP, or elements
#: of a convolution (``hardware.linear_attention``).
LINEAR_ATTENTION: tuple[KernelKind, ...] = (
    "chunk_products", "chunk_products_by_channel", "chunk_states", "causal_conv",
)  # fmt: skip
KINDS: tuple[str, ...] = (
    *get_args(KernelKind), WIDE, BATCHED, UNALIGNED, ACROSS, PLANES, VECTOR_CONV, *FEW_LOADED,
    DEPTHWISE_LAST, SHORT_SOFTMAX, CAST,
)  # fmt: skip


class KernelRow(NamedTuple):
    """One kernel of a step in a precision; pairs are a fixed part and a part per sample.

    ``kind``: index into ``KINDS``. ``flop``: per sample. ``n_bytes``: memory traffic of parameters,
    and of everything else per sample. ``sides``: m, n, k and groups of matrix products
    (``workload.graph.Kernel``). ``launches``: device launches.
    ``calls``: launches that the host issues one by one; ``issues``: host work of all others, in
    kernel issues; ``awaited``: kernel issues of host work that the device waits for.

    The other columns are for the traffic laws of ``physics.kernel``, per sample and 0 where a law
    does not apply. ``turned_bytes``: moved to convert channels-first tensors to channels last.
    ``indexed``: elements that are addressed or converted one by one. ``rows``: rows with a thread
    block each, ``row_bytes`` of one of them, and ``reread_frac``: the fraction of the kernel's
    bytes that it reads twice. ``fresh_bytes``: of the tensor that each launch reads just after
    another kernel wrote it. ``blocks``: thread blocks that limit it; ``block_clocks``: clocks, or
    units of work, of all of them together. ``edges``: ``WindowKernel.edges``.
    """

    kind: int
    flop: float
    n_bytes: tuple[float, float]
    sides: tuple[tuple[float, float], ...]
    launches: float
    issues: float
    calls: float
    awaited: tuple[float, float]
    turned_bytes: float
    indexed: float
    rows: float
    row_bytes: float
    reread_frac: float
    fresh_bytes: float
    blocks: tuple[float, float]
    block_clocks: float
    edges: float


_SHAPES = {"n_bytes": (2,), "sides": (4, 2), "awaited": (2,), "blocks": (2,)}
#: Columns of the table: those of a row, ``count`` (runs in the phase), ``backward`` (at its rate).
COLUMNS = np.dtype([
    ("kind", np.intp),
    *((name, np.float64, _SHAPES.get(name, ())) for name in KernelRow._fields[1:]),
    ("count", np.float64), ("backward", np.bool_),
], align=True)  # fmt: skip


class Selection(NamedTuple):
    """Kernels of a table to which one formula applies: their indices, and their rows."""

    rows: NDArray[np.intp]
    kernels: NDArray[np.void]


@dataclass(frozen=True, eq=False)
class KernelTable:
    """The distinct kernels of each phase and how often each runs in its phase.

    ``kernels`` [K]: structured array with the columns of ``COLUMNS``. ``phase_start`` [P]: index of
    the first kernel of each phase, for ``np.add.reduceat``. ``launches_per_phase`` [P]: kernel
    launches. ``issues_per_phase`` [P]: host work in kernel issues, which includes what launches no
    kernel. ``calls_per_phase`` [P]: host work in CUDA, in launches. ``unit_issues_per_phase`` [P]:
    kernel issues that FSDP's units add where there is more than one rank. ``awaited_per_phase``
    [P, 2]: kernel issues of host work that the device waits for, a fixed part and a part per
    sample.
    """

    kernels: NDArray[np.void]
    phase_start: NDArray[np.intp]
    launches_per_phase: Array
    issues_per_phase: Array
    calls_per_phase: Array
    awaited_per_phase: Array
    unit_issues_per_phase: Array

    def __getitem__(self, column: str) -> NDArray[Any]:
        """A column of ``kernels``: [K], or [K, 2] of pairs."""
        return self.kernels[column]

    @property
    def n_phases(self) -> int:
        """Number of phases."""
        return len(self.phase_start)

    @cached_property
    def products(self) -> Selection:
        """Matrix products and convolutions."""
        by_tiles = (self["flop"] > 0) & (self["block_clocks"] == 0)
        return self._where(by_tiles & ~_FLASH[self["kind"]])

    @cached_property
    def attention(self) -> Selection:
        """Fused attention."""
        return self._where((self["flop"] > 0) & _FLASH[self["kind"]])

    @cached_property
    def turned(self) -> Selection:
        """Convolutions whose tensors would have to be converted to channels last."""
        return self._where(self["turned_bytes"] > 0)

    @cached_property
    def one_by_one(self) -> Selection:
        """Kernels whose rows or elements take time one by one."""
        return self._where((self["indexed"] > 0) | (self["rows"] > 0))

    @cached_property
    def blockwise(self) -> Selection:
        """Kernels that the clocks of their thread blocks limit."""
        return self._where(self["block_clocks"] > 0)

    @cached_property
    def column_sums(self) -> Selection:
        """Sums over the rows of a matrix, whose sides the kernels state."""
        return self._where((self["kind"] == _PLACES["reduction"]) & (self["sides"][:, 1, 0] > 1.0))

    @cached_property
    def fresh(self) -> Selection:
        """Kernels that read a tensor just after another kernel wrote it."""
        return self._where(self["fresh_bytes"] > 0)

    @cached_property
    def linear_attention(self) -> bool:
        """Whether any kernel is one of linear attention."""
        return bool(_LINEAR[self["kind"]].any())

    def _where(self, chosen: NDArray[np.bool_]) -> Selection:
        return Selection(np.flatnonzero(chosen), self.kernels[chosen])

    @cached_property
    def waits(self) -> bool:
        """Whether the device ever waits for host work that depends on the device's results."""
        return bool(self.awaited_per_phase.any())

    def with_counts(self, counts: Array) -> KernelTable:
        """The same kernels, each run ``counts`` [K] times in its phase."""
        kernels = self.kernels.copy()
        kernels["count"] = counts
        return replace(self, kernels=kernels)


_PLACES = {kind: place for place, kind in enumerate(KINDS)}
_FLASH, _LINEAR = (np.isin(KINDS, kinds) for kinds in (FLASH_KINDS, LINEAR_ATTENTION))  # [kinds]


def _row(
    kernel: Kernel, precision: Precision, kind: str = "", fresh_bytes: float = 0.0,
    backward: bool = False,
) -> KernelRow:  # fmt: skip
    """The row of a kernel in the table.

    ``kind``: an entry of ``KINDS``, in place of the kernel's own; ``fresh_bytes``: as in KernelRow.
    """
    weight_bytes: float = (
        precision.low_bytes if kernel.kind in COMPUTE_KINDS else precision.param_bytes
    )
    sample_bytes: float = kernel.low * precision.low_bytes + kernel.high * precision.high_bytes
    low_precision = precision.operand_bytes and kernel.kind == "gemm"
    if low_precision and not kernel.wide:
        # Operands are in the products' format, results in 16 bit. A weight gradient is a result.
        weight_grad = kernel.k.per_sample > 0
        operands = kernel.low if weight_grad else kernel.cast
        sample_bytes -= operands * (precision.low_bytes - precision.operand_bytes)
        weight_bytes = precision.low_bytes if weight_grad else precision.operand_bytes
    sample_bytes += kernel.raw_bytes

    launches = kernel.launches
    if min(kernel.low, kernel.high) < 0.0 < sample_bytes:
        launches = 1.0  # A cast, which does not run where both widths are equal.

    if kernel.unaligned and precision.low_bytes == HALF_BYTES:
        kind = VECTOR_CONV if kernel.kind in CONV_KINDS else UNALIGNED
    elif kernel.load_elems * precision.low_bytes < FULL_LOAD_BYTES:
        along = 0 if kernel.k.per_sample > 0 or _is_batched(kernel) else 1 if backward else 2
        loads = BATCHED_LOADS if _is_batched(kernel) else NARROW_LOADS
        kind = DEPTH_LOADS.get((kernel.load_elems, along), loads[kernel.load_elems])
    return KernelRow(
        kind=_PLACES[kind or _kind(kernel, precision)],
        flop=kernel.flop,
        n_bytes=(kernel.weight * weight_bytes, sample_bytes),
        sides=tuple((s.fixed, s.per_sample) for s in (kernel.m, kernel.n, kernel.k, kernel.groups)),
        launches=launches,
        issues=kernel.issues or 0.0,
        calls=launches if kernel.issues is None else 0.0,
        awaited=(kernel.awaited.fixed, kernel.awaited.per_sample),
        turned_bytes=2.0 * precision.low_bytes * _turned_elems(kernel, precision),  # read, written
        indexed=kernel.indexed * (sample_bytes > 0.0)  # fp32 to fp32 is no cast
        + kernel.mixed * precision.autocasts,
        rows=kernel.rows,
        row_bytes=sample_bytes / kernel.rows if kernel.rows else 0.0,
        reread_frac=kernel.reread_frac,
        fresh_bytes=fresh_bytes,
        blocks=(kernel.blocks.fixed, kernel.blocks.per_sample),
        block_clocks=_block_clocks(kernel, precision),
        edges=getattr(kernel, "edges", 0.0),
    )


def _turned_elems(kernel: Kernel, precision: Precision) -> float:
    """Elements per sample that a convolution on matrix units has converted to channels last."""
    as_they_lie = HALF_BYTES in kernel.planes or kernel.unaligned
    turned = precision.low_bytes != HALF_BYTES or not as_they_lie
    return kernel.relaid * (kernel.kind in DENSE_CONVS and turned)


def _block_clocks(kernel: Kernel, precision: Precision) -> float:
    """Clocks per sample of all thread blocks that reduce channels."""
    if kernel.block_clocks or kernel.blocks == NONE:
        return kernel.block_clocks
    low = kernel.low + kernel.raw_bytes / precision.low_bytes
    clocks = low * clocks_per_element(precision.low_bytes)
    return clocks + kernel.high * clocks_per_element(precision.high_bytes)


def _kind(kernel: Kernel, precision: Precision) -> str:
    """The kind in ``KINDS``."""
    if kernel.kind == "softmax":
        return SHORT_SOFTMAX if 1.0 < kernel.n.fixed <= WARP_ROW else "softmax"
    if kernel.kind == "conv_depthwise":
        return kernel.kind if kernel.relaid else DEPTHWISE_LAST
    if kernel.kind != "gemm":
        of_planes = precision.low_bytes == FP32_BYTES and FP32_BYTES in kernel.planes
        return PLANES if of_planes else kernel.kind
    if precision.operand_bytes:  # 8 bits or fewer
        return WIDE if kernel.wide else "gemm"
    if _is_batched(kernel):
        return BATCHED
    return ACROSS if kernel.k.per_sample and precision.low_bytes == FP32_BYTES else "gemm"


def _is_batched(kernel: Kernel) -> bool:
    """Whether the kernel is a batch of products of two activations."""
    return kernel.groups != ONE and not kernel.weight


def _casts(kernels: Sequence[Kernel], precision: Precision, backward: bool) -> Iterator[KernelRow]:
    """Rows of the kernels that convert the operands and the gradients of other kernels."""
    for kernel in kernels:
        of_weight = kernel.weight > 0 and not kernel.k.per_sample
        if kernel.cast and precision.operand_bytes:
            # It costs no kernel issue, because ``issue_over_torch`` includes it. It is one launch
            # also for the operands of many experts: Transformer Engine casts them on parallel
            # streams (cast.cu, nvte_multi_tensor_quantize).
            moved = kernel.cast * precision.cast_traffic_bytes()
            yield _row(Kernel(kind="elementwise", raw_bytes=moved, issues=0.0), precision, CAST)
        if kernel.cast and of_weight and precision.weight_cast_bytes[backward]:
            # Each product casts its own weight.
            moved = kernel.weight * precision.weight_cast_bytes[backward] / precision.param_bytes
            yield _row(Kernel(kind="elementwise", weight=moved, launches=0.0), precision, CAST)
        if kernel.autocasts and precision.autocasts:
            # Products cast operands to 16 bit and, backward, the gradients of these to fp32; the
            # casts of other kernels go the other way. Those to 16 bit load vectors
            # (bfloat16_copy_kernel_cuda of ATen's Copy.cu; to fp32 since pull request 195542).
            elems, widens = kernel.autocasts, (kernel.kind in COMPUTE_KINDS) == backward
            cast = Kernel(kind="elementwise", low=elems, high=elems, indexed=elems * widens)
            yield _row(cast, precision)
        if backward and kernel.kind in COMPUTE_KINDS and kernel.weight and kernel.k.per_sample:
            # A weight's 16-bit gradient becomes as wide as the parameter.
            yield from _between_widths([kernel.weight], precision)


def _between_widths(numels: Iterable[float], precision: Precision) -> Iterator[KernelRow]:
    """Rows of autocast's conversions between a parameter's width and 16 bit; none without them."""
    if precision.cast_bytes:
        moved = (precision.cast_bytes + precision.param_bytes) / precision.param_bytes
        for numel in numels:
            yield _row(Kernel(kind="elementwise", weight=numel * moved), precision)


def _distinct(*groups: tuple[Iterable[KernelRow], bool]) -> _Rows:
    """The distinct rows of each group with their counts; (rows, whether at backward's rate)."""
    counted = [(*r, n, backward) for rows, backward in groups for r, n in Counter(rows).items()]
    return np.array(counted, dtype=COLUMNS)


@lru_cache(maxsize=100)
def _nothing(precision: Precision) -> _Rows:
    """A kernel that never runs, for phases without kernels."""
    found = _distinct(([_row(Kernel(kind="copy", launches=0.0), precision)], False))
    found["count"] = 0.0
    return found


def _run(ops: Sequence[Op], precision: Precision, backward: bool) -> list[tuple[Kernel, float]]:
    """The kernels of ops that run (of a batch norm cuDNN's, or PyTorch's own), with fresh bytes."""
    found = just_written(ops, precision, backward)
    own = any(kernel.kind == NATIVE_NORM for kernel, _ in found)
    other = CUDNN_NORM if precision.native_norms else NATIVE_NORM
    return [pair for pair in found if not own or pair[0].kind != other]


def _forward(ops: Sequence[Op], precision: Precision) -> list[KernelRow]:
    """The kernels of the forward pass of ``ops``."""
    run = _run(ops, precision, backward=False)
    casts = _casts([kernel for kernel, _ in run], precision, backward=False)
    return [*(_row(kernel, precision, fresh_bytes=fresh) for kernel, fresh in run), *casts]


@lru_cache(maxsize=2048)
def _forward_phase(part: Same[Block] | Same[Frozen], precision: Precision) -> _Rows:
    """The kernels of a block's or a frozen network's forward (cached: stages share blocks)."""
    return _distinct((_forward(part.it.ops, precision), False))


@lru_cache(maxsize=2048)
def _backward_phase(
    part: Same[Block], precision: Precision, checkpointed: bool, stops_early: bool
) -> _Rows:
    """The kernels of a block's backward, with the forward that it repeats; arguments as below."""
    block = part.it
    run = _run(block.ops, precision, backward=True)
    # Forward kernels of fused attention that selective recompute repeats run at forward's rate.
    attention = [k for op in block.ops for k in op.bwd if k.kind in FLASH_KINDS and k in op.fwd]
    rows = [_row(k, precision, "", fresh, True) for k, fresh in run if k not in attention]
    rows += _casts([kernel for kernel, _ in run], precision, backward=True)
    at_forward_rate = [_row(kernel, precision) for kernel in attention]
    if checkpointed and stops_early:
        from simcore.workload.recompute import left_out

        at_forward_rate += _forward(block.ops[: len(block.ops) - len(left_out(block))], precision)
    # The checkpoint enters autocast a second time (torch/utils/checkpoint.py). The 16-bit copies of
    # the forward pass no longer exist then, because the outermost exit from autocast clears its
    # cache (ATen's autocast_mode.cpp).
    weights = [op.gemm_weight for op in block.ops if checkpointed and op.gemm_weight]
    copies = _between_widths(weights, precision)
    return _distinct((rows, True), (at_forward_rate, False), (copies, True))


#: Kinds in the table -> kind whose host work they have (``hardware.class_figures.host_work``).
_ISSUED_AS: dict[str, str] = {
    **dict.fromkeys((WIDE, UNALIGNED, ACROSS, *FEW_LOADED), "gemm"),
    **dict.fromkeys((BATCHED, *BATCHED_LOADS.values()), "bmm"),
    **dict.fromkeys((*CONV_KINDS, PLANES, VECTOR_CONV, DEPTHWISE_LAST), "conv"),
    **dict.fromkeys(FLASH_KINDS, "attention"), SHORT_SOFTMAX: "softmax",
    **dict.fromkeys(LINEAR_ATTENTION[:-1], "bmm"),
}  # fmt: skip


@lru_cache(maxsize=2)
def _host_work(eager: bool) -> Array:
    """Issues and launches of kernels by kind, forward and backward [2, kinds, 2].

    If not ``eager``, one issue for all but auxiliary kernels.
    """
    kinds = [_ISSUED_AS.get(kind, kind) for kind in KINDS]
    if not eager:
        return np.array([[(float(k != AUXILIARY), 0.0) for k in kinds]] * 2)
    return np.array([[host_work(k, backward=b) for k in kinds] for b in (False, True)])


@lru_cache(maxsize=256)
def kernel_table(
    workload: Workload, precision: Precision, recompute: bool = False, stops_early: bool = False,
    by: Managed | None = None, eager: bool = False, replayed: tuple[LayerPart, ...] = (),
) -> KernelTable:  # fmt: skip
    """The kernel table of a workload; equal kernels of one phase become one row with a count.

    ``recompute``: recomputable blocks are checkpointed. ``stops_early``: their recompute stops once
    backward has what it needs, and is counted there; otherwise it is a whole forward phase, which
    the program adds (``step.program.recomputing``). ``by``: Python work around modules
    (``host_calls.managed``). ``eager``: PyTorch issues operator by operator, so that host work
    depends on the kind of kernel; otherwise a kernel is one issue. ``replayed``: parts of layers
    that CUDA graphs hold.
    """
    phases = [
        *(_forward_phase(Same(b), precision) for b in workload.blocks),
        *(
            _backward_phase(Same(b), precision, recompute and b.recomputable, stops_early)
            for b in workload.blocks
        ),
        *(_forward_phase(Same(f), precision) for f in workload.frozen),
    ]
    phases = [phase if len(phase) else _nothing(precision) for phase in phases]
    kernels = np.concatenate(phases, dtype=COLUMNS)
    start = np.cumsum([0, *(len(phase) for phase in phases[:-1])])

    def per_phase(amounts: Array) -> Array:
        return np.add.reduceat((amounts.T * kernels["count"]).T, start)

    backward, kinds = kernels["backward"].astype(np.intp), kernels["kind"]
    work = _host_work(eager)
    issued = kernels["calls"][:, None] * work[backward, kinds]
    casts = weight_casts(workload)[:, None] * bool(precision.cast_bytes)
    casts = casts * work[0, KINDS.index("elementwise")]
    issues = per_phase(kernels["issues"] + issued[:, 0]) + casts[:, 0]
    return KernelTable(
        kernels=kernels,
        phase_start=start,
        launches_per_phase=per_phase(kernels["launches"]),
        issues_per_phase=issues + calls(workload, recompute, stops_early, by, replayed),
        calls_per_phase=per_phase(issued[:, 1]) + casts[:, 1],
        awaited_per_phase=per_phase(kernels["awaited"]),
        unit_issues_per_phase=unit_calls(workload, by),
    )


def table_of(workload: Workload, strategy: Strategy) -> KernelTable:
    """The kernel table of a workload under a strategy's precision, recompute and program."""
    return kernel_table(
        workload.kinds, strategy.precision, strategy.recompute == "full",
        strategy.program.recompute.stops_early,
        managed(strategy, workload.modules_of), strategy.eager, strategy.replayed,
    )  # fmt: skip


@lru_cache(maxsize=256)
def joined_table(tables: tuple[KernelTable, ...]) -> KernelTable:
    """Several tables as one: the phases of the first, then those of the second, and so on."""
    if len(tables) == 1:
        return tables[0]
    begins = np.cumsum([0, *(len(t.kernels) for t in tables[:-1])])
    of_all = {f.name: [getattr(t, f.name) for t in tables] for f in fields(KernelTable)}
    # Named, the type of structured columns is not derived anew for each pair of tables.
    columns = {k: np.concatenate(of, dtype=of[0].dtype) for k, of in of_all.items()}
    columns["phase_start"] += np.repeat(begins, [t.n_phases for t in tables])
    return KernelTable(**columns)
