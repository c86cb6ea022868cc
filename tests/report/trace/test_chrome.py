"""Traces: what Perfetto needs, nothing that overlaps, and the schedule's own times."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from simcore import api
from simcore.answer.result import RankClass
from simcore.report.trace import to_trace, write_trace
from simcore.step.graph import StepGraph, Task, schedule

CASES: list[tuple[str, str, dict[str, Any]]] = [
    ("latte-l", "2x8xA6000ada", {}),
    ("bert-base", "1x2xA100+1x3xT4", {"network": "eth-10"}),
    ("gpt2", "2x8xA100", {"strategy": "zero3", "offload": "optimizer:cpu,params:cpu"}),
    ("mnist-cnn", "2x2xV100", {"strategy": "manual"}),
]


@pytest.mark.parametrize(("model", "gpus", "options"), CASES)
def test_slices_do_not_overlap(model: str, gpus: str, options: dict[str, Any]) -> None:
    answer = api.predict(model, gpus, keep_timeline=True, **options)
    trace = json.loads(json.dumps(to_trace(answer)))
    rows = defaultdict(list)
    for e in trace["traceEvents"]:
        assert e["ph"] in ("X", "M") and isinstance(e["pid"], int) and isinstance(e["tid"], int)
        if e["ph"] == "X":
            assert e["dur"] > 0 and e["ts"] >= 0 and e["name"] and e["cat"]
            rows[e["pid"], e["tid"]].append((e["ts"], e["ts"] + e["dur"]))
    for slices in rows.values():
        slices.sort()
        for (_, end), (start, _) in pairwise(slices):
            assert start >= end - 1e-6  # 1 ps: sums of rounded figures
    named = {(e["pid"], e["tid"]) for e in trace["traceEvents"] if e["name"] == "thread_name"}
    assert set(rows) <= named
    pids = {e["pid"] for e in trace["traceEvents"]}
    assert pids == set(range(len(answer.rank_classes)))
    assert answer.timeline is not None
    last = max(end for slices in rows.values() for _, end in slices)
    assert last == pytest.approx(answer.timeline.makespan_s[0] * 1e6, abs=0.01)


def test_a_hand_made_schedule(fake: Callable) -> None:
    graph = StepGraph(
        (
            Task("issue", "host", "host"),
            Task("work", "compute 0", "forward", (), (0,)),
            Task("work", "compute 1", "forward", (), (0,)),
            Task("nothing", "comm", "communication", (1, 2)),
            Task("send", "comm", "communication", (1, 2)),
        )
    )
    durations = np.array([[3e-6], [1e-6], [5e-6], [0.0], [2e-6]])
    p = fake(
        timeline=schedule(graph, durations),
        rank_classes=(RankClass(gpu="A", n_gpus=1, compute_s=1e-6),
                      RankClass(gpu="B", n_gpus=2, compute_s=5e-6)),
    )  # fmt: skip
    events = [e for e in to_trace(p)["traceEvents"] if e["ph"] == "X"]
    seen = {(e["pid"], e["name"]): (e["ts"], e["dur"]) for e in events}
    assert seen == {
        (0, "issue"): (0, 3), (1, "issue"): (0, 3),
        (0, "work"): (0, 3),  # 1 us of work, but it waits for the host
        (1, "work"): (0, 5),
        (0, "send"): (5, 2), (1, "send"): (5, 2),
    }  # fmt: skip


def test_files(fake: Callable, tmp_path: Path) -> None:
    answer = api.predict("mnist-cnn", "2xT4", keep_timeline=True)
    plain, packed = tmp_path / "t.json", tmp_path / "t.json.gz"
    write_trace(answer, plain)
    write_trace(answer, packed)
    assert json.loads(gzip.decompress(packed.read_bytes())) == json.loads(plain.read_text())
    with pytest.raises(ValueError, match="keep_timeline"):
        to_trace(fake())
