"""What every pipeline schedule states, with the defaults of one that states its order alone.

# R runs of neighbouring stages that take equally long, C configs
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import numpy as np

from simcore.base.arrays import Array
from simcore.base.record import dataclass
from simcore.strategy.layout import DEFAULT_SCHEDULE, Layout

#: forward; backward (of the input only where ``splits_backward``); weights: that of the weights.
Kind = Literal["forward", "backward", "weights"]
#: Share of a backward that computes weight gradients: one of two products for each weight.
WEIGHTS_FRAC = 0.5


@dataclass(frozen=True)
class Work:
    """One micro-batch on one chunk of a stage.

    ``chunk``: with two ``directions`` the end of the pipeline where the micro-batch entered.
    """

    kind: Kind
    micro_batch: int
    chunk: int = 0


#: Work done as one unit: it starts when all its parts may, and sends its results at its end.
Cell: TypeAlias = tuple[Work, ...]


@dataclass(frozen=True)
class Slot:
    """Begin and end [s] of one piece of work on a stage."""

    stage: int
    work: Work
    start_s: Any
    finish_s: Any


@dataclass(frozen=True)
class StageTimes:
    """Seconds of one micro-batch on a whole stage, numbers or arrays [C].

    ``weights_s``: backward of the weights where it is separate from ``backward_s``, else 0. Work
    begins ``begin_s`` into the step. The last micro-batch's final piece of backward takes
    ``last_s`` longer than the others'.
    """

    forward_s: Any
    backward_s: Any
    weights_s: Any = 0.0
    begin_s: float = 0.0
    last_s: float = 0.0

    def of(self, work: Work, *, last: bool) -> Any:
        """Seconds of a piece of work; ``last``: it is the last work of its chunk."""
        usual = {"forward": self.forward_s, "backward": self.backward_s,
                 "weights": self.weights_s}[work.kind]  # fmt: skip
        return max(usual + self.last_s, 0.0) if last and self.last_s else usual


class Schedule:
    """The order in which pipeline stages work, and the waiting and memory that follow from it.

    A schedule is one file with a subclass, registered in ``SCHEDULES``. It needs a ``name`` (that
    of ``--schedule``), a ``meaning`` in one line and an ``order``; everything else has a default.

    ``formula``, ``source``: the waiting of equal stages as text, and who published it.
    ``directions``: ends where micro-batches enter; a rank holds as many stages. ``chunked``: ranks
    may have several chunks of layers (``vpp``), for which ``IN_CHUNKS`` has a form of its own.
    ``whole_rounds``: micro-batches go through the chunks in rounds of as many as there are stages.
    ``takes_stages``: the layers of each stage may be named. ``splits_backward``: backward of the
    weights is work of its own. ``fills_and_drains``: every stage waits for the pipeline to fill and
    to empty. ``multiple_of``: a step has a multiple of so many micro-batches.
    ``waiting_head``: what a micro-batch that waits on the last stage holds of the head: everything,
    nothing, or the gradient of its output alone.
    """

    name: str
    meaning: str
    formula = "the order of work played piece by piece, less the stage's own work"
    source = "the schedule's own order"
    directions = 1
    chunked = False
    whole_rounds = False
    takes_stages = True
    splits_backward = False
    fills_and_drains = True
    multiple_of = 1
    waiting_head: Literal["kept", "absent", "gradient"] = "kept"

    def order(self, layout: Layout, stage: int, micro_batches: int) -> list[Cell]:
        """The pieces of work of a stage in order. Raises ValueError for what ``undrawn`` says."""
        raise NotImplementedError

    def undrawn(self, layout: Layout, micro_batches: int) -> str:
        """Why a step cannot be drawn; "" where it can."""
        return ""

    def refused(self, layout: Layout) -> list[str]:
        """One sentence for each rule that a layout breaks."""
        found = [f"schedule {self.name} needs pp above 1"] if layout.pp == 1 else []
        if layout.vpp > 1 and not self.chunked:
            found.append(
                f"schedule {self.name} has no chunks: vpp={layout.vpp} needs {DEFAULT_SCHEDULE}"
            )
        if layout.stages and not self.takes_stages:
            found.append(f"schedule {self.name} divides the layers evenly: it takes no stages")
        return found

    @property
    def grad_accum_rule(self) -> str:
        """What ``multiple_of`` means, in words."""
        n = self.multiple_of
        return f"needs {'an even grad-accum' if n == 2 else f'a multiple of {n} as grad-accum'}"

    def least_micro_batches(self, layout: Layout) -> int:
        """Micro-batches of a step that every program with such a pipeline accepts."""
        return self.multiple_of

    def rounds_refused(self, layout: Layout, micro_batches: int) -> str:
        """Why programs with ``whole_rounds`` refuse so few micro-batches; "" where they do not."""
        return ""

    def bubble_s(
        self,
        layout: Layout,
        forward_s: Array,
        backward_s: Array,
        stages: Sequence[int],
        micro_batches: Array,
    ) -> Array:
        """Seconds of a step that the stages of each run wait for others: [R, C].

        ``forward_s``, ``backward_s`` [R, C]: one micro-batch on one stage of each run, or on both
        stages of a rank with two ``directions``; ``stages`` [R]: number of stages in each run;
        ``micro_batches`` [C]: those of a step, through each stage. Where a schedule has no closed
        form its order is played: the longest time between a stage's first and last work, less the
        run's own work.
        """
        apart = WEIGHTS_FRAC if self.splits_backward else 0.0
        longest_s = np.zeros(len(micro_batches))
        for count in np.unique(micro_batches):
            on = micro_batches == count
            times = [
                StageTimes(f[on], b[on] * (1.0 - apart), b[on] * apart)
                for f, b, n in zip(forward_s, backward_s, stages, strict=True)
                for _ in range(n)
            ]
            rows = self.play(layout, times, round(float(count) * self.directions))
            longest_s[on] = np.max([row[-1].finish_s - row[0].start_s for row in rows], axis=0)
        return longest_s - micro_batches * (forward_s + backward_s)

    def place_of(self, layout: Layout, stage: int, chunk: int) -> int:
        """Number of chunks of the model that a micro-batch passes before this one.

        Chunk v of stage s is place ``v * pp + s``.
        """
        if self.directions > 1:
            return stage if chunk == 0 else layout.pp - 1 - stage
        return chunk * layout.pp + stage

    def stage_at(self, layout: Layout, place: int, chunk: int) -> int:
        """Pipeline rank at a place; ``chunk``: as in ``Work``."""
        if self.directions > 1:
            return place if chunk == 0 else layout.pp - 1 - place
        return place % layout.pp

    def parts(self, layout: Layout) -> int:
        """Parts of a pipeline rank, each of which is one piece of work of a micro-batch."""
        return layout.vpp * self.directions

    def play(
        self, layout: Layout, times: Sequence[StageTimes], micro_batches: int
    ) -> tuple[tuple[Slot, ...], ...]:
        """Every piece of work of one step by stage, in order. ``times``: one for each stage.

        A forward waits for that of the place before, a backward for that of the place after, and
        backward of the weights for that of the input. Parts of a stage take equally long. Raises
        ValueError where the number of ``times`` is not the layout's number of stages, and where the
        schedule cannot be drawn.
        """
        if len(times) != layout.pp:
            raise ValueError(f"{len(times)} stages timed, the layout has {layout.pp}")
        longer: Any = max if isinstance(times[0].forward_s, float | int) else np.maximum
        orders = [self.order(layout, s, micro_batches) for s in range(layout.pp)]
        done: dict[tuple[Kind, int, int], Any] = {}

        def ready_s(stage: int, cell: Cell) -> Any:
            """Earliest start of a cell; None where it waits for work that is not played yet."""
            at: Any = 0.0
            for work in cell:
                before = self._waits_for(layout, stage, work)
                if before is None or (work.kind == "weights" and len(cell) > 1):
                    continue  # weights wait for the backward before them in the same cell
                if before not in done:
                    return None
                at = longer(at, done[before])
            return at

        at, free = [0] * layout.pp, [t.begin_s for t in times]
        slots: list[list[Slot]] = [[] for _ in orders]
        moved = True
        while moved:
            moved = False
            for s, order in enumerate(orders):
                while at[s] < len(order) and (ready := ready_s(s, order[at[s]])) is not None:
                    start = longer(free[s], ready)
                    for work in order[at[s]]:
                        last = self._ends_backward(work, micro_batches)
                        free[s] = start + times[s].of(work, last=last) / self.parts(layout)
                        slots[s].append(Slot(s, work, start, free[s]))
                        start = free[s]
                    for work in order[at[s]]:
                        place = self.place_of(layout, s, work.chunk)
                        done[work.kind, work.micro_batch, place] = free[s]
                    at[s] += 1
                    moved = True
        assert all(n == len(order) for n, order in zip(at, orders, strict=True)), (
            "pipeline stages wait for each other in a circle"
        )
        return tuple(tuple(row) for row in slots)

    def _waits_for(self, layout: Layout, stage: int, work: Work) -> tuple[Kind, int, int] | None:
        """The piece of work, by kind, micro-batch and place, that another one waits for."""
        m, place = work.micro_batch, self.place_of(layout, stage, work.chunk)
        if work.kind == "weights":
            return "backward", m, place
        if work.kind == "forward":
            return ("forward", m, place - 1) if place else None
        if place == last_place(layout):
            return "forward", m, place
        return "backward", m, place + 1

    def _ends_backward(self, work: Work, micro_batches: int) -> bool:
        """Whether it ends backward of the last micro-batch of its chunk, or of its end."""
        if work.kind != ("weights" if self.splits_backward else "backward"):
            return False
        entering = micro_batches
        if self.directions > 1:
            entering = micro_batches * (work.chunk + 1) // self.directions
        return work.micro_batch == entering - 1

    @property
    def has_closed_form(self) -> bool:
        """Whether waiting is a closed form, convex in the number of micro-batches."""
        return type(self).bubble_s is not Schedule.bubble_s

    def most_in_flight(self, layout: Layout, position: int | Array) -> float | Array:
        """Micro-batches that a stage holds at most, however many a step has."""
        return np.inf

    def in_flight(self, layout: Layout, position: int | Array, micro_batches: Array) -> Array:
        """Micro-batches whose activations a stage holds at its peak.

        ``position``: of the stage, a number or [C]; ``micro_batches`` [C]: those of a step.
        """
        held = np.maximum(1.0, self.most_in_flight(layout, position))
        return np.minimum(micro_batches / self.directions, held)

    def chunk_share(self, layout: Layout, position: int, layers: int, longest: int) -> float:
        """Layers that a stage holds in flight, over those that equally long chunks would hold.

        ``layers``: of the stage; ``longest``: of the longest stage.
        """
        return 1.0

    def exposed_messages_s(
        self,
        layout: Layout,
        behind: float | Array,
        micro_batches: Array,
        messages_s: Array,
        busy_s: tuple[Array, Array],
        slowdown: Array,
    ) -> Array:
        """Exposed seconds of a micro-step's messages between stages [C], if compute may hide them.

        ``behind``: number of stages after this one, or [N, 1] of each of N kinds of stages;
        ``messages_s``: all messages of a micro-step; ``busy_s``: compute of a micro-step's forward
        and backward. Hidden time costs ``slowdown`` of itself in slower compute. Here nothing hides
        them.
        """
        return messages_s

    def least_step_s(self, layout: Layout, through_s: Array, micro_batches: Array) -> Array:
        """Lower bound of the step over all divisions of the layers into stages [s].

        ``through_s`` S: seconds of a micro-batch on all p stages. Stage k starts when a micro-batch
        has passed those before it, and runs M of them: M e_k + the sum of e before k, over v
        chunks. For a given sum S of all e the maximum of these is least where they are equal: e_k
        falls by q = 1 - 1/(M v) from stage to stage, and the bound is S / (v (1 - q^p)). A schedule
        that neither fills nor drains: M S / p.
        """
        if not self.fills_and_drains:
            return micro_batches * through_s / layout.pp
        falls = (1.0 - 1.0 / (micro_batches * layout.vpp)) ** layout.pp
        return through_s / (layout.vpp * (1.0 - falls))


def last_place(layout: Layout) -> int:
    """The last place that a micro-batch passes."""
    return layout.pp * layout.vpp - 1


def works(kind: Kind, micro_batches: int) -> list[Work]:
    """One kind of work of each micro-batch, for stages of one chunk."""
    return [Work(kind, m) for m in range(micro_batches)]


def alternating(forward: Sequence[Work], backward: Sequence[Work], ahead: int) -> list[Work]:
    """``ahead`` forwards, then one forward and one backward in turn, then the other backwards."""
    ahead = min(ahead, len(forward))
    steady = [w for pair in zip(forward[ahead:], backward, strict=False) for w in pair]
    return [*forward[:ahead], *steady, *backward[len(forward) - ahead :]]


def mean_stage(seconds: Array, stages: Sequence[int]) -> Array:
    """Mean over all stages of seconds that are given for each run: [C]."""
    count = np.array(stages, dtype=np.float64)[:, None]
    return (count * seconds).sum(axis=0) / count.sum()
