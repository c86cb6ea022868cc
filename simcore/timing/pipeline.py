"""The order in which pipeline stages work on micro-batches, and the times of each.

Global chunk ``v * pp + s`` is chunk v of stage s. A forward waits for that of the chunk before, a
backward for that of the chunk after. Orders are fixed (Narayanan et al. 2021; Megatron-LM's
schedules.py) except for zero-bubble schedules. There a stage takes the most urgent work that is
ready: backward of the input, then forward while it may hold another micro-batch, then backward of
the weights (the automatic schedule of Qi et al. 2023, without its look-ahead).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from simcore.strategy.layout import Layout
from simcore.timing.dualpipe import dualpipe_order
from simcore.timing.pipeline_order import Cell, Kind, Work, last_place, place_of


@dataclass(frozen=True, slots=True)
class Slot:
    """Begin and end [s] of one piece of work on a stage."""

    stage: int
    work: Work
    start_s: float
    finish_s: float


@dataclass(frozen=True, slots=True)
class Sync:
    """Something a stage does once a step on one of its streams, with begin and end [s]."""

    name: str
    stream: str
    term: str
    start_s: float
    finish_s: float


@dataclass(frozen=True, slots=True)
class StageLine:
    """One step of a pipeline stage, on each of its ``n_gpus`` equal ranks.

    ``exchanges_s``: exposed seconds of tensor, context, expert and pipeline exchanges in a forward
    and in a backward of the whole stage. ``begins``: tasks before the first micro-batch; ``ends``:
    gradients, update and what follows. ``held_bytes``: (time, bytes on the device) at each change.
    """

    n_gpus: int
    n_layers: int
    slots: tuple[Slot, ...]
    exchanges_s: dict[str, tuple[float, float]]
    begins: tuple[Sync, ...]
    ends: tuple[Sync, ...]
    held_bytes: tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class PipelineLine:
    """One step of a job with a layout, micro-batch by micro-batch.

    ``finish_s``: end of the schedule that is drawn. The predicted step time is the closed form's,
    not this value.
    """

    layout: Layout
    stages: tuple[StageLine, ...]
    finish_s: float


@dataclass(frozen=True, slots=True)
class StageTimes:
    """Seconds of one micro-batch on a whole stage.

    ``weights_s``: backward of the weights where it is separate from ``backward_s``, else 0. Work
    begins ``begin_s`` into the step. The last micro-batch's final piece of backward takes
    ``last_s`` longer than the others'.
    """

    forward_s: float
    backward_s: float
    weights_s: float = 0.0
    begin_s: float = 0.0
    last_s: float = 0.0

    def of(self, work: Work, last: bool) -> float:
        """Seconds of a piece of work; ``last``: it is of the last micro-batch of its chunk."""
        usual = {"forward": self.forward_s, "backward": self.backward_s,
                 "weights": self.weights_s}[work.kind]  # fmt: skip
        ends = work.kind == ("weights" if self.weights_s else "backward")
        return max(usual + self.last_s, 0.0) if last and ends else usual


def _chunks(micro_steps: int, pp: int, vpp: int) -> list[tuple[int, int]]:
    """(micro-batch, chunk) in the order of forward: groups of pp micro-batches, chunk after chunk.

    Micro-batches beyond a multiple of pp join the first group: a smaller group after it would wait
    for itself.
    """
    first = _first_group(micro_steps, pp)
    starts = [0, *range(first, micro_steps, pp), micro_steps]
    return [
        (m, chunk)
        for start, end in pairwise(starts)
        for chunk in range(vpp)
        for m in range(start, end)
    ]


def _first_group(micro_steps: int, pp: int) -> int:
    return micro_steps if micro_steps < pp else pp + micro_steps % pp


def order_of(layout: Layout, stage: int, micro_steps: int) -> list[Work]:
    """The pieces of work of a stage in order, under 1F1B, interleaved 1F1B or GPipe."""
    pp, vpp = layout.pp, layout.vpp
    chunks = [(m, 0) for m in range(micro_steps)] if vpp == 1 else _chunks(micro_steps, pp, vpp)
    forward = [Work("forward", m, v) for m, v in chunks]
    backward = [Work("backward", m, vpp - 1 - v) for m, v in chunks]
    left = micro_steps if layout.schedule == "gpipe" else pp - 1 - stage
    warm_up = left if vpp == 1 else 2 * left + (vpp - 1) * _first_group(micro_steps, pp)
    warm_up = min(warm_up, len(forward))
    steady = [w for pair in zip(forward[warm_up:], backward, strict=False) for w in pair]
    return [*forward[:warm_up], *steady, *backward[len(forward) - warm_up :]]


class _Board:
    """Finish times of the work done so far, from which the start of further work follows."""

    def __init__(self, layout: Layout) -> None:
        self.layout, self.last = layout, last_place(layout)
        self.done: dict[tuple[Kind, int, int], float] = {}

    def ready_s(self, stage: int, work: Work) -> float | None:
        """Earliest start of ``work`` by what it depends on; None if that is not scheduled yet."""
        place = place_of(self.layout, stage, work.chunk)
        m = work.micro_batch
        if work.kind == "weights":
            return self.done.get(("backward", m, place))
        if work.kind == "forward":
            return 0.0 if place == 0 else self.done.get(("forward", m, place - 1))
        before: Kind = "forward" if place == self.last else "backward"
        return self.done.get((before, m, min(place + 1, self.last)))

    def cell_ready_s(self, stage: int, cell: Cell) -> float | None:
        """Earliest start of a cell; weights wait for the backward before them in the same cell."""
        at = 0.0
        for work in cell:
            if work.kind == "weights" and len(cell) > 1:
                continue
            ready = self.ready_s(stage, work)
            if ready is None:
                return None
            at = max(at, ready)
        return at

    def put(self, stage: int, work: Work, finish_s: float) -> None:
        place = place_of(self.layout, stage, work.chunk)
        self.done[work.kind, work.micro_batch, place] = finish_s


def cells_of(layout: Layout, stage: int, micro_steps: int) -> list[Cell]:
    """The fixed order of a stage. Raises ValueError where a schedule needs more micro-batches."""
    if layout.directions > 1:
        return dualpipe_order(layout.pp, stage, micro_steps)
    return [(work,) for work in order_of(layout, stage, micro_steps)]


def schedule_pipeline(
    layout: Layout, times: Sequence[StageTimes], micro_steps: int
) -> tuple[Slot, ...]:
    """Every piece of work of one step, by stage and time. ``times``: one for each stage.

    A chunk takes 1/vpp of its stage's seconds, with DualPipe half of its rank's. Raises ValueError
    where the number of ``times`` is not the layout's number of stages.
    """
    if len(times) != layout.pp:
        raise ValueError(f"{len(times)} stages timed, the layout has {layout.pp}")
    if layout.zero_bubble and layout.vpp == 1:
        return _zero_bubble(layout, times, micro_steps)
    board, parts = _Board(layout), layout.vpp * layout.directions
    orders = [cells_of(layout, s, micro_steps) for s in range(layout.pp)]
    at, free = [0] * layout.pp, [t.begin_s for t in times]
    slots: list[list[Slot]] = [[] for _ in orders]
    moved = True
    while moved:
        moved = False
        for s, order in enumerate(orders):
            while at[s] < len(order):
                cell = order[at[s]]
                ready = board.cell_ready_s(s, cell)
                if ready is None:
                    break
                start = max(free[s], ready)
                for work in cell:
                    last = _is_last(layout, work, micro_steps)
                    free[s] = start + times[s].of(work, last) / parts
                    slots[s].append(Slot(s, work, start, free[s]))
                    start = free[s]
                for work in cell:
                    board.put(s, work, free[s])
                at[s] += 1
                moved = True
    assert all(n == len(order) for n, order in zip(at, orders, strict=True)), (
        "pipeline stages wait for each other in a circle"
    )
    return tuple(slot for row in slots for slot in row)


def _is_last(layout: Layout, work: Work, micro_steps: int) -> bool:
    """Whether the work is of its chunk's last micro-batch; with DualPipe, of its direction's."""
    first_end = layout.directions > 1 and work.chunk == 0
    return work.micro_batch == (micro_steps // 2 if first_end else micro_steps) - 1


def _zero_bubble(layout: Layout, times: Sequence[StageTimes], micro_steps: int) -> tuple[Slot, ...]:
    """Schedules the work that can start first; among equal starts the most urgent kind."""
    board, limit = _Board(layout), layout.in_flight_limit * layout.pp
    kinds: tuple[Kind, ...] = ("backward", "forward", "weights")
    placed = [dict.fromkeys(kinds, 0) for _ in times]
    free = [t.begin_s for t in times]
    slots: list[list[Slot]] = [[] for _ in times]

    def next_of(s: int) -> tuple[float, int, Work] | None:
        options = []
        held = placed[s]["forward"] - placed[s]["weights"]
        for urgency, kind in enumerate(kinds):
            work = Work(kind, placed[s][kind], 0)
            if work.micro_batch >= micro_steps or (kind == "forward" and held >= limit):
                continue
            ready = board.ready_s(s, work)
            if ready is not None:
                options.append((max(free[s], ready), urgency, work))
        return min(options, key=lambda o: o[:2]) if options else None

    while True:
        options = [(found[:2], s, found[2]) for s in range(layout.pp) if (found := next_of(s))]
        if not options:
            return tuple(slot for row in slots for slot in row)
        (start, _), s, work = min(options, key=lambda o: o[0])
        free[s] = start + times[s].of(work, _is_last(layout, work, micro_steps))
        board.put(s, work, free[s])
        placed[s][work.kind] += 1
        slots[s].append(Slot(s, work, start, free[s]))
