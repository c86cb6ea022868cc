"""Folders for Holistic Trace Analysis: what its parser asks for."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from typing import Any

import pytest

from simcore import api
from simcore.report.trace import write_rank_traces

JOBS: list[tuple[str, str, dict[str, Any], list[int]]] = [
    ("llama3-8b", "2x8xH100", {"tp": 4, "pp": 2, "strategy": "zero1", "micro_batch": 1}, [0, 8]),
    ("latte-s", "1x2xA100+1x3xT4", {"network": "eth-10"}, [0, 2]),
]


@pytest.mark.parametrize(("model", "gpus", "options", "ranks"), JOBS)
def test_files(
    model: str, gpus: str, options: dict[str, Any], ranks: list[int], tmp_path: Path
) -> None:
    answer = api.predict(model, gpus, keep_timeline=True, **options)
    for path, rank in zip(write_rank_traces(answer, tmp_path), ranks, strict=True):
        text = gzip.decompress(path.read_bytes()).decode()
        found = re.search(r'"rank":\s+(\d+)', text)  # HTA 0.5.0, common/trace_file.py
        assert found is not None and int(found[1]) == rank
        trace = json.loads(text)
        assert trace["distributedInfo"]["world_size"] == answer.n_gpus
        events = trace["traceEvents"]
        kernels = {
            e["args"]["correlation"]: e for e in events if e["cat"] in ("kernel", "gpu_memcpy")
        }
        launches = {e["args"]["correlation"]: e for e in events if e["cat"] == "cuda_runtime"}
        assert kernels.keys() == launches.keys() and kernels
        for number, kernel in kernels.items():
            assert launches[number]["ts"] < kernel["ts"]
            assert kernel["dur"] > 0 and kernel["args"]["stream"] == kernel["tid"]
            assert kernel["name"].startswith(("nccl", "Memcpy")) == (kernel["tid"] != 7)
        step = next(e for e in events if e["cat"] == "user_annotation")
        assert step["name"].startswith("ProfilerStep#")
        assert all(e["ts"] + e["dur"] <= step["dur"] + 1e-2 for e in events)
