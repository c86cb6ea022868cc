"""Memory as files: the snapshot as torch's own tools read it."""

from __future__ import annotations

import pickle
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from simcore import api
from simcore.base.errors import UsageError
from simcore.memory.over_time import MemoryTimeline
from simcore.report.memory import snapshot, write_snapshot


@lru_cache(maxsize=4)
def timeline(
    model: str = "gpt2", gpus: str = "1x8xA100-SXM-80GB", batch: int = 2
) -> MemoryTimeline:
    return api.memory_timeline(model, gpus, micro_batch=batch)


@pytest.fixture
def stored(tmp_path: Path) -> Any:
    path = tmp_path / "memory.pickle"
    write_snapshot(timeline(), path)
    with path.open("rb") as file:
        return pickle.load(file)


def test_torchs_own_viewer_reads_the_snapshot(stored: Any) -> None:
    """Its summary checks that blocks fill segments and sums agree; it raises where they do not."""
    from torch.cuda import _memory_viz as viz

    text = viz.segsum(stored)
    assert f"segments: {len(timeline().replay.segments)}" in text
    told = viz.trace(stored)
    assert "cudaMalloc" in told
    assert told.startswith("Device 0")
    assert "[0:" in told  # an allocation is found in its segment
    for plot in (viz.trace_plot, viz.segment_plot):
        assert "snapshot.pickle" in plot(stored)
    flames = viz.memory(stored, format_flamegraph=lambda lines: lines)
    assert "simcore:0:optimizer_state" in flames
    left = viz.filter_alloc_free_pairs(pickle.loads(pickle.dumps(stored)))
    kept = {e["action"] for e in left["device_traces"][0]}
    assert kept == {"alloc", "segment_alloc"}


def test_the_trace_rebuilds_what_is_held(stored: Any) -> None:
    """Events in time order; allocations less frees are the active blocks of the segments."""
    events = stored["device_traces"][0]
    assert all(a["time_us"] <= b["time_us"] for a, b in pairwise(events))
    held: dict[int, int] = {}
    reserved = 0
    for event in events:
        if event["action"] == "alloc":
            assert event["addr"] not in held
            held[event["addr"]] = event["size"]
        elif event["action"] == "free_completed":
            assert held.pop(event["addr"]) == event["size"]
        elif event["action"] == "segment_alloc":
            reserved += event["size"]
    blocks = [b for s in stored["segments"] for b in s["blocks"]]
    active = [b for b in blocks if b["state"] == "active_allocated"]
    assert {b["address"]: b["requested_size"] for b in active} == held
    assert reserved == sum(s["total_size"] for s in stored["segments"])
    assert reserved == timeline().replay.reserved[-1]


def test_frames_name_module_op_and_term(stored: Any) -> None:
    found = {
        tuple((f["filename"], f["name"]) for f in e["frames"])
        for e in stored["device_traces"][0]
        if e["action"] == "alloc"
    }
    assert (("layer.3", "up"), ("simcore", "activations")) in found
    assert (("layer.3", "down gradient"), ("simcore", "working_set")) in found
    assert (("cuBLAS", "forward"), ("simcore", "workspace")) in found


def test_a_snapshot_holds_plain_values_only(stored: Any) -> None:
    def walk(value: Any) -> None:
        if isinstance(value, dict):
            for key, item in value.items():
                assert type(key) is str
                walk(item)
        elif isinstance(value, (list, tuple)):
            for item in value:
                walk(item)
        else:
            assert type(value) in (int, str, bool), value

    walk(stored)


def test_running_out_of_memory_ends_the_trace() -> None:
    made = snapshot(timeline("latte-xl", "1x8xRTX4090", 1))
    last = made["device_traces"][0][-1]
    assert last["action"] == "oom"
    assert last["device_free"] < last["size"]
    from torch.cuda import _memory_viz as viz

    assert "OutOfMemoryError" in viz.trace(made)
    viz.segsum(made)


def test_the_command_writes_both(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from simcore.cli.output import Files

    pickle_file, plot = tmp_path / "o.pickle", tmp_path / "o.svg"
    answer = api.predict("gpt2", "1x8xA100-SXM-80GB", micro_batch=1)
    files = Files(memory_snapshot=pickle_file, memory_plot=plot)
    files.write(answer, "gpt2", "1x8xA100-SXM-80GB", {"micro_batch": 1})
    told = capsys.readouterr().err
    assert "memory_viz" in told
    assert "reserved" in told
    assert pickle_file.stat().st_size > 1000 < plot.stat().st_size
    assert files.problems() == []
    wrong = Files(memory_snapshot=tmp_path, memory_plot=tmp_path / "no" / "o.gif").problems()
    assert len(wrong) == 3
    with pytest.raises(UsageError, match="cannot be written"):
        Files(memory_snapshot=tmp_path).write(answer, "gpt2", "1x8xA100-SXM-80GB", {})
