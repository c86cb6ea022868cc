"""A Workload from two traces of a model at two batch sizes.

Every quantity of a workload is linear in the batch size, so two traces give its fixed and its
per-sample part exactly. A model traced in fp32 yields a workload for every precision, because each
tensor has the width class that CUDA's autocast would give it. For a model that sets dtypes itself,
the traced bytes apply in every precision.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from simcore.base.errors import UsageError
from simcore.base.units import FP32_BYTES, MIB
from simcore.workload.graph import Affine, Block, Frozen, Kernel, Op, Param, Workload
from simcore.workload.ops.norm import autocast_cast
from simcore.workload.saved import NOTHING, Saved
from simcore.workload.trace.blocks import Segment, place_params, segment_of_ops, segments
from simcore.workload.trace.record import KernelRecord, OpRecord, Trace, Width


def _line(batches: tuple[int, int], a: float, b: float) -> tuple[float, float]:
    """The fixed and the per-sample part of a quantity, from its values at two batch sizes."""
    per = (b - a) / (batches[1] - batches[0])
    return max(0.0, a - per * batches[0]), max(0.0, per)


@dataclass(slots=True)
class Dropped:
    """What the trace has and a workload cannot represent; ``noted`` turns it into notes.

    ``flop``, ``saved_bytes``: FLOP and saved bytes of a step that do not depend on the batch size;
    ``unready``: parameters that get no gradient; ``uncounted``: operators whose FLOP are not known.
    """

    flop: float = 0.0
    saved_bytes: float = 0.0
    unready: tuple[str, ...] = field(default=())
    uncounted: tuple[str, ...] = field(default=())


@dataclass(frozen=True, slots=True)
class _Converter:
    """Converts records of two traces (``a`` and ``b``) to parts of a workload.

    ``own_width``: the model sets dtypes itself, so that bytes do not follow the precision.
    """

    traces: tuple[Trace, Trace]
    line: Callable[[float, float], tuple[float, float]]
    own_width: bool
    dropped: Dropped

    def kernel(self, a: KernelRecord, b: KernelRecord) -> Kernel:
        if a.casts:
            elems = self.line(a.reads[0].numel, b.reads[0].numel)[1]
            indexed = elems * (a.casts == "high")
            return replace(autocast_cast(elems), kind="copy", indexed=indexed)
        fixed_flop, flop = self.line(a.flop, b.flop)
        self.dropped.flop += fixed_flop
        moved = {"low": 0.0, "high": 0.0, "raw": 0.0}
        weight = 0.0
        for p, q in zip((*a.reads, *a.writes), (*b.reads, *b.writes), strict=True):
            fixed, per = self.line(p.numel, q.numel)
            own = p.width == "raw" and p.role not in ("parameter", "cast")
            weight += fixed * (p.item_bytes / FP32_BYTES if own else 1.0)
            if p.width == "raw" or self.own_width:
                moved["raw"] += per * p.item_bytes
            else:
                moved[p.width] += per
        m, n, k, groups = (Affine(*self.line(x, y)) for x, y in zip(a.dims, b.dims, strict=True))
        return Kernel(
            kind=a.kind, flop=flop, low=moved["low"], high=moved["high"], raw_bytes=moved["raw"],
            weight=weight, m=m, n=n, k=k, groups=groups, launches=float(a.launches),
            relaid=self.line(a.relaid, b.relaid)[1], planes=a.planes,
            indexed=self.line(a.indexed, b.indexed)[1],
            mixed=0.0 if self.own_width else self.line(a.mixed, b.mixed)[1],
            rows=self.line(a.rows, b.rows)[1], reread_frac=a.reread_frac,
            blocks=Affine(*self.line(a.blocks, b.blocks)),
            block_clocks=self.line(a.block_clocks, b.block_clocks)[1],
        )  # fmt: skip

    def kernels(self, i: int) -> tuple[Kernel, ...]:
        """The kernels of op ``i``; a model that sets dtypes itself has its casts among its ops."""
        of_traces = [t.ops[i].kernels for t in self.traces]
        if self.own_width or len(of_traces[0]) != len(of_traces[1]):
            of_traces = [tuple(k for k in kernels if not k.casts) for kernels in of_traces]
        return tuple(self.kernel(a, b) for a, b in zip(*of_traces, strict=True))

    def saved(self, a: float, b: float, item_bytes: int, width: Width) -> Saved:
        """The per-sample part of a storage of ``a`` and ``b`` bytes at the two batch sizes."""
        fixed, per = self.line(a, b)
        self.dropped.saved_bytes += fixed
        if self.own_width or width == "raw":
            return Saved(raw_bytes=per)
        n = per / item_bytes
        return Saved(low=n) if width == "low" else Saved(high=n)

    def saved_by_op(self) -> dict[int, Saved]:
        """Storages that live until backward, by the forward op to which they are attributed."""
        by_op: dict[int, Saved] = defaultdict(lambda: NOTHING)
        for a, b in zip(self.traces[0].saved, self.traces[1].saved, strict=True):
            if a.role == "cast" or (a.role == "input" and not a.saved):
                continue
            kept = self.saved(a.n_bytes, b.n_bytes, a.item_bytes, a.width)
            casts = a.casts + 2 * a.wide_casts  # an fp32 copy is as large as two of 16 bit
            by_op[a.op] += replace(kept, autocast=casts * (kept.low + kept.high))
        return by_op

    def boundaries(self) -> dict[int, Saved]:
        """The input activations of each call of a repeated module, by the op at which it starts.

        Activations that several calls receive (a mask, rotary tables) are not included, unless a
        call receives nothing else.
        """
        n_calls: dict[int, int] = defaultdict(int)
        for call in self.traces[0].calls:
            for number, *_ in call.arguments:
                n_calls[number] += 1
        by_op: dict[int, Saved] = {}
        for one, other in zip(self.traces[0].calls, self.traces[1].calls, strict=True):
            pairs = list(zip(one.arguments, other.arguments, strict=True))
            exclusive = [p for p in pairs if n_calls[p[0][0]] == 1] or pairs[:1]
            total = NOTHING
            before = self.dropped.saved_bytes
            for a, b in exclusive:
                total = total + self.saved(a[1], b[1], a[2], a[3])
            self.dropped.saved_bytes = before
            by_op[one.at] = total
        return by_op


def _same_steps(one: Trace, other: Trace, batches: tuple[int, int], what: str) -> None:
    """Raises UsageError if the two traces have different operators."""
    names = [[(o.name, o.module, o.phase) for o in t.ops] for t in (one, other)]
    if names[0] == names[1] and len(one.saved) == len(other.saved):
        return
    at = next((i for i, (a, b) in enumerate(zip(*names, strict=False)) if a != b), 0)
    where = names[0][at][1] if at < len(names[0]) else ""
    raise UsageError(
        f"{what}: {where or 'the module'} runs other operators at batch {batches[1]} than at batch "
        f"{batches[0]}: make them independent of the batch, or describe the model in models_db"
    )


def _own_width(trace: Trace) -> bool:
    """Whether the model sets dtypes itself: 16-bit tensors, parameters or autocast."""
    if trace.autocast or any(p.dtype not in ("float32",) for p in trace.params):
        return True
    return any(o.dtype in ("float16", "bfloat16") for o in trace.ops)


def converted(
    traces: tuple[Trace, Trace],
    batches: tuple[int, int],
    *,
    name: str,
    sample_unit: str,
    tokens_per_sample: float,
) -> tuple[Workload, Dropped]:
    """The workload of a model traced at two batch sizes, and what it cannot represent (``noted``).

    Raises UsageError if the model runs other operators at the second batch size.
    """
    first, second = traces
    _same_steps(first, second, batches, name)
    line = partial(_line, batches)
    own_width, dropped = _own_width(first), Dropped(uncounted=first.uncounted)
    convert = _Converter(traces, line, own_width, dropped)
    parts_of_forward = segments(first)
    dropped.unready = place_params(first, parts_of_forward)
    blocks, order = _fold(convert, parts_of_forward)
    frozen = [p for p in first.params if not p.trained]
    n_frozen = sum(p.numel for p in frozen)
    width = sum(p.numel * p.item_bytes for p in frozen) / n_frozen if n_frozen else None
    frozen_parts = (
        (Frozen(name="frozen parameters", resident_numel=n_frozen, ops=(), bytes_per_param=width),)
        if n_frozen
        else ()
    )
    workload = Workload(
        name=name,
        sample_unit=sample_unit,
        blocks=tuple(blocks),
        order=tuple(order),
        frozen=frozen_parts,
        buffers_numel=sum(n for _, n, _ in first.buffers),
        n_buffers=len(first.buffers),
        input_bytes=line(first.input_bytes, second.input_bytes)[1],
        tokens_per_sample=tokens_per_sample,
    )
    return workload, dropped


def noted(workload: Workload, dropped: Dropped) -> Workload:
    """The workload with notes on what it does not represent."""
    return workload.replace(notes=_notes(dropped, workload))


def _fold(convert: _Converter, all_segments: list[Segment]) -> tuple[list[Block], list[int]]:
    """One block per distinct segment, and the order in which the blocks run."""
    trace = convert.traces[0]
    backward, extra_ops = _gradients(trace, all_segments)
    saved, boundaries = convert.saved_by_op(), convert.boundaries()
    numbers: dict[tuple[object, ...], int] = {}
    blocks: list[Block] = []
    order: list[int] = []
    for number, segment in enumerate(all_segments):
        unit = segment.unit
        ops = [
            op
            for i in range(segment.start, segment.stop)
            if (op := _op(convert, i, unit, backward.get(i, ()), saved.get(i, NOTHING)))
        ]
        if extra := extra_ops.get(number):
            kernels = tuple(k for i in extra for k in convert.kernels(i))
            ops.append(Op(name="recompute", fwd=(), bwd=kernels))
        params = tuple(Param(_relative(p.names[0], unit), p.numel) for p in segment.params)
        if not ops and not params:
            continue
        boundary = boundaries.get(segment.start, NOTHING) if segment.call else NOTHING
        recomputes = any(trace.ops[i].phase == "recompute" for i in extra_ops.get(number, ()))
        recomputable = boundary != NOTHING and not recomputes
        key = (tuple(ops), params, boundary, recomputable)
        if key not in numbers:
            numbers[key] = len(blocks)
            block_name = unit or ("start" if not blocks else f"rest {len(blocks)}")
            blocks.append(
                Block(name=block_name, ops=tuple(ops), params=params, boundary=boundary,
                      recomputable=recomputable)
            )  # fmt: skip
        order.append(numbers[key])
    return blocks, order


def _relative(path: str, unit: str) -> str:
    """The path of a parameter or module within its repeated module."""
    return path.removeprefix(f"{unit}.") if unit else path


def _op(convert: _Converter, i: int, unit: str, backward: Sequence[int], saved: Saved) -> Op | None:
    """Forward op ``i`` with its ``backward`` ops; None if it has no kernels and saves nothing."""
    record: OpRecord = convert.traces[0].ops[i]
    fwd = convert.kernels(i)
    bwd = tuple(k for j in backward for k in convert.kernels(j))
    if not fwd and not bwd and saved == NOTHING:
        return None
    module = _relative(record.module, unit) if record.module != unit else ""
    name = f"{module}.{record.name}" if module else record.name
    return Op(
        name=name, fwd=fwd, bwd=bwd, saved=saved, gemm_weight=float(record.gemm_weight),
        saves_result=record.name in ("_softmax", "_log_softmax"),
    )  # fmt: skip


def _gradients(
    trace: Trace, all_segments: list[Segment]
) -> tuple[dict[int, list[int]], dict[int, list[int]]]:
    """Two maps: forward op -> its backward ops, and segment -> its recomputed ops.

    Gradients of recomputed ops are in the second map too. A backward op whose forward op is not
    known (a sum of gradients by the autograd engine) is assigned to that of the op before it.
    """
    of_op = segment_of_ops(all_segments)
    by_op: dict[int, list[int]] = defaultdict(list)
    by_segment: dict[int, list[int]] = defaultdict(list)
    last_of_unit = {s.unit: i for i, s in enumerate(all_segments)}
    segment_of_recomputed: dict[int, int] = {}
    current, current_op = len(all_segments) - 1, len(of_op) - 1
    for i in range(len(of_op), len(trace.ops)):
        op = trace.ops[i]
        if op.phase == "recompute":
            segment = of_op[op.owner] if 0 <= op.owner < len(of_op) else None
            if segment is None:
                ancestors = (op.module.rsplit(".", n)[0] for n in range(op.module.count(".") + 1))
                units = (u for u in (op.module, *ancestors) if u in last_of_unit)
                segment = last_of_unit.get(next(units, ""), current)
            segment_of_recomputed[i] = current = segment
            by_segment[segment].append(i)
        elif op.owner >= len(of_op):
            by_segment[segment_of_recomputed.get(op.owner, current)].append(i)
        else:
            if op.owner >= 0:
                current_op, current = op.owner, of_op[op.owner]
            by_op[current_op].append(i)
    return by_op, by_segment


def _notes(dropped: Dropped, workload: Workload) -> tuple[str, ...]:
    notes = []
    if dropped.flop > 1e-3 * max(workload.forward_flop, 1.0):
        notes.append(
            f"{dropped.flop:.3g} FLOP per step that do not depend on the batch are not counted"
        )
    if dropped.saved_bytes > MIB:
        size = dropped.saved_bytes / MIB
        notes.append(
            f"{size:.1f} MiB saved for backward that do not depend on the batch are not counted"
        )
    if dropped.unready:
        names = ", ".join(dropped.unready[:3]) + ("…" if len(dropped.unready) > 3 else "")
        notes.append(
            f"{len(dropped.unready)} parameters get no gradient ({names}): DDP would need "
            "find_unused_parameters"
        )
    if dropped.uncounted:
        names = ", ".join(dropped.uncounted[:5])
        notes.append(f"no FLOP are counted for {names}")
    return tuple(notes)
