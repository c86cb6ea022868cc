"""Measured op tables as arrays: matrix products, attention, memory-bound maps, convolutions."""

from __future__ import annotations

import csv
import gzip
import io
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from simcore.base.errors import DataError
from simcore.base.units import MEGA, MICRO
from simcore.hardware.spec import PeakName
from simcore.workload.graph import KernelKind

Row = dict[str, str]

#: Element widths [bytes] and peaks of the dtypes that the tables name.
_DTYPES: dict[str, tuple[float, PeakName]] = {
    "fp32": (4.0, "fp32"), "bf16": (2.0, "bf16"), "fp16": (2.0, "fp16"),
    "fp8": (1.0, "fp8"), "fp8_block": (1.0, "fp8"), "nvfp4": (0.5, "fp4"),
}  # fmt: skip
#: Width of a product's output where its inputs are narrower than 16 bit.
_OUT_BYTES = 2.0
_NORMS = ("ln", "norm", "layernorm", "rmsnorm")
LARGE_FLOP = {"gemm": 1e3 * MEGA, "attention": 5e3 * MEGA, "conv": 1e3 * MEGA}
LARGE_BYTES = 32 * MEGA
#: Large products also fill the device: this many rows in all, and this many columns and depth.
LARGE_ROWS, LARGE_COLS = 512, 256


@dataclass(frozen=True, slots=True)
class OpRow:
    """One measured kernel: what it computes and moves, and how it was timed."""

    line: int
    gpu: str
    op: str
    dtype: str
    kind: KernelKind
    peak: PeakName
    flop: float
    n_bytes: float
    m: float
    n: float
    k: float
    groups: float
    measured_s: float
    eager: bool
    sustained: bool
    large: bool


def _number(row: Row, column: str, default: float | None = None) -> float:
    text = (row.get(column) or "").strip()
    if not text:
        if default is None:
            raise ValueError(f"{column} is blank")
        return default
    try:
        value = float(text)
    except ValueError:
        raise ValueError(f"{column}: {text!r} is not a number") from None
    if not math.isfinite(value) or value <= 0:
        raise ValueError(f"{column}: {text!r} must be finite and above zero")
    return value


def _dtype(row: Row) -> tuple[float, PeakName]:
    name = (row.get("dtype") or "").strip().lower()
    if name not in _DTYPES:
        raise KeyError(f"dtype {name!r} is not modelled")
    return _DTYPES[name]


def _gemm(row: Row) -> dict[str, object]:
    width, peak = _dtype(row)
    if row.get("op", "").startswith("grouped"):
        raise KeyError("grouped products are not modelled")
    m, n, k = (_number(row, c) for c in "mnk")
    batch = _number(row, "batch", 1.0)
    flop = 2.0 * batch * m * n * k
    out = max(width, _OUT_BYTES)
    return {
        "kind": "gemm", "op": row["op"], "peak": peak, "flop": flop,
        "n_bytes": batch * ((m * k + k * n) * width + m * n * out),
        "m": m, "n": n, "k": k, "groups": batch,
        "large": flop >= LARGE_FLOP["gemm"] and m * batch >= LARGE_ROWS and min(n, k) >= LARGE_COLS,
    }  # fmt: skip


def _attention(row: Row) -> dict[str, object]:
    width, peak = _dtype(row)
    batch, heads, kv = (_number(row, c) for c in ("batch", "heads", "kv_heads"))
    sq, skv, dim = (_number(row, c) for c in ("seq_q", "seq_kv", "head_dim"))
    v_dim = _number(row, "v_head_dim", dim)
    back = row.get("pass", "fwd") == "bwd"
    if sq == 1 and not back:
        raise KeyError("decode attention is not part of training")
    causal = (row.get("causal") or "0") in ("1", "1.0", "True", "true")
    flop = 2.0 * batch * heads * sq * skv * (dim + v_dim) * (0.5 if causal and sq == skv else 1.0)
    moved = batch * (heads * sq * (dim + v_dim) + kv * skv * (dim + v_dim)) * width
    work = flop * (2.5 if back else 1.0)
    return {
        "kind": "attention", "op": "attention_bwd" if back else "attention", "peak": peak,
        "flop": work, "n_bytes": moved * (2.0 if back else 1.0),
        "m": sq, "n": v_dim, "k": skv, "groups": batch * heads,
        "large": work >= LARGE_FLOP["attention"],
    }  # fmt: skip


def _memory(row: Row) -> dict[str, object]:
    _, peak = _dtype(row)
    op = row["op"]
    base = op.removesuffix("_phi")
    kind = "norm" if base in _NORMS else "softmax" if base == "softmax" else "elementwise"
    moved = _number(row, "bytes")
    return {
        "kind": kind, "op": op, "peak": peak, "flop": 0.0, "n_bytes": moved,
        "m": 1.0, "n": 1.0, "k": 1.0, "groups": 1.0, "large": moved >= LARGE_BYTES,
    }  # fmt: skip


def _conv(row: Row) -> dict[str, object]:
    width, peak = _dtype(row)
    if row.get("pass", "fwd") not in ("fwd", ""):
        raise KeyError("only forward convolutions are judged")
    batch, cin, cout, size = (_number(row, c) for c in ("batch", "cin", "cout", "kernel_size"))
    hw, stride = _number(row, "in_hw"), _number(row, "stride", 1.0)
    pad = float(row.get("pad") or 0.0)
    out = math.floor((hw + 2 * pad - size) / stride) + 1
    depth = cin * size * size
    flop = 2.0 * batch * out * out * cout * depth
    moved = (batch * (cin * hw * hw + cout * out * out) + cout * depth) * width
    return {
        "kind": "conv", "op": "conv", "peak": peak, "flop": flop, "n_bytes": moved,
        "m": batch * out * out, "n": cout, "k": depth, "groups": 1.0,
        "large": flop >= LARGE_FLOP["conv"],
    }  # fmt: skip


#: Columns that tell a table, and the reader of its rows.
READERS: tuple[tuple[frozenset[str], Callable[[Row], dict[str, object]]], ...] = (
    (frozenset({"m", "n", "k", "time_us"}), _gemm),
    (frozenset({"seq_q", "head_dim", "time_us"}), _attention),
    (frozenset({"op", "bytes", "time_us"}), _memory),
    (frozenset({"cin", "cout", "time_us"}), _conv),
)


def open_text(path: Path) -> str:
    """The text of a CSV, gzipped or not. Raises DataError."""
    try:
        raw = path.read_bytes()
        return (gzip.decompress(raw) if path.suffix == ".gz" else raw).decode("utf-8")
    except (OSError, EOFError, UnicodeDecodeError) as err:
        raise DataError(f"cannot be read: {err}", file=path) from None


def read_op_rows(path: Path) -> Iterator[OpRow | str]:
    """Rows of one table; a row that cannot be judged gives its reason instead.

    Raises DataError for a file that is no op table.
    """
    reader = csv.DictReader(io.StringIO(open_text(path)))
    header = set(reader.fieldnames or ())
    parse = next((p for needs, p in READERS if needs <= header), None)
    if parse is None or "gpu" not in header:
        raise DataError("is no op table: it needs gpu, time_us and an op's sizes", file=path)
    for row in reader:
        line = reader.line_num
        try:
            timing = row.get("timing") or ""
            yield OpRow(
                line=line,
                gpu=row["gpu"],
                dtype=(row.get("dtype") or "").strip().lower(),
                measured_s=_number(row, "time_us") * MICRO,
                eager=timing.startswith("eager"),
                sustained=timing == "graph_sustained",
                **parse(row),  # type: ignore[arg-type]
            )
        except KeyError as err:
            yield str(err.args[0])
        except ValueError as err:
            yield f"{path.name}:{line}: {err}"
