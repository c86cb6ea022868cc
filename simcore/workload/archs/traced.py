"""A model as its trace: blocks with all kernels, as ``simcore trace-model`` writes them.

Each op is a line, followed by lines for its kernels, forward ``>`` and backward ``<``:

    attention.addmm saved=786432,0,0 weight=2359296
      > gemm flop=603979776 low=393216 fixed=2359296 m=0+128 n=3072 k=768
      < gemm flop=...

``saved``: low and high elements and raw bytes per sample, and elements that autocast alone saves in
16 bit besides. ``saves_result``: as ``Op`` has it, where it is true. ``fixed``: elements moved
whatever the batch. ``first``: elements of a convolution's channels-first tensors (``planes``:
16-bit products read them as they are). ``each``: elements that a kernel addresses or converts one
by one. ``rows`` of norms: number that a thread block each reduces; ``again``: fraction of bytes
that is read twice. ``b``: thread blocks of batch norms, ``clocks`` of all of them. ``m n k g b``:
``fixed+per sample``. ``x``: launches. An amount that is not written is zero (geometry and launches:
one).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, get_args

from simcore.base.figures import Part
from simcore.base.units import FP32_BYTES, HALF_BYTES
from simcore.workload import ops
from simcore.workload.archs import ARCHS
from simcore.workload.graph import (
    FULL_LOAD,
    NONE,
    ONE,
    Affine,
    Block,
    Frozen,
    Kernel,
    KernelKind,
    Op,
    Param,
    Workload,
)
from simcore.workload.saved import NOTHING, Saved

_KINDS = frozenset(get_args(KernelKind))
_AMOUNTS = {"flop": "flop", "low": "low", "high": "high", "raw": "raw_bytes", "fixed": "weight",
            "x": "launches", "first": "relaid", "planes": "planes", "each": "indexed",
            "mixed": "mixed",
            "rows": "rows", "again": "reread_frac", "clocks": "block_clocks"}  # fmt: skip
#: The word ``planes``: 1 where pixels are aligned in 16 bit too, 4 where only in four bytes.
_PLANES = {"1": (HALF_BYTES, FP32_BYTES), "4": (FP32_BYTES,)}
_GEOMETRY = {"m": "m", "n": "n", "k": "k", "g": "groups", "b": "blocks"}


class TracedBlock(Part):
    """One distinct block, in text.

    ``params``: lines of name and elements; ``ops``: lines as described in the module.
    """

    name: str
    recomputable: bool = False
    boundary: str = ""
    params: str = ""
    ops: str = ""


class Traced(Part):
    """A traced model. ``order``: block numbers as they run, ``3*12`` for block 3 twelve times."""

    order: str
    blocks: tuple[TracedBlock, ...]
    buffers: tuple[float, ...] = (0.0, 0.0)  # elements, tensors
    frozen: tuple[float, ...] = ()  # untrained parameters, bytes per parameter
    input_bytes: float = 0.0
    tokens_per_sample: float = 0.0


class TracedModel(Traced):
    """A traced model, and the part of it that one of ``tensor_ranks`` tensor ranks holds.

    ``of_rank``: that part, None where no script divided the model.
    """

    tensor_ranks: int = 1
    of_rank: Traced | None = None


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)


def _kernel_line(mark: str, k: Kernel) -> str:
    words = [f"  {mark} {k.kind}"]
    for key, name in _AMOUNTS.items():
        value = getattr(k, name)
        if key == "planes":
            words += [f"planes={word}" for word, widths in _PLANES.items() if widths == value]
        elif value != (1.0 if key == "x" else 0.0):
            words.append(f"{key}={_number(value)}")
    for key, name in _GEOMETRY.items():
        a: Affine = getattr(k, name)
        if a != (NONE if key == "b" else ONE):
            per = f"+{_number(a.per_sample)}" if a.per_sample else ""
            words.append(f"{key}={_number(a.fixed)}{per}")
    return " ".join(words)


def _saved_text(s: Saved) -> str:
    more = (s.autocast,) if s.autocast else ()
    return ",".join(map(_number, (s.low, s.high, s.raw_bytes, *more))) if s != NOTHING else ""


def ops_text(ops: Iterable[Op]) -> str:
    """Ops as text that ``read_ops`` reads back."""
    lines = []
    for op in ops:
        words = [op.name.replace(" ", "_")]
        if saved := _saved_text(op.saved):
            words.append(f"saved={saved}")
        if op.gemm_weight:
            words.append(f"weight={_number(op.gemm_weight)}")
        if op.saves_result:
            words.append("saves_result=1")
        lines.append(" ".join(words))
        lines += [_kernel_line(">", k) for k in op.fwd] + [_kernel_line("<", k) for k in op.bwd]
    return "".join(line + "\n" for line in lines)


def _saved(text: str) -> Saved:
    if not text:
        return NOTHING
    low, high, raw, *more = map(float, text.split(","))
    return Saved(low=low, high=high, raw_bytes=raw, autocast=sum(more))


def _kernel(words: list[str]) -> Kernel:
    kind, *pairs = words
    if kind not in _KINDS:
        raise ValueError(f"{kind!r} is no kind of kernel: {', '.join(sorted(_KINDS))}")
    fields: dict[str, Any] = {}
    for pair in pairs:
        key, _, value = pair.partition("=")
        if key in _AMOUNTS:
            fields[_AMOUNTS[key]] = _PLANES[value] if key == "planes" else float(value)
        elif key in _GEOMETRY:
            fixed, _, per = value.partition("+")
            fields[_GEOMETRY[key]] = Affine(float(fixed), float(per or 0))
        else:
            raise ValueError(f"unknown word {pair!r}")
    kernel = Kernel(kind=kind, **fields)  # type: ignore[arg-type]
    return replace(kernel, load_elems=_loaded(kernel))


def _loaded(kernel: Kernel) -> int:
    """``load_elems`` of a product, whose rows end at two of its three sides.

    With a weight these are the weight's sides, whatever the batch. A trace does not state which two
    sides those of two activations are; all three are taken.
    """
    sides = (kernel.m, kernel.n, kernel.k)
    fixed = [int(side.fixed) for side in sides if not side.per_sample]
    if kernel.kind != "gemm" or 1 in fixed:  # no row, but a vector
        return FULL_LOAD
    if kernel.groups == ONE and kernel.weight:
        return ops.row_elems(*fixed)
    if kernel.groups == ONE or kernel.weight or len(fixed) < len(sides):
        return FULL_LOAD
    return ops.row_elems(*fixed)


def read_ops(text: str) -> tuple[Op, ...]:
    """The ops of a text that ``ops_text`` wrote. Raises ValueError, which names the line."""
    ops_read: list[tuple[dict[str, Any], list[Kernel], list[Kernel]]] = []
    kernels: dict[str, Kernel] = {}
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split()
        if not words:
            continue
        try:
            if words[0] in "<>":
                body = line.partition(words[0])[2]
                if body not in kernels:
                    kernels[body] = _kernel(words[1:])
                _, fwd, bwd = ops_read[-1]
                (fwd if words[0] == ">" else bwd).append(kernels[body])
                continue
            stated = dict(word.partition("=")[::2] for word in words[1:])
            if unknown := set(stated) - {"saved", "weight", "saves_result"}:
                raise ValueError(f"unknown word {unknown.pop()!r}")
            of_op = {
                "name": words[0],
                "saved": _saved(stated.get("saved", "")),
                "gemm_weight": float(stated.get("weight", 0)),
                "saves_result": "saves_result" in stated,
            }
            ops_read.append((of_op, [], []))
        except (ValueError, IndexError, TypeError) as err:
            raise ValueError(f"ops, line {number}: {err}") from None
    return tuple(Op(fwd=tuple(fwd), bwd=tuple(bwd), **of_op) for of_op, fwd, bwd in ops_read)


def _params(text: str) -> tuple[Param, ...]:
    return tuple(Param(name, int(n)) for name, n in (line.split() for line in text.splitlines()))


def _order_text(order: Iterable[int]) -> str:
    runs: list[list[int]] = []
    for i in order:
        if runs and runs[-1][0] == i:
            runs[-1][1] += 1
        else:
            runs.append([i, 1])
    return " ".join(f"{i}*{n}" if n > 1 else str(i) for i, n in runs)


def _order(text: str) -> tuple[int, ...]:
    order: list[int] = []
    for word in text.split():
        i, _, n = word.partition("*")
        order += [int(i)] * int(n or 1)
    return tuple(order)


def traced_part(workload: Workload) -> dict[str, Any]:
    """A workload as the ``traced`` section of a models_db file: plain data."""
    blocks = [
        {
            "name": b.name,
            "recomputable": b.recomputable,
            "boundary": _saved_text(b.boundary),
            "params": "".join(f"{p.name} {p.numel}\n" for p in b.params),
            "ops": ops_text(b.ops),
        }
        for b in workload.blocks
    ]
    frozen = next((f for f in workload.frozen), None)
    return {
        "order": _order_text(workload.order),
        "buffers": [float(workload.buffers_numel), float(workload.n_buffers)],
        "frozen": [float(frozen.resident_numel), frozen.bytes_per_param or 0.0] if frozen else [],
        "input_bytes": workload.input_bytes,
        "tokens_per_sample": workload.tokens_per_sample,
        "blocks": blocks,
    }


def joined_parts(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The ``traced`` section of a model of which ``parts`` are the pipeline stages, in order.

    Equal blocks of different stages become one.
    """
    blocks: list[Mapping[str, Any]] = []
    order: list[int] = []
    for part in parts:
        numbers = []
        for block in part["blocks"]:
            known = (i for i, b in enumerate(blocks) if {**b, "name": ""} == {**block, "name": ""})
            numbers.append(next(known, len(blocks)))
            if numbers[-1] == len(blocks):
                blocks.append(block)
        order += [numbers[i] for i in _order(part["order"])]
    frozen = sum(p["frozen"][0] for p in parts if p["frozen"])
    widths = [p["frozen"][1] for p in parts if p["frozen"]]
    return {
        "order": _order_text(order),
        "buffers": [sum(p["buffers"][i] for p in parts) for i in range(2)],
        "frozen": [frozen, max(widths)] if widths else [],
        "input_bytes": parts[0]["input_bytes"],
        "tokens_per_sample": parts[0]["tokens_per_sample"],
        "blocks": blocks,
    }


def layers_in(part: Mapping[str, Any]) -> int:
    """Number of repeated layers of a ``traced`` section."""
    return sum(bool(part["blocks"][i]["recomputable"]) for i in _order(part["order"]))


@ARCHS.register("traced")
def build(
    *,
    name: str,
    sample_unit: str = "sample",
    traced: dict[str, Any] | None = None,
    tensor_ranks: int = 1,
    tensor_sums: float = 2.0,
) -> Workload:
    """The workload that was traced. Raises ValueError if a line cannot be read.

    ``tensor_ranks``: above 1, the part that one of them holds; ``tensor_sums``: sums of a layer's
    output over them in forward.
    """  # fmt: skip
    del tensor_sums  # read where the ranks' sums are priced
    model = _checked(traced)
    part = model.of_rank if tensor_ranks > 1 else model
    if part is None or tensor_ranks not in (1, model.tensor_ranks):
        raise ValueError(f"no script divided it over {tensor_ranks} tensor ranks")
    return _workload(name, sample_unit, part)


def _checked(section: dict[str, Any] | None) -> TracedModel:
    if section is None:
        raise ValueError("the 'traced' section is missing")
    try:
        return TracedModel.model_validate(section)
    except ValueError as err:
        first = err.errors(include_url=False)[0]  # type: ignore[attr-defined]
        where = ".".join(map(str, ("traced", *first["loc"])))
        raise ValueError(f"{where}: {first['msg']}") from None


def _workload(name: str, sample_unit: str, traced: Traced) -> Workload:
    blocks = tuple(
        Block(
            name=b.name,
            ops=read_ops(b.ops),
            params=_params(b.params),
            boundary=_saved(b.boundary),
            recomputable=b.recomputable,
        )
        for b in traced.blocks
    )
    frozen: tuple[Frozen, ...] = ()
    if traced.frozen:
        numel, width = traced.frozen
        frozen = (
            Frozen(name="frozen parameters", resident_numel=int(numel), ops=(),
                   bytes_per_param=width),
        )  # fmt: skip
    numel, count = traced.buffers
    return Workload(
        name=name,
        sample_unit=sample_unit,
        blocks=blocks,
        order=_order(traced.order),
        frozen=frozen,
        buffers_numel=int(numel),
        n_buffers=int(count),
        input_bytes=traced.input_bytes,
        tokens_per_sample=traced.tokens_per_sample,
    )
