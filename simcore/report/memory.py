"""The memory over one step as a snapshot for pytorch.org/memory_viz.

The snapshot has the structure that ``torch.cuda.memory._snapshot()`` returns and
``_dump_snapshot`` pickles. Its stack frames name a module and an op instead of Python code.
"""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

from simcore.memory.events import Allocation
from simcore.memory.over_time import MemoryTimeline
from simcore.memory.result import SegmentState


def _frames(what: Allocation) -> list[dict[str, Any]]:
    """The stack frames of an allocation, the innermost first, as in PyTorch's snapshots."""
    return [
        {"filename": what.module, "line": 0, "name": what.op or what.module},
        {"filename": "simcore", "line": 0, "name": what.term},
    ]


def _segment(segment: SegmentState, whats: list[Allocation]) -> dict[str, Any]:
    blocks = [
        {
            "address": b.address,
            "size": b.n_bytes,
            "requested_size": b.requested_bytes,
            "state": "inactive" if b.owner is None else "active_allocated",
            "frames": [] if b.owner is None else _frames(whats[b.owner]),
        }
        for b in segment.blocks
    ]
    used = [b for b in segment.blocks if b.owner is not None]
    return {
        "device": 0,
        "address": segment.address,
        "total_size": segment.n_bytes,
        "allocated_size": sum(b.n_bytes for b in used),
        "active_size": sum(b.n_bytes for b in used),
        "requested_size": sum(b.requested_bytes for b in used),
        "stream": 0,
        "segment_type": "small" if segment.small else "large",
        "segment_pool_id": (0, 0),
        "is_expandable": segment.expandable,
        "frames": [],
        "blocks": blocks,
    }


def snapshot(timeline: MemoryTimeline) -> dict[str, Any]:
    """The snapshot: segments at the end of the last step, and every event since the start.

    Events have no time of their own; they follow each other by one microsecond.
    """
    played, whats = timeline.replay, timeline.events.what
    trace: list[dict[str, Any]] = []
    changes = iter((*played.segment_events, None))
    change = next(changes)
    sizes: dict[int, int] = {}

    def entry(action: str, address: int, n_bytes: int, at: int, frames: Any) -> None:
        trace.append(
            {"action": action, "addr": address, "size": n_bytes, "stream": 0, "time_us": at,
             "frames": frames}
        )  # fmt: skip

    for at, (number, n_bytes) in enumerate(timeline.events.events):
        while change is not None and change.at <= at:
            entry(change.action, change.address, change.n_bytes, at, _frames(whats[number]))
            change = next(changes)
        if at == played.failed_at:
            trace.append(
                {"action": "oom", "addr": 0, "size": n_bytes, "stream": 0, "time_us": at,
                 "device_free": _free(timeline), "frames": _frames(whats[number])}
            )  # fmt: skip
            break
        address = int(played.address[at])
        if n_bytes is not None:
            sizes[number] = n_bytes
            entry("alloc", address, n_bytes, at, _frames(whats[number]))
        else:
            for action in ("free_requested", "free_completed"):
                entry(action, address, sizes[number], at, _frames(whats[number]))
    return {
        "segments": [_segment(s, whats) for s in played.segments],
        "device_traces": [trace],
        "allocator_settings": {
            "expandable_segments": any(s.expandable for s in played.segments),
        },
        "external_annotations": [],
    }


def _free(timeline: MemoryTimeline) -> int:
    reserved = int(timeline.replay.reserved[-1]) if len(timeline.replay.reserved) else 0
    return max(int(timeline.limit_bytes - timeline.outside_bytes) - reserved, 0)


def write_snapshot(timeline: MemoryTimeline, path: Path) -> None:
    """Write a snapshot to ``path`` as a pickle. Raises OSError."""
    with path.open("wb") as file:
        pickle.dump(snapshot(timeline), file)
