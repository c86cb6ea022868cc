"""One step as a Chrome trace, for ui.perfetto.dev and chrome://tracing.

The trace has one process for each kind of rank (or pipeline stage) and one thread for each stream.
Work is in complete events (``ph: X``) in microseconds, messages between stages are arrows (``s``,
``f``), memory is a counter (``C``). Streams that all ranks share (host, collectives) are in every
process.
"""

from __future__ import annotations

from typing import Any

from simcore.answer.result import SCHEMA_VERSION, Prediction
from simcore.base.units import GIGA, MICRO
from simcore.report.trace.slices import COMPUTE, EXCHANGE, Arrow, Line, Lines, lines_of

Event = dict[str, Any]

#: Decimals of a time in microseconds: the resolution is a nanosecond.
_DIGITS = 3


def micros(seconds: float) -> float:
    """Seconds as microseconds, rounded to the nanosecond."""
    return round(seconds / MICRO, _DIGITS)


def _metadata(pid: int, line: Line) -> list[Event]:
    def event(what: str, tid: int, **args: Any) -> Event:
        return {"ph": "M", "name": what, "pid": pid, "tid": tid, "args": args}

    events = [
        event("process_name", 0, name=line.title),
        event("process_sort_index", 0, sort_index=pid),
    ]
    for tid, track in enumerate(line.tracks):
        events.append(event("thread_name", tid, name=track))
        events.append(event("thread_sort_index", tid, sort_index=tid))
    return events


def _slices(pid: int, line: Line) -> list[Event]:
    tids = {track: tid for tid, track in enumerate(line.tracks)}
    return [
        {
            "ph": "X",
            "name": s.name,
            "cat": s.term,
            "pid": pid,
            "tid": tids[s.track],
            "ts": micros(s.start_s),
            "dur": round(micros(s.finish_s) - micros(s.start_s), _DIGITS),
            "args": {"term": s.term, "stream": s.track},
        }
        for s in line.slices
        if micros(s.finish_s) > micros(s.start_s)
    ]


def _counters(pid: int, line: Line) -> list[Event]:
    return [
        {"ph": "C", "name": "memory", "pid": pid, "tid": 0, "ts": micros(at_s),
         "args": {"GB": round(n_bytes / GIGA, _DIGITS)}}
        for at_s, n_bytes in line.held_bytes
    ]  # fmt: skip


def _arrow(number: int, arrow: Arrow, lines: Lines) -> list[Event]:
    """The events of an arrow: it starts inside the slice that sends and ends at the receiver's."""
    tracks = lines.lines[arrow.source].tracks
    leaves = tracks.index(EXCHANGE if EXCHANGE in tracks else COMPUTE)
    enters = lines.lines[arrow.target].tracks.index(COMPUTE)
    common = {"name": "to the next stage", "cat": "pipeline", "id": number}
    nano = 10.0**-_DIGITS
    return [
        {**common, "ph": "s", "pid": arrow.source, "tid": leaves,
         "ts": round(micros(arrow.source_s) - nano, _DIGITS)},
        {**common, "ph": "f", "bp": "e", "pid": arrow.target, "tid": enters,
         "ts": micros(arrow.target_s)},
    ]  # fmt: skip


def to_trace(p: Prediction) -> dict[str, Any]:
    """The trace of the central estimate as data in Chrome's trace format.

    A slice lasts from a task's start to its finish, so the slice of a kernel that waits for its
    launch includes that wait. Raises ValueError if the prediction has no timeline.
    """
    lines = lines_of(p)
    events: list[Event] = []
    for pid, line in enumerate(lines.lines):
        events += [*_metadata(pid, line), *_slices(pid, line), *_counters(pid, line)]
    for number, arrow in enumerate(lines.arrows):
        events += _arrow(number, arrow, lines)
    drawn = {"drawn_step_time_s": p.pipeline.finish_s} if p.pipeline else {}
    return {
        "displayTimeUnit": "ms",
        "traceEvents": events,
        "otherData": {
            "schema_version": SCHEMA_VERSION,
            "model": p.model_full_name,
            "cluster": p.cluster,
            "step_time_s": p.step_time_s.value,
            **drawn,
        },
    }
