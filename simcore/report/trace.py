"""One step as a Chrome trace, for ui.perfetto.dev and chrome://tracing.

One process for each rank class, one thread for each stream, complete events (``ph: X``) in
microseconds. Streams that all ranks share (host, collectives) stand in every process.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

from simcore.base.units import MICRO
from simcore.engine.result import SCHEMA_VERSION, Prediction

#: Digits behind the point of a microsecond: nanoseconds.
_DIGITS = 3


def _process_streams(streams: tuple[str, ...], index: int) -> list[str]:
    """Streams that ranks of class ``index`` see: shared ones, and their own ``compute i``."""
    return [s for s in streams if not s.startswith("compute ") or s == f"compute {index}"]


def _metadata(pid: int, name: str, streams: list[str]) -> list[dict[str, Any]]:
    def event(what: str, tid: int, **args: Any) -> dict[str, Any]:
        return {"ph": "M", "name": what, "pid": pid, "tid": tid, "args": args}

    events = [
        event("process_name", 0, name=name),
        event("process_sort_index", 0, sort_index=pid),
    ]
    for tid, stream in enumerate(streams):
        events.append(event("thread_name", tid, name=stream))
        events.append(event("thread_sort_index", tid, sort_index=tid))
    return events


def to_trace(p: Prediction) -> dict[str, Any]:
    """The trace of the central estimate. Raises ValueError without a kept timeline.

    A slice runs from a task's start to its finish, so that work which waits for the host to
    issue it shows as long as it takes.
    """
    line = p.timeline
    if line is None:
        raise ValueError("predict with keep_timeline=True to get a trace")
    events: list[dict[str, Any]] = []
    for pid, rank in enumerate(p.rank_classes):
        streams = _process_streams(line.graph.streams, pid)
        events += _metadata(pid, f"{rank.gpu} (each of {rank.n_gpus})", streams)
        tids = {stream: tid for tid, stream in enumerate(streams)}
        for i, task in enumerate(line.graph.tasks):
            start = round(float(line.start_s[i, 0]) / MICRO, _DIGITS)
            finish = round(float(line.finish_s[i, 0]) / MICRO, _DIGITS)
            if task.stream not in tids or finish <= start:
                continue
            events.append(
                {
                    "ph": "X",
                    "name": task.name,
                    "cat": task.term,
                    "pid": pid,
                    "tid": tids[task.stream],
                    "ts": start,
                    "dur": round(finish - start, _DIGITS),
                    "args": {"term": task.term, "stream": task.stream},
                }
            )
    return {
        "displayTimeUnit": "ms",
        "traceEvents": events,
        "otherData": {
            "schema_version": SCHEMA_VERSION,
            "model": p.model_full_name,
            "cluster": p.cluster,
            "step_time_s": p.step_time_s.value,
        },
    }


def write_trace(p: Prediction, path: Path) -> None:
    """Write the trace; a name that ends in ``.gz`` is compressed. Raises OSError."""
    data = json.dumps(to_trace(p), separators=(",", ":"), allow_nan=False).encode()
    path.write_bytes(gzip.compress(data, mtime=0) if path.suffix == ".gz" else data)
