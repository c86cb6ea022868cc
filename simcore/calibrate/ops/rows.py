"""Reads measured op tables as batches of kernels: FLOP, bytes, shape and timing of each.

Fits and comparisons use this one reader, so that a row means the same in both.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import numpy as np

from simcore.base.arrays import Array, NDArray
from simcore.base.errors import DataError, SimcoreError
from simcore.base.record import dataclass
from simcore.base.units import GIGA, MEGA, MICRO
from simcore.calibrate.tables import OnBad, RowsRead, Table, mark_repeats, read_table
from simcore.hardware.class_figures import FP32_CLASSES, Clock
from simcore.hardware.spec import GPUS, GpuSpec, PeakName
from simcore.step.kernels import SHORT_SOFTMAX, WARP_ROW

Form: TypeAlias = Literal["matmul", "attention", "memory"]


class _Product(NamedTuple):
    """Matrix products of one dtype: their class, and the datasheet's peak that counts.

    ``input_bytes``: of an element of an input. ``cast_bytes``: that the cast of the 16-bit left
    operand moves for each element (reads for the scale and for the cast, and the write).
    """

    cls: str
    input_bytes: float
    peak: PeakName
    cast_bytes: float


#: Products by dtype of a table; a dtype that is not among them is not modelled.
_PRODUCTS: Final[dict[str, _Product]] = {
    "fp32": _Product("gemm_simt32", 4.0, "fp32", 0.0),
    "bf16": _Product("gemm_tensor16", 2.0, "bf16", 0.0),
    "fp16": _Product("gemm_tensor16", 2.0, "fp16", 0.0),
    "fp8": _Product("gemm_tensor8", 1.0, "fp8", 5.0),
    "fp8_block": _Product("gemm_block8", 1.0, "fp8", 3.0),
    "nvfp4": _Product("gemm_tensor4", 0.5, "fp4", 4.5),
}
_UNKNOWN: Final = _Product("", 0.0, "fp32", 0.0)
#: The least bytes per output element of a product: inputs below 16 bit have a 16-bit output.
_OUT_BYTES: Final = 2.0
_WIDTH: Final = {"fp32": 4.0, "bf16": 2.0, "fp16": 2.0, "fp8": 1.0}
_NORMS: Final = ("ln", "norm", "layernorm", "rmsnorm")
#: The largest row of PyTorch's softmax that is read once. Rows up to 1024 elements stay in
#: registers, up to about 8000 in shared memory; longer rows are read twice (ATen SoftMax.cu; the
#: measured times show it from 8192 on).
SOFTMAX_ROW_ON_CHIP: Final = 8192.0
#: Op of an inference library -> its class. These kernels were timed directly after the ops that
#: produce their input. Some load 16 bits at a time (norms read their input twice in this way; phi's
#: activation has no gate), and L2 may hold more of the operands of sums than is counted. They do
#: not represent training's kernels, so they have separate classes.
_SERVING_OPS: Final = {
    "norm": "norm_serving", "norm_phi": "norm_serving", "gated_act": "gate_serving",
    "gated_act_phi": "act_serving", "add": "add_serving", "add_phi": "add_serving",
}  # fmt: skip
#: Share of an op's bytes that the previous op has just written, for ops that were timed directly
#: after it.
_JUST_WRITTEN: Final = {"add": 1 / 3, "add_phi": 1 / 3, "norm": 1 / 2, "norm_phi": 1 / 2}
#: Half (``_READ_FROM_L2``) of these bytes is read from L2 if they are at most 0.4 of its size; from
#: there the share falls to zero at 0.6 (the times of A100 and H100 change there). Sums, which only
#: memory limits, read at least 0.15 of the size of L2 from it at any size, but no more than half.
_STAYS_IN_L2, _LEAVES_L2, _READ_FROM_L2, _LEFT_FOR_SUMS = 0.4, 0.6, 0.5, 0.15
#: Kernels of attention of an inference library. A decoder's measurement includes copies of its
#: inputs into a cache, an encoder's does not. Head dimensions that are no multiples of 16 have no
#: specialised kernel (on Blackwell they reach a fifth of the rate), so they have a separate class.
_SERVING_ATTENTION: Final = ("torch_flow",)

#: Sizes from which on a kernel counts as large: FLOP by kind, and bytes of memory-bound kernels.
LARGE_FLOP: Final = {"gemm": 1 * GIGA, "attention": 5 * GIGA, "conv": 1 * GIGA}
LARGE_BYTES: Final = 32 * MEGA
#: A large product also has at least so many rows over all groups, and so many columns and depth.
LARGE_ROWS, LARGE_COLS = 512, 256
#: Shares of the datasheet's rate beyond which a time must be wrong: swapped columns or a wrong
#: unit. Winograd and caches exceed the datasheet by less, and no large kernel is so slow.
FASTEST_SHARE, SLOWEST_SHARE = 20.0, 2e-4


@dataclass(frozen=True)
class OpBatch:
    """Kernels of one device, op, dtype, source and way of timing; arrays are [rows].

    ``kind`` groups kernels in summaries; ``cls`` is the class of the profile's figures; ``line``
    is the line in the file. ``m``, ``n``, ``k`` and ``groups`` are the shape of a product; for
    attention the query length, head dimension, key length and batch x heads. ``cast_bytes``: bytes
    that kernels before the timed one move to cast or copy its input. ``reread_bytes``: bytes that a
    kernel over ``m`` rows reads a second time.
    """

    gpu: str
    op: str
    dtype: str
    kind: str
    cls: str
    form: Form
    peak: PeakName
    eager: bool
    clock: Clock
    source: str
    line: NDArray[np.intp]
    flop: Array
    n_bytes: Array
    cast_bytes: Array
    reread_bytes: Array
    m: Array
    n: Array
    k: Array
    groups: Array
    time_s: Array
    large: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.time_s)

    def take(self, rows: NDArray[np.intp] | NDArray[np.bool_]) -> OpBatch:
        """The batch with the rows that ``rows`` selects, a mask or indices."""
        arrays: dict[str, Any] = {name: getattr(self, name)[rows] for name in _ARRAYS}
        return replace(self, **arrays)

    def join(self, others: Iterable[OpBatch]) -> OpBatch:
        """A batch of the rows of this and other batches, with this one's labels."""
        all_of = (self, *others)
        joined: dict[str, Any] = {
            n: np.concatenate([getattr(b, n) for b in all_of]) for n in _ARRAYS
        }
        return replace(self, **joined)

    @property
    def peak_flop_per_s(self) -> float:
        """The peak FLOP/s that the class's efficiency is a share of; 0 if the device has none."""
        spec = GPUS[self.gpu]
        same: dict[PeakName, PeakName] = {"bf16": "fp16", "fp16": "bf16"}
        if self.cls in FP32_CLASSES:
            return spec.fp32_product_peak or 0.0
        return spec.peak(self.peak) or spec.peak(same.get(self.peak, self.peak)) or 0.0


_ARRAYS: Final = ("line", "flop", "n_bytes", "cast_bytes", "reread_bytes", "m", "n", "k", "groups",
                  "time_s", "large")  # fmt: skip
assert set(_ARRAYS) <= {f.name for f in fields(OpBatch)}


_Columns: TypeAlias = dict[str, Any]
_BatchKey: TypeAlias = tuple[object, ...]


def _one(table: Table) -> Array:
    return np.ones(len(table))


def _gemm(table: Table) -> _Columns:
    m, n, k = (table.number(c) for c in "mnk")
    batch = table.number("batch", 1.0)
    flop = 2.0 * batch * m * n * k
    dtype = [d.lower() for d in table.text("dtype")]
    known = [_PRODUCTS.get(d, _UNKNOWN) for d in dtype]
    width, cast = (np.array([getattr(p, c) for p in known]) for c in ("input_bytes", "cast_bytes"))
    n_bytes = batch * ((m * k + k * n) * width + m * n * np.maximum(width, _OUT_BYTES))
    large = flop >= LARGE_FLOP["gemm"]
    large &= (m * batch >= LARGE_ROWS) & (np.minimum(n, k) >= LARGE_COLS)
    ops = table.text("op")
    return {
        "form": "matmul", "kind": ["gemm"] * len(table), "op": ops,
        "cls": ["bmm_simt32" if o.startswith("bmm") and p.cls == "gemm_simt32" else p.cls
                for o, p in zip(ops, known, strict=True)],
        "peak": [p.peak for p in known],
        "why": ["grouped products are not modelled" if o.startswith("grouped")
                else "" if d in _PRODUCTS else f"dtype {d!r} is not modelled"
                for o, d in zip(ops, dtype, strict=True)],
        "flop": flop, "n_bytes": n_bytes, "cast_bytes": batch * m * k * cast,
        "m": m, "n": n, "k": k, "groups": batch, "large": large,
    }  # fmt: skip


def _attention(table: Table) -> _Columns:
    batch, heads, kv = (table.number(c) for c in ("batch", "heads", "kv_heads"))
    sq, skv, dim = (table.number(c) for c in ("seq_q", "seq_kv", "head_dim"))
    v_dim = table.number("v_head_dim") if "v_head_dim" in table.columns else dim
    back = np.array([p == "bwd" for p in table.text("pass")], dtype=bool)
    causal = np.array([c.lower() in ("1", "1.0", "true") for c in table.text("causal")], bool)
    half = np.where(causal & (sq == skv), 0.5, 1.0)
    work = 2.0 * batch * heads * sq * skv * (dim + v_dim) * half * np.where(back, 2.5, 1.0)
    moved = batch * (heads * sq * (dim + v_dim) + kv * skv * (dim + v_dim)) * 2.0
    # Copies into the cache: 16-bit elements, each read and written.
    cached = 2.0 * 2.0 * batch * (heads * sq * dim + kv * skv * (dim + v_dim))
    serving = [k.startswith(_SERVING_ATTENTION) for k in table.text("kernel")]
    dtype = [d.lower() for d in table.text("dtype")]
    return {
        "form": "attention", "kind": ["attention"] * len(table),
        "op": ["attention_bwd" if b else "attention" for b in back],
        "cls": ["attention" if not s else "attention_serving" if c
                else "attention_encoder" if d % 16 == 0 else "attention_encoder_odd"
                for s, c, d in zip(serving, causal, dim, strict=True)],
        "peak": ["bf16"] * len(table),
        "why": ["decode attention is not part of training" if d and not b
                else "" if t in ("bf16", "fp16") else f"dtype {t!r} is not modelled"
                for d, b, t in zip(sq == 1, back, dtype, strict=True)],
        "flop": work, "n_bytes": moved * np.where(back, 2.0, 1.0),
        "cast_bytes": np.where(np.array(serving, dtype=bool) & causal, cached, 0.0),
        "m": sq, "n": 0.5 * (dim + v_dim), "k": skv * half, "groups": batch * heads,
        "large": work >= LARGE_FLOP["attention"],
    }  # fmt: skip


def _memory(table: Table) -> _Columns:
    moved = table.number("bytes")
    ops = table.text("op")
    cols = table.number("cols", 1.0) if "cols" in table.columns else _one(table)
    served = [t.startswith("kernel_profiler") for t in table.text("timing")]
    classes, kinds, factor = [], [], _one(table)
    rows, again = _one(table), 0.0 * factor
    each = table.number("rows", 1.0) if "rows" in table.columns else rows
    for i, op in enumerate(ops):
        base = op.removesuffix("_phi")
        kind = "norm" if base in _NORMS else "softmax" if base == "softmax" else "elementwise"
        kinds.append(kind)
        own = "pow" if base in ("pow", "powu") else kind
        classes.append(_SERVING_OPS.get(op, own) if served[i] else own)
        if classes[-1] == "norm":  # its bytes are two tensors: the input (read) and the output
            rows[i], again[i] = each[i], moved[i] / 2.0
        if kind == "softmax" and 1.0 < cols[i] <= WARP_ROW:
            classes[-1] = SHORT_SOFTMAX
        elif kind == "softmax" and cols[i] > SOFTMAX_ROW_ON_CHIP:
            factor[i] = 1.5
        elif op == "add_phi":  # one row for two adds: attention and MLP are added to the residual
            factor[i] = 2.0
    ones = _one(table)
    return {
        "form": "memory", "kind": kinds, "op": ops, "cls": classes,
        "peak": ["fp32"] * len(table), "why": [""] * len(table),
        "flop": 0.0 * ones, "n_bytes": moved * factor, "cast_bytes": 0.0 * ones,
        "reread_bytes": again, "m": rows, "n": ones, "k": ones, "groups": ones,
        "large": moved >= LARGE_BYTES,
    }  # fmt: skip


def _conv(table: Table) -> _Columns:
    batch, cin, cout, size = (table.number(c) for c in ("batch", "cin", "cout", "kernel_size"))
    hw, stride = table.number("in_hw"), table.number("stride", 1.0)
    pad = table.number("pad", 0.0, low=-1.0)
    out = np.maximum(np.floor((hw + 2 * pad - size) / stride) + 1, 1.0)
    depth, pixels = cin * size * size, batch * out * out
    # For shapes of Winograd's algorithm, m is the number of outputs per image, groups the images.
    winograd = (size == 3.0) & (stride == 1.0)
    flop = 2.0 * pixels * cout * depth
    dtype = [d.lower() for d in table.text("dtype")]
    width = np.array([_WIDTH.get(d, 4.0) for d in dtype])
    passes = table.text("pass") if "pass" in table.columns else ["fwd"] * len(table)
    peaks: dict[str, PeakName] = {"fp32": "fp32", "bf16": "bf16", "fp16": "fp16"}
    return {
        "form": "matmul", "kind": ["conv"] * len(table), "op": ["conv"] * len(table),
        "cls": ["conv_tensor16" if d != "fp32" else "conv_simt32" if w else "gemm_simt32"
                for d, w in zip(dtype, winograd, strict=True)],
        "peak": [peaks.get(d, "fp32") for d in dtype],
        "why": ["only forward convolutions are compared" if p not in ("fwd", "")
                else "" if d in peaks else f"dtype {d!r} is not modelled"
                for p, d in zip(passes, dtype, strict=True)],
        "flop": flop, "n_bytes": (batch * cin * hw * hw + pixels * cout + cout * depth) * width,
        "cast_bytes": 0.0 * flop,
        "m": np.where(winograd, out * out, pixels), "n": cout, "k": depth,
        "groups": np.where(winograd, batch, 1.0), "large": flop >= LARGE_FLOP["conv"],
    }  # fmt: skip


#: The columns by which a kind of table is recognised, and the reader of its rows.
READERS: Final[tuple[tuple[frozenset[str], Callable[[Table], _Columns]], ...]] = (
    (frozenset({"m", "n", "k", "time_us"}), _gemm),
    (frozenset({"seq_q", "head_dim", "time_us"}), _attention),
    (frozenset({"op", "bytes", "time_us"}), _memory),
    (frozenset({"cin", "cout", "time_us"}), _conv),
)
_LABELS: Final = ("gpu", "op", "dtype", "kind", "cls", "peak", "eager", "clock", "source")


def is_op_table(table: Table) -> bool:
    """Whether a table is a table of measured kernels."""
    return "gpu" in table.columns and any(needs <= table.columns.keys() for needs, _ in READERS)


def op_rows(table: Table, on_bad: OnBad = "skip") -> RowsRead[OpBatch]:
    """The batches of one table, without rows that are not modelled.

    Raises DataError if it is no op table, or has bad rows and ``on_bad`` is "refuse".
    """
    read = next((p for needs, p in READERS if needs <= table.columns.keys()), None)
    if read is None or "gpu" not in table.columns:
        raise DataError("is no op table: it needs gpu, time_us and an op's sizes", file=table.path)
    time_s = table.number("time_us") * MICRO
    columns = {"reread_bytes": _one(table) * 0.0, **read(table)}
    why = columns["why"]
    assert isinstance(why, list)
    shape = [table.text(c) for c in table.columns if c not in ("time_us", "power_w")]
    mark_repeats(table, shape, [not w for w in why])
    timing, source = table.text("timing"), table.text("source")
    labels: _Columns = {
        "gpu": table.text("gpu"), "op": columns["op"], "kind": columns["kind"],
        "cls": columns["cls"], "peak": columns["peak"], "source": source,
        "dtype": [d.lower() for d in table.text("dtype")],
        "eager": [t.startswith("eager") or s.startswith("NeuSight")
                  for t, s in zip(timing, source, strict=True)],
        "clock": [_clock(t, s) for t, s in zip(timing, source, strict=True)],
    }  # fmt: skip
    skipped: Counter[str] = Counter()
    groups: dict[_BatchKey, list[int]] = {}
    for row, key in enumerate(zip(*(labels[c] for c in _LABELS), strict=True)):
        if why[row] and table.good[row]:
            skipped[why[row]] += 1
        elif table.good[row]:
            groups.setdefault(key, []).append(row)
    batches = []
    for key, rows in groups.items():
        label: dict[str, Any] = dict(zip(_LABELS, key, strict=True))
        try:
            spec = GPUS[str(label["gpu"])]
        except SimcoreError as err:
            skipped[str(err)] += len(rows)
            continue
        at = np.array(rows, dtype=np.intp)
        label |= {n: np.asarray(columns[n])[at] for n in _ARRAYS if n in columns}
        label |= {"gpu": spec.name, "form": columns["form"], "line": table.lines[at]}
        batch = OpBatch(**label, time_s=time_s[at])
        if batch.form != "memory" and not batch.peak_flop_per_s:
            skipped[f"{spec.name} has no {batch.peak} peak"] += len(rows)
            continue
        batches.append(_without_l2(_plausible(batch, spec, at, table), spec))
    return table.read((b for b in batches if len(b)), skipped, on_bad)


def _clock(timing: str, source: str) -> Clock:
    if timing.startswith("derived_from_eff"):
        return "derived"
    # Products of this sweep last up to seconds each; those of NeuSight's other sweeps are short.
    is_long = source.startswith("NeuSight/linear_train")
    if timing.startswith("kernel_profiler"):
        return "profiled"
    return "sustained" if timing.startswith("graph_sustained") or is_long else "burst"


def _without_l2(batch: OpBatch, spec: GpuSpec) -> OpBatch:
    """The batch with only the bytes that come from memory, for ops whose input may be in L2."""
    written = _JUST_WRITTEN.get(batch.op, 0.0) * batch.n_bytes
    if batch.clock != "profiled" or batch.form != "memory" or not spec.l2_size:
        return batch
    l2 = spec.l2_size.value
    in_l2 = np.clip((_LEAVES_L2 - written / l2) / (_LEAVES_L2 - _STAYS_IN_L2), 0.0, 1.0)
    least = _LEFT_FOR_SUMS * l2 if batch.op.startswith("add") else 0.0
    read = np.maximum(_READ_FROM_L2 * written * in_l2, np.minimum(_READ_FROM_L2 * written, least))
    return replace(batch, n_bytes=batch.n_bytes - read)


def _plausible(batch: OpBatch, spec: GpuSpec, at: NDArray[np.intp], table: Table) -> OpBatch:
    """The batch without rows whose times are impossible; these are marked bad in ``table``.

    ``at`` are the batch's row numbers in the table.
    """
    if batch.form == "memory":
        share = batch.n_bytes / batch.time_s / spec.memory_bw.value
    else:
        share = batch.flop / batch.time_s / batch.peak_flop_per_s
    wrong = (share > FASTEST_SHARE) | (batch.large & (share < SLOWEST_SHARE))
    for i in np.flatnonzero(wrong):
        table.bad(
            int(at[i]),
            f"time_us means {share[i]:.2g} of the datasheet's rate: swapped columns or unit?",
        )
    return batch.take(~wrong)


def read_op_rows(path: Path) -> RowsRead[OpBatch]:
    """The batches of one file. Raises DataError as :func:`op_rows`."""
    return op_rows(read_table(path))
