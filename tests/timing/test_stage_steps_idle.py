"""A device that waits for its host takes longer, and hides no exchange meanwhile."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from simcore.answer.request import make_request
from simcore.request.resolved import Request
from simcore.step.kernels import table_of
from simcore.timing.compute import issue_s
from simcore.timing.points import Points
from simcore.timing.steps import job_of, steps_of, values_of

WORDS: dict[str, Any] = {
    "software": "megatron", "issuer": "megatron", "ep": 8, "micro_batch": 2, "grad_accum": 4,
    "dispatcher": "hybridep", "precision": "bf16", "network": "8xib-ndr",
}  # fmt: skip


def asked(waits: bool, overlap: str) -> Request:
    settings = {"waits_for_counts": waits}
    return make_request("mixtral-8x7b", "2x8xH100", settings=settings, overlap=overlap, **WORDS)


def idle_s(request: Request) -> float:
    """Idle seconds of a step: kernel issues that forwards of all layers wait for."""
    assert request.placed is not None
    workload = request.placed.stages[0].workload
    awaited = table_of(workload, request.strategy).awaited_per_phase[:, 0]
    counts = np.array([workload.count(i) for i in range(len(workload.blocks))] * 2)
    job, points = job_of(request), Points.of(values_of(request), 1)
    return float(awaited @ counts) * float(issue_s(job.strategy, job.classes, points)[0]) * 4


@pytest.mark.parametrize("overlap", ["none", "experts"])
def test_waits_add_to_the_step_whatever_hides_exchanges(overlap: str) -> None:
    plain, waiting = (asked(waits, overlap) for waits in (False, True))
    without, found = (steps_of(r, Points.of(values_of(r), 1)).step_s[0] for r in (plain, waiting))
    assert idle_s(plain) == 0.0
    # 32 layers x 4 micro-steps x (5.6 + 0.3) issues of 81 us
    assert idle_s(waiting) == pytest.approx(32 * 4 * 5.9 * 81e-6, rel=0.01)
    assert found - without == pytest.approx(idle_s(waiting), rel=0.02)
