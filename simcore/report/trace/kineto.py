"""One step as PyTorch's profiler would have written it: a file a sampled rank, in a folder.

Holistic Trace Analysis reads such folders. Kernels (``cat: kernel``) carry a stream and the
correlation of the launch before them; names of collectives begin with ``nccl``, by which
programs tell them from compute. A predicted kernel is a stretch of the step, not one kernel of
the device, and its launch is drawn just before it: the host's own time is not in these files.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

from simcore.engine.result import Prediction
from simcore.report.trace.chrome import Event, micros
from simcore.report.trace.slices import COMPUTE, Line, Slice, lines_of

#: Stream numbers as PyTorch's: 7 is the first after the default ones; a communicator has its own.
_COMPUTE_STREAM, _FIRST_OTHER_STREAM = 7, 20
_HOST_THREAD = 1
#: A launch before its kernel: a microsecond of cudaLaunchKernel, in the trace's unit.
_LAUNCH = 1.0


def _is_compute(track: str) -> bool:
    return track == COMPUTE or track.startswith(f"{COMPUTE} ")


def _kernel_name(piece: Slice) -> str:
    return piece.name if _is_compute(piece.track) else f"ncclDevKernel_{piece.name}"


def _rank(p: Prediction, line: Line) -> dict[str, Any]:
    tracks = [t for t in line.tracks if t != "host"]
    streams = {
        t: _COMPUTE_STREAM if _is_compute(t) else _FIRST_OTHER_STREAM + i
        for i, t in enumerate(tracks)
    }
    pieces = [
        s for s in line.slices if s.track in streams and micros(s.finish_s) > micros(s.start_s)
    ]
    end = max(micros(s.finish_s) for s in pieces)
    host = {"pid": line.rank + 1, "tid": _HOST_THREAD}
    events: list[Event] = [
        {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#1", **host,
         "ts": 0.0, "dur": end + _LAUNCH, "args": {}},
    ]  # fmt: skip
    for number, piece in enumerate(sorted(pieces, key=lambda s: s.start_s), start=1):
        start = micros(piece.start_s) + _LAUNCH
        linked = {"correlation": number, "External id": number}
        events += [
            {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", **host,
             "ts": start - _LAUNCH, "dur": _LAUNCH, "args": linked},
            {"ph": "X", "cat": "kernel", "name": _kernel_name(piece), "pid": 0,
             "tid": streams[piece.track], "ts": start,
             "dur": micros(piece.finish_s) - micros(piece.start_s),
             "args": {**linked, "device": 0, "stream": streams[piece.track]}},
        ]  # fmt: skip
    return {
        "schemaVersion": 1,
        "deviceProperties": [{"id": 0, "name": p.rank_classes[0].gpu}],
        "distributedInfo": {"backend": "nccl", "rank": line.rank, "world_size": p.n_gpus},
        "traceName": f"{p.model_full_name}, rank {line.rank}: predicted",
        "traceEvents": events,
    }


def write_rank_traces(p: Prediction, folder: Path) -> tuple[Path, ...]:
    """Write a file for one rank of each kind (or stage) into ``folder``; returns their paths.

    Raises ValueError without a kept timeline, OSError where a file cannot be written.
    """
    written = []
    for line in lines_of(p).lines:
        path = folder / f"rank-{line.rank}.json.gz"
        data = json.dumps(_rank(p, line), allow_nan=False).encode()  # HTA looks for '"rank": '
        path.write_bytes(gzip.compress(data, mtime=0))
        written.append(path)
    return tuple(written)
