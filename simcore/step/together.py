"""Several programs joined into one set of arrays, so that all are priced at once.

The programs are those of parts of one model, such as the stages of a pipeline. Parts differ in
their tasks and sizes, not in how they are priced, so a sum over the tasks, kernels or messages of
each part is one matrix over those of all parts.

# N parts; of all parts together: T tasks, R compute tasks, P phases, M messages
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from simcore.base.arrays import NDArray
from simcore.base.record import Same, dataclass
from simcore.physics.collectives import Collective, priced_as
from simcore.step.program import Program, Scope

Array = NDArray[np.float64]
Index = NDArray[np.intp]


@dataclass(frozen=True)
class Computing:
    """The compute tasks of all parts, and the host tasks that issue them.

    ``weights`` [R, P]: how much of each phase a compute task runs; ``tasks`` [R]: task numbers.
    ``rows``: for each rank class, its rows of ``weights``. ``whole``, ``beside``: for each rank
    class, how much of each phase a part runs [N, P], in all its tasks and in those that overlap
    with collectives. ``host_tasks``, ``host_weights`` [host tasks, P], ``host_sums`` [N, P]: the
    same for the host. ``alone``, ``slowed``: rows of ``weights`` that run without and with
    collectives beside them; ``slowed_part``: the part of each of the latter.
    """

    weights: Array
    tasks: Index
    rows: tuple[Index, ...]
    whole: tuple[Array, ...]
    beside: tuple[Array, ...]
    host_tasks: Index
    host_weights: Array
    host_sums: Array
    alone: Index
    slowed: Index
    slowed_part: Index


@dataclass(frozen=True)
class Sending:
    """The collectives of all parts: distinct messages, and how often each task sends each.

    ``messages``: tuples (collective whose price applies, scope, sizes in bytes [n, 1], message
    numbers [n]); ``message_part`` [M]: the part of each message.
    ``after_tasks``: communication tasks that start when no overlapped compute remains (backward has
    ended); ``sent_tasks``: those that run beside compute. ``after_counts``, ``sent_task_counts``
    [tasks, M]: how often each sends each message. ``sent_counts``, ``micro_counts``,
    ``all_counts`` [N, M]: how often a part sends each message beside compute, in every micro-step,
    and in a whole step. ``hides`` [N, 1]: whether a part's collectives of every micro-step run
    beside compute.
    """

    messages: tuple[tuple[Collective, Scope, Array, Index], ...]
    message_part: Index
    after_tasks: Index
    after_counts: Array
    sent_tasks: Index
    sent_task_counts: Array
    sent_counts: Array
    micro_counts: Array
    all_counts: Array
    hides: NDArray[np.bool_]


@dataclass(frozen=True)
class Together:
    """Several programs and their joined arrays.

    ``ends`` [N]: the number of tasks of a program and of all before it; ``misc``: tuples (named
    quantity, rank class, tasks of that duration, the part of each task).
    """

    programs: tuple[Program, ...]
    ends: tuple[int, ...]
    computing: Computing
    sending: Sending
    misc: tuple[tuple[str, int, Index, Index], ...]


def together(programs: Sequence[Program]) -> Together:
    """The joined arrays of the programs of parts of one model under one strategy (cached)."""
    return _together(tuple(Same(p) for p in programs))


@lru_cache(maxsize=256)
def _together(parts: tuple[Same[Program], ...]) -> Together:
    programs = tuple(p.it for p in parts)
    ends = np.cumsum([len(p.graph.tasks) for p in programs])
    begins = [0, *ends[:-1].tolist()]
    # (named quantity, rank class) -> (task, part)
    misc: dict[tuple[str, int], list[tuple[int, int]]] = {}
    for n, (program, begin) in enumerate(zip(programs, begins, strict=True)):
        for task, quantity, rank_class in program.misc:
            misc.setdefault((quantity, rank_class), []).append((begin + task, n))
    return Together(
        programs=programs,
        ends=tuple(ends.tolist()),
        computing=_computing(programs, begins),
        sending=_sending(programs, begins),
        misc=tuple((*key, *np.array(at, dtype=np.intp).T) for key, at in misc.items()),
    )


def _computing(programs: Sequence[Program], begins: Sequence[int]) -> Computing:
    weights = _diagonal([p.weights for p in programs])
    host_weights = _diagonal([p.host_weights for p in programs])
    part, host_part = (
        _part_of([len(tasks) for tasks in each])
        for each in ([p.compute_tasks for p in programs], [p.host_tasks for p in programs])
    )
    rank_class = np.concatenate([p.compute_class for p in programs])
    beside = np.concatenate([p.overlapped[p.compute_tasks] for p in programs])
    rows = tuple(np.flatnonzero(rank_class == c) for c in range(programs[0].n_classes))
    belongs = part == np.arange(len(programs))[:, None]  # [N, R]
    return Computing(
        weights=weights,
        tasks=_shifted([p.compute_tasks for p in programs], begins),
        rows=rows,
        whole=tuple(belongs[:, r] @ weights[r] for r in rows),
        beside=tuple((belongs & beside)[:, r] @ weights[r] for r in rows),
        host_tasks=_shifted([p.host_tasks for p in programs], begins),
        host_weights=host_weights,
        host_sums=(host_part == np.arange(len(programs))[:, None]) @ host_weights,
        alone=np.flatnonzero(~beside),
        slowed=np.flatnonzero(beside),
        slowed_part=part[beside],
    )


def _sending(programs: Sequence[Program], begins: Sequence[int]) -> Sending:
    part = _part_of([len(p.comm) for p in programs])
    costs = [cost for p in programs for cost in p.comm]
    rows: dict[tuple[int, Collective, Scope, float], int] = {}
    sent_rows: list[tuple[int, int, float]] = []  # (collective, row, how often it is sent)
    for i, (n, cost) in enumerate(zip(part.tolist(), costs, strict=True)):
        op = cost.op if programs[n].by_function else priced_as(cost.op)
        for size, count in zip(cost.sizes_bytes, cost.counts, strict=True):
            row = rows.setdefault((n, op, cost.scope, size), len(rows))
            sent_rows.append((i, row, count))
    counts = np.zeros((len(costs), len(rows)))
    for i, row, count in sent_rows:
        counts[i, row] += count
    messages: dict[tuple[Collective, Scope], list[tuple[float, int]]] = {}
    for (_, op, scope, size), row in rows.items():
        messages.setdefault((op, scope), []).append((size, row))
    tasks = _shifted([np.array([c.task for c in p.comm], dtype=np.intp) for p in programs], begins)
    sent = np.concatenate([p.comm_beside for p in programs])
    micro = np.array([cost.every_micro_step for cost in costs], dtype=bool)
    sums = 1.0 * (part == np.arange(len(programs))[:, None])
    overlaps = np.array([p.overlapped[p.compute_tasks].any() for p in programs], dtype=bool)
    return Sending(
        messages=tuple(
            (*key, np.array([[size] for size, _ in of]), np.array([row for _, row in of]))
            for key, of in messages.items()
        ),
        message_part=np.array([n for n, *_ in rows], dtype=np.intp),
        after_tasks=tasks[~sent],
        after_counts=counts[~sent],
        sent_tasks=tasks[sent],
        sent_task_counts=counts[sent],
        sent_counts=(sums * sent) @ counts,
        micro_counts=(sums * micro) @ counts,
        all_counts=sums @ counts,
        hides=(((sums * micro).any(axis=1)) & overlaps)[:, None],
    )


def _diagonal(blocks: Sequence[Array]) -> Array:
    """The block-diagonal matrix of ``blocks``, with zeros elsewhere."""
    matrix = np.zeros(np.sum([b.shape for b in blocks], axis=0))
    row = column = 0
    for block in blocks:
        rows, columns = block.shape
        matrix[row : row + rows, column : column + columns] = block
        row, column = row + rows, column + columns
    return matrix


def _part_of(lengths: Sequence[int]) -> Index:
    """The part number of each entry of a joined array; ``lengths``: entries of each part."""
    return np.repeat(np.arange(len(lengths)), lengths)


def _shifted(numbers: Sequence[Index], begins: Sequence[int]) -> Index:
    """Task numbers of all parts in the joined array, in which part n begins at ``begins[n]``."""
    return np.concatenate([n + begin for n, begin in zip(numbers, begins, strict=True)])
