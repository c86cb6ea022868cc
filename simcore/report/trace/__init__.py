"""Traces of one step, for programs that show or replay them."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

from simcore.engine.result import Prediction
from simcore.report.trace.chrome import to_trace
from simcore.report.trace.kineto import write_rank_traces


def write_trace(p: Prediction, path: Path) -> None:
    """Write the trace; a name that ends in ``.gz`` is compressed. Raises OSError."""
    data = json.dumps(to_trace(p), separators=(",", ":"), allow_nan=False).encode()
    path.write_bytes(gzip.compress(data, mtime=0) if path.suffix == ".gz" else data)


__all__ = ["to_trace", "write_rank_traces", "write_trace"]
