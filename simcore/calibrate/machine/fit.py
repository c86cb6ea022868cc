"""Fits the figures of one machine to its raw measurements, with the engine's formulas.

The functions that made the shipped profile fit each class of op, so that a figure means the same
in both. Every fit states its range and its error on rows that were left out of it.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, Literal, cast

import numpy as np

from simcore.base.arrays import Array
from simcore.calibrate.bench.case import width
from simcore.calibrate.bench.memory_bound import OPS, STREAMS
from simcore.calibrate.bench.store import RawRow
from simcore.calibrate.bench.timing import DOUBTED_FRAC
from simcore.calibrate.curve_fits import (
    RooflineFit,
    Rows,
    fit_memory,
    fit_roofline,
    left_out_mape,
    robust_sd,
)
from simcore.calibrate.link_fit import (
    LEAST_SD,
    UNKNOWN_SD,
    LinkFit,
    fit_link,
    fitted,
    left_out_link_mape,
    measured_link,
    small_sample,
)
from simcore.calibrate.machine.host import host_times
from simcore.hardware.calibrations import (
    Contention,
    Fitted,
    FittedTime,
    MeasuredDevice,
    MeasuredLink,
    Overlap,
    own_class,
)
from simcore.hardware.spec import GpuSpec, PeakName
from simcore.measurements.nccl_runs import bus_factor
from simcore.physics.fill import attention_fill, matmul_fill
from simcore.physics.kernel import roofline_s
from simcore.timing.points import COLLECTIVE_BASE_S
from simcore.timing.rates import attention_width

#: The least share of its time that a kernel is taken to spend on its memory traffic.
LEAST_BUSY: Final = 0.1
#: Standard deviation of a median over that of a mean, for a normal distribution.
MEDIAN_SD: Final = 1.2533
#: Kernels that AdamW as a loop launches per tensor (``strategy.precision``).
ADAMW_KERNELS: Final = 14
#: The least number of rows of a class that is fitted.
ENOUGH_ROWS: Final = 3


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


#: FLOP, bytes, m, n, k and groups of a row.
Row = tuple[float, float, float, float, float, float]


def _gemm(r: RawRow) -> Row:
    m, n, k, g = (r.number(c) for c in ("m", "n", "k", "batch"))
    return gemm_flop(r), g * (m * k + k * n + m * n) * width(r.cells["dtype"]), m, n, k, g


def _conv(r: RawRow) -> Row:
    b, cin, cout, size, hw, stride, pad = (
        float(r.cells[c] or 0)
        for c in ("batch", "cin", "cout", "kernel_size", "in_hw", "stride", "pad")
    )
    out = math.floor((hw + 2 * pad - size) / stride) + 1
    pixels, depth = b * out * out, cin / float(r.cells.get("groups") or 1) * size * size
    passes = 2.0 if r.cells["pass"] == "bwd" else 1.0  # bwd: both gradients
    moved = (b * cin * hw * hw + pixels * cout + cout * depth) * width(r.cells["dtype"])
    return passes * 2.0 * pixels * cout * depth, passes * moved, pixels, cout, depth, 1.0


def _attention(r: RawRow) -> Row:
    b, h, s, d = (r.number(c) for c in ("batch", "heads", "seq_q", "head_dim"))
    back = r.cells["pass"] == "bwd"
    keys = s * (0.5 if r.cells["causal"] == "1" else 1.0)
    flop, moved = 4.0 * b * h * s * keys * d, 4.0 * b * h * s * d * width(r.cells["dtype"])
    return flop * (2.5 if back else 1.0), moved * (2.0 if back else 1.0), s, d, keys, b * h


#: Table of kernels that compute -> reader of its rows.
READERS: Final[Mapping[str, Callable[[RawRow], Row]]] = {
    "gemm": _gemm, "conv": _conv, "attention": _attention,
}  # fmt: skip


def compute_work(rows: Sequence[RawRow]) -> Array:
    """FLOP, bytes, m, n, k and groups of rows of one table [6, rows]."""
    return np.array([READERS[r.table](r) for r in rows], dtype=float).T


def _fill(table: str, dtype: str, gpu: GpuSpec, shape: Array) -> Array:
    """The share of the device that shapes m, n, k, groups [4, rows] fill; all of a host's cores.

    It is the engine's, without the fitted corrections.
    """
    if gpu.sm_count is None:
        return np.ones(shape.shape[1])
    m, n, k, groups = shape
    if table != "attention":
        return matmul_fill(m, n, k, groups, gpu.sm_count.value)
    width = attention_width(gpu) if dtype != "fp32" else 0.0
    return attention_fill(m, n, k, groups, gpu.sm_count.value, 0.0, 0.0, width)


def _compute_class(
    rows: Sequence[RawRow], gpu: GpuSpec, peak: PeakName
) -> tuple[Fitted, float, RooflineFit]:
    """The share of a peak that the kernels of one table and dtype reach, and the whole fit.

    Between them: the median kernel's time at the datasheet's bandwidth over that at its peak.
    """
    flop, n_bytes, *shape = compute_work(rows)
    fill = _fill(rows[0].table, peak, gpu, np.array(shape))
    seconds = np.array([r.seconds for r in rows])
    rates = gpu.peak(peak) or math.nan, gpu.memory_bw.value

    def fit(of: Rows) -> RooflineFit:
        return fit_roofline(flop[of], n_bytes[of], fill[of], seconds[of], *rates)

    def predict(seen: Rows, of: Rows) -> Array:
        f = fit(seen)
        compute_s = flop[of] / (f.eff_compute * rates[0] * fill[of])
        return roofline_s(compute_s, n_bytes[of] / (f.eff_memory * rates[1]), f.launch_s)

    whole = fit(np.ones(len(rows), bool))
    error = left_out_mape(seconds, seconds, 2 * ENOUGH_ROWS - 1, predict)
    figure = fitted(whole.eff_compute, whole.sd_compute_log, flop, "FLOP",
                    scatter=whole.resid_sd_log, error=error)  # fmt: skip
    bound = float(np.median(n_bytes / rates[1] / (flop / rates[0])))
    return figure, bound, whole


def _memory_of_compute(fit: RooflineFit) -> Fitted:
    """The share of the bandwidth of kernels that also compute."""
    sd = min(UNKNOWN_SD, max(LEAST_SD, fit.sd_memory_log))
    note = "not identified: compute-bound" if sd == UNKNOWN_SD else "of kernels that also compute"
    return Fitted(value=fit.eff_memory, sd_log=sd, rows=fit.n, note=note)


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
    kernels = np.array([float(r.cells.get("count") or 1) for r in rows])

    def fit(of: Rows) -> tuple[float, float, float, float]:
        """(efficiency, standard deviation of its logarithm, start in seconds, scatter)"""
        if start_s is None:
            f = fit_memory(n_bytes[of], seconds[of], bandwidth)
            return f.eff_memory, f.sd_memory_log, f.launch_s, f.resid_sd_log
        busy = np.maximum(seconds[of] - start_s * kernels[of], LEAST_BUSY * seconds[of])
        logs = np.log(n_bytes[of] / busy / bandwidth)
        scatter = robust_sd(logs)
        sd = MEDIAN_SD * scatter / math.sqrt(len(logs)) * small_sample(len(logs), 1)
        return math.exp(float(np.median(logs))), sd, start_s, scatter

    def predict(seen: Rows, of: Rows) -> Array:
        eff, _, start, _ = fit(seen)
        return np.asarray(start * kernels[of] + n_bytes[of] / (eff * bandwidth))

    eff, sd, _, scatter = fit(np.ones(len(rows), bool))
    error = left_out_mape(seconds, seconds, 2 * ENOUGH_ROWS - 1, predict)
    return fitted(eff, sd, n_bytes, "B", scatter=scatter, error=error, note=note)


def _by(rows: Iterable[RawRow], key: Callable[[RawRow], str]) -> dict[str, list[RawRow]]:
    """The rows by a key, of keys with enough rows for a fit."""
    found: dict[str, list[RawRow]] = defaultdict(list)
    for r in rows:
        found[key(r)].append(r)
    return {k: mine for k, mine in found.items() if len(mine) >= ENOUGH_ROWS}


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
    compute: dict[str, Fitted] = {}
    memory: dict[str, Fitted] = {}
    for table in READERS:
        fits: dict[float, RooflineFit] = {}
        for dtype, mine in _by(own_rows(rows, table), lambda r: r.cells["dtype"]).items():
            peak = cast("PeakName", dtype)
            if gpu.peak(peak) is not None:
                compute[own_class(table, peak)], bound, fit = _compute_class(mine, gpu, peak)
                fits[bound] = fit
        if fits:  # the dtype that memory limits most tells its share best
            memory[table] = _memory_of_compute(fits[max(fits)])
    host = own_rows(rows, "host")
    launches = _launch(host, gpu, on_host)
    start = launches.get("kernel_start")
    start_s = start.value if on_host and start is not None else None
    bandwidth = gpu.memory_bw.value
    streams = _by(own_rows(rows, "memory_bound"), lambda r: OPS[r.cells["op"]].kind)
    for kind, mine in streams.items():
        memory[kind] = _memory_class(mine, bandwidth, start_s)
    default = "for-loop" if on_host else "foreach"
    updates = [r for r in host if r.cells["op"] == f"adamw-{default}"]
    if len(updates) >= ENOUGH_ROWS:
        kernels = start_s * ADAMW_KERNELS if start_s is not None else None
        memory["update"] = _memory_class(updates, bandwidth, kernels, f"AdamW, {default}")
    return of_the_node(rows, node, link_bytes_per_s, gpu.name).model_copy(
        update={"compute_efficiency": compute, "memory_efficiency": memory, **launches}
    )  # fmt: skip


def of_the_node(
    rows: Sequence[RawRow], node: str, link_bytes_per_s: float, gpu: str
) -> MeasuredDevice:
    """What the rows say of a device among others of its node: contention, link and overlap."""
    return MeasuredDevice(
        gpu=gpu,
        contention=_contention(rows),
        link=_link(rows, node, link_bytes_per_s),
        overlap=_overlap(rows),
    )


def _launch(host: Sequence[RawRow], gpu: GpuSpec, on_host: bool) -> dict[str, FittedTime]:
    """Start of a kernel on the device, issue and launch of the host, as far as measured."""
    times = {
        r.cells["op"]: FittedTime(
            value=r.seconds / r.number("count"), sd_log=max(LEAST_SD, r.sd_log), rows=1,
            note=f"{r.cells['count']} kernels, {r.cells['op']}",
        )
        for r in host if r.cells["op"] in ("eager", "graph")
    }  # fmt: skip
    start = times.get("eager" if on_host else "graph")
    found = {} if start is None else {"kernel_start": start}
    if not on_host:
        return found | host_times(host, gpu)
    zero = FittedTime(value=0.0, sd_log=0.0, note="the host is the device: in kernel_start")
    return found | (dict.fromkeys(("host_issue", "host_launch"), zero) if found else {})


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


def _all_reduces(rows: Iterable[RawRow]) -> list[RawRow]:
    return [r for r in own_rows(rows, "collectives", "lockstep")
            if r.cells["collective"] == "all_reduce"]  # fmt: skip


def best_bus_bytes_per_s(rows: Sequence[RawRow]) -> float:
    """Bus bandwidth in bytes/s of the fastest all-reduce; 0 if none was measured."""
    return max(
        (
            bus_factor("all_reduce", int(r.number("gpus"))) * r.number("size_bytes") / r.seconds
            for r in _all_reduces(rows)
        ),
        default=0.0,
    )


def all_reduce_times(rows: Iterable[RawRow]) -> tuple[int, Array, Array]:
    """Ranks, message sizes in bytes and seconds of the all-reduces, arrays [rows]."""
    mine = _all_reduces(rows)
    ranks = int(mine[0].number("gpus")) if mine else 0
    sizes = np.array([r.number("size_bytes") for r in mine])
    return ranks, sizes, np.array([r.seconds for r in mine])


def _link(rows: Sequence[RawRow], node: str, link_bytes_per_s: float) -> MeasuredLink | None:
    ranks, sizes, seconds = all_reduce_times(rows)
    if len(sizes) < ENOUGH_ROWS:
        return None

    def fit(n_bytes: Array, took_s: Array) -> LinkFit:
        return fit_link(n_bytes, took_s, ranks, COLLECTIVE_BASE_S)

    error = left_out_link_mape(sizes, seconds, fit, 2 * ENOUGH_ROWS - 1)
    return measured_link(
        fit(sizes, seconds), sizes, error, node=node, link_bytes_per_s=link_bytes_per_s,
        note="all-reduce",
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
