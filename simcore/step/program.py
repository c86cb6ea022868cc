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

from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import pairwise
from math import ceil
from typing import Literal, NamedTuple

import numpy as np

from simcore.base.arrays import NDArray
from simcore.base.record import dataclass, replace
from simcore.physics.collectives import Collective
from simcore.step.graph import StepGraph, Task
from simcore.workload.graph import Workload

#: The largest number of host tasks that issue one backward (or one forward that overlaps gathers).
HOST_STRETCHES = 16
#: The largest number of tasks that one forward consists of, where nothing else runs beside it.
FORWARD_PARTS = 8


#: Ranks of a collective: all data-parallel ranks, those that share one copy of sharded state, those
#: that hold the same shard, or those that hold the same experts.
Scope = Literal["all", "shard", "replicas", "experts"]


class CommCost(NamedTuple):
    """A communication task: ``counts[i]`` collectives of ``sizes_bytes[i]`` each, in sequence.

    ``task``: its index in the graph; ``op``: the collective; ``scope``: its ranks;
    ``every_micro_step``: it runs in each micro-step, not only in the last before the update.
    """

    task: int
    op: Collective
    sizes_bytes: tuple[float, ...]
    counts: tuple[float, ...]
    every_micro_step: bool = False
    scope: Scope = "all"


@dataclass(frozen=True)
class Program:
    """The graph of one step and the recipes of its tasks' durations.

    ``compute_tasks``: task numbers; ``compute_class``: the rank class of each; ``weights``
    [compute tasks, phases]: how much of each phase it runs. ``host_tasks``, ``host_weights``: the
    same for the host's tasks. ``comm``: the communication tasks; ``comm_beside`` [collectives]:
    whether each can start while overlapped compute remains. ``by_function``: each collective is
    priced as itself, because the job restricts NCCL's choice for single ones; otherwise some share
    one price (``physics.collectives.priced_as``).
    ``misc``: triples (task, named quantity, rank class). ``overlapped`` [T]: whether a compute task
    shares the device with collectives.
    """

    graph: StepGraph
    n_classes: int
    compute_tasks: NDArray[np.intp]
    compute_class: NDArray[np.intp]
    weights: NDArray[np.float64]
    host_tasks: NDArray[np.intp]
    host_weights: NDArray[np.float64]
    comm: tuple[CommCost, ...]
    misc: tuple[tuple[int, str, int], ...]
    overlapped: NDArray[np.bool_]
    by_function: bool
    comm_beside: NDArray[np.bool_]


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
        self._compute: list[tuple[int, int, NDArray[np.float64], bool]] = []
        self._host: list[tuple[int, NDArray[np.float64]]] = []
        self._comm: list[CommCost] = []
        self._misc: list[tuple[int, str, int]] = []
        #: Tasks that copy activations to the host; backward waits for them, and so does the copy of
        #: activations to the device before the update.
        self.leaving: list[int] = []
        #: Tasks that exchange blocks of a frozen base with the host; the update waits for them.
        self.swapping: list[int] = []

    # -- rows of phase weights -------------------------------------------------------------

    def forward_row(self, blocks: Iterable[int]) -> NDArray[np.float64]:
        """Phase weights [P] of one forward of ``blocks``."""
        row = np.zeros(self.n_phases)
        for b in blocks:
            row[b] += 1.0
        return row

    def backward_row(self, shares: Iterable[tuple[int, float]]) -> NDArray[np.float64]:
        """Phase weights [P] of backward alone; ``shares``: (block, fraction run)."""
        row = np.zeros(self.n_phases)
        for b, share in shares:
            row[self.n_blocks + b] += share
        return row

    def frozen_row(self) -> NDArray[np.float64]:
        """Phase weights [P] of one forward of every frozen network."""
        row = np.zeros(self.n_phases)
        row[2 * self.n_blocks :] = 1.0
        return row

    # -- tasks -----------------------------------------------------------------------------

    def _add(
        self,
        name: str,
        stream: str,
        term: str,
        deps: Sequence[int] = (),
        bounds: Sequence[int] = (),
    ) -> int:
        self.tasks.append(Task(name, stream, term, tuple(deps), tuple(bounds)))
        return len(self.tasks) - 1

    def _on_each_class(
        self, name: str, term: str, deps: Sequence[int], bounds: Sequence[int]
    ) -> list[int]:
        """Add a task to the compute stream of every rank class; returns one task per class."""
        streams = (
            ["compute"] if self.n_classes == 1 else [f"compute {c}" for c in range(self.n_classes)]
        )
        return [self._add(name, stream, term, deps, bounds) for stream in streams]

    def host(self, name: str, row: NDArray[np.float64]) -> int:
        """Add a host task that issues the kernels of phase weights ``row`` [P]; returns it."""
        task = self._add(f"issue {name}", "host", "host")
        self._host.append((task, row))
        return task

    def compute(
        self,
        name: str,
        term: str,
        row: NDArray[np.float64],
        deps: Sequence[int] = (),
        *,
        issued_by: int | None = None,
        overlapped: bool = False,
    ) -> list[int]:
        """Add a compute task for every rank class; returns one task per class.

        ``row`` [P]: phase weights; ``deps``: tasks that it starts after; ``issued_by``: the host
        task that it cannot finish before (None: a new one); ``overlapped``: it shares the device
        with collectives.
        """
        host = self.host(name, row) if issued_by is None else issued_by
        added = self._on_each_class(name, term, deps, (host,))
        self._compute += [(task, c, row, overlapped) for c, task in enumerate(added)]
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
        ``CommCost``.
        """
        task = self._add(name, "comm", "communication", deps)
        counts = tuple(counts) if counts is not None else (1.0,) * len(sizes_bytes)
        self._comm.append(CommCost(task, op, tuple(sizes_bytes), counts, every_micro_step, scope))
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
        self._misc += [(task, quantity, c) for c, task in enumerate(added)]
        return added

    def finish(self, *, by_function: bool = False) -> Program:
        """The program of all tasks added so far; ``by_function``: as in ``Program``."""
        overlapped = np.zeros(len(self.tasks), dtype=bool)
        for task, _, _, flag in self._compute:
            overlapped[task] = flag
        return Program(
            graph=_graph(tuple(self.tasks)),
            n_classes=self.n_classes,
            compute_tasks=np.array([c[0] for c in self._compute], dtype=np.intp),
            compute_class=np.array([c[1] for c in self._compute], dtype=np.intp),
            weights=np.array([c[2] for c in self._compute]),
            host_tasks=np.array([h[0] for h in self._host], dtype=np.intp),
            host_weights=np.array([h[1] for h in self._host]),
            comm=tuple(self._comm),
            misc=tuple(self._misc),
            overlapped=overlapped,
            by_function=by_function,
            comm_beside=self._runs_beside_compute(overlapped),
        )

    def _runs_beside_compute(self, overlapped: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Whether each collective depends only on tasks before the last overlapped one."""
        last = int(np.flatnonzero(overlapped)[-1]) if overlapped.any() else -1
        return np.array(
            [max(self.tasks[c.task].deps, default=-1) < last for c in self._comm], dtype=bool
        )


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

    def more(weights: NDArray[np.float64]) -> NDArray[np.float64]:
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
