"""Fits the figures of one machine to its raw measurements, with the engine's formulas.

The functions that made the shipped profile fit each class of op, so that a figure means the same
in both. Every fit states its range and its error on rows that were left out of it.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from simcore.base.arrays import NDArray
from simcore.base.units import format_si
from simcore.calibrate.bench.case import width
from simcore.calibrate.bench.memory_bound import OPS, STREAMS
from simcore.calibrate.bench.store import RawRow
from simcore.calibrate.curve_fits import (
    Array,
    RooflineFit,
    fit_memory,
    fit_roofline,
    robust_sd,
)
from simcore.calibrate.link_fit import (
    LEAST_SD,
    UNKNOWN_SD,
    LinkFit,
    fit_link,
    left_out_link_mape,
    small_sample,
)
from simcore.hardware.measured import (
    Contention,
    Fitted,
    FittedTime,
    MeasuredDevice,
    MeasuredLink,
    Overlap,
    own_class,
)
from simcore.hardware.spec import GpuSpec, PeakName
from simcore.physics.fill import attention_fill, matmul_fill
from simcore.timing.rates import attention_width

#: Share of the scatter between shapes that remains in a step, which mixes many shapes. The shipped
#: profile uses the same share.
SHAPE_SHARE: Final = 0.5
#: The least share of its time that a kernel is taken to spend on its memory traffic.
LEAST_BUSY: Final = 0.1
#: Standard deviation of a median over that of a mean, for a normal distribution.
MEDIAN_SD: Final = 1.2533
#: Kernels that AdamW as a loop launches per tensor (``strategy.precision``).
ADAMW_KERNELS: Final = 14
#: Parts of the cross-validation; each part is predicted by a fit of the others.
FOLDS: Final = 10
#: Measurements with several ranks are ignored if other processes used more than this share of the
#: machine.
DOUBTED_FRAC: Final = 0.2
#: The least number of rows of a class that is fitted.
ENOUGH_ROWS: Final = 3


@dataclass(frozen=True)
class Peaks:
    """The rates that efficiencies are shares of: the datasheet's, or the best measured ones."""

    flop_per_s: Mapping[str, float]
    bytes_per_s: float

    @staticmethod
    def of(gpu: GpuSpec) -> Peaks:
        """The datasheet peaks of a GPU: FLOP/s of each precision and memory bandwidth."""
        names: tuple[PeakName, ...] = ("fp32", "tf32", "bf16", "fp16")
        known: dict[str, float] = {n: p for n in names if (p := gpu.peak(n)) is not None}
        return Peaks(known, gpu.memory_bw.value)


@dataclass(frozen=True, slots=True)
class Work:
    """The rows of one class as arrays [rows]: FLOP, bytes, tile fill, seconds."""

    flop: Array
    n_bytes: Array
    fill: Array
    seconds: Array

    def part(self, index: NDArray[np.intp]) -> Work:
        """The rows at ``index``."""
        return Work(self.flop[index], self.n_bytes[index], self.fill[index], self.seconds[index])


def own_rows(rows: Iterable[RawRow], table: str, mode: str = "alone") -> list[RawRow]:
    """The rows of one table that were measured in one mode."""
    return [r for r in rows if r.table == table and r.cells["mode"] == mode]


def disturbed(row: RawRow) -> float:
    """The share of a row's calls that were disturbed.

    With several ranks it is the share of the machine that other processes used.
    """
    return float(row.cells.get("disturbed_frac") or 0.0)


def gemm_flop(r: RawRow) -> float:
    """FLOP of a row of matrix products; a multiply-add counts as two."""
    return 2.0 * math.prod(r.number(c) for c in ("m", "n", "k", "batch"))


def best_flop_per_s(rows: Sequence[RawRow], dtype: str) -> float:
    """FLOP/s of the fastest product of a dtype; 0 if none was measured."""
    mine = (r for r in own_rows(rows, "gemm") if r.cells["dtype"] == dtype)
    return max((gemm_flop(r) / r.seconds for r in mine), default=0.0)


def best_bytes_per_s(rows: Sequence[RawRow], beyond_bytes: float) -> float:
    """Bytes/s of the fastest cold stream of at least ``beyond_bytes`` bytes; 0 without one."""
    return max(
        (
            r.number("bytes") / r.seconds
            for r in own_rows(rows, "memory_bound")
            if r.cells["op"] in STREAMS and r.cells["cache"] == "cold"
            and r.number("bytes") >= beyond_bytes
        ),
        default=0.0,
    )  # fmt: skip


#: FLOP, bytes and geometry (m, n, k, groups) of a row.
Row = tuple[float, float, tuple[float, float, float, float]]


def _work(
    rows: Sequence[RawRow], of: Callable[[RawRow], Row], fill: Callable[..., Array] | None
) -> Work:
    """The rows as arrays. ``fill`` maps their geometry to the tile fill; None (on a host) is 1."""
    made = [of(r) for r in rows]
    m, n, k, g = np.array([d for _, _, d in made], dtype=float).reshape(-1, 4).T
    return Work(
        np.array([f for f, _, _ in made]),
        np.array([b for _, b, _ in made]),
        fill(m, n, k, g) if fill is not None else np.ones(len(rows)),
        np.array([r.seconds for r in rows]),
    )


def _fill_of(table: str, dtype: str, gpu: GpuSpec) -> Callable[..., Array] | None:
    """The engine's fill of the device by shapes, without the fitted corrections; None on a host."""
    if gpu.sm_count is None:
        return None
    sm_count = gpu.sm_count.value
    if table != "attention":
        return lambda m, n, k, g: matmul_fill(m, n, k, g, sm_count)
    width = attention_width(gpu) if dtype != "fp32" else 0.0
    return lambda m, n, k, g: attention_fill(m, n, k, g, sm_count, 0.0, 0.0, width)


def _gemm(r: RawRow) -> Row:
    m, n, k, g = (r.number(c) for c in ("m", "n", "k", "batch"))
    return gemm_flop(r), g * (m * k + k * n + m * n) * width(r.cells["dtype"]), (m, n, k, g)


def _conv(r: RawRow) -> Row:
    b, cin, cout, size, hw, stride, pad = (
        float(r.cells[c] or 0)
        for c in ("batch", "cin", "cout", "kernel_size", "in_hw", "stride", "pad")
    )
    out = math.floor((hw + 2 * pad - size) / stride) + 1
    pixels, depth = b * out * out, cin * size * size
    passes = 1.0 if r.cells["pass"] == "fwd" else 2.0
    moved = (b * cin * hw * hw + pixels * cout + cout * depth) * width(r.cells["dtype"])
    return passes * 2.0 * pixels * cout * depth, passes * moved, (pixels, cout, depth, 1.0)


def _attention(r: RawRow) -> Row:
    b, h, s, d = (r.number(c) for c in ("batch", "heads", "seq_q", "head_dim"))
    back = r.cells["pass"] == "bwd"
    flop = 4.0 * b * h * s * s * d * (0.5 if r.cells["causal"] == "1" else 1.0)
    moved = 4.0 * b * h * s * d * width(r.cells["dtype"])
    return flop * (2.5 if back else 1.0), moved * (2.0 if back else 1.0), (s, d, s, b * h)


def left_out_mape(work: Work, predict: Callable[[Work, Work], Array]) -> float | None:
    """Mean absolute relative error of rows that are predicted by a fit without them.

    ``predict(seen, unseen)`` fits ``seen`` and returns the seconds of ``unseen``. None for too few
    rows.
    """
    n = len(work.seconds)
    if n < 2 * ENOUGH_ROWS:
        return None
    order = np.argsort(work.seconds, kind="stable")
    fold = np.empty(n, dtype=int)
    fold[order] = np.arange(n) % min(FOLDS, n)
    errors = []
    for k in range(min(FOLDS, n)):
        unseen = np.flatnonzero(fold == k)
        guess = predict(work.part(np.flatnonzero(fold != k)), work.part(unseen))
        errors += list(np.abs(guess / work.seconds[unseen] - 1.0))
    return float(np.mean(errors))


def _roofline(work: Work, peak: float, bandwidth: float) -> RooflineFit:
    return fit_roofline(work.flop, work.n_bytes, work.fill, work.seconds, peak, bandwidth)


def _compute_class(work: Work, peak: float, bandwidth: float) -> tuple[Fitted, RooflineFit]:
    def predict(seen: Work, unseen: Work) -> Array:
        f = _roofline(seen, peak, bandwidth)
        return roofline_s(f, unseen, peak, bandwidth)

    fit = _roofline(work, peak, bandwidth)
    sd = max(LEAST_SD, math.hypot(fit.sd_compute_log, SHAPE_SHARE * fit.resid_sd_log))
    valid = f"{format_si(work.flop.min(), 'FLOP')} to {format_si(work.flop.max(), 'FLOP')}"
    return (
        Fitted(value=fit.eff_compute, sd_log=sd, rows=fit.n, valid=valid,
               leave_one_out_mape_frac=left_out_mape(work, predict)),
        fit,
    )  # fmt: skip


def roofline_s(fit: RooflineFit, work: Work, peak: float, bandwidth: float) -> Array:
    """The seconds of ``work`` [rows] by a fit; ``peak`` in FLOP/s, ``bandwidth`` in bytes/s."""
    compute = work.flop / (fit.eff_compute * peak * work.fill)
    memory = work.n_bytes / (fit.eff_memory * bandwidth)
    return np.asarray(fit.launch_s + np.sqrt(compute**2 + memory**2))


def _memory_class(
    rows: Sequence[RawRow], bandwidth: float, start_s: float | None, note: str = ""
) -> Fitted:
    """The share of the bandwidth that a class of kernels reaches.

    ``start_s`` is the fixed time of a kernel; None: fit it too. On a host it is known from kernels
    without work, and if it were fitted it would absorb the cost of cold caches. The rows of a host
    are measured with cold and with warm caches, since a step meets both.
    """
    n_bytes = np.array([r.number("bytes") for r in rows])
    seconds = np.array([r.seconds for r in rows])
    counts = np.array([float(r.cells.get("count") or 1) for r in rows])
    one = np.ones(len(rows))
    # The field ``fill`` holds the number of kernels, since a stream has no tile fill.
    work = Work(0 * one, n_bytes, counts, seconds)

    def fitted(w: Work) -> tuple[float, float, float, float]:
        """(efficiency, standard deviation of its logarithm, start in seconds, scatter)"""
        if start_s is None:
            f = fit_memory(w.n_bytes, w.seconds, bandwidth)
            return f.eff_memory, f.sd_memory_log, f.launch_s, f.resid_sd_log
        busy = np.maximum(w.seconds - start_s * w.fill, LEAST_BUSY * w.seconds)
        logs = np.log(w.n_bytes / busy / bandwidth)
        scatter = robust_sd(logs)
        sd = MEDIAN_SD * scatter / math.sqrt(len(logs)) * small_sample(len(logs), 1)
        return math.exp(float(np.median(logs))), sd, start_s, scatter

    def predict(seen: Work, unseen: Work) -> Array:
        eff, _, start, _ = fitted(seen)
        return _stream_s(unseen, bandwidth, eff, start)

    eff, sd, _, scatter = fitted(work)
    return Fitted(
        value=eff, sd_log=max(LEAST_SD, math.hypot(sd, SHAPE_SHARE * scatter)), rows=len(rows),
        valid=f"{format_si(n_bytes.min(), 'B')} to {format_si(n_bytes.max(), 'B')}",
        leave_one_out_mape_frac=left_out_mape(work, predict), note=note,
    )  # fmt: skip


def _stream_s(work: Work, bandwidth: float, eff: float, start_s: float) -> Array:
    return np.asarray(start_s * work.fill + work.n_bytes / (eff * bandwidth))


def fit_device(
    rows: Sequence[RawRow],
    gpu: GpuSpec,
    *,
    node: str,
    link_bytes_per_s: float,
    on_host: bool,
) -> MeasuredDevice:
    """The figures of ``gpu`` that the rows determine; figures without enough rows are left out.

    ``link_bytes_per_s``: payload rate of the link of a ring on ``node``, from its record.
    ``on_host``: the device is the host, so that launching a kernel is part of running it.
    """
    peaks = Peaks.of(gpu)
    bandwidth = peaks.bytes_per_s
    compute: dict[str, Fitted] = {}
    memory: dict[str, Fitted] = {}
    readers = {"gemm": _gemm, "conv": _conv, "attention": _attention}
    for table, of in readers.items():
        by_unit: dict[str, list[RawRow]] = defaultdict(list)
        for r in own_rows(rows, table):
            by_unit[r.cells["dtype"]].append(r)
        for dtype, mine in by_unit.items():
            if len(mine) < ENOUGH_ROWS or dtype not in peaks.flop_per_s:
                continue
            peak: PeakName = dtype  # type: ignore[assignment]  # a key of the record's peaks
            name = own_class(table, peak)
            work = _work(mine, of, _fill_of(table, dtype, gpu))
            fitted, fit = _compute_class(work, peaks.flop_per_s[dtype], bandwidth)
            compute[name] = fitted
            # One memory efficiency per table: that of the dtype whose rows come first. It is known
            # best for dtypes with large elements, which move more bytes.
            sd = min(UNKNOWN_SD, max(LEAST_SD, fit.sd_memory_log))
            unknown = sd == UNKNOWN_SD
            note = "not identified: compute-bound" if unknown else "of kernels that also compute"
            memory.setdefault(table, Fitted(value=fit.eff_memory, sd_log=sd, rows=fit.n, note=note))
    host = own_rows(rows, "host")
    start, issue = _launch(host, on_host)
    start_s = start.value if on_host and start is not None else None
    by_kind: dict[str, list[RawRow]] = defaultdict(list)
    for r in own_rows(rows, "memory_bound"):
        by_kind[OPS[r.cells["op"]].kind].append(r)
    for kind, mine in by_kind.items():
        if len(mine) >= ENOUGH_ROWS:
            memory[kind] = _memory_class(mine, bandwidth, start_s)
    default = "for-loop" if on_host else "foreach"
    updates = [r for r in host if r.cells["op"] == f"adamw-{default}"]
    if len(updates) >= ENOUGH_ROWS:
        kernels = start_s * ADAMW_KERNELS if start_s is not None else None
        memory["update"] = _memory_class(updates, bandwidth, kernels, f"AdamW, {default}")
    return MeasuredDevice(
        gpu=gpu.name,
        compute_efficiency=compute,
        memory_efficiency=memory,
        kernel_start=start,
        host_issue=issue,
        contention=_contention(rows),
        link=_link(rows, node, link_bytes_per_s),
        overlap=_overlap(rows),
    )


def _launch(host: Sequence[RawRow], on_host: bool) -> tuple[FittedTime | None, FittedTime | None]:
    """(start of a kernel on the device, launch by the host), each None if not measured."""
    times = {
        r.cells["op"]: FittedTime(
            value=r.seconds / r.number("count"), sd_log=max(LEAST_SD, r.sd_log), rows=1,
            note=f"{r.cells['count']} kernels, {r.cells['op']}",
        )
        for r in host if r.cells["op"] in ("eager", "graph")
    }  # fmt: skip
    eager = times.get("eager")
    if on_host:
        zero = FittedTime(value=0.0, sd_log=0.0, note="the host is the device: in kernel_start")
        return eager, zero if eager else None
    return times.get("graph"), eager


def _ratios(rows: Sequence[RawRow], table: str) -> Array:
    """Seconds alone over seconds with all ranks, of the cases that were measured both ways."""
    alone = {r.key[2:]: r.seconds for r in own_rows(rows, table)}
    # If other processes were busy, the ranks also competed with them, so the rows do not count.
    both = [r for r in own_rows(rows, table, "together") if disturbed(r) <= DOUBTED_FRAC]
    return np.array([alone[r.key[2:]] / r.seconds for r in both if r.key[2:] in alone])


def _contention(rows: Sequence[RawRow]) -> tuple[Contention, ...]:
    compute, memory = _ratios(rows, "gemm"), _ratios(rows, "memory_bound")
    if not len(compute) or not len(memory):
        return ()
    ranks = {int(r.cells["ranks_at_once"]) for r in rows if r.cells["mode"] == "together"}

    def share(values: Array) -> Fitted:
        logs = np.log(values)
        return Fitted(value=float(np.exp(np.median(logs))), sd_log=max(LEAST_SD, float(logs.std())),
                      rows=len(values))  # fmt: skip

    return (Contention(ranks=max(ranks), compute=share(compute), memory=share(memory)),)


def best_bus_bytes_per_s(rows: Sequence[RawRow]) -> float:
    """Bus bandwidth in bytes/s of the fastest all-reduce; 0 if none was measured."""
    return max(
        (
            2.0 * (r.number("gpus") - 1) / r.number("gpus") * r.number("size_bytes") / r.seconds
            for r in own_rows(rows, "collectives", "lockstep")
            if r.cells["collective"] == "all_reduce"
        ),
        default=0.0,
    )


def _link(rows: Sequence[RawRow], node: str, link_bytes_per_s: float) -> MeasuredLink | None:
    from simcore.timing.points import COLLECTIVE_BASE_S

    mine = [
        r
        for r in own_rows(rows, "collectives", "lockstep")
        if r.cells["collective"] == "all_reduce"
    ]
    if len(mine) < ENOUGH_ROWS:
        return None
    sizes = np.array([r.number("size_bytes") for r in mine])
    seconds = np.array([r.seconds for r in mine])
    ranks = int(mine[0].number("gpus"))
    fit = fit_link(sizes, seconds, ranks, COLLECTIVE_BASE_S)

    def refit(n_bytes: Array, took_s: Array) -> LinkFit:
        return fit_link(n_bytes, took_s, ranks, COLLECTIVE_BASE_S)

    error = left_out_link_mape(sizes, seconds, refit, 2 * ENOUGH_ROWS - 1)
    valid = f"{format_si(sizes.min(), 'B')} to {format_si(sizes.max(), 'B')}"
    return MeasuredLink(
        node=node,
        ranks=ranks,
        efficiency=Fitted(
            value=fit.bus_bytes_per_s / link_bytes_per_s,
            sd_log=max(LEAST_SD, math.hypot(fit.bus_sd_log, SHAPE_SHARE * fit.scatter)),
            rows=len(mine), valid=valid, leave_one_out_mape_frac=error, note="all-reduce",
        ),
        hop=FittedTime(
            value=fit.hop_s, sd_log=max(LEAST_SD, fit.hop_sd_log), rows=len(mine), valid=valid,
        ),
    )  # fmt: skip


def _overlap(rows: Sequence[RawRow]) -> Overlap | None:
    parts: dict[tuple[str, str], dict[str, float]] = defaultdict(dict)
    for r in own_rows(rows, "host", "lockstep"):
        if disturbed(r) > DOUBTED_FRAC:
            continue
        what, _, part = r.cells["op"].partition("-")
        if what == "overlap":
            parts[r.cells["bytes"], r.cells["count"]][part] = r.seconds
    whole = [p for p in parts.values() if len(p) == 4]
    if not whole:
        return None

    def slowdown(own: Literal["compute", "comm"], other: Literal["compute", "comm"]) -> Fitted:
        # A part can be slower only while the other one runs, so its excess time is divided by
        # that share of its time.
        slower = np.array(
            [(p[f"{own}-beside"] / p[own] - 1.0) / min(1.0, p[other] / p[own]) for p in whole]
        )
        value = float(np.clip(np.median(slower), 0.0, None))
        sd = float(np.std(np.log1p(np.maximum(slower, 0.0)))) if len(slower) > 1 else 0.0
        return Fitted(value=value, sd_log=max(0.1, sd), rows=len(slower))

    return Overlap(
        compute_slowdown=slowdown("compute", "comm"), comm_slowdown=slowdown("comm", "compute")
    )
