"""Programs of the parts of a model beside each other, so that all are priced at once.

Stages of a pipeline differ in their tasks and sizes, not in how they are priced: what sums over the
tasks, kernels or messages of each is a matrix over those of all.

# N parts, T tasks, R compute tasks, P phases, M messages, each of all parts together
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from simcore.base.arrays import NDArray
from simcore.base.same import Same
from simcore.physics.collectives import Collective
from simcore.step.program import Program, Scope

Array = NDArray[np.float64]
Index = NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class Computing:
    """Compute and what issues it. ``weights`` [R, P], ``host_weights`` of the host's tasks.

    Of each rank class ``rows`` of the weights, and what its parts run of each phase [N, P]: all,
    and what runs beside collectives. ``host_sums`` [N, P] the same of the host. ``alone`` and
    ``slowed``: rows that run without collectives beside them, and with.
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


@dataclass(frozen=True, slots=True)
class Sending:
    """Collectives: distinct messages as ``CommTable`` has them, and who sends them how often.

    ``after``: tasks that run when backward has ended, ``sent`` those beside compute, and how often
    each sends each message [tasks, M]. Sums of parts [N, M]: of ``sent``, of what is sent in every
    micro-step, of a whole step. ``hides`` [N, 1]: whether what is sent in every micro-step runs
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


@dataclass(frozen=True, slots=True)
class Together:
    """Some programs; ``ends`` [N]: the number of tasks up to the end of each.

    ``misc``: (named quantity, rank class, its tasks, the part of each).
    """

    programs: tuple[Program, ...]
    ends: tuple[int, ...]
    computing: Computing
    sending: Sending
    misc: tuple[tuple[str, int, Index, Index], ...]


def together(programs: Sequence[Program]) -> Together:
    """The programs of parts of one model under one strategy, cached."""
    return _together(tuple(Same(p) for p in programs))


@lru_cache(maxsize=256)
def _together(parts: tuple[Same[Program], ...]) -> Together:
    programs = tuple(p.it for p in parts)
    ends = np.cumsum([len(p.graph.tasks) for p in programs])
    begins = [0, *ends[:-1].tolist()]
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
    tables = [p.comm_table for p in programs]
    counts = _diagonal([t.counts for t in tables])
    tasks = _shifted([t.tasks for t in tables], begins)
    sent = np.concatenate([p.comm_beside for p in programs])
    micro = np.concatenate([t.every_micro_step for t in tables])
    part = _part_of([len(t.tasks) for t in tables])
    sums = 1.0 * (part == np.arange(len(programs))[:, None])
    sizes: dict[tuple[Collective, Scope], list[Array]] = {}
    rows: dict[tuple[Collective, Scope], list[Index]] = {}
    begin = 0
    for table in tables:
        for op, scope, n_bytes, at in table.messages:
            sizes.setdefault((op, scope), []).append(n_bytes)
            rows.setdefault((op, scope), []).append(at + begin)
        begin += table.counts.shape[1]
    hides = [
        bool(t.every_micro_step.any() and p.overlapped[p.compute_tasks].any())
        for p, t in zip(programs, tables, strict=True)
    ]
    return Sending(
        messages=tuple(
            (*key, np.concatenate(sizes[key]), np.concatenate(rows[key])) for key in sizes
        ),
        message_part=_part_of([t.counts.shape[1] for t in tables]),
        after_tasks=tasks[~sent],
        after_counts=counts[~sent],
        sent_tasks=tasks[sent],
        sent_task_counts=counts[sent],
        sent_counts=(sums * sent) @ counts,
        micro_counts=(sums * micro) @ counts,
        all_counts=sums @ counts,
        hides=np.array(hides)[:, None],
    )


def _diagonal(blocks: Sequence[Array]) -> Array:
    """Matrices along the diagonal of one, zeros elsewhere."""
    found = np.zeros(np.sum([b.shape for b in blocks], axis=0))
    row = column = 0
    for block in blocks:
        rows, columns = block.shape
        found[row : row + rows, column : column + columns] = block
        row, column = row + rows, column + columns
    return found


def _part_of(lengths: Sequence[int]) -> Index:
    """Which part each of so many entries a part is of."""
    return np.repeat(np.arange(len(lengths)), lengths)


def _shifted(numbers: Sequence[Index], begins: Sequence[int]) -> Index:
    return np.concatenate([n + begin for n, begin in zip(numbers, begins, strict=True)])
