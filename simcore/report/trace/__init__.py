"""Traces of one predicted step, in the formats of programs that show or replay traces."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

from simcore.answer.result import Prediction
from simcore.report.trace.chrome import to_trace
from simcore.report.trace.kineto import write_rank_traces


def write_trace(p: Prediction, path: Path) -> None:
    """Write a step as a Chrome trace, compressed if ``path`` ends in ``.gz``.

    Raises OSError, and ValueError if the prediction has no timeline.
    """
    data = json.dumps(to_trace(p), separators=(",", ":"), allow_nan=False).encode()
    path.write_bytes(gzip.compress(data, mtime=0) if path.suffix == ".gz" else data)


__all__ = ["to_trace", "write_rank_traces", "write_trace"]
