"""Memory as files: the snapshot as torch's own tools read it, and the plot."""

from __future__ import annotations

import pickle
import struct
import warnings
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from simcore import api
from simcore.base.errors import UsageError
from simcore.engine.memory_timeline import MemoryTimeline
from simcore.report.memory import figure, snapshot, write_plot, write_snapshot


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


def test_the_plot_stacks_every_term_below_the_limit() -> None:
    seen = timeline("latte-l", "1x8xA6000ada", 1)
    made = figure(seen)
    (axes,) = made.axes
    labels = [t.get_text() for t in made.axes[0].get_legend().get_texts()]
    assert {k.replace("_", " ") for k in seen.terms} <= set(labels)
    assert "device limit, 48.3 GB" in labels
    assert axes.get_ylim()[1] > 48.3
    fills = [
        (tuple(c.get_facecolor()[0]), c.get_hatch()) for c in axes.collections if c.get_label()
    ]
    assert all(a != b for a, b in pairwise(fills)), "neighbours differ without colour"
    assert all(r == g == b for (r, g, b, _), _ in fills), "no colour"


def test_a_limit_far_above_is_left_to_the_legend() -> None:
    made = figure(timeline())
    assert made.axes[0].get_ylim()[1] < 40
    assert any(
        "device limit, 85.9 GB" in t.get_text() for t in made.axes[0].get_legend().get_texts()
    )


def test_plots_are_written_without_a_display_and_alike(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for name in ("a.svg", "b.svg", "c.PNG"):
            write_plot(timeline(), tmp_path / name)
    ElementTree.parse(tmp_path / "a.svg")
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
    head = (tmp_path / "c.PNG").read_bytes()[:24]
    assert head[1:4] == b"PNG"
    width, height = struct.unpack(">II", head[16:24])
    assert (width, height) == (1200, 675)
    with pytest.raises(UsageError, match=r"\.svg or \.png"):
        write_plot(timeline(), tmp_path / "d.pdf")


def test_without_matplotlib_one_sentence_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "matplotlib.figure", None)
    with pytest.raises(UsageError, match="needs matplotlib"):
        figure(timeline())


def test_the_command_writes_both(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from simcore.cli.memory_files import path_problems, write_files

    pickle_file, plot = tmp_path / "o.pickle", tmp_path / "o.svg"
    write_files("gpt2", "1x8xA100-SXM-80GB", {"micro_batch": 1}, pickle_file, plot)
    told = capsys.readouterr().err
    assert "memory_viz" in told
    assert "reserved" in told
    assert pickle_file.stat().st_size > 1000 < plot.stat().st_size
    assert path_problems(pickle_file, plot) == []
    wrong = path_problems(tmp_path, tmp_path / "no" / "o.pdf")
    assert len(wrong) == 3
    with pytest.raises(UsageError, match="cannot be written"):
        write_files("gpt2", "1x8xA100-SXM-80GB", {}, tmp_path, None)
