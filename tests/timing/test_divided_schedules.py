"""Steps of one job under every pipeline schedule, and what cannot be."""

from __future__ import annotations

from typing import Any

import pytest

from simcore import api
from simcore.base.errors import InvalidConfig
from simcore.step.schedules import SCHEDULES

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
