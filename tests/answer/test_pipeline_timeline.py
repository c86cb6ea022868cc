"""The step drawn micro-batch by micro-batch agrees with the closed form that is the answer."""

from __future__ import annotations

from typing import Any

import pytest

from simcore import api
from simcore.answer.pipeline_timeline import LOADING, TIED

JOB: dict[str, Any] = {"micro_batch": 1, "global_batch": 64, "seq_len": 8192, "software": "plain",
                       "recompute": "selective", "strategy": "zero1"}  # fmt: skip


@pytest.mark.parametrize(
    "layout",
    [{"tp": 4, "pp": 4}, {"tp": 4, "pp": 4, "vpp": 2}, {"tp": 8, "pp": 8}, {"tp": 8},
     {"tp": 2, "cp": 2, "pp": 4, "strategy": "zero3"},
     {"tp": 4, "pp": 4, "schedule": "dualpipe"}],
)  # fmt: skip
def test_it_takes_the_predicted_step(layout: dict[str, Any]) -> None:
    answer = api.predict("llama3-70b", "8x8xH100", keep_timeline=True, **(JOB | layout))
    line = answer.pipeline
    assert line is not None
    assert len(line.stages) == layout.get("pp", 1)
    assert line.finish_s == pytest.approx(answer.step_time_s.value, rel=0.01)
    assert sum(s.n_gpus for s in line.stages) == 64
    assert sum(s.n_layers for s in line.stages) == 80 * (
        2 if layout.get("schedule") == "dualpipe" else 1
    )


@pytest.mark.parametrize("overlap", ["none", "grads", "grads,params", "grads,params,tensor"])
@pytest.mark.parametrize("gpus", ["8x8xH100", "4x8xT4"])
def test_without_a_pipeline_it_is_the_predicted_step(overlap: str, gpus: str) -> None:
    """Parameters gathered under the first forward, slowed backwards, sums that only the earlier
    micro-batches make: all of it is drawn.
    """
    model = "gemma-2-9b" if "T4" in gpus else "llama3-70b"
    job = {"micro_batch": 1, "grad_accum": 8, "strategy": "zero1", "seq_len": 2048, "tp": 8}
    answer = api.predict(model, gpus, keep_timeline=True, overlap=overlap, **job)  # type: ignore[arg-type]
    assert answer.pipeline is not None
    assert answer.pipeline.finish_s == pytest.approx(answer.step_time_s.value, rel=1e-9)
    (stage,) = answer.pipeline.stages
    gathered = [s for s in stage.begins if s.term == "communication"]
    assert bool(gathered) == ("params" in overlap)
    if gathered:  # the first forward begins later than it would: it waits for its last parameters
        spent = gathered[-1].finish_s - gathered[0].start_s
        assert 0 < stage.slots[0].start_s <= spent + 0.01 * answer.step_time_s.value
    update = [s for s in stage.ends if s.term == "optimizer"]
    assert update and update[0].start_s >= stage.slots[-1].finish_s


def test_both_ends_of_a_pipeline_sum_up_their_table_at_once() -> None:
    """GPT-2's 50,257 x 768 in fp32 between two nodes: 2 (n - 1)/n of it over the wire."""
    job: dict[str, Any] = {"pp": 2, "micro_batch": 1, "grad_accum": 4, "strategy": "ddp",
                           "network": "10 Gbit/s", "software": "plain"}  # fmt: skip
    answer = api.predict("gpt2", "2x1xA100", keep_timeline=True, **job)
    line = answer.pipeline
    assert line is not None
    sums = [[s for s in stage.ends if s.name == TIED] for stage in line.stages]
    first, last = (tied[0] for tied in sums)
    assert (first.start_s, first.finish_s) == (last.start_s, last.finish_s)
    wire_s = 50257 * 768 * 4 / (10e9 / 8)
    assert wire_s < first.finish_s - first.start_s < 1.3 * wire_s
    for stage in line.stages:
        assert first.start_s >= stage.slots[-1].finish_s - 1e-9
        updates = [s.start_s for s in stage.ends if s.term == "optimizer"]
        assert min(updates) >= first.finish_s - 1e-9
    assert line.finish_s == pytest.approx(answer.step_time_s.value, rel=0.01)


def test_a_slower_loader_is_waited_for() -> None:
    """Where samples come slower than steps, the drawn step ends as late as the predicted."""
    job: dict[str, Any] = {"pp": 2, "micro_batch": 4, "grad_accum": 2, "strategy": "ddp"}
    answer = api.predict("latte-s", "1x2xA100", keep_timeline=True, **job)
    line = answer.pipeline
    assert line is not None and answer.time_s["loader"] > 0.1 * answer.step_time_s.value
    assert line.finish_s == pytest.approx(answer.step_time_s.value, rel=0.01)
    for stage in line.stages:
        waits = stage.ends[-1]
        assert waits.name == LOADING
        assert waits.finish_s - waits.start_s == pytest.approx(answer.time_s["loader"])


def test_a_stage_holds_at_most_what_memory_says() -> None:
    answer = api.predict("llama3-70b", "8x8xH100", keep_timeline=True, tp=4, pp=4, **JOB)
    assert answer.pipeline is not None
    peaks = [max(held for _, held in s.held_bytes) for s in answer.pipeline.stages]
    working = answer.memory.terms["working_set"]
    assert answer.memory.device_bytes - max(peaks) == pytest.approx(working, rel=0.5)
    assert peaks[0] == max(peaks)  # 1F1B: the first stage holds the most micro-batches


def test_a_model_in_one_piece_has_no_pipeline() -> None:
    assert api.predict("latte-s", "8xA100", keep_timeline=True).pipeline is None
