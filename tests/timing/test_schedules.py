"""Pipeline schedules: published bubbles and what a stage holds, of equal stages."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from simcore import api
from simcore.base.errors import InvalidConfig
from simcore.physics.pipeline import bubble_s
from simcore.strategy.layout import SCHEDULES, Layout
from simcore.timing.in_flight import in_flight
from simcore.timing.pipeline import StageTimes, schedule_pipeline

P, M, F, B = 8, 32, 1.0, 2.0
#: In micro-batches of one stage, with F = B_input = B_weights = 1: Huang et al. 2019, section 2.3;
#: Narayanan et al. 2021; Qi et al. 2023, table 1; DeepSeek-AI 2024, table 2 (rank of two stages).
BUBBLES = {"gpipe": (P - 1) * 3.0, "1f1b": (P - 1) * 3.0, "zb-1p": P - 1.0, "zb-2p": 0.0}


def _bubble(schedule: str, stages: list[tuple[float, float]], micro: int = M) -> np.ndarray:
    forward, backward = (np.array([[s[i]] for s in stages]) for i in (0, 1))
    return bubble_s(schedule, forward, backward, [1] * len(stages), np.array([float(micro)]))[:, 0]


@pytest.mark.parametrize("schedule", BUBBLES)
def test_published_bubbles(schedule: str) -> None:
    assert _bubble(schedule, [(F, B)] * P) == pytest.approx(BUBBLES[schedule])


def test_dualpipe() -> None:
    """(PP/2 - 1)(F&B + B - 3 W), B and W of one of two stages, F&B their sum: 3 + 2 - 3."""
    assert _bubble("dualpipe", [(2 * F, 2 * B)] * P) == pytest.approx((P / 2 - 1) * 2.0)


@pytest.mark.parametrize(("pp", "micro"), [(2, 4), (4, 8), (8, 20), (8, 32), (16, 64)])
def test_dualpipe_drawn_cell_by_cell_has_the_published_bubble(pp: int, micro: int) -> None:
    """A chunk's forward, backward of inputs and of weights take a second each; a rank has two."""
    slots = schedule_pipeline(
        Layout(pp=pp, schedule="dualpipe"), [StageTimes(2.0, 2.0, 2.0)] * pp, micro
    )
    idle = max(s.finish_s for s in slots) - micro / 2 * 6.0
    assert idle == pytest.approx((pp / 2 - 1) * 2.0)
    for rank in range(pp):
        done = [s.work for s in slots if s.stage == rank]
        assert len(done) == len(set(done)) == 3 * micro
        ends = [{w.micro_batch for w in done if w.chunk == end} for end in (0, 1)]
        assert ends == [set(range(micro // 2)), set(range(micro // 2, micro))]


@pytest.mark.parametrize("pp", [2, 4, 8])
def test_dualpipe_holds_what_it_is_said_to(pp: int) -> None:
    """(pp + 1)/2 micro-batches of both stages of a rank, which is pp + 1 chunks."""
    layout = Layout(pp=pp, schedule="dualpipe")
    slots = schedule_pipeline(layout, [StageTimes(2.0, 2.0, 2.0)] * pp, 8 * pp)
    for rank in range(pp):
        mine = [s for s in slots if s.stage == rank]
        changes = sorted(
            [(s.start_s, 1) for s in mine if s.work.kind == "forward"]
            + [(s.finish_s, -1) for s in mine if s.work.kind == "backward"]
        )
        live = np.cumsum([c for _, c in changes])
        assert live.max() <= 2 * in_flight(layout, rank, np.array([8.0 * pp]))


def test_dualpipe_needs_twice_as_many_micro_batches_as_stages() -> None:
    with pytest.raises(ValueError, match="needs 16 micro-batches for pp 8"):
        schedule_pipeline(Layout(pp=8, schedule="dualpipe"), [StageTimes(1.0, 1.0)] * 8, 14)


@pytest.mark.parametrize("micro", [1, 2, 5, 16])
def test_gpipe_is_exact_for_unequal_stages(micro: int) -> None:
    stages = [(1.0, 2.5), (1.5, 2.0), (0.7, 3.0), (1.2, 1.1)]
    slots = schedule_pipeline(
        Layout(pp=4, schedule="gpipe"), [StageTimes(f, b) for f, b in stages], micro
    )
    busy = np.array([micro * (f + b) for f, b in stages])
    whole = busy + _bubble("gpipe", stages, micro)
    assert whole == pytest.approx(max(s.finish_s for s in slots))


@pytest.mark.parametrize(
    ("schedule", "held"),
    [("gpipe", 64.0), ("1f1b", 8.0), ("zb-1p", 8.0), ("zb-2p", 16.0), ("dualpipe", 4.5)],
)
def test_the_first_stage_holds(schedule: Any, held: float) -> None:
    assert in_flight(Layout(pp=8, schedule=schedule), 0, np.array([64.0])) == held


JOB: dict[str, Any] = {"tp": 2, "pp": 4, "strategy": "zero1", "micro_batch": 1, "grad_accum": 16,
                       "seq_len": 4096}  # fmt: skip


def test_order_of_schedules() -> None:
    """Less bubble costs memory; DualPipe holds two stages' parameters."""
    found = {s: api.predict("llama3-8b", "1x8xH100", schedule=s, **JOB) for s in SCHEDULES}
    step = {s: p.step_time_s.value for s, p in found.items()}
    memory = {s: p.memory for s, p in found.items()}
    assert step["zb-2p"] < step["zb-1p"] < step["1f1b"]
    assert step["dualpipe"] < step["1f1b"]
    assert memory["gpipe"].terms["activations"] > 3 * memory["1f1b"].terms["activations"]
    doubled = memory["dualpipe"].terms["parameters"] / memory["1f1b"].terms["parameters"]
    assert doubled == pytest.approx(2.0, rel=1e-3)  # embedding and head are as large
    busy = {s: p.time_s["compute"] for s, p in found.items()}
    # The rank with the head has the first stage too: half of both is less than the last alone.
    assert 0.8 < busy["dualpipe"] / busy["1f1b"] < 1.0
    assert "zb-2p" in found["zb-2p"].layout


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"schedule": "dualpipe", "grad_accum": 15}, "even grad-accum, not 15"),
        ({"schedule": "dualpipe", "pp": 1, "tp": 8}, "needs pp above 1"),
        ({"schedule": "zb-2p", "vpp": 2}, "has no chunks"),
        ({"schedule": "zb-3p"}, "did you mean 'zb-"),
    ],
)
def test_what_cannot_be(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidConfig, match=words):
        api.predict("llama3-8b", "1x8xH100", **(JOB | changes))
