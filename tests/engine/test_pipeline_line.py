"""The step drawn micro-batch by micro-batch agrees with the closed form that is the answer."""

from __future__ import annotations

from typing import Any

import pytest

from simcore import api

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
    assert sum(s.n_layers for s in line.stages) == 80 * line.layout.directions


def test_a_stage_holds_at_most_what_memory_says() -> None:
    answer = api.predict("llama3-70b", "8x8xH100", keep_timeline=True, tp=4, pp=4, **JOB)
    assert answer.pipeline is not None
    peaks = [max(held for _, held in s.held_bytes) for s in answer.pipeline.stages]
    working = answer.memory.terms["working_set"]
    assert answer.memory.device_bytes - max(peaks) == pytest.approx(working, rel=0.5)
    assert peaks[0] == max(peaks)  # 1F1B: the first stage holds the most micro-batches


def test_a_model_in_one_piece_has_no_pipeline() -> None:
    assert api.predict("latte-s", "8xA100", keep_timeline=True).pipeline is None
