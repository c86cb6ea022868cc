"""Memory over a step as files: a snapshot for pytorch.org/memory_viz, and a plot.

The snapshot has the structure that ``torch.cuda.memory._snapshot()`` returns and
``_dump_snapshot`` pickles; frames name module and op instead of Python code.
"""

from __future__ import annotations

import pickle
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from simcore.base.arrays import NDArray
from simcore.base.errors import UsageError
from simcore.base.units import GIGA
from simcore.engine.allocator import SegmentState
from simcore.engine.memory_events import Allocation
from simcore.engine.memory_timeline import MemoryTimeline

#: Formats of a plot, by the ending of its file.
PLOT_FORMATS = ("svg", "png")
#: Space above the highest line; a device limit further above than this is left to the legend.
_HEADROOM, _FAR = 1.15, 2.5
#: Columns of a plot; each shows the fullest event of its stretch.
_COLUMNS = 900
#: Grey and hatch of the terms in the order they are stacked: neighbours differ in both.
_FILLS = (
    ("0.25", ""), ("0.55", "//"), ("0.85", ".."), ("0.4", "\\\\"), ("0.7", ""), ("0.95", "xx"),
    ("0.5", ".."), ("0.8", "\\\\"), ("0.35", "//"), ("0.9", ""), ("0.65", "xx"),
)  # fmt: skip


def _frames(what: Allocation) -> list[dict[str, Any]]:
    """Innermost first, as PyTorch lists them."""
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
    """Segments at the end of the last step, and every event since the start, one a microsecond."""
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
    held = int(timeline.replay.reserved[-1]) if len(timeline.replay.reserved) else 0
    return max(int(timeline.limit_bytes - timeline.outside_bytes) - held, 0)


def write_snapshot(timeline: MemoryTimeline, path: Path) -> None:
    """Pickle a snapshot. Raises OSError."""
    with path.open("wb") as file:
        pickle.dump(snapshot(timeline), file)


def figure(timeline: MemoryTimeline) -> Any:
    """A matplotlib Figure of the step: terms stacked, reserved memory and the limit as lines.

    Over allocations and frees in order, in GB; legible without colour. Raises UsageError where
    matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise UsageError("a plot needs matplotlib: pip install 'simcore[plot]'") from None
    total = sum(timeline.terms.values(), np.zeros(len(timeline.reserved)))
    at = _fullest(total)
    made = Figure(figsize=(8.0, 4.5), layout="constrained")
    axes = made.add_subplot()
    base = np.full(len(at), timeline.outside_bytes / GIGA)
    axes.fill_between(
        at, 0.0, base, step="post", facecolor="white", edgecolor="black", linewidth=0.4,
        label="CUDA context, NCCL",
    )  # fmt: skip
    for (name, values), (grey, hatch) in zip(timeline.terms.items(), _FILLS, strict=False):
        top = base + values[at] / GIGA
        axes.fill_between(
            at, base, top, step="post", facecolor=grey, hatch=hatch, edgecolor="black",
            linewidth=0.4, label=name.replace("_", " "),
        )  # fmt: skip
        base = top
    reserved = (timeline.reserved[at] + timeline.outside_bytes) / GIGA
    axes.step(at, reserved, "k-", where="post", linewidth=1.2, label="reserved, on the device")
    limit = timeline.limit_bytes / GIGA
    axes.axhline(
        limit, color="black", linestyle="--", linewidth=1.5, label=f"device limit, {limit:.1f} GB"
    )
    starts = [*timeline.phases, (len(total), "")]
    for (first, name), (following, _) in pairwise(starts):
        if following - first > len(total) / 50:
            axes.axvline(first, color="black", linestyle=":", linewidth=0.8)
            axes.annotate(
                name, ((first + following) / 2, 1.0), xycoords=("data", "axes fraction"),
                ha="center", va="bottom", fontsize=8,
            )  # fmt: skip
    axes.set_xlim(0, max(len(total) - 1, 1))
    highest = max(float(reserved.max(initial=0.0)), 1.0 / GIGA) * _HEADROOM
    near = limit < _FAR * highest
    axes.set_ylim(0.0, max(highest, limit * 1.05) if near else highest)
    axes.set_xlabel(f"allocations and frees of one step: {timeline.model} on {timeline.cluster}")
    axes.set_ylabel("memory of the fullest GPU [GB]")
    handles, labels = axes.get_legend_handles_labels()
    axes.legend(
        handles[::-1], labels[::-1], loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=8,
        frameon=False,
    )  # fmt: skip
    return made


def _fullest(total: NDArray[np.float64]) -> NDArray[np.intp]:
    """The event that holds most in each column of the plot."""
    if len(total) <= _COLUMNS:
        return np.arange(len(total))
    edges = np.linspace(0, len(total), _COLUMNS + 1).astype(np.intp)
    return np.array([a + int(total[a:b].argmax()) for a, b in pairwise(edges)])


def write_plot(timeline: MemoryTimeline, path: Path) -> None:
    """Write ``figure`` as SVG or PNG, by the file's ending. Raises UsageError or OSError."""
    kind = path.suffix.lstrip(".").lower()
    if kind not in PLOT_FORMATS:
        raise UsageError(f"{str(path)!r} must end in .svg or .png")
    made = figure(timeline)
    import matplotlib

    with matplotlib.rc_context({"svg.hashsalt": "simcore"}):  # the same file every time
        made.savefig(path, format=kind, dpi=150, metadata={"Date": None} if kind == "svg" else None)
