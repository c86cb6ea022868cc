"""The distinct durations of the tasks of step graphs along the configuration axis.

# C configs, D distinct durations, N parts of a model (stages of a pipeline) priced at once.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from simcore.base.arrays import TINY, NDArray
from simcore.base.record import dataclass, replace
from simcore.step.kernels import KernelTable
from simcore.step.together import Together
from simcore.strategy.strategy import Strategy
from simcore.timing.collectives import messages_s, through_lists_s
from simcore.timing.compute import ComputeTimes, host_s, issue_s, issuing_devices, launch_s
from simcore.timing.points import Points
from simcore.timing.quantities import Quantities
from simcore.timing.rates import ClassRates
from simcore.workload.graph import Workload

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Priced:
    """Durations of the tasks of all parts [D, C]; ``Together.rows`` has the row of each task.

    ``comm_total_s`` [N, C]: seconds of all collectives; ``comm_beside_s`` [N, C]: of those that run
    during backward. ``host_micro_s`` [N, C]: host seconds to issue one micro-step.
    """

    duration_s: Array
    comm_total_s: Array
    comm_beside_s: Array
    host_micro_s: Array


def price(
    joined: Together,
    workloads: Sequence[Workload],
    strategy: Strategy,
    table: KernelTable,
    classes: tuple[ClassRates, ...],
    points: Points,
    computed: ComputeTimes,
    loader: Array,
    shares: tuple[float, ...] = (),
) -> Priced:
    """Durations of the tasks of several step graphs, one for each of ``workloads``.

    ``workloads``: parts of one model. ``loader``: load time that blocks a step [C]. ``shares``: as
    in ``evaluate.Job``.
    """
    duration = np.empty((joined.n_rows, len(points)))
    tasks, sending = joined.computing, joined.sending
    issue, launch = issue_s(strategy, classes, points), launch_s(classes, points)
    threads = issuing_devices(strategy, points)
    issued = issue * threads, launch * threads, points.n_ranks > 1
    duration[tasks.host_at] = host_s(tasks.host_weights, table, *issued)
    host_micro_s = host_s(tasks.host_sums, table, *issued)

    # Compute and collectives that run at the same time slow each other. Sums are over messages and
    # distinct columns, of which there are few, not over tasks.
    column = computed.column
    wire_s = message_s = messages_s(sending, points, strategy)
    if lists := strategy.program.zero3.tensor_lists:
        torch_s = issue_s(replace(strategy, issuer="torch"), classes, points)
        message_s = through_lists_s(lists, sending, wire_s, points, strategy, torch_s, classes)
    # A message that is sent after backward has ended (DDP's last bucket) slows nothing.
    sent = sending.sent_counts @ message_s
    window = computed.overlapped_s.max(axis=0)[:, column]
    shared = np.minimum(sent, window)
    slowdown = max(c.overlap_slowdown_frac for c in classes) / points.overlap
    slower = 1.0 + slowdown * shared / np.maximum(window, TINY)
    duration[sending.after_at] = sending.after_counts @ message_s
    if len(sending.sent_at):
        slowing = max(c.comm_slowdown_frac for c in classes) / points.overlap
        longer = 1.0 + slowing * shared / np.maximum(sent, TINY)
        longer_s = message_s * _spread(longer, sending.message_part)
        duration[sending.sent_at] = sending.sent_task_counts @ longer_s

    alone, slowed = (
        computed.task_s[rows].take(column, axis=1) for rows in (tasks.alone, tasks.slowed)
    )
    slowed *= _spread(slower, tasks.slowed_part)
    duration[tasks.at[tasks.alone]] = alone
    duration[tasks.at[tasks.slowed]] = slowed

    comm_micro = sending.micro_counts @ message_s
    alone_s, overlapped_s = (
        of_column[:, :, column] for of_column in (computed.micro_step_s, computed.overlapped_s)
    )
    micro_s = alone_s + comm_micro
    if sending.hides.any():
        beside_s = np.maximum(alone_s + (slower - 1.0) * overlapped_s, comm_micro)
        micro_s = np.where(sending.hides, beside_s, micro_s)

    largest = replace(points, micro_batch=points.micro_batch * max(shares, default=1.0))
    quantities = Quantities(
        workloads=tuple(workloads), strategy=strategy, points=largest, classes=classes,
        loader=loader, issue_s=issue, launch_s=launch, micro_s=micro_s, host_micro_s=host_micro_s,
    )  # fmt: skip
    for name, index, at, part in joined.misc:
        duration[at] = _spread(quantities.quantity(name, index), part)
    host_micro_s = host_micro_s + quantities.sums_host_s
    total = sending.all_counts @ wire_s + quantities.broadcasts_s
    return Priced(duration, total, sent, host_micro_s)


def _spread(of_part: Array, part: NDArray[np.intp]) -> Array:
    """Rows for each task: from a number, a row for all parts ([C], [1, C]) or one a part [N, C]."""
    return of_part if of_part.ndim < 2 or len(of_part) == 1 else of_part[part]
