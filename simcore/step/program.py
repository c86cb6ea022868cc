"""One step of one rank class as a graph of tasks, each with the recipe of its duration.

The shape depends on workload, strategy and the number of rank classes only; batch sizes, ranks
and links are values on the configuration axis. A duration is one of

    compute  phase weights: W[t] @ seconds of each phase
    host     the same weights times launches, at the host's issue rate
    comm     a collective over fixed message sizes
    misc     a named quantity that the pricing layer knows (optimizer, copies, loader…)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from simcore.base.arrays import NDArray
from simcore.physics.collectives import Collective, priced_as
from simcore.step.graph import StepGraph, Task
from simcore.workload.graph import Workload

#: Backward is cut into at most this many stretches for the host stream.
HOST_STRETCHES = 16


#: Ranks of a collective: every one, those that share one copy of sharded state, or those that
#: hold the same shard.
Scope = Literal["all", "shard", "replicas", "experts"]


@dataclass(frozen=True, slots=True)
class CommCost:
    """A task that sends ``counts[i]`` messages of ``sizes_bytes[i]`` one after another.

    ``every_micro_step``: runs in each micro-step, not only in the last before the update.
    """

    task: int
    op: Collective
    sizes_bytes: tuple[float, ...]
    counts: tuple[float, ...]
    every_micro_step: bool = False
    scope: Scope = "all"


@dataclass(frozen=True, slots=True)
class CommTable:
    """Every collective of a step as arrays: each distinct message priced once.

    ``messages`` lists (operation as which it is priced, scope, sizes [n, 1], their rows);
    ``counts`` [tasks, rows] says how often each task sends each.
    """

    tasks: NDArray[np.intp]
    messages: tuple[tuple[Collective, Scope, NDArray[np.float64], NDArray[np.intp]], ...]
    counts: NDArray[np.float64]
    every_micro_step: NDArray[np.bool_]

    @staticmethod
    def of(costs: Sequence[CommCost], *, by_function: bool = False) -> CommTable:
        """Collect the distinct messages of ``costs``; ``by_function``: NCCL is held to different
        ways of collectives that are priced alike otherwise.
        """
        ops = [cost.op if by_function else priced_as(cost.op) for cost in costs]
        rows: dict[tuple[Collective, Scope, float], int] = {}
        for op, cost in zip(ops, costs, strict=True):
            for size in cost.sizes_bytes:
                rows.setdefault((op, cost.scope, size), len(rows))
        counts = np.zeros((len(costs), len(rows)))
        for i, cost in enumerate(costs):
            for size, count in zip(cost.sizes_bytes, cost.counts, strict=True):
                counts[i, rows[ops[i], cost.scope, size]] += count
        messages = []
        for op, scope in dict.fromkeys((op, scope) for op, scope, _ in rows):
            mine = {size: i for (o, s, size), i in rows.items() if (o, s) == (op, scope)}
            sizes = np.array([[size] for size in mine])
            messages.append((op, scope, sizes, np.array(list(mine.values()))))
        return CommTable(
            tasks=np.array([c.task for c in costs], dtype=np.intp),
            messages=tuple(messages),
            counts=counts,
            every_micro_step=np.array([c.every_micro_step for c in costs], dtype=bool),
        )


@dataclass(frozen=True)
class Program:
    """The graph and the recipes. ``weights`` is [compute tasks, phases].

    ``comm_beside`` [collectives]: those that can run while overlapped compute is left.
    ``terms`` lists, for each rank class and then for what all share, the tasks of each line of
    the time breakdown; the host is none of them.
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
    comm_table: CommTable
    comm_beside: NDArray[np.bool_]
    terms: tuple[dict[str, NDArray[np.intp]], ...]

    @cached_property
    def term_sums(self) -> tuple[tuple[tuple[str, ...], NDArray[np.float64]], ...]:
        """``terms`` as names and a matrix [names, T] that sums their tasks."""
        found = []
        for part in self.terms:
            sums = np.zeros((len(part), len(self.graph.tasks)))
            for row, tasks in zip(sums, part.values(), strict=True):
                row[tasks] = 1.0
            found.append((tuple(part), sums))
        return tuple(found)


class ProgramBuilder:
    """Collects tasks in issue order. Strategies drive it; see ``step.parallel``."""

    def __init__(self, workload: Workload, n_classes: int, recompute: bool) -> None:
        self.workload, self.n_classes, self.recompute = workload, n_classes, recompute
        self.n_blocks = len(workload.blocks)
        self.n_phases = 2 * self.n_blocks + len(workload.frozen)
        self.tasks: list[Task] = []
        self._compute: list[tuple[int, int, NDArray[np.float64], bool]] = []
        self._host: list[tuple[int, NDArray[np.float64]]] = []
        self._comm: list[CommCost] = []
        self._misc: list[tuple[int, str, int]] = []
        #: Tasks that take activations to the host; backward and the update wait for them.
        self.leaving: list[int] = []

    # -- rows of phase weights -------------------------------------------------------------

    def forward_row(self, blocks: Iterable[int]) -> NDArray[np.float64]:
        """Phase weights of running ``blocks`` forward."""
        row = np.zeros(self.n_phases)
        for b in blocks:
            row[b] += 1.0
        return row

    def backward_row(self, shares: Iterable[tuple[int, float]]) -> NDArray[np.float64]:
        """Phase weights of ``(block, fraction)`` backward, recompute included."""
        row = np.zeros(self.n_phases)
        for b, share in shares:
            row[self.n_blocks + b] += share
            if self.recompute and self.workload.blocks[b].recomputable:
                row[b] += share
        return row

    def frozen_row(self) -> NDArray[np.float64]:
        """Phase weights of every frozen network once."""
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

    def host(self, name: str, row: NDArray[np.float64]) -> int:
        """The host issues the kernels of ``row``; returns the task."""
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
        """Device work on every rank class; returns one task a class.

        ``issued_by`` is the host task that must have finished for this to finish; without it a
        host task of its own is added. ``overlapped`` marks work that shares the device with
        collectives.
        """
        host = self.host(name, row) if issued_by is None else issued_by
        made = []
        for c in range(self.n_classes):
            stream = "compute" if self.n_classes == 1 else f"compute {c}"
            task = self._add(name, stream, term, deps, (host,))
            self._compute.append((task, c, row, overlapped))
            made.append(task)
        return made

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
        stream: str = "comm",
    ) -> int:
        """A collective over the ranks of ``scope`` once every class is ready."""
        task = self._add(name, stream, "communication", deps)
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
        """A task whose duration is ``quantity`` of the pricing layer; per class on compute.

        It finishes no sooner than ``bounds``.
        """
        if stream != "compute":
            task = self._add(name, stream, term, deps, bounds)
            self._misc.append((task, quantity, 0))
            return [task]
        made = []
        for c in range(self.n_classes):
            on = "compute" if self.n_classes == 1 else f"compute {c}"
            task = self._add(name, on, term, deps, bounds)
            self._misc.append((task, quantity, c))
            made.append(task)
        return made

    def finish(self, *, by_function: bool = False) -> Program:
        """Freeze what was collected; ``by_function``: each collective is priced as itself."""
        overlapped = np.zeros(len(self.tasks), dtype=bool)
        for task, _, _, flag in self._compute:
            overlapped[task] = flag
        return Program(
            graph=StepGraph(tuple(self.tasks)),
            n_classes=self.n_classes,
            compute_tasks=np.array([c[0] for c in self._compute], dtype=np.intp),
            compute_class=np.array([c[1] for c in self._compute], dtype=np.intp),
            weights=np.array([c[2] for c in self._compute]),
            host_tasks=np.array([h[0] for h in self._host], dtype=np.intp),
            host_weights=np.array([h[1] for h in self._host]),
            comm=tuple(self._comm),
            misc=tuple(self._misc),
            overlapped=overlapped,
            comm_table=CommTable.of(self._comm, by_function=by_function),
            comm_beside=self._beside(overlapped),
            terms=self._terms(),
        )

    def _beside(self, overlapped: NDArray[np.bool_]) -> NDArray[np.bool_]:
        last = int(np.flatnonzero(overlapped)[-1]) if overlapped.any() else -1
        return np.array(
            [max(self.tasks[c.task].deps, default=-1) < last for c in self._comm], dtype=bool
        )

    def _terms(self) -> tuple[dict[str, NDArray[np.intp]], ...]:
        found: list[dict[str, list[int]]] = [{} for _ in range(self.n_classes + 1)]
        for i, task in enumerate(self.tasks):
            if task.term == "host":
                continue
            _, _, rank_class = task.stream.partition("compute ")
            into = found[int(rank_class) if rank_class else self.n_classes]
            into.setdefault(task.term, []).append(i)
        return tuple({k: np.array(v, dtype=np.intp) for k, v in f.items()} for f in found)


@dataclass(frozen=True, slots=True)
class Bucket:
    """Gradients sent together: their bytes, and where in backward the last one is ready.

    ``instance`` counts block instances from the end of the model; ``share`` is how much of that
    instance's backward has run. ``expert_bytes``: those of routed experts among them.
    """

    n_bytes: float
    n_tensors: int
    instance: int
    share: float
    expert_bytes: float = 0.0


def gradient_buckets(
    workload: Workload, grad_bytes: int, cap_bytes: float, first_bytes: float
) -> list[Bucket]:
    """DDP's buckets in gradient-ready order: a bucket closes once it reaches its cap.

    torch/nn/parallel/distributed.py and reducer.cpp (compute_bucket_assignment_by_size): the
    first cap is 1 MiB, then ``bucket_cap_mb``. Within a block gradients are taken to appear in
    reverse definition order, in proportion to their size.
    """
    buckets: list[Bucket] = []
    filled, routed, tensors = 0.0, 0.0, 0
    instance, share = 0, 0.0
    for position, block in enumerate(reversed(list(workload.instances()))):
        whole, cap = block.numel * grad_bytes, cap_bytes if buckets else first_bytes
        if block.params and filled + whole < cap:  # whole numbers: no sum of them is rounded
            filled, routed = filled + whole, routed + block.routed_numel * grad_bytes
            tensors, instance, share = tensors + len(block.params), position, 1.0
            continue
        done = 0
        for param in reversed(block.params):
            done += param.numel
            filled += param.numel * grad_bytes
            routed += param.numel * grad_bytes * param.routed
            tensors += 1
            instance, share = position, done / block.numel
            if filled >= (cap_bytes if buckets else first_bytes):
                buckets.append(Bucket(filled, tensors, instance, share, routed))
                filled, routed, tensors = 0.0, 0.0, 0
    if tensors:
        buckets.append(Bucket(filled, tensors, instance, share, routed))
    return buckets


def backward_stretches(
    workload: Workload, buckets: Sequence[Bucket]
) -> list[list[tuple[int, float]]]:
    """Cut backward at the points where buckets are ready: ``(block, share)`` lists.

    One stretch a bucket and, where anything is left, one more to the end.
    """
    order = list(reversed(workload.order))
    stretches: list[list[tuple[int, float]]] = []
    at, done = 0, 0.0
    for bucket in buckets:
        piece: list[tuple[int, float]] = []
        while at < bucket.instance:
            piece.append((order[at], 1.0 - done))
            at, done = at + 1, 0.0
        if bucket.share > done:
            piece.append((order[at], bucket.share - done))
            done = bucket.share
        stretches.append(piece)
    rest = []
    while at < len(order):
        if done < 1.0:
            rest.append((order[at], 1.0 - done))
        at, done = at + 1, 0.0
    if rest:
        stretches.append(rest)
    return stretches
