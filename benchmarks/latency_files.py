"""Seconds that commands need for large files and for models of other packages."""

from __future__ import annotations

import importlib.util
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.latency_calls import NotHere, command_s, process_s
from simcore.base.units import MEGA

#: Size of the traces that are read [bytes].
_TRACE_BYTES = 50 * MEGA
_OPS = (
    ("aten::mm", "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize2x1x1"),
    ("aten::add", "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add>"),
    ("c10d::allreduce_", "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage)"),
)  # fmt: skip


def _step(number: int, n_bytes: float, start_us: float) -> Iterator[dict[str, Any]]:
    """Events of one training step: operators, the launches inside them and their kernels."""
    at, used = start_us, 0.0
    while used < n_bytes:
        op, kernel = _OPS[0 if int(at) % 2 else 1 if int(at) % 5 else 2]
        ident = {"External id": int(at), "correlation": int(at)}
        for event in (
            {"ph": "X", "cat": "cpu_op", "name": op, "tid": 1, "ts": at, "dur": 9, "args": ident},
            {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "tid": 1, "ts": at + 2,
             "dur": 4, "args": {**ident, "cbid": 211}},
            {"ph": "X", "cat": "kernel", "name": kernel, "tid": 7, "ts": at + 20, "dur": 8,
             "args": {**ident, "device": 0, "stream": 7, "grid": [16, 16, 1]}},
        ):  # fmt: skip
            used += len(json.dumps(event)) + 2
            yield event
        at += 11
    yield {"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{number}", "tid": 1,
           "ts": start_us, "dur": at - start_us}  # fmt: skip


def _write_trace(path: Path, n_steps: int) -> None:
    start_us = 1e15
    with path.open("w", encoding="utf-8") as out:
        out.write('{"deviceProperties": [{"id": 0, "name": "NVIDIA H100"}], "traceEvents": [\n')
        for number in range(n_steps):
            for event in _step(number, _TRACE_BYTES / n_steps, start_us):
                out.write(json.dumps(event) + ",\n")
            start_us = event["ts"] + event["dur"]
        out.write('{"ph": "M"}\n]}\n')


def explain_trace_s(n: int, n_steps: int) -> float:
    """Seconds of ``simcore explain-trace`` for a trace of 50 MB with so many steps."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        _write_trace(path, n_steps)
        return command_s(min(n, 3), "explain-trace", str(path))


def first_trace_s(n: int, model: str) -> float:
    """Seconds of ``simcore predict`` for a model of timm or torchvision that is not yet traced."""
    library = model.partition(":")[0]
    for package in ("torch", library):
        if importlib.util.find_spec(package) is None:
            raise NotHere(f"{package} is not installed")

    def once() -> float:
        with tempfile.TemporaryDirectory() as folder:
            words = ["-m", "simcore", "predict", "--model", model, "--gpus", "8xA100"]
            return process_s(1, words, uncounted=0, XDG_CACHE_HOME=folder)

    return min(once() for _ in range(min(n, 3)))
