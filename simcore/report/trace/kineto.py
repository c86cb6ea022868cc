"""One step as PyTorch's profiler would have written it: a file a sampled rank, in a folder.

Holistic Trace Analysis reads such folders. Kernels (``cat: kernel``) carry a stream and the
correlation of the launch before them; names of collectives begin with ``nccl``, by which
programs tell them from compute. A predicted kernel is a stretch of the step, not one kernel of
the device, and its launch is drawn just before it: the host's own time is not in these files.
``args.term`` is the slice's line of the time breakdown, by which simcore reads its own files back.
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
#: Tracks of the host, and of copies to it and from it; what of these goes down.
HOST, COPY, DOWN = ("host", "host cpu"), "copy", "gradients to host"
#: A launch before its kernel: a microsecond of cudaLaunchKernel, in the trace's unit.
_LAUNCH = 1.0


def _is_compute(track: str) -> bool:
    return track == COMPUTE or track.startswith(f"{COMPUTE} ")


def _kernel(piece: Slice) -> tuple[str, str]:
    """Category and name: compute as it is, copies as CUDA's, all else as NCCL's."""
    if _is_compute(piece.track):
        return "kernel", piece.name
    if piece.track == COPY:
        direction = "DtoH" if piece.name == DOWN else "HtoD"
        return "gpu_memcpy", f"Memcpy {direction} ({piece.name})"
    return "kernel", f"ncclDevKernel_{piece.name}"


def _rank(p: Prediction, line: Line) -> dict[str, Any]:
    tracks = [t for t in line.tracks if t not in HOST]
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
        category, name = _kernel(piece)
        launch = "cudaMemcpyAsync" if category == "gpu_memcpy" else "cudaLaunchKernel"
        events += [
            {"ph": "X", "cat": "cuda_runtime", "name": launch, **host,
             "ts": start - _LAUNCH, "dur": _LAUNCH, "args": linked},
            {"ph": "X", "cat": category, "name": name, "pid": 0,
             "tid": streams[piece.track], "ts": start,
             "dur": micros(piece.finish_s) - micros(piece.start_s),
             "args": {**linked, "device": 0, "stream": streams[piece.track], "term": piece.term}},
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
