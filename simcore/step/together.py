"""Several programs joined into one set of arrays, so that all are priced at once.

The programs are those of parts of one model, such as the stages of a pipeline. Parts differ in
their tasks and sizes, not in how they are priced, so a sum over the tasks, kernels or messages of
each part is one matrix over those of all parts. Layers repeat, so few tasks differ in duration:
each distinct duration is a row that is priced once.

# N parts; of all parts together: T tasks, D distinct durations (R of them compute), P phases,
# M messages
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import lru_cache

import numpy as np

from simcore.base.arrays import NDArray
from simcore.base.record import Same, dataclass
from simcore.physics.collectives import Collective, priced_as
from simcore.step.graph import StepGraph
from simcore.step.program import Program, Scope

Array = NDArray[np.float64]
Index = NDArray[np.intp]
#: Lines of the time breakdown, and how often each has each duration in a part [lines, N, D].
TermCounts = tuple[tuple[str, ...], Array]


@dataclass(frozen=True)
class Computing:
    """The distinct compute tasks of all parts, and the distinct host tasks that issue them.

    ``weights`` [R, P]: how much of each phase a compute task runs; ``at`` [R]: its row of the
    durations. ``rows``: for each rank class, its rows of ``weights``. ``whole``, ``beside``: for
    each rank class, how much of each phase a part runs [N, P], in all its tasks and in those that
    overlap with collectives. ``host_at``, ``host_weights`` [host rows, P], ``host_sums`` [N, P]:
    the same for the host. ``alone``, ``slowed``: rows of ``weights`` that run without and with
    collectives beside them; ``slowed_part``: the part of each of the latter.
    """

    weights: Array
    at: Index
    rows: tuple[Index, ...]
    whole: tuple[Array, ...]
    beside: tuple[Array, ...]
    host_at: Index
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
    ``after_at``: rows of the durations of communication tasks that start when no overlapped compute
    remains (backward has ended); ``sent_at``: of those that run beside compute. ``after_counts``,
    ``sent_task_counts`` [rows, M]: how often each sends each message. ``sent_counts``,
    ``micro_counts``, ``all_counts`` [N, M]: how often a part sends each message beside compute, in
    every micro-step, and in a whole step. ``hides`` [N, 1]: whether a part's collectives of every
    micro-step run beside compute.
    """

    messages: tuple[tuple[Collective, Scope, Array, Index], ...]
    message_part: Index
    after_at: Index
    after_counts: Array
    sent_at: Index
    sent_task_counts: Array
    sent_counts: Array
    micro_counts: Array
    all_counts: Array
    hides: NDArray[np.bool_]


@dataclass(frozen=True)
class Together:
    """Several programs and their joined arrays.

    ``n_rows``: D; ``rows``: for each program, the row of each of its tasks. ``graphs``: each
    distinct graph with the parts that have it [n] and the row of each of their tasks [tasks, n].
    ``term_counts``: the lines of the time breakdown without the host's: of each rank class, and
    last of the streams that all classes share. ``misc``: tuples (named quantity, rank class, rows
    of that duration, the part of each row).
    """

    programs: tuple[Program, ...]
    n_rows: int
    rows: tuple[tuple[int, ...], ...]
    graphs: tuple[tuple[StepGraph, Index, Index], ...]
    term_counts: tuple[TermCounts, ...]
    computing: Computing
    sending: Sending
    misc: tuple[tuple[str, int, Index, Index], ...]


def together(programs: Sequence[Program]) -> Together:
    """The joined arrays of the programs of parts of one model under one strategy (cached)."""
    return _together(tuple(Same(p) for p in programs))


class _Rows:
    """Rows of distinct durations, numbered in the order in which tasks are added.

    ``of_task`` [T]: the row of each task, in all parts.
    """

    def __init__(self, n_tasks: int) -> None:
        self.of_task: Index = np.zeros(n_tasks, dtype=np.intp)
        self.count = 0

    def add(self, tasks: Index, keys: Sequence[Hashable]) -> tuple[Index, Index]:
        """Number tasks, those of equal key alike: (place of the first of each row, the rows)."""
        known: dict[Hashable, int] = {}
        firsts: list[int] = []
        for place, key in enumerate(keys):
            if key not in known:
                known[key] = self.count + len(known)
                firsts.append(place)
        self.of_task[tasks] = [known[key] for key in keys]
        rows = np.arange(self.count, self.count + len(known))
        self.count += len(known)
        return np.array(firsts, dtype=np.intp), rows


@lru_cache(maxsize=1000)
def _together(parts: tuple[Same[Program], ...]) -> Together:
    programs = tuple(p.it for p in parts)
    ends = np.cumsum([len(p.graph.tasks) for p in programs])
    begins = [0, *ends[:-1].tolist()]
    rows = _Rows(int(ends[-1]))
    computing, sending = _computing(programs, begins, rows), _sending(programs, begins, rows)
    # (named quantity, rank class) -> (task, part)
    misc: dict[tuple[str, int], list[tuple[int, int]]] = {}
    for n, (program, begin) in enumerate(zip(programs, begins, strict=True)):
        for task, quantity, rank_class in program.misc:
            misc.setdefault((quantity, rank_class), []).append((begin + task, n))
    quantities = []
    for (quantity, rank_class), tasks in misc.items():
        at, part = np.array(tasks, dtype=np.intp).T
        first, numbers = rows.add(at, part.tolist())
        quantities.append((quantity, rank_class, numbers, part[first]))
    of_program = np.split(rows.of_task, ends[:-1])
    return Together(
        programs=programs,
        n_rows=rows.count,
        rows=tuple(tuple(of.tolist()) for of in of_program),
        graphs=_graphs(programs, of_program),
        term_counts=_term_counts(programs, of_program, rows.count),
        computing=computing,
        sending=sending,
        misc=tuple(quantities),
    )


def _graphs(
    programs: Sequence[Program], rows: Sequence[Index]
) -> tuple[tuple[StepGraph, Index, Index], ...]:
    """``Together.graphs``; ``rows``: for each program, the row of each of its tasks."""
    parts: dict[Same[StepGraph], list[int]] = {}
    for n, program in enumerate(programs):
        parts.setdefault(Same(program.graph), []).append(n)
    return tuple(
        (graph.it, np.array(of), np.stack([rows[n] for n in of], axis=1))
        for graph, of in parts.items()
    )


def _term_counts(
    programs: Sequence[Program], rows: Sequence[Index], n_rows: int
) -> tuple[TermCounts, ...]:
    """``Together.term_counts``; ``rows``: for each program, the row of each of its tasks."""
    n_classes, shape = programs[0].n_classes, (len(programs), n_rows)
    lines: list[dict[str, Array]] = [{} for _ in range(n_classes + 1)]
    for n, (program, of) in enumerate(zip(programs, rows, strict=True)):
        for task, row in zip(program.graph.tasks, of.tolist(), strict=True):
            if task.term != "host":
                _, _, rank_class = task.stream.partition("compute ")
                of_class = lines[int(rank_class) if rank_class else n_classes]
                if task.term not in of_class:
                    of_class[task.term] = np.zeros(shape)
                of_class[task.term][n, row] += 1.0
    return tuple(
        (tuple(each), np.array(list(each.values())).reshape(len(each), *shape)) for each in lines
    )


def _computing(programs: Sequence[Program], begins: Sequence[int], rows: _Rows) -> Computing:
    weights = _diagonal([p.weights for p in programs])
    host_weights = _diagonal([p.host_weights for p in programs])
    part, host_part = (
        _part_of([len(tasks) for tasks in each])
        for each in ([p.compute_tasks for p in programs], [p.host_tasks for p in programs])
    )
    rank_class = np.concatenate([p.compute_class for p in programs])
    beside = np.concatenate([p.overlapped[p.compute_tasks] for p in programs])
    classes = [rank_class == c for c in range(programs[0].n_classes)]
    belongs = part == np.arange(len(programs))[:, None]  # [N, compute tasks]
    tasks = _shifted([p.compute_tasks for p in programs], begins)
    kinds = zip(rank_class.tolist(), beside.tolist(), _texts(weights), strict=True)
    first, at = rows.add(tasks, list(kinds))
    host_tasks = _shifted([p.host_tasks for p in programs], begins)
    host_first, host_at = rows.add(host_tasks, _texts(host_weights))
    alone = ~beside[first]
    return Computing(
        weights=weights[first],
        at=at,
        rows=tuple(np.flatnonzero(of_class[first]) for of_class in classes),
        whole=tuple(belongs[:, of_class] @ weights[of_class] for of_class in classes),
        beside=tuple((belongs & beside)[:, of_class] @ weights[of_class] for of_class in classes),
        host_at=host_at,
        host_weights=host_weights[host_first],
        host_sums=(host_part == np.arange(len(programs))[:, None]) @ host_weights,
        alone=np.flatnonzero(alone),
        slowed=np.flatnonzero(~alone),
        slowed_part=part[first][~alone],
    )


#: Decimals to which weights are equal: shares of a layer differ by rounding errors.
_DECIMALS = 12


def _texts(matrix: Array) -> list[bytes]:
    """A key for each row of a matrix, equal for rows that are equal but for rounding errors."""
    return [row.tobytes() for row in np.round(matrix, _DECIMALS)]


def _sending(programs: Sequence[Program], begins: Sequence[int], rows: _Rows) -> Sending:
    part = _part_of([len(p.comm) for p in programs])
    costs = [cost for p in programs for cost in p.comm]
    numbers: dict[tuple[int, Collective, Scope, float], int] = {}
    sent_each: list[tuple[int, int, float]] = []  # (collective, message, how often it is sent)
    for i, (n, cost) in enumerate(zip(part.tolist(), costs, strict=True)):
        op = cost.op if programs[n].by_function else priced_as(cost.op)
        for size, count in zip(cost.sizes_bytes, cost.counts, strict=True):
            number = numbers.setdefault((n, op, cost.scope, size), len(numbers))
            sent_each.append((i, number, count))
    counts = np.zeros((len(costs), len(numbers)))
    for i, number, count in sent_each:
        counts[i, number] += count
    messages: dict[tuple[Collective, Scope], list[tuple[float, int]]] = {}
    for (_, op, scope, size), number in numbers.items():
        messages.setdefault((op, scope), []).append((size, number))
    tasks = _shifted([np.array([c.task for c in p.comm], dtype=np.intp) for p in programs], begins)
    sent = np.concatenate([p.comm_beside for p in programs])
    after_first, after_at = rows.add(tasks[~sent], _texts(counts[~sent]))
    sent_first, sent_at = rows.add(tasks[sent], _texts(counts[sent]))
    micro = np.array([cost.every_micro_step for cost in costs], dtype=bool)
    sums = 1.0 * (part == np.arange(len(programs))[:, None])
    overlaps = np.array([p.overlapped[p.compute_tasks].any() for p in programs], dtype=bool)
    return Sending(
        messages=tuple(
            (*key, np.array([[size] for size, _ in of]), np.array([number for _, number in of]))
            for key, of in messages.items()
        ),
        message_part=np.array([n for n, *_ in numbers], dtype=np.intp),
        after_at=after_at,
        after_counts=counts[~sent][after_first],
        sent_at=sent_at,
        sent_task_counts=counts[sent][sent_first],
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
