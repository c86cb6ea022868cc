"""Raw rows of benchmarks as kernels of the workload graph, so that a step's pricing prices them.

A row of a benchmark is one sample of a workload: its kernels have the row's work, traffic and
geometry, as the same operator has in a model.

A row that the host may have limited only bounds the device's time from above. A call that is timed
by two events takes the longer of the device's work and the host's work for issuing it, less what
earlier work hides (calls in a queue never wait for the host, and are timed apart). How long the
host takes is seen where the device has next to nothing to do: calls of the same kind with tiny
tensors. A row that took no longer than these, or whose calls scatter as only a host's do, says that
the kernel is no slower, but not how fast.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final, Literal

import numpy as np

from simcore.base.arrays import NDArray
from simcore.base.units import MICRO
from simcore.calibrate.bench.memory_bound import OPS
from simcore.calibrate.bench.store import RawRow
from simcore.workload.graph import Kernel, Op
from simcore.workload.ops.norm import batch_norm, layer_norm, softmax
from simcore.workload.ops.products import bmm, conv, linear, row_elems, sdpa

#: dtype of a raw table -> the precision in which a step runs the same kernels.
PRECISION_OF: Final[Mapping[str, str]] = {
    "fp32": "fp32-ieee", "tf32": "tf32", "bf16": "bf16-true", "fp16": "fp16-true",
}  # fmt: skip
#: Columns of a tensor for each channel of the images that the benchmark of batch norms makes of it,
#: and the least number of channels (``bench.memory_bound``).
COLS_A_CHANNEL, LEAST_CHANNELS = 16, 8


def _one_pass(op: Op, *, backward: bool) -> Op:
    """The op with one of its passes alone."""
    return Op(name="", fwd=() if backward else op.fwd, bwd=op.bwd if backward else ())


def _of(*kernels: Kernel) -> Op:
    return Op(name="", fwd=kernels)


def _gemm(row: RawRow) -> Op:
    m, n, k, groups = (int(row.number(c)) for c in ("m", "n", "k", "batch"))
    if row.cells["op"] == "bmm":
        return _of(*bmm("", groups, m, n, k).fwd)
    if row.cells["op"] == "linear_dgrad":  # gradient [m, k] @ weight [k, n]
        op = linear("", m, n, k, weight_grad=False, row_elems=row_elems(k, n))
        return _one_pass(op, backward=True)
    if row.cells["op"] == "linear_wgrad":  # input [m, k] @ gradient [k, n] of k samples
        op = linear("", k, m, n, input_grad=False, row_elems=row_elems(m, n))
        return _one_pass(op, backward=True)
    return _of(*linear("", m, k, n, row_elems=row_elems(k, n)).fwd)


def _conv(row: RawRow) -> Op:
    images, cin, cout, size, hw, stride, pad = (
        int(row.cells[c] or 0)
        for c in ("batch", "cin", "cout", "kernel_size", "in_hw", "stride", "pad")
    )
    out = (hw + 2 * pad - size) // stride + 1
    way = row.cells["pass"]
    op = conv(
        "", (hw, hw), (out, out), cin, cout, size, images=images, stride=stride,
        groups=int(row.cells.get("groups") or 1),
        channels_last=row.cells.get("layout") == "channels_last",
        input_grad=way != "wgrad", weight_grad=way != "dgrad",
    )  # fmt: skip
    return _one_pass(op, backward=way != "fwd")


def _attention(row: RawRow) -> Op:
    b, h, kv, sq, skv, dim = (
        int(row.number(c)) for c in ("batch", "heads", "kv_heads", "seq_q", "seq_kv", "head_dim")
    )
    op = sdpa("", b, h, kv, sq, skv, dim, causal=row.cells["causal"] == "1")
    return _one_pass(op, backward=row.cells["pass"] == "bwd")


def _memory(row: RawRow) -> Op:
    name, elems = row.cells["op"], row.number("elements")
    rows, cols = (int(float(row.cells[c] or 1)) for c in ("rows", "cols"))
    forward, backward = name.removesuffix("_bwd"), name.endswith("_bwd")
    last = forward.endswith("_last")
    if forward == "ln":
        return _one_pass(layer_norm("", rows, cols), backward=backward)
    if forward in ("bn", "bn_last"):
        channels = max(LEAST_CHANNELS, cols // COLS_A_CHANNEL)
        op = batch_norm("", elems, channels, channels_first=not last)
        return _one_pass(op, backward=backward)
    if forward in ("softmax", "log_softmax"):
        return _one_pass(softmax("", elems, row=cols), backward=backward)
    spec = OPS[name]
    moved = Kernel(kind=spec.kind, low=spec.moved * elems)
    return _of(replace(moved, indexed=elems) if name == "transpose" else moved)


def _launches(row: RawRow) -> Op:
    return _of(Kernel(kind="elementwise", launches=row.number("count")))


#: Table -> the operator that one of its rows timed.
READERS: Final[Mapping[str, Callable[[RawRow], Op]]] = {
    "gemm": _gemm, "conv": _conv, "attention": _attention, "memory_bound": _memory,
    "host": _launches,
}  # fmt: skip
#: Benchmark in the table ``host`` whose time is the device's alone.
GRAPH: Final = "graph"


def times_kernels(row: RawRow) -> bool:
    """Whether a row is the time of kernels on one device alone, with cold caches."""
    if row.cells["mode"] != "alone" or row.table not in READERS:
        return False
    return row.cells["op"] == GRAPH if row.table == "host" else row.cells["cache"] == "cold"


def precision_of(row: RawRow) -> str:
    """The precision in which a step runs the kernels of a row."""
    return PRECISION_OF[row.cells.get("dtype", "fp32")]


def op_of(row: RawRow) -> Op:
    """The operator whose kernels a row of a benchmark timed, with the timed pass alone."""
    return READERS[row.table](row)


#: How the host issues a timed call. ``plain``: operators on tensors without gradients.
#: ``recording``: forward passes that record the graph for backward. ``backward``: gradients, which
#: autograd's own thread issues.
Call = Literal["plain", "recording", "backward"]
CALLS: Final[tuple[Call, ...]] = ("plain", "recording", "backward")
_RECORDING: Final = ("ln", "bn", "bn_last")
#: The longest time that a device would need at its datasheet's rates for a call that has next to
#: nothing to do.
TINY_S: Final = 5 * MICRO
#: The cell ``timing`` of calls in a queue: the device never waited for the host between them.
QUEUED: Final = "cold_queue"
#: Quantile of the times of such calls that is taken as the host's.
HOST_QUANTILE: Final = 0.9
#: Standard deviation of ln(seconds) between calls from which on the host made them scatter: a
#: device repeats a kernel to a few percent.
UNSTEADY_SD: Final = 0.12


def call_of(row: RawRow) -> Call:
    """How the host issued the call of a row."""
    name = row.cells.get("op", "")
    if row.cells.get("pass", "fwd") not in ("", "fwd") or name.endswith("_bwd"):
        return "backward"
    if row.table in ("conv", "attention") or name in _RECORDING:
        return "recording"
    return "plain"


def host_limits(
    rows: Sequence[RawRow], at_peak_s: NDArray[np.float64]
) -> tuple[dict[Call, float], NDArray[np.bool_]]:
    """(seconds that the host takes by kind of call; whether it may limit each row).

    ``at_peak_s`` [rows]: the device's time at its datasheet's rates. Backward calls take at least
    as long as recording ones, and these as plain ones, so that kinds without tiny calls have the
    limit of the kind before them. Replayed graphs (of the table ``host``) wait for no host.
    """
    keys = [(r.cells.get("timing", ""), call_of(r)) for r in rows]
    tiny: dict[tuple[str, Call], list[float]] = defaultdict(list)
    for row, key, least_s in zip(rows, keys, at_peak_s, strict=True):
        if least_s < TINY_S and row.table != "host" and key[0] != QUEUED:
            tiny[key].append(row.seconds)
    limits: dict[tuple[str, Call], float] = {}
    longest: dict[Call, float] = {}
    for timing in dict.fromkeys(t for t, _ in keys):
        limit_s = 0.0
        for call in CALLS:
            seen = tiny.get((timing, call))
            limit_s = max(limit_s, float(np.quantile(seen, HOST_QUANTILE)) if seen else 0.0)
            limits[timing, call] = limit_s
            longest[call] = max(longest.get(call, 0.0), limit_s)
    limited = [r.table != "host" and k[0] != QUEUED
               and (r.seconds <= limits[k] or r.sd_log > UNSTEADY_SD)
               for r, k in zip(rows, keys, strict=True)]  # fmt: skip
    return longest, np.array(limited, dtype=bool)
