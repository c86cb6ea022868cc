"""Device seconds of a step's kernels along the configuration axis.

# C configs, K kernels, P phases, U distinct (batch, knob) columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import accumulate
from typing import Any

import numpy as np

from simcore.base.arrays import NDArray, distinct_columns
from simcore.physics.channels import waves
from simcore.physics.fill import attention_fill, matmul_fill
from simcore.physics.rows import missed_frac
from simcore.physics.slowest import most_work
from simcore.physics.winograd import conv_fill, conv_geometry
from simcore.step.kernels import KernelTable, joined_table
from simcore.step.together import Computing
from simcore.strategy.strategy import Strategy
from simcore.timing.points import Points
from simcore.timing.rates import ClassRates

Array = NDArray[np.float64]


def phase_seconds(
    table: KernelTable, rates: ClassRates, micro_batch: Array, compute: Array, memory: Array
) -> Array:
    """Device seconds of each phase for each column [P, U].

    ``micro_batch`` [U]: samples. ``compute`` ([U] or [K, U]) and ``memory`` [U] multiply the
    compute rate and the memory bandwidth. Each kernel takes sqrt(tc^2 + tm^2) plus its start.

    # B distinct batches: arrays are [K, B] unless a comment says otherwise
    """
    # Work, traffic and SM utilisation depend on the batch alone: computed once per distinct batch.
    batch, column = np.unique(micro_batch, return_inverse=True)
    n_bytes = table.bytes_fixed[:, None] + table.bytes_per_sample[:, None] * batch
    if (rows := table.rowwise).size and rates.rows_per_l2_byte:
        n_bytes[rows] *= 1.0 + _read_again(table, rates)[:, None]
    memory_s = n_bytes / rates.bytes_per_s[table.kind][:, None]
    compute_s = table.flop[:, None] * batch / rates.flop_per_s[table.kind][:, None]
    if rates.sm_count:

        def shape(rows: NDArray[np.intp]) -> dict[str, Any]:
            kind = table.kind[rows]
            return {
                "sm_count": rates.sm_count,
                "wave_frac": rates.wave_frac[kind][:, None],
                "half_depth": rates.half_depth[kind][:, None],
            }

        if table.matrix.size:
            m, n, k, groups = table.matrix_sides[..., :1] + table.matrix_sides[..., 1:] * batch
            tile = None
            if rates.tile is not None:
                down, across = rates.tile[:, table.kind[table.matrix], None]
                tile = (down, across)
            fill = matmul_fill(m, n, k, groups, **shape(table.matrix), tile=tile)
            fast = rates.winograd[table.kind[table.matrix]]
            if fast.any():
                rows = table.matrix[fast]
                per_byte = rates.flop_per_s / rates.bytes_per_s
                fill[fast] = _conv_fill(table, rows, batch, per_byte, shape(rows))
            compute_s[table.matrix] /= fill
        if table.attention.size:
            m, n, k, groups = (
                table.attention_sides[..., :1] + table.attention_sides[..., 1:] * batch
            )
            rows, width = table.attention, rates.half_width
            compute_s[rows] /= attention_fill(m, n, k, groups, half_width=width, **shape(rows))
    compute_s[table.attention_bwd] /= rates.attention_bwd_frac
    start = (table.launches * table.count * rates.kernel_start_s)[:, None]
    weighted = table.count[:, None]
    # count scales the square root: count^2 inside costs nothing extra.
    tc2 = np.square(compute_s * weighted)
    tm2 = np.square(memory_s * weighted)
    if len(batch) > 1:
        batch, tc2, tm2 = micro_batch, tc2[:, column], tm2[:, column]
    moved2 = tm2 / np.square(memory)
    if (rows := table.indexed).size and rates.indexed_s:  # a limit per element, at any bandwidth
        by_element = (table.indexed_per_sample * table.count)[rows] * rates.indexed_s
        moved2[rows] = np.maximum(moved2[rows], np.square(by_element[:, None] * batch))
    if (rows := table.rowwise).size and rates.row_s:
        by_row = (table.rows_per_sample * table.count)[rows] * rates.row_s
        moved2[rows] = np.maximum(moved2[rows], np.square(by_row[:, None] * batch))
    if (rows := table.channelwise).size and rates.channel_slots and rates.clock_s:
        blocks = table.channels[rows, :1] + table.channels[rows, 1:] * batch
        clocks = (table.channel_clocks * table.count)[rows, None] * batch / blocks
        by_block = clocks * waves(blocks, rates.channel_slots) * rates.clock_s
        moved2[rows] += np.square(by_block)
    seconds = np.sqrt(tc2 / np.square(compute) + moved2)
    if (rows := table.relaid).size and rates.relaid_s_per_byte.any():
        pace = compute[rows] if np.ndim(compute) > 1 else compute
        seconds[rows] = _either_way(table, rates, batch, seconds[rows], tm2[rows], pace, memory)
    seconds += start
    result: Array = np.add.reduceat(seconds, table.phase_start, axis=0)
    return result


def _read_again(table: KernelTable, rates: ClassRates) -> Array:
    """Bytes read from memory a second time over all bytes moved, for each of ``table.rowwise``.

    Such a kernel passes over its rows twice; what the L2 cannot hold is read from memory again.
    """
    rows = table.rowwise
    row_bytes = table.bytes_per_sample[rows] / table.rows_per_sample[rows]
    found: Array = table.again[rows] * missed_frac(row_bytes, rates.rows_per_l2_byte)
    return found


def _conv_fill(
    table: KernelTable,
    rows: NDArray[np.intp],
    batch: Array,
    flop_per_byte: Array,
    shape: dict[str, Any],
) -> Array:
    """Share of the SMs used by 3x3 convolutions that Winograd's algorithm may compute."""
    m, n, k = (a[rows, :1] + a[rows, 1:] * batch for a in (table.m, table.n, table.k))
    pixels, inner, outer = conv_geometry(m, n, k, table.k[rows, 1:] > 0.0)
    per_byte = flop_per_byte[table.kind[rows]][:, None]
    return conv_fill(pixels / batch, batch, inner, outer, flop_per_byte=per_byte, **shape)


def _either_way(
    table: KernelTable,
    rates: ClassRates,
    batch: Array,
    last: Array,
    memory2: Array,
    compute: Array,
    memory: Array,
) -> Array:
    """Seconds of the kernels in ``table.relaid``: the faster of two ways.

    Either on tensor cores in channels-last layout (``last``) plus the conversions of the layout, or
    on vector units with the tensors in the layout that they have.
    """
    rows = table.relaid
    kind, counted = table.kind[rows], table.count[rows][:, None]
    moved = table.relaid_per_sample[rows][:, None] * batch * counted
    turned = last + moved * rates.relaid_s_per_byte[kind][:, None] / memory
    fill: Array | float = 1.0
    if rates.sm_count:
        sides = np.stack([a[rows] for a in (table.m, table.n, table.k, table.groups)])
        m, n, k, groups = sides[..., :1] + sides[..., 1:] * batch
        wave, depth = (a[kind][:, None] for a in (rates.direct_wave_frac, rates.direct_half_depth))
        fill = matmul_fill(m, n, k, groups, rates.sm_count, wave, depth)
        if (fast := rates.direct_winograd[kind]).any():
            per_byte = rates.direct_flop_per_s / rates.bytes_per_s
            shape = {
                "sm_count": rates.sm_count, "wave_frac": wave[fast], "half_depth": depth[fast],
            }  # fmt: skip
            fill[fast] = _conv_fill(table, rows[fast], batch, per_byte, shape)
    direct = table.flop[rows][:, None] * batch * counted / rates.direct_flop_per_s[kind][:, None]
    found: Array = np.minimum(
        turned,
        np.sqrt(np.square(direct / fill) / np.square(compute) + memory2 / np.square(memory)),
    )
    return found


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
    if len(phases) == 1:
        task_s = computing.weights @ phases[0]
    else:
        task_s = np.empty((len(computing.tasks), len(first)))
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
    paces: Array | None = None,
) -> list[Array]:
    """Device seconds of each phase on each rank class, for distinct columns: one [P, U] per class.

    ``paces`` [K, C]: additional multipliers on each kernel's compute rate.
    """
    first, _, _ = _distinct(strategy, classes, points, work_sd_frac, table.waits)
    batch, memory = points.micro_batch[first], points.memory[first]
    of_class = shares or (1.0,) * len(classes)
    pace = 1.0 if paces is None else paces[:, first]
    found = [
        phase_seconds(table, rates, batch * share, points.compute_of(index)[first] * pace, memory)
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
    shares: tuple[float, ...] = (),
    work_sd_frac: float = 0.0,
    paces: Array | None = None,
) -> list[list[Array]]:
    """``class_phases`` of several kernel tables (parts of one model), computed in one call.

    ``paces`` [parts, C]: additional multipliers on each part's compute rate.
    """
    table = joined_table(tuple(tables))
    if paces is not None:
        paces = np.repeat(paces, [len(t.kind) for t in tables], axis=0)
    together = class_phases(strategy, table, classes, points, shares, work_sd_frac, paces)
    ends = [*accumulate(t.n_phases for t in tables)]
    return [
        [phases[end - table.n_phases : end] for phases in together]
        for table, end in zip(tables, ends, strict=True)
    ]


def pass_seconds(
    computing: Computing,
    strategy: Strategy,
    classes: tuple[ClassRates, ...],
    points: Points,
    phases: Sequence[Array],
    work_sd_frac: float = 0.0,
    waits: bool = False,
) -> Array:
    """Seconds of all kernels of each part on its slowest rank class [parts, C].

    ``phases``: device seconds of the phases; ``waits``: the field of that name of their table.
    """
    _, column, _ = _distinct(strategy, classes, points, work_sd_frac, waits)
    of_class = [sums @ seconds for sums, seconds in zip(computing.whole, phases, strict=True)]
    slowest: Array = reduce(np.maximum, of_class)[:, column]
    return slowest


def _most(points: Points, work_sd_frac: float) -> Array:
    return most_work(points.n_ranks, points.micro_batch * points.grad_accum, work_sd_frac)


def _distinct(
    strategy: Strategy,
    classes: tuple[ClassRates, ...],
    points: Points,
    work_sd_frac: float,
    waits: bool,
) -> tuple[NDArray[np.intp], NDArray[np.intp], Array | None]:
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
    """Host seconds to issue one kernel [C], on the slowest host."""
    each = [c.issue_s(strategy.issuer) for c in classes]
    if points.class_host is None:
        return max(each) / points.host * points.use_host
    slowest: Array = np.max([s / points.host_of(i) for i, s in enumerate(each)], axis=0)
    return slowest * points.use_host


def issuing_devices(strategy: Strategy, points: Points) -> Array | float:
    """Devices for which one Python process issues kernels (the update runs on one of them)."""
    return points.n_ranks if strategy.parallelism == "dp" else 1.0


def host_s(
    weights: Array, table: KernelTable, issued: Array, shared_out: NDArray[np.bool_]
) -> Array:
    """Host seconds of phases that run ``weights`` [rows, P] times [rows, C].

    ``issued``: host seconds to issue one kernel; ``shared_out``: whether there is more than one
    rank.
    """
    units = weights @ table.unit_issues_per_phase
    seconds: Array = (weights @ table.issues_per_phase)[:, None] * issued
    if units.any():  # a single rank gathers no parameters
        seconds = seconds + units[:, None] * (issued * shared_out)
    return seconds
