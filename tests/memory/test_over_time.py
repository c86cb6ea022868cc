"""Memory over the step: terms after single events, and the step of a small job."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from simcore.answer.predict import predict
from simcore.answer.request import make_request
from simcore.base.errors import InvalidConfig, UnknownName
from simcore.memory.events import EventList
from simcore.memory.over_time import (
    STACK,
    MemoryTimeline,
    _by_term,
    memory_timeline,
    peak_reserved_bytes,
)

SMALL: dict[str, Any] = {"strategy": "ddp", "precision": "fp32", "micro_batch": 1, "seq_len": 64}


def four_events() -> EventList:
    """Parameters of 5 bytes that stay; activations of 3 that come, go and come again with 4."""
    events = EventList()
    events.alloc(5, "parameters", "model")
    first = events.alloc(3, "activations", "model")
    events.free(first)
    events.alloc(4, "activations", "model")
    return events


def test_bytes_of_each_term_after_each_event() -> None:
    every = _by_term(four_events(), 0, 4)
    assert {name: held.tolist() for name, held in every.items()} == {
        "parameters": [5, 5, 5, 5], "activations": [0, 3, 0, 4]
    }  # fmt: skip
    later = _by_term(four_events(), 2, 4)
    assert {name: held.tolist() for name, held in later.items()} == {
        "parameters": [5, 5], "activations": [0, 4]
    }  # fmt: skip
    # what the shown part does not hold is not listed; nor anything of an empty part
    assert [*_by_term(four_events(), 2, 3)] == ["parameters"]
    assert _by_term(four_events(), 3, 3) == {}
    one_byte = EventList()
    one_byte.alloc(1, "ema", "model")
    assert _by_term(one_byte, 0, 1)["ema"].tolist() == [1]


def sums(line: MemoryTimeline) -> np.ndarray:
    return np.sum(list(line.terms.values()), axis=0)


def test_the_step_of_a_job_that_fits() -> None:
    """Its terms are the requested bytes; outside is what the prediction says."""
    request = make_request("gpt2", "1x2xA100-SXM-80GB", **SMALL)
    line = memory_timeline(request)
    memory = predict(request).memory
    assert line.fits and line.gpu == "" and line.model == "gpt2"
    assert line.cluster == str(request.cluster)
    assert line.outside_bytes == memory.terms["nccl_buffers"] + memory.terms["cuda_context"]
    assert line.limit_bytes == memory.capacity_bytes
    assert [*line.terms] == [name for name in STACK if name in line.terms]
    starts = [at for at, name in line.events.phases if name.endswith("frozen networks")]
    assert line.start == starts[-1] and len(starts) == 3
    n_shown = len(line.events.events) - line.start
    assert sums(line).tolist() == line.replay.requested[line.start :].tolist()
    assert len(line.allocated) == len(line.reserved) == n_shown
    assert line.phases[0] == (0, "frozen networks")
    assert [at for at, _ in line.phases] == sorted(at for at, _ in line.phases)
    assert line.phases[-1][0] < n_shown and "step" not in line.phases[-1][1].split()
    assert line.peak_live_bytes == sums(line).max()
    assert line.peak_allocated_bytes == line.allocated.max() >= line.peak_live_bytes
    assert line.peak_reserved_bytes == line.replay.reserved.max() >= line.peak_allocated_bytes


def test_segments_grow_where_they_are_said_to() -> None:
    request = make_request("gpt2", "1x2xA100-SXM-80GB", **SMALL)
    plain, grown = (memory_timeline(request, **w) for w in ({}, {"expandable_segments": True}))
    made = [{e.action for e in line.replay.segment_events} for line in (plain, grown)]
    assert made == [{"segment_alloc"}, {"segment_map"}]


def test_memory_that_runs_out_ends_the_events() -> None:
    """A step of 24 GB holds no optimizer state of 1.5 billion parameters: it fails at once."""
    line = memory_timeline(make_request("gpt2-xl", "1xRTX4090", **SMALL))
    assert not line.fits and line.replay.failed_at is not None
    assert line.start < len(line.replay.reserved) == line.replay.failed_at
    assert line.peak_reserved_bytes <= line.limit_bytes - line.outside_bytes
    assert len(sums(line)) == len(line.allocated) == line.replay.failed_at - line.start


def test_the_tensor_that_scores_are_kept_in_is_there_throughout() -> None:
    """2 samples x 16 heads x 2048 x 2048 scores of 2 bytes, beside the workspaces of products."""
    words = {"micro_batch": 2, "strategy": "ddp", "software": "megatron@local"}
    request = make_request("gpt3-1.3b", "8xA100", **words, precision="bf16")
    line, tensors = memory_timeline(request), predict(request).memory
    assert line.terms["workspace"][-1] > 2 * 16 * 2048 * 2048 * 2
    needed = line.outside_bytes + line.peak_allocated_bytes
    assert needed == pytest.approx(tensors.device_bytes, rel=1e-3)


def test_a_named_gpu_and_what_cannot_be_shown() -> None:
    mixed = make_request("gpt2", "1x1xA100-SXM-80GB+1x1xH100-SXM", **SMALL)
    line = memory_timeline(mixed, gpu="H100-SXM-80GB")
    assert line.gpu == "H100-SXM-80GB"
    with pytest.raises(UnknownName, match="GPU of this cluster"):
        memory_timeline(mixed, gpu="V100-SXM2-32GB")
    with pytest.raises(InvalidConfig, match="leave out the layout"):
        memory_timeline(make_request("gpt2", "1x2xA100", tp=2))


@pytest.mark.parametrize(
    ("gpus", "options", "fits"),
    [
        ("2xA100", {}, True),
        ("2xA100", {"growing_segments": "on", "grad_accum": 3}, True),
        ("2x8xA100", {"strategy": "zero3", "recompute": "full"}, True),
        ("1xT4", {"micro_batch": 64}, False),
    ],
)
def test_the_peak_alone_is_that_of_the_timeline(
    gpus: str, options: dict[str, Any], fits: bool
) -> None:
    request = make_request("gpt2", gpus, **options)
    line = memory_timeline(request)
    assert line.fits is fits
    assert peak_reserved_bytes(request) == line.peak_reserved_bytes > 0.0
