"""Device seconds of a step's kernels along the configuration axis.

# C configs, K kernels, P phases, U distinct (batch, knob) columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, reduce

import numpy as np

from simcore.base.arrays import NDArray, distinct_columns
from simcore.base.record import dataclass, replace
from simcore.hardware.estimates import edge_keys
from simcore.physics.collectives import most_work
from simcore.physics.fill import TILES, array_fill, conv_fill, conv_geometry, matmul_fill, own_sides
from simcore.physics.kernel import (
    Traffic,
    blocks_s,
    column_sums_s,
    either_layout_s,
    in_cache_frac,
    roofline_s,
    traffic_s,
)
from simcore.step.kernels import KINDS, LINEAR_ATTENTION, WIDE, KernelTable, joined_table
from simcore.strategy.strategy import Strategy
from simcore.timing.points import Computing, Points
from simcore.timing.rates import ClassRates, KernelRates, clock_hz

Array = NDArray[np.float64]
_LINEAR_ATTENTION = [KINDS.index(kind) for kind in LINEAR_ATTENTION]


def phase_seconds(
    table: KernelTable, rates: KernelRates, micro_batch: Array, compute: Array, memory: Array
) -> Array:
    """Device seconds of each phase for each column [P, U]; arguments of ``kernel_seconds``."""
    seconds = kernel_seconds(table, rates, micro_batch, compute, memory)
    return np.add.reduceat(seconds, table.phase_start, axis=0)


def kernel_seconds(
    table: KernelTable, rates: KernelRates, micro_batch: Array, compute: Array, memory: Array
) -> Array:
    """Device seconds of all runs of each kernel in its phase, for each column [K, U].

    ``micro_batch`` [U]: samples. ``compute`` ([U] or [K, U]) and ``memory`` [U] multiply the
    compute rate and the memory bandwidth. Kernels that the device's profile timed by shape correct
    the formulas.
    """
    seconds = _formula_s(table, rates, micro_batch, compute, memory)
    if rates.timed is not None:
        from simcore.timing.timed import timed_factors

        seconds *= timed_factors(table, rates.timed, _timed_ratios(rates), micro_batch)
    return seconds


@lru_cache(maxsize=64)
def _timed_ratios(rates: KernelRates) -> Array:
    """Measured seconds of a device's timed kernels over those of the formulas [M].

    They were timed on one rank alone, so that the formulas have its rates.
    """
    assert rates.timed is not None
    batches, own = np.unique(rates.timed.batch, return_inverse=True)
    one = np.ones(len(batches))
    formula_s = _formula_s(rates.timed.table, rates.alone or rates, batches, one, one)
    return rates.timed.seconds / formula_s[np.arange(len(own)), own]


def _formula_s(
    table: KernelTable, rates: KernelRates, micro_batch: Array, compute: Array, memory: Array
) -> Array:
    """``kernel_seconds`` by ``physics.kernel`` alone."""
    of = _rates_of(table, rates)
    first, of_column = distinct_columns((micro_batch, memory))
    pairs = (tuple(column[first].tolist()) for column in (micro_batch, memory))
    compute_s, memory_s = (each[:, of_column] for each in _apart_s(table, rates, *pairs))
    compute_s *= 1.0 / compute
    batch = micro_batch
    rows, kernels = table.blockwise
    if rows.size:  # these compute no products: the waves of their blocks join the roofline instead
        blocks = _at(kernels["blocks"], batch)
        kinds = _of_linear_attention(rates) if table.linear_attention else rates.kinds
        of_kind = kinds[kernels["kind"]]
        block_s = (of_kind["clock_s"] * kernels["block_clocks"])[:, None] * batch / blocks
        slots = of_kind["block_slots"][:, None]
        compute_s[rows] = blocks_s(blocks, block_s, slots) * of.count[rows]
        if (scans := rows[np.isin(kernels["kind"], _LINEAR_ATTENTION)]).size:  # by SMs and clocks
            compute_s[scans] /= compute[scans] if np.ndim(compute) > 1 else compute
    rows, kernels = table.column_sums
    if rows.size and rates.limits.sm_bytes_per_s:
        many, columns, *_ = _at(kernels["sides"].transpose(1, 0, 2), batch)
        n_bytes = _at(kernels["n_bytes"], batch)
        sums_s = column_sums_s(many, columns, n_bytes, rates.sm_count, rates.limits.sm_bytes_per_s)
        compute_s[rows] = sums_s * of.count[rows]
    seconds = roofline_s(compute_s, memory_s, of.start_s)
    rows, kernels = table.turned
    if of.direct is not None and rates.turns_layouts:
        direct_s = _product_s(of.direct, rates, batch)
        direct_s = direct_s / (compute[rows] if np.ndim(compute) > 1 else compute)
        turned = kernels["turned_bytes"][:, None] * batch * of.count[rows]
        direct_s = roofline_s(direct_s, memory_s[rows], of.start_s[rows])
        s_per_byte = np.maximum(of.turned_s_per_byte / memory, of.least_turned_s_per_byte)
        seconds[rows] = either_layout_s(seconds[rows], turned, s_per_byte, direct_s)
    return seconds


@lru_cache(maxsize=256)
def _apart_s(
    table: KernelTable, rates: KernelRates, batches: tuple[float, ...], memory: tuple[float, ...]
) -> tuple[Array, Array]:
    """Seconds of each kernel's work and of its traffic, for pairs of batch and bandwidth [K, M].

    ``memory`` multiplies the bandwidth. Jobs that differ in ranks or accumulation share them.
    """
    of, pairs, multiplier = _rates_of(table, rates), np.array(batches), np.array(memory)
    batch, of_pair = np.unique(pairs, return_inverse=True)  # work and fill depend on it alone
    compute_s = np.zeros((len(of.count), len(batch)))
    if (rows := table.products.rows).size:
        compute_s[rows] = _product_s(of.products, rates, batch)
    if (rows := table.attention.rows).size:
        compute_s[rows] = _attention_s(of.attention, rates, batch)
    cached_bytes = _cached_bytes(table, of, rates, pairs)
    memory_s = _at(of.traffic_s, pairs) - cached_bytes / of.bytes_per_s * of.count
    memory_s *= 1.0 / multiplier
    rows, kernels = table.one_by_one
    if rows.size:  # rows or elements that take time one by one
        n_bytes = _at(kernels["n_bytes"], pairs)
        traffic = Traffic(
            n_bytes - cached_bytes[rows],
            rows=kernels["rows"][:, None] * pairs,
            row_bytes=kernels["row_bytes"][:, None],
            reread_bytes=kernels["reread_frac"][:, None] * n_bytes,
            indexed=kernels["indexed"][:, None] * pairs,
        )
        bandwidth = of.bytes_per_s[rows] * multiplier
        memory_s[rows] = traffic_s(traffic, bandwidth, rates.limits) * of.count[rows]
    return compute_s[:, of_pair], memory_s


@lru_cache(maxsize=64)
def _of_linear_attention(rates: KernelRates) -> NDArray[np.void]:
    """``rates.kinds`` with the rates at which SMs run kernels of linear attention."""
    from simcore.hardware.linear_attention import block_rate

    kinds, products = rates.kinds.copy(), float(rates.of(WIDE)["flop_per_s"])
    if rates.gpu is not None:
        for named in LINEAR_ATTENTION:
            found = block_rate(named, rates.gpu, clock_hz(rates.gpu), products)
            kinds[["block_slots", "clock_s"]][KINDS.index(named)] = found
    return kinds


def _at(amounts: Array, batch: Array) -> Array:
    """Amounts [..., K, 2], a fixed part and a part per sample, at each batch [..., K, B]."""
    return amounts[..., :1] + amounts[..., 1:] * batch


@dataclass(frozen=True, eq=False)
class _Computed:
    """Kernels that compute, and the rates at which they do; columns are [K, 1] unless noted.

    ``s_per_sample``: at full fill, of all runs in the phase. ``edge_samples``: samples whose work
    tiles across the edges of groups add on each device that the program sees. ``sides`` [4, K, 2]:
    m, n, k and groups, each a fixed part and a part per sample. ``tile``: rows and columns to which
    outputs are padded, None where none are. ``winograd``: indices [W] of the kernels that
    Winograd's algorithm may compute, with ``of_weight`` [W, 1], whether such a kernel is the
    gradient of the weight, and ``flop_per_byte`` [W, 1], its rate over the bandwidth.
    """

    s_per_sample: Array
    edge_samples: Array
    sides: Array
    wave_frac: Array
    half_depth: Array
    tile: tuple[Array, Array] | None
    winograd: NDArray[np.intp]
    of_weight: NDArray[np.bool_]
    flop_per_byte: Array


@dataclass(frozen=True, eq=False)
class _TableRates:
    """What the seconds of a table's kernels need of a device, independent of batch and column.

    Columns are [K, 1]. ``traffic_s`` [K, 2]: seconds of memory traffic of all runs in the phase, a
    fixed part and a part per sample. ``start_s``: of all runs. ``turned_s_per_byte`` and the
    least of it: of the kernels in ``table.turned``.
    """

    count: Array
    bytes_per_s: Array
    traffic_s: Array
    start_s: Array
    products: _Computed
    attention: _Computed
    direct: _Computed | None
    turned_s_per_byte: Array
    least_turned_s_per_byte: Array


@lru_cache(maxsize=256)
def _rates_of(table: KernelTable, rates: KernelRates) -> _TableRates:
    """The rates of a device at each kernel of a table."""
    turned, count = table.turned.kernels, table["count"][:, None].copy()
    bytes_per_s = rates.kinds["bytes_per_s"][table["kind"]][:, None]
    attention = _computed(table.attention.kernels, rates.kinds, rates.attention_bwd_frac)
    beyond = edge_keys(rates.gpu, *(table.attention.kernels[n] for n in ("edges", "backward")))
    return _TableRates(
        count=count,
        bytes_per_s=bytes_per_s,
        traffic_s=table["n_bytes"] / bytes_per_s * count,
        start_s=(table["launches"] * rates.start_s)[:, None] * count,
        products=_computed(table.products.kernels, rates.kinds),
        attention=replace(attention, half_depth=attention.half_depth + beyond[:, None]),
        direct=_computed(turned, rates.direct) if len(turned) else None,
        turned_s_per_byte=rates.kinds["turned_s_per_byte"][turned["kind"]][:, None],
        least_turned_s_per_byte=rates.kinds["least_turned_s_per_byte"][turned["kind"]][:, None],
    )


def _computed(
    kernels: NDArray[np.void], kinds: NDArray[np.void], backward_frac: float = 1.0
) -> _Computed:
    """Some kernels of a table at the rates of their kinds; ``backward_frac``: of backward's."""
    of_kind = kinds[kernels["kind"]]
    rate, winograd = of_kind["flop_per_s"], np.flatnonzero(of_kind["winograd"])
    down, across = of_kind["tile"].T[..., None]
    slowed = rate * np.where(kernels["backward"], backward_frac, 1.0)
    return _Computed(
        s_per_sample=(kernels["flop"] / slowed * kernels["count"])[:, None],
        edge_samples=_edge_samples(kernels["sides"]),
        sides=own_sides(kernels["sides"]).transpose(1, 0, 2).copy(),
        wave_frac=of_kind["wave_frac"][:, None].copy(),
        half_depth=of_kind["half_depth"][:, None].copy(),
        tile=(down, across) if (of_kind["tile"] > 1.0).any() else None,
        winograd=winograd,
        of_weight=kernels["sides"][winograd, 2, 1:] > 0.0,
        flop_per_byte=(rate / of_kind["bytes_per_s"])[winograd, None],
    )


def _array_side(rates: KernelRates) -> float:
    """Side of the systolic arrays that compute products; 0 for other matrix units."""
    return rates.gpu.array_side.value if rates.gpu and rates.gpu.array_side else 0.0


def _edge_samples(sides: Array) -> Array:
    """Samples [K, 1] whose rows are as many as the fixed rows of a group (sides m and k)."""
    fixed, per_sample = sides[:, [0, 2], :].transpose(2, 0, 1)
    grouped = sides[:, 3, :1] > 1.0
    at_edges = grouped & (fixed > 0.0) & (per_sample > 0.0)
    found: Array = np.where(at_edges, fixed / np.where(at_edges, per_sample, 1.0), 0.0)
    return found.sum(axis=1, keepdims=True)


def _product_s(of: _Computed, rates: KernelRates, batch: Array) -> Array:
    """Seconds that matrix products and convolutions compute [K, B]."""
    devices = rates.gpu.program_devices if rates.gpu else 1
    samples = batch + of.edge_samples * devices if of.edge_samples.any() else batch
    seconds: Array = of.s_per_sample * samples
    if rates.sm_count:
        m, n, k, groups = _at(of.sides, batch)
        if (at_edges := of.edge_samples > 0.0).any():  # what pads their tiles is in the samples
            rows = TILES[0][0]
            m = np.where(at_edges & (of.sides[0, :, 1:] > 0.0), np.ceil(m / rows) * rows, m)
        fill = matmul_fill(m, n, k, groups, rates.sm_count, of.wave_frac, of.half_depth, of.tile)
        if (fast := of.winograd).size:
            pixels, inner, outer = conv_geometry(m[fast], n[fast], k[fast], of.of_weight)
            shape = rates.sm_count, of.wave_frac[fast], of.half_depth[fast]
            fill[fast] = conv_fill(pixels / batch, batch, inner, outer, *shape, of.flop_per_byte)
        seconds /= fill
    elif side := _array_side(rates):
        m, n, k, _ = _at(of.sides, batch)
        seconds /= array_fill(side, k, np.maximum(m, n))
    return seconds


def _attention_s(of: _Computed, rates: KernelRates, batch: Array) -> Array:
    """Seconds that kernels of fused attention compute [K, B]."""
    seconds: Array = of.s_per_sample * batch
    if rates.sm_count:
        shape = (*_at(of.sides, batch), rates.sm_count)
        fill = rates.attention_fill
        seconds /= fill(*shape, of.wave_frac, of.half_depth, rates.half_width)
    elif side := _array_side(rates):
        seconds /= array_fill(side, _at(of.sides, batch)[1])
    return seconds


def _cached_bytes(table: KernelTable, of: _TableRates, rates: KernelRates, batch: Array) -> Array:
    """Bytes of memory traffic for which L2 saves each kernel the time [K, B].

    found in L2 · (1 - bandwidth of memory / bandwidth of L2)
    """
    cached = np.zeros((len(table.kernels), len(batch)))
    rows, kernels = table.fresh
    if rows.size and rates.limits.l2_bytes_per_s:
        fresh = kernels["fresh_bytes"][:, None] * batch
        read = fresh * np.maximum(kernels["launches"], 1.0)[:, None]
        saved = np.maximum(1.0 - of.bytes_per_s[rows] / rates.limits.l2_bytes_per_s, 0.0)
        cached[rows] = in_cache_frac(fresh, rates.limits.l2_bytes) * read * saved
    return cached


@dataclass(frozen=True)
class ComputeTimes:
    """Seconds of compute tasks; equal configurations share one of U columns.

    ``column`` [C]: the column of each configuration. ``task_s`` [tasks, U]. ``micro_step_s``
    [classes, parts, U]: one micro-step of each rank class on each part of the model (forward,
    backward and frozen networks, each once). ``overlapped_s``: the part of it during which
    collectives run at the same time.
    """

    task_s: Array
    micro_step_s: Array
    overlapped_s: Array
    column: NDArray[np.intp]

    def take(self, part: slice) -> ComputeTimes:
        """The same for a slice of the configuration axis."""
        return replace(self, column=self.column[part])


def compute_times(
    computing: Computing,
    strategy: Strategy,
    table: KernelTable,
    classes: tuple[ClassRates, ...],
    points: Points,
    shares: tuple[float, ...] = (),
    phases: Sequence[Array] | None = None,
    work_sd_frac: float = 0.0,
) -> ComputeTimes:
    """Seconds of the compute tasks of step graphs; ``shares`` as in ``evaluate.Job``.

    ``phases``: the result of ``class_phases`` for these kernels, where it has been computed.
    ``work_sd_frac``: standard deviation of the work of a sample over its mean; where samples differ
    in work, all ranks wait for the rank that drew most of it.
    """
    first, column, issued = _distinct(strategy, classes, points, work_sd_frac, table.waits)
    if phases is None:
        phases = class_phases(strategy, table, classes, points, shares, work_sd_frac)
    if issued is not None:
        batch = points.micro_batch[first] * max(shares, default=1.0)
        idle = table.awaited_per_phase[:, :1] + table.awaited_per_phase[:, 1:] * batch
        if strategy.launch_blocking:
            idle = idle + table.issues_per_phase[:, None]
        phases = [seconds + idle * issued[first] for seconds in phases]
        if strategy.launch_blocking:
            launched = (launch_s(classes, points) * issuing_devices(strategy, points))[first]
            phases = [s + table.calls_per_phase[:, None] * launched for s in phases]
    if len(phases) == 1:
        task_s = computing.weights @ phases[0]
    else:
        task_s = np.empty((len(computing.at), len(first)))
        for rows, seconds in zip(computing.rows, phases, strict=True):
            task_s[rows] = computing.weights[rows] @ seconds
    whole, beside = (
        np.array([sums @ seconds for sums, seconds in zip(of, phases, strict=True)])
        for of in (computing.whole, computing.beside)
    )
    return ComputeTimes(task_s, whole, beside, column)


def class_phases(
    strategy: Strategy,
    table: KernelTable,
    classes: tuple[ClassRates, ...],
    points: Points,
    shares: tuple[float, ...] = (),
    work_sd_frac: float = 0.0,
    paces: tuple[Sequence[Array], Sequence[int]] | None = None,
) -> list[Array]:
    """Device seconds of each phase on each rank class, for distinct columns: one [P, U] per class.

    ``paces``: additional multipliers on the compute rate of each part's kernels, arrays [parts, C],
    and the number of kernels of each part. With several arrays the columns of the first are
    followed by those of the next.
    """
    first, _, _ = _distinct(strategy, classes, points, work_sd_frac, table.waits)
    pace: Array | float = 1.0
    if paces is not None:
        of_kernels = [np.repeat(each[:, first], paces[1], axis=0) for each in paces[0]]
        first, pace = np.tile(first, len(of_kernels)), np.concatenate(of_kernels, axis=1)
    batch, memory = points.micro_batch[first], points.memory[first]
    of_class = shares or (1.0,) * len(classes)
    found = [
        phase_seconds(
            table, rates.kernels, batch * share, points.compute_of(index)[first] * pace, memory
        )
        for index, (rates, share) in enumerate(zip(classes, of_class, strict=True))
    ]
    if not work_sd_frac:
        return found
    most = _most(points, work_sd_frac)[first]
    return [seconds * most for seconds in found]


def phases_of_parts(
    strategy: Strategy,
    tables: Sequence[KernelTable],
    classes: tuple[ClassRates, ...],
    points: Points,
    shares: tuple[float, ...],
    work_sd_frac: float,
    paces: Sequence[Array],
) -> list[list[Array]]:
    """``class_phases`` of several kernel tables (parts of one model) together, for each of
    ``paces`` [parts, C]: multipliers on each part's compute rate.
    """
    kernels = [len(t.kernels) for t in tables]
    found = class_phases(
        strategy, joined_table(tuple(tables)), classes, points, shares, work_sd_frac,
        (paces, kernels),
    )  # fmt: skip
    return [list(each) for each in zip(*(np.split(f, len(paces), 1) for f in found), strict=True)]


def pass_seconds(
    computing: Computing, strategy: Strategy, classes: tuple[ClassRates, ...], points: Points,
    phases: Sequence[Array], work_sd_frac: float, waits: bool,
) -> Array:  # fmt: skip
    """Seconds of all kernels of each part on its slowest rank class [parts, C].

    ``phases``: device seconds of the phases; ``waits``: the field of that name of their table.
    """
    _, column, _ = _distinct(strategy, classes, points, work_sd_frac, waits)
    of_class = [sums @ seconds for sums, seconds in zip(computing.whole, phases, strict=True)]
    return reduce(np.maximum, of_class)[:, column]


def _most(points: Points, work_sd_frac: float) -> Array:
    return most_work(points.n_ranks, points.micro_batch * points.grad_accum, work_sd_frac)


def _distinct(
    strategy: Strategy, classes: tuple[ClassRates, ...], points: Points, work_sd_frac: float,
    waits: bool,
) -> tuple[NDArray[np.intp], NDArray[np.intp], Array | None]:  # fmt: skip
    """(first configuration of each column, column of each configuration, issue seconds or None).

    Columns are configurations that differ in what determines compute time. Issue seconds are given
    only where the device is idle while the host issues kernels.
    """
    issued: Array | None = None
    if strategy.launch_blocking or waits:  # the device is idle while the host issues kernels
        issued = issue_s(strategy, classes, points) * issuing_devices(strategy, points)
    if points.class_compute is None and issued is None and not work_sd_frac:
        return *points.distinct_rates, None
    own = 1 if points.class_compute is None else len(classes)
    rows = [points.micro_batch, points.memory, *(points.compute_of(c) for c in range(own))]
    if work_sd_frac:
        rows.append(_most(points, work_sd_frac))
    return *distinct_columns(rows if issued is None else [*rows, issued]), issued


def issue_s(strategy: Strategy, classes: tuple[ClassRates, ...], points: Points) -> Array:
    """Host seconds of one kernel issue [C], on the slowest host."""
    each = [c.issue_s(strategy.issuer) for c in classes]
    if points.class_host is None:
        return max(each) / points.host * points.use_host
    slowest: Array = np.max([s / points.host_of(i) for i, s in enumerate(each)], axis=0)
    return slowest * points.use_host


def issuing_devices(strategy: Strategy, points: Points) -> Array | float:
    """Devices for which one Python process issues kernels (the update runs on one of them)."""
    return points.n_ranks if strategy.parallelism == "dp" else 1.0


def launch_s(classes: tuple[ClassRates, ...], points: Points) -> Array:
    """Host seconds that CUDA takes to launch one kernel [C], on the slowest host."""
    each = [c.launch_s / points.host_of(i) for i, c in enumerate(classes)]
    slowest: Array = np.max(each, axis=0)
    return slowest * points.use_host


def host_s(
    weights: Array, table: KernelTable, issued: Array, launched: Array,
    shared_out: NDArray[np.bool_],
) -> Array:  # fmt: skip
    """Host seconds of phases that run ``weights`` [rows, P] times [rows, C].

    ``issued``, ``launched``: host seconds of one kernel issue and of one launch in CUDA;
    ``shared_out``: whether there is more than one rank.
    """
    units = weights @ table.unit_issues_per_phase
    seconds: Array = (weights @ table.issues_per_phase)[:, None] * issued
    seconds += (weights @ table.calls_per_phase)[:, None] * launched
    if units.any():  # a single rank gathers no parameters
        seconds = seconds + units[:, None] * (issued * shared_out)
    return seconds
