"""One optimizer step as a graph of tasks, each with the recipe of its duration.

The ranks of a rank class are equal and have the same tasks, so the graph has the tasks of one rank
per class. Its shape depends on workload, strategy and the number of rank classes only; batch sizes,
ranks and links are values on the configuration axis. A duration is one of

    compute  phase weights: W[t] @ seconds of each phase
    host     the same weights times kernel issues, at the host's issue rate
    comm     a collective over fixed message sizes
    misc     a named quantity that the pricing layer computes (optimizer, copies, loader…)
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence, Sized
from functools import cached_property, lru_cache, partial
from itertools import chain, pairwise
from math import ceil
from typing import Any, Literal, NamedTuple

import numpy as np

from simcore.base.arrays import Array, NDArray
from simcore.base.record import dataclass, replace
from simcore.physics.collectives import Collective, priced_as
from simcore.step.graph import StepGraph, Task
from simcore.workload.graph import Block, Frozen, Workload
from simcore.workload.saved import NOTHING

Index = NDArray[np.intp]
#: Phase weights of a task: pairs (phase, how much of it the task runs).
Row = tuple[tuple[int, float], ...]

#: The largest number of host tasks that issue one backward (or one forward that overlaps gathers).
HOST_STRETCHES = 16
#: The largest number of tasks that one forward consists of, where nothing else runs beside it.
FORWARD_PARTS = 8


#: Ranks of a collective: all data-parallel ranks, those that share one copy of sharded state, those
#: that hold the same shard, or those that hold the same experts.
Scope = Literal["all", "shard", "replicas", "experts"]


class Sends(NamedTuple):
    """What a communication task sends: ``counts[i]`` collectives of ``sizes_bytes[i]`` each.

    ``op``: the collective; ``scope``: its ranks; ``every_micro_step``: it runs in each micro-step,
    not only in the last before the update.
    """

    op: Collective
    sizes_bytes: tuple[float, ...]
    counts: tuple[float, ...]
    every_micro_step: bool = False
    scope: Scope = "all"


class CommCost(NamedTuple):
    """A communication task: its index in the graph, and the fields of ``Sends``."""

    task: int
    op: Collective
    sizes_bytes: tuple[float, ...]
    counts: tuple[float, ...]
    every_micro_step: bool = False
    scope: Scope = "all"


# A named tuple's own constructor takes three times as long.
_task, _sends = partial(tuple.__new__, Task), partial(tuple.__new__, Sends)


class Sent(NamedTuple):
    """The distinct messages of a program and how often they are sent.

    ``messages`` [M]: triples (collective whose price applies, scope, bytes). ``counts`` [S, M]: how
    often a task of each distinct duration sends each; ``beside`` [S]: whether it can start while
    overlapped compute remains. ``beside_counts``, ``micro_counts``, ``all_counts`` [M]: how often
    the program sends each beside compute, in every micro-step, and in a whole step.
    """

    messages: tuple[tuple[Collective, Scope, float], ...]
    counts: Array
    beside: NDArray[np.bool_]
    beside_counts: Array
    micro_counts: Array
    all_counts: Array


@dataclass(frozen=True)
class Program:
    """The graph of one step and the recipes of its tasks' durations, each distinct one once.

    ``rows`` [T]: the row of each task's duration. Rows are those of compute tasks, then the host's,
    then communication (``sent``), then named quantities. ``weights`` [compute rows, P]: how much of
    each phase a task runs; ``compute_class``: its rank class; ``overlapped``: whether it shares the
    device with collectives; ``compute_counts``: number of such tasks. ``host_weights``,
    ``host_counts``: the same for the host's tasks. ``sends``: pairs (what communication tasks send,
    the tasks). ``misc``:
    triples (named quantity, rank class, row). ``lines``: number of tasks of each row [lines, rows]
    in each line of the time breakdown, without the host's: of each rank class, and last of the
    streams that all classes share.
    """

    graph: StepGraph
    n_classes: int
    rows: Index
    compute_class: Index
    overlapped: NDArray[np.bool_]
    compute_counts: Array
    weights: Array
    host_counts: Array
    host_weights: Array
    sends: tuple[tuple[Sends, list[int]], ...]
    sent: Sent
    misc: tuple[tuple[str, int, int], ...]
    lines: tuple[dict[str, Index], ...]

    @property
    def n_rows(self) -> int:
        """Number of distinct durations."""
        return int(self.rows.max()) + 1

    @cached_property
    def comm(self) -> tuple[CommCost, ...]:
        """The communication tasks."""
        found = [CommCost(task, *what) for what, tasks in self.sends for task in tasks]
        return tuple(sorted(found, key=lambda cost: cost.task))

    @property
    def compute_tasks(self) -> list[int]:
        """Numbers of the compute tasks."""
        return np.flatnonzero(self.rows < len(self.weights)).tolist()

    def phases_run(self, rank_class: int) -> Array:
        """How much of each phase all compute tasks of a rank class run together [P]."""
        return (self.compute_counts * (self.compute_class == rank_class)) @ self.weights


@lru_cache(maxsize=1000)
def outline(workload: Workload) -> Workload:
    """The same blocks, parameters and buffers, without the ops and without saved activations.

    The outline determines the graph of a step. All models that agree in it share one object,
    whatever the length of a sample.
    """
    return _outline(
        tuple(replace(b, ops=(), boundary=NOTHING, recomputed=NOTHING) for b in workload.blocks),
        workload.order,
        tuple(replace(f, ops=()) for f in workload.frozen),
        workload.buffers_numel,
        workload.n_buffers,
        workload.sync_norms,
        workload.exchanges,
    )


@lru_cache(maxsize=256)
def _outline(
    blocks: tuple[Block, ...],
    order: tuple[int, ...],
    frozen: tuple[Frozen, ...],
    buffers_numel: int, n_buffers: int, sync_norms: int, exchanges: tuple[Any, ...],
) -> Workload:  # fmt: skip
    return Workload(
        name="outline", blocks=blocks, order=order, frozen=frozen, exchanges=exchanges,
        sample_unit="", buffers_numel=buffers_numel, n_buffers=n_buffers, sync_norms=sync_norms,
    )  # fmt: skip


class ProgramBuilder:
    """Builds a program: a parallel strategy (``step.parallel``) adds its tasks in issue order.

    ``n_classes``: the number of rank classes; ``recompute``: checkpointed blocks are to run a whole
    forward before their backward (``recomputing``), for which they may be gathered again.
    """

    def __init__(self, workload: Workload, n_classes: int, recompute: bool) -> None:
        self.workload, self.n_classes, self.recompute = workload, n_classes, recompute
        self.n_blocks = len(workload.blocks)
        self.n_phases = 2 * self.n_blocks + len(workload.frozen)
        self.tasks: list[Task] = []
        # the tasks of each distinct duration
        self._compute: dict[tuple[int, bool, Row], list[int]] = {}
        self._host: dict[Row, list[int]] = {}
        self._misc: dict[tuple[str, int], list[int]] = {}
        self._comm: dict[Sends, list[int]] = {}
        #: Tasks that copy activations to the host; backward waits for them, and so does the copy of
        #: activations to the device before the update.
        self.leaving: list[int] = []
        #: Tasks that exchange blocks of a frozen base with the host; the update waits for them.
        self.swapping: list[int] = []

    # -- phase weights of tasks ------------------------------------------------------------

    def forward_row(self, blocks: Iterable[int]) -> Row:
        """Phase weights of one forward of ``blocks``."""
        return summed([(b, 1.0) for b in blocks])

    def backward_row(self, shares: Iterable[tuple[int, float]]) -> Row:
        """Phase weights of backward alone; ``shares``: (block, fraction run)."""
        return summed([(self.n_blocks + b, share) for b, share in shares])

    def frozen_row(self) -> Row:
        """Phase weights of one forward of every frozen network."""
        return summed((phase, 1.0) for phase in range(2 * self.n_blocks, self.n_phases))

    # -- tasks -----------------------------------------------------------------------------

    def _add(
        self,
        name: str,
        stream: str,
        term: str,
        deps: Sequence[int] = (),
        bounds: Sequence[int] = (),
    ) -> int:
        tasks = self.tasks
        tasks.append(_task((name, stream, term, tuple(deps), tuple(bounds))))
        return len(tasks) - 1

    def _on_each_class(
        self, name: str, term: str, deps: Sequence[int], bounds: Sequence[int]
    ) -> list[int]:
        """Add a task to the compute stream of every rank class; returns one task per class."""
        if self.n_classes == 1:
            return [self._add(name, "compute", term, deps, bounds)]
        streams = (f"compute {c}" for c in range(self.n_classes))
        return [self._add(name, stream, term, deps, bounds) for stream in streams]

    def host(self, name: str, row: Row) -> int:
        """Add a host task that issues the kernels of phase weights ``row``; returns it."""
        task = self._add(f"issue {name}", "host", "host")
        self._host.setdefault(row, []).append(task)
        return task

    def compute(
        self,
        name: str,
        term: str,
        row: Row,
        deps: Sequence[int] = (),
        *,
        issued_by: int | None = None,
        overlapped: bool = False,
    ) -> list[int]:
        """Add a compute task for every rank class; returns one task per class.

        ``row``: phase weights; ``deps``: tasks that it starts after; ``issued_by``: the host
        task that it cannot finish before (None: a new one); ``overlapped``: it shares the device
        with collectives.
        """
        host = self.host(name, row) if issued_by is None else issued_by
        added = self._on_each_class(name, term, deps, (host,))
        for c, task in enumerate(added):
            self._compute.setdefault((c, overlapped, row), []).append(task)
        return added

    def comm(
        self,
        name: str,
        op: Collective,
        sizes_bytes: Sequence[float],
        deps: Sequence[int],
        *,
        counts: Sequence[float] | None = None,
        every_micro_step: bool = False,
        scope: Scope = "all",
    ) -> int:
        """Add collectives over the ranks of ``scope``; returns the task.

        ``sizes_bytes``: sizes of the messages; ``deps``: tasks of all rank classes that must have
        finished; ``counts``: messages of each size (None: one each); ``every_micro_step``: as in
        ``Sends``.
        """
        task = self._add(name, "comm", "communication", deps)
        times = (1.0,) * len(sizes_bytes) if counts is None else tuple(counts)
        what = _sends((op, tuple(sizes_bytes), times, every_micro_step, scope))
        self._comm.setdefault(what, []).append(task)
        return task

    def misc(
        self,
        name: str,
        stream: str,
        term: str,
        quantity: str,
        deps: Sequence[int] = (),
        *,
        bounds: Sequence[int] = (),
    ) -> list[int]:
        """Add a task whose duration is the ``quantity`` of that name in the pricing layer.

        Returns one task per rank class on the compute stream, and one task on other streams. It
        starts after ``deps`` and finishes no sooner than ``bounds``.
        """
        if stream == "compute":
            added = self._on_each_class(name, term, deps, bounds)
        else:
            added = [self._add(name, stream, term, deps, bounds)]
        for c, task in enumerate(added):
            self._misc.setdefault((quantity, c), []).append(task)
        return added

    def finish(self, *, by_function: bool = False) -> Program:
        """The program of all tasks added so far.

        ``by_function``: each collective is priced as itself, because the job restricts NCCL's
        choice for single ones; otherwise some share one price (``physics.collectives.priced_as``).
        """
        sent, sending = self._sent(by_function)
        tasks_of = [*self._compute.values(), *self._host.values(), *sending, *self._misc.values()]
        rows = np.empty(len(self.tasks), dtype=np.intp)
        rows[[*chain.from_iterable(tasks_of)]] = np.repeat(
            np.arange(len(tasks_of)), [len(tasks) for tasks in tasks_of]
        )
        first, graph = len(tasks_of) - len(self._misc), _graph(tuple(self.tasks))
        return Program(
            graph=graph,
            n_classes=self.n_classes,
            rows=rows,
            compute_class=np.array([c for c, _, _ in self._compute], dtype=np.intp),
            overlapped=np.array([beside for _, beside, _ in self._compute], dtype=bool),
            compute_counts=_lengths(self._compute.values()),
            weights=self._weights([row for _, _, row in self._compute]),
            host_counts=_lengths(self._host.values()),
            host_weights=self._weights(self._host),
            sends=tuple(self._comm.items()),
            sent=sent,
            misc=tuple((*key, first + i) for i, key in enumerate(self._misc)),
            lines=tuple(
                {term: np.bincount(rows[of], minlength=len(tasks_of)) for term, of in line.items()}
                for line in graph.lines(self.n_classes)
            ),
        )

    def _weights(self, rows: Collection[Row]) -> Array:
        """Phase weights as an array [rows, P]."""
        found = np.zeros((len(rows), self.n_phases))
        for i, row in enumerate(rows):
            for phase, weight in row:
                found[i, phase] = weight
        return found

    def _sent(self, by_function: bool) -> tuple[Sent, list[list[int]]]:
        """The messages of all collectives, and the tasks of each distinct duration."""
        last = max((tasks[-1] for (_, beside, _), tasks in self._compute.items() if beside),
                   default=-1)  # fmt: skip
        alike: dict[tuple[Any, ...], list[int]] = {}
        micro_steps: dict[tuple[Any, ...], int] = {}
        for what, tasks in self._comm.items():
            op = what.op if by_function else priced_as(what.op)
            # those that can start before the last compute that overlaps with collectives
            early = [t for t in tasks if max(self.tasks[t].deps, default=-1) < last]
            for beside, some in ((True, early), (False, sorted({*tasks} - {*early}))):
                if some:
                    key = beside, op, what.scope, what.sizes_bytes, what.counts
                    alike.setdefault(key, []).extend(some)
                    repeated = what.every_micro_step * len(some)
                    micro_steps[key] = micro_steps.get(key, 0) + repeated
        numbers: dict[tuple[Collective, Scope, float], int] = {}
        counts = np.zeros((len(alike), sum(len(sizes) for _, _, _, sizes, _ in alike)))
        for row, (_, op, scope, sizes, times) in enumerate(alike):
            for size, count in zip(sizes, times, strict=True):
                counts[row, numbers.setdefault((op, scope, size), len(numbers))] += count
        counts = counts[:, : len(numbers)]
        beside_compute = np.array([beside for beside, *_ in alike], dtype=bool)
        times_each = _lengths(alike.values())
        micro = np.array([*micro_steps.values()], dtype=np.float64)
        sent = Sent(
            tuple(numbers), counts, beside_compute,
            beside_counts=(times_each * beside_compute) @ counts,
            micro_counts=micro @ counts,
            all_counts=times_each @ counts,
        )  # fmt: skip
        return sent, [*alike.values()]


#: Decimals to which weights are equal: shares of a layer differ by rounding errors.
_DECIMALS = 12


def summed(pairs: Iterable[tuple[int, float]]) -> tuple[tuple[int, float], ...]:
    """Pairs (number, sum of the amounts given for it), in order of the numbers."""
    found: dict[int, float] = {}
    for number, amount in pairs:
        found[number] = found.get(number, 0.0) + amount
    return tuple([(number, round(amount, _DECIMALS)) for number, amount in sorted(found.items())])


def _lengths(lists: Iterable[Sized]) -> Array:
    return np.array([len(each) for each in lists], dtype=np.float64)


@lru_cache(maxsize=1000)
def _graph(tasks: tuple[Task, ...]) -> StepGraph:
    """The graph of these tasks: programs that differ in sizes alone share it."""
    return StepGraph(tasks)


def recomputing(program: Program, workload: Workload) -> Program:
    """The program with a whole forward of each checkpointed block before its backward.

    Its tasks are the same; those of backward run more.
    """
    n = len(workload.blocks)
    checkpointed = np.array([float(b.recomputable) for b in workload.blocks])

    def more(weights: Array) -> Array:
        found = weights.copy()
        found[:, :n] += checkpointed * weights[:, n : 2 * n]
        return found

    return replace(program, weights=more(program.weights), host_weights=more(program.host_weights))


class Bucket(NamedTuple):
    """Gradients that are reduced together, and where in backward the last of them is ready.

    ``n_bytes``: their bytes, of which ``expert_bytes`` belong to routed experts; ``n_tensors``:
    gradient tensors; ``instance``: the block instance of the last one, counted from the end of the
    model; ``share``: the fraction of that instance's backward after which it is ready.
    """

    n_bytes: float
    n_tensors: int
    instance: int
    share: float
    expert_bytes: float = 0.0


def gradient_buckets(
    workload: Workload, grad_bytes: int, cap_bytes: float, first_bytes: float
) -> list[Bucket]:
    """DDP's buckets in the order in which gradients become ready.

    ``grad_bytes``: bytes per gradient element. A bucket closes once it holds ``cap_bytes``, the
    first one once it holds ``first_bytes``: in torch/nn/parallel/distributed.py and reducer.cpp
    (compute_bucket_assignment_by_size) the first cap is 1 MiB, the others ``bucket_cap_mb``. The
    model assumes that gradients of a block become ready in reverse order of definition, each after
    a share of the block's backward in proportion to its size.
    """
    buckets: list[Bucket] = []
    filled, routed, tensors = 0.0, 0.0, 0  # of the open bucket
    last, share = 0, 0.0  # where in backward its last tensor is ready
    for instance, block in enumerate(reversed(list(workload.instances()))):
        done = 0
        for param in reversed(block.params):
            done += param.numel
            filled += param.numel * grad_bytes
            routed += param.numel * grad_bytes * param.routed
            tensors += 1
            last, share = instance, done / block.numel
            if filled >= (cap_bytes if buckets else first_bytes):
                buckets.append(Bucket(filled, tensors, last, share, routed))
                filled, routed, tensors = 0.0, 0.0, 0
    if tensors:
        buckets.append(Bucket(filled, tensors, last, share, routed))
    return buckets


def backward_stretches(
    workload: Workload, buckets: Sequence[Bucket]
) -> list[list[tuple[int, float]]]:
    """The parts of backward between the moments at which buckets become ready.

    A part is a list of (block, fraction of its backward). There is one part per bucket and one
    more for the rest of backward, if any.
    """
    order = list(reversed(workload.order))
    ends = [bucket.instance + bucket.share for bucket in buckets]
    parts = [
        [(order[i], min(end, i + 1.0) - max(begin, float(i))) for i in range(int(begin), ceil(end))]
        for begin, end in pairwise([0.0, *ends, float(len(order))])
    ]
    return parts if parts[-1] else parts[:-1]
