"""The content of a trace, independent of its format: slices on named tracks, arrows, memory.

Times are in seconds. A ``Line`` is one rank that represents ``n_gpus`` equal ones.
"""

from __future__ import annotations

from collections.abc import Iterator

from simcore.answer.pipeline_timeline import PipelineLine, StageLine
from simcore.answer.result import Prediction
from simcore.base.record import dataclass
from simcore.step.schedules import schedule_of
from simcore.step.schedules.base import Slot, last_place
from simcore.strategy.layout import Layout

#: The tracks of a pipeline stage that are shown first, in this order.
COMPUTE, EXCHANGE, GRADIENTS = "compute", "exchange", "comm"


@dataclass(frozen=True)
class Slice:
    """A piece of work on a track; ``term`` is the term of the time breakdown that it is part of.

    ``waits_s``: seconds of it in which it waits for the host that issues it.
    """

    name: str
    track: str
    term: str
    start_s: float
    finish_s: float
    waits_s: float = 0.0


@dataclass(frozen=True)
class Arrow:
    """Activations or gradients that line ``source`` sends to line ``target`` (indices of lines)."""

    source: int
    source_s: float
    target: int
    target_s: float


@dataclass(frozen=True)
class Line:
    """One rank: its title, its tracks in the order shown, its slices, and its memory over time.

    ``n_gpus`` is the number of equal ranks; ``held_bytes`` are pairs of a time and the bytes held.
    """

    title: str
    rank: int
    n_gpus: int
    tracks: tuple[str, ...]
    slices: tuple[Slice, ...]
    held_bytes: tuple[tuple[float, float], ...] = ()


@dataclass(frozen=True)
class Lines:
    """The content of a whole trace."""

    lines: tuple[Line, ...]
    arrows: tuple[Arrow, ...] = ()


def lines_of(p: Prediction) -> Lines:
    """The trace of a prediction's step. Raises ValueError if it was made without keep_timeline."""
    if p.pipeline is not None:
        return _pipeline(p, p.pipeline)
    if p.timeline is None:
        raise ValueError("predict with keep_timeline=True to get a trace")
    graph, lines, first = p.timeline.graph, [], 0
    own_s = p.timeline.duration_s

    def waits(task: int, shown_s: float) -> float:
        return 0.0 if own_s is None else max(shown_s - float(own_s[task, 0]), 0.0)

    for index, rank in enumerate(p.rank_classes):
        tracks = tuple(
            s for s in graph.streams if not s.startswith("compute ") or s == f"compute {index}"
        )
        slices = tuple(
            Slice(task.name, task.stream, task.term, start, finish, waits(i, finish - start))
            for i, task in enumerate(graph.tasks)
            if task.stream in tracks
            and (finish := float(p.timeline.finish_s[i, 0]))
            > (start := float(p.timeline.start_s[i, 0]))
        )
        title = f"{rank.gpu} (each of {rank.n_gpus})"
        lines.append(Line(title, first, rank.n_gpus, tracks, slices))
        first += rank.n_gpus
    return Lines(tuple(lines))


def _pipeline(p: Prediction, line: PipelineLine) -> Lines:
    lines = []
    for i, stage in enumerate(line.stages):
        slices = (
            *(piece for slot in stage.slots for piece in pieces(slot, stage, line.layout)),
            *(
                Slice(s.name, s.stream, s.term, s.start_s, s.finish_s)
                for s in (*stage.begins, *stage.ends)
            ),
        )
        used = {s.track for s in slices}
        tracks = [t for t in (COMPUTE, EXCHANGE, GRADIENTS) if t in used]
        tracks += sorted(used.difference(tracks))
        title = (
            f"stage {i}, {stage.n_layers} layers: {p.rank_classes[0].gpu} (each of {stage.n_gpus})"
        )
        rank = i * stage.n_gpus  # the stage is the slowest-varying part of a rank's number
        lines.append(Line(title, rank, stage.n_gpus, tuple(tracks), slices, stage.held_bytes))
    return Lines(tuple(lines), tuple(_arrows(line)))


def pieces(slot: Slot, stage: StageLine, layout: Layout) -> Iterator[Slice]:
    """The slices of a slot: its compute, then the exchanges of its layers.

    In reality compute and exchanges alternate layer by layer; the trace joins each of the two.
    """
    work = slot.work
    schedule = schedule_of(layout)
    parts = schedule.parts(layout)
    part = "end" if schedule.directions > 1 else "chunk"
    chunk = f", {part} {work.chunk}" if parts > 1 else ""
    side = {"forward": 0, "backward": 1}.get(work.kind)
    exchanges = {} if side is None else {n: x[side] / parts for n, x in stage.exchanges_s.items()}
    at = max(slot.start_s, slot.finish_s - sum(exchanges.values()))
    kind = "backward of weights" if work.kind == "weights" else work.kind
    name = f"{kind} {work.micro_batch}{chunk}"
    yield Slice(name, COMPUTE, "backward" if side is None else kind, slot.start_s, at)
    for exchange, seconds in exchanges.items():
        if seconds > 0:
            end = min(at + seconds, slot.finish_s)
            yield Slice(f"{exchange}: {name}", EXCHANGE, exchange, at, end)
            at = end


def _arrows(line: PipelineLine) -> Iterator[Arrow]:
    layout, last = line.layout, last_place(line.layout)
    schedule = schedule_of(layout)
    at = {
        (s.work.kind, s.work.micro_batch, schedule.place_of(layout, s.stage, s.work.chunk)): s
        for stage in line.stages
        for s in stage.slots
    }
    for (kind, m, place), slot in at.items():
        step = {"forward": 1, "backward": -1}.get(kind)
        if step is None or not 0 <= place + step <= last:
            continue
        target = at[kind, m, place + step]
        if target.stage != slot.stage:
            yield Arrow(slot.stage, slot.finish_s, target.stage, target.start_s)
