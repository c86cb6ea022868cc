"""One step as a graph of work and messages, for network simulators.

Compute has a duration; a collective or message has bytes and ranks but no duration, which the
simulator finds. With a layout, the exchanges of all layers of a stage are one node, and gradients
are sent after the last backward, so that they hide under none of it; parameters gathered at the
begin of the step are complete before the second micro-batch. A data-parallel step keeps its buckets
and their dependencies.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, replace

import numpy as np

from simcore.answer.pipeline_timeline import TIED, PipelineLine, StageLine, pipeline_line
from simcore.base.record import dataclass
from simcore.request.placed import Placed
from simcore.request.resolved import Request
from simcore.step.program import Program
from simcore.step.schedules.base import Slot, last_place
from simcore.strategy.layout import Layout
from simcore.timing.exchanges import exchange_bytes
from simcore.timing.points import Points
from simcore.timing.steps import job_of, steps_of, values_of


@dataclass(frozen=True)
class Node:
    """A piece of work of one rank's step.

    ``op``: "" for compute (of the device, or of the host with ``on_host``); otherwise the name of a
    collective, "send" or "recv". ``group``: the dimension whose ranks take part; ``peer``: how many
    stages away the other end is; ``tag``: pairs a send with its receive. ``deps``: positions of the
    same rank's nodes that it waits for.
    """

    name: str
    seconds: float = 0.0
    op: str = ""
    n_bytes: float = 0.0
    group: str = ""
    peer: int = 0
    tag: int = 0
    deps: tuple[int, ...] = ()
    on_host: bool = False


@dataclass(frozen=True)
class Replay:
    """Nodes of the ranks of every stage, and the ranks of every communicator.

    ``groups``: groups of rank numbers by dimension. Rank r is of stage ``r // per_stage``.
    """

    n_ranks: int
    per_stage: int
    stages: tuple[tuple[Node, ...], ...]
    groups: dict[str, tuple[tuple[int, ...], ...]] = field(default_factory=dict)


def replay(request: Request) -> Replay:
    """The graph of one step of a request.

    Raises ValueError for a cluster with several GPU types.
    """
    if len({g.gpu.name for g in request.cluster.groups}) > 1:
        raise ValueError("a graph of ranks needs GPUs of one type")
    n_ranks = request.cluster.n_gpus
    if request.placed is None:
        return Replay(
            n_ranks, n_ranks, (_data_parallel(request),), {"data": (tuple(range(n_ranks)),)}
        )
    line = pipeline_line(request)
    stages = tuple(
        tuple(_Stage(request, request.placed, line, i).nodes()) for i in range(line.layout.pp)
    )
    groups = _groups(line.layout, n_ranks)
    if request.placed.tied_bytes:
        pairs = np.arange(n_ranks).reshape(line.layout.pp, -1)[[0, -1]]
        groups["tied table"] = tuple((int(a), int(b)) for a, b in pairs.T)
    return Replay(n_ranks, n_ranks // line.layout.pp, stages, groups)


def _sent(program: Program) -> dict[int, tuple[str, float]]:
    """(collective, bytes) by task, for one step."""
    return {c.task: (c.op, float(np.dot(c.sizes_bytes, c.counts))) for c in program.comm}


def _data_parallel(request: Request) -> tuple[Node, ...]:
    steps = steps_of(request, Points.of(values_of(request), 1), keep_timeline=True)
    line, sent = steps.timeline, _sent(job_of(request).program)
    assert line is not None
    before: dict[str, int] = {}
    nodes = []
    for i, task in enumerate(line.graph.tasks):
        deps = {*task.deps, *task.finish_after}
        if task.stream in before:
            deps.add(before[task.stream])
        before[task.stream] = i
        op, n_bytes = sent.get(i, ("", 0.0))
        busy = float(line.finish_s[i, 0] - line.start_s[i, 0]) if not op else 0.0
        nodes.append(
            Node(task.name, busy, op, n_bytes, "data" if op else "", deps=tuple(sorted(deps)))
        )
    return tuple(nodes)


def _groups(layout: Layout, n_ranks: int) -> dict[str, tuple[tuple[int, ...], ...]]:
    """Communicators; ranks are numbered by tensor, context, data, then pipeline."""
    data = n_ranks // layout.model_ranks
    ranks = np.arange(n_ranks).reshape(layout.pp, data, layout.cp, layout.tp)

    def rows(axes: Sequence[int]) -> tuple[tuple[int, ...], ...]:
        kept = [a for a in range(4) if a not in axes]
        size = int(np.prod([ranks.shape[a] for a in axes]))
        table = ranks.transpose(*kept, *axes).reshape(-1, size)
        return tuple(tuple(int(r) for r in row) for row in table)

    found = {"data": rows((1, 2))}
    if layout.tp > 1:
        found["tensor"] = rows((3,))
    if layout.cp > 1:
        found["context"] = rows((2,))
    if layout.ep > 1:
        of_stage = ranks.reshape(layout.pp, -1, layout.ep, layout.expert_tp)
        table = of_stage.transpose(0, 1, 3, 2).reshape(-1, layout.ep)
        found["expert"] = tuple(tuple(int(r) for r in row) for row in table)
    return found


class _Stage:
    """Collects the nodes of one stage in the order in which they are issued."""

    def __init__(self, request: Request, placed: Placed, line: PipelineLine, index: int) -> None:
        self.request, self.placed, self.layout, self.index = request, placed, line.layout, index
        self.line: StageLine = line.stages[index]
        self.found: list[Node] = []
        self.moved = {
            name: float(x[0])
            for name, x in exchange_bytes(placed, np.array([float(request.micro_batch)])).items()
        }

    def add(self, node: Node) -> int:
        self.found.append(node)
        return len(self.found) - 1

    def exchanges(self, kind: str) -> list[tuple[str, str, float]]:
        """(dimension, collective, bytes) of one micro-batch through a chunk."""
        layers = self.line.n_layers / self.placed.schedule.parts(self.layout)
        found: list[tuple[str, str, float]] = []
        for ranks in self.placed.dimensions:
            times = layers * ranks.layers_frac * ranks.passes[kind != "forward"]
            n_bytes = times * self.moved[ranks.name]
            if ranks.ranks > 1 and n_bytes > 0:
                op = "all_reduce" if len(ranks.collectives) > 1 else next(iter(ranks.collectives))
                found.append((ranks.word, op, n_bytes))
        return found

    def slot(self, slot: Slot, before: tuple[int, ...]) -> int:
        """A micro-batch's work on a chunk, with receive and send; returns the last node."""
        work, layout = slot.work, self.layout
        schedule, last = self.placed.schedule, last_place(layout)
        place = schedule.place_of(layout, self.index, work.chunk)
        step = {"forward": 1, "backward": -1}.get(work.kind, 0)
        deps = [*before]
        name = f"{work.kind} {work.micro_batch} of chunk {place}"
        boundary = self.moved["tensor parallel"] / self.placed.sending_ranks

        def tag(target: int) -> int:  # number of the work that waits for the message
            return (work.micro_batch * (last + 1) + target) * 2 + (step < 0)

        if step and layout.pp > 1 and 0 <= place - step <= last:
            peer = schedule.stage_at(layout, place - step, work.chunk) - self.index
            received = Node(f"receive for {name}", 0.0, "recv", boundary, peer=peer, tag=tag(place))
            deps.append(self.add(received))
        exchanged = self.exchanges(work.kind) if step else []
        side = 0 if step > 0 else 1
        shown = sum(x[side] for x in self.line.exchanges_s.values()) if step else 0.0
        seen = shown / schedule.parts(layout)
        busy = max(slot.finish_s - slot.start_s - seen, 0.0)
        at = self.add(Node(name, busy, deps=tuple(deps)))
        for group, op, n_bytes in exchanged:
            at = self.add(Node(f"{group} of {name}", 0.0, op, n_bytes, group, deps=(at,)))
        if step and layout.pp > 1 and 0 <= place + step <= last:
            peer = schedule.stage_at(layout, place + step, work.chunk) - self.index
            self.add(
                Node(
                    f"send {name}",
                    0.0,
                    "send",
                    boundary,
                    peer=peer,
                    tag=tag(place + step),
                    deps=(at,),
                )
            )
        return at

    def nodes(self) -> list[Node]:
        job = replace(job_of(self.request), workload=self.placed.stages[self.index].workload)
        tasks = job.program.graph.tasks
        first = next(i for i, task in enumerate(tasks) if task.term == "accumulation")
        sent = _sent(job.program) if self.replicas else {}
        at: int | None = None
        for sync in self.line.begins:
            if sync.term not in ("communication", "loader"):
                deps = () if at is None else (at,)
                at = self.add(Node(sync.name, sync.finish_s - sync.start_s, deps=deps))
        gathered: int | None = None
        begin = None
        for task, (op, n_bytes) in sent.items():
            if task < first:
                deps = () if gathered is None else (gathered,)
                gathered = self.add(Node(tasks[task].name, 0.0, op, n_bytes, "data", deps=deps))
                begin = gathered if begin is None else begin
        for i, slot in enumerate(self.line.slots):
            waits = (at, begin if i == 0 else gathered if i == 1 else None)
            at = self.slot(slot, tuple(w for w in waits if w is not None))
        assert at is not None
        for task, (op, n_bytes) in sent.items():
            if task >= first:
                at = self.add(Node(tasks[task].name, 0.0, op, n_bytes, "data", deps=(at,)))
        if self.placed.tied_bytes and self.index in (0, self.layout.pp - 1):
            size = self.placed.tied_bytes
            at = self.add(Node(TIED, 0.0, "all_reduce", size, "tied table", deps=(at,)))
        for sync in self.line.ends:
            if sync.term not in ("communication", "backward", "loader"):
                at = self.add(Node(sync.name, sync.finish_s - sync.start_s, deps=(at,)))
        return self.found

    @property
    def replicas(self) -> bool:
        return self.request.cluster.n_gpus > self.layout.tp * self.layout.pp
