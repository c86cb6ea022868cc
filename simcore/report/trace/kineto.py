"""One step in the format of PyTorch's profiler: a folder with one file for each sampled rank.

Holistic Trace Analysis reads such folders. Kernels (``cat: kernel``) have a stream and the
correlation number of their launch. Names of collectives begin with ``nccl``, by which programs
distinguish them from compute. A predicted kernel is a part of the step, not a single kernel of the
device, and its launch is written just before it. What it waits for its host is a gap before it;
other time of the host is not in these files.
``args.term`` is the term of the time breakdown; simcore uses it to read these files.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

from simcore.answer.result import Prediction
from simcore.report.trace.chrome import Event, micros
from simcore.report.trace.slices import COMPUTE, Line, Slice, lines_of

#: Stream numbers as in PyTorch's traces: compute is on 7, the first after the default streams; each
#: communicator has another stream.
_COMPUTE_STREAM, _FIRST_OTHER_STREAM = 7, 20
_HOST_THREAD = 1
#: Names of the host's tracks, of the track of copies, and of its copies from device to host.
HOST, COPY, DOWN = ("host", "host cpu"), "copy", "gradients to host"
#: Duration of a launch before its kernel, in microseconds.
_LAUNCH = 1.0


def _is_compute(track: str) -> bool:
    return track == COMPUTE or track.startswith(f"{COMPUTE} ")


def _kernel(piece: Slice) -> tuple[str, str]:
    """The category and name of a slice: as CUDA names copies, as NCCL names collectives."""
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
        s
        for s in line.slices
        if s.track in streams and micros(s.finish_s) > micros(s.start_s + s.waits_s)
    ]
    end = max(micros(s.finish_s) for s in pieces)
    host = {"pid": line.rank + 1, "tid": _HOST_THREAD}
    events: list[Event] = [
        {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#1", **host,
         "ts": 0.0, "dur": end + _LAUNCH, "args": {}},
    ]  # fmt: skip
    for number, piece in enumerate(sorted(pieces, key=lambda s: s.start_s), start=1):
        begin = micros(piece.start_s + piece.waits_s)
        start = begin + _LAUNCH
        linked = {"correlation": number, "External id": number}
        category, name = _kernel(piece)
        launch = "cudaMemcpyAsync" if category == "gpu_memcpy" else "cudaLaunchKernel"
        events += [
            {"ph": "X", "cat": "cuda_runtime", "name": launch, **host,
             "ts": start - _LAUNCH, "dur": _LAUNCH, "args": linked},
            {"ph": "X", "cat": category, "name": name, "pid": 0,
             "tid": streams[piece.track], "ts": start,
             "dur": micros(piece.finish_s) - begin,
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
    """Write a file for one rank of each kind (or stage) into ``folder`` and return their paths.

    Raises ValueError if the prediction has no timeline, OSError if a file cannot be written.
    """
    written = []
    for line in lines_of(p).lines:
        path = folder / f"rank-{line.rank}.json.gz"
        data = json.dumps(_rank(p, line), allow_nan=False).encode()  # HTA looks for '"rank": '
        path.write_bytes(gzip.compress(data, mtime=0))
        written.append(path)
    return tuple(written)
