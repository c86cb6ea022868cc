"""Shortcuts of a job with a pipeline: what is priced or looked at once is what each would be."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from simcore.answer.predict import predict
from simcore.answer.request import make_request
from simcore.request.resolved import Request
from simcore.timing.compute import class_phases, phases_of_parts
from simcore.timing.evaluate import Steps, evaluate, evaluate_parts
from simcore.timing.exchanges import data_points
from simcore.timing.points import Points
from simcore.timing.steps import job_of, values_of

PIPELINES: list[tuple[str, str, dict[str, Any]]] = [
    ("llama3-70b", "8x8xH100", {"tp": 4, "pp": 4, "global_batch": 64}),
    ("deepseek-v3", "16x8xH800-SXM-80GB", {"pp": 8, "ep": 16, "schedule": "dualpipe",
                                           "global_batch": 512}),
    ("gpt3-175b", "8x8xA100", {"tp": 8, "pp": 8, "vpp": 2, "recompute": "full",
                               "global_batch": 128}),
    ("llama3-8b", "1x8xH100", {"strategy": "zero3"}),
]  # fmt: skip


def asked(model: str, gpus: str, options: dict[str, Any]) -> Request:
    return make_request(model, gpus, precision="bf16", **options)


@pytest.mark.parametrize("of", PIPELINES[:3])
def test_stages_priced_together_take_what_they_take_alone(of: Any) -> None:
    request = asked(*of)
    assert request.placed is not None
    job = job_of(request)
    points = Points.of({**values_of(request), "compute": np.array([0.5, 1.0, 2.0])}, 3)
    tables = [
        replace(job, workload=request.placed.stages[i].workload).table
        for i, _ in request.placed.distinct_stages
    ]
    assert len(tables) > 1
    together = phases_of_parts(
        job.strategy, tables, job.classes, points, (), 0.0, [np.ones((len(tables), 3))]
    )
    alone = [class_phases(job.strategy, table, job.classes, points) for table in tables]
    for of_class, found in enumerate(together[0]):
        np.testing.assert_array_equal(found, np.concatenate([each[of_class] for each in alone]))


#: Where the parts differ in what they send and wait for, or the host is in every kernel's way.
UNLIKE: list[tuple[str, str, dict[str, Any]]] = [
    *PIPELINES[:3],
    ("llama3-70b", "8x8xH100", {"tp": 4, "pp": 4, "global_batch": 64, "strategy": "zero3"}),
    ("llama3-70b", "8x8xH100", {"tp": 4, "pp": 4, "strategy": "zero2", "global_batch": 256}),
    ("gpt3-175b", "8x8xA100", {"tp": 8, "pp": 8, "global_batch": 128, "launch_blocking": True}),
    ("gpt3-175b", "8x8xA100", {"tp": 8, "pp": 8, "global_batch": 128, "strategy": "zero1",
                               "offload": "optimizer"}),
    ("llama3-70b", "8x8xH100", {"pp": 4, "strategy": "zero3", "global_batch": 64,
                                "offload": "optimizer+params"}),
]  # fmt: skip


@pytest.mark.parametrize("of", UNLIKE)
def test_steps_of_stages_together_are_what_they_are_alone(of: Any) -> None:
    request = asked(*of)
    assert request.placed is not None
    job = job_of(request)
    # as measured machines have it: compute slows collectives too
    job = replace(job, classes=tuple(replace(c, comm_slowdown_frac=0.1) for c in job.classes))
    jobs = [
        replace(job, workload=request.placed.stages[i].workload)
        for i, _ in request.placed.distinct_stages
    ]
    assert len(jobs) > 1
    values = {
        **values_of(request),
        "compute": np.array([0.5, 1.0, 2.0, 1.0, 1.0]),
        "use_comm": np.array([1.0, 1.0, 1.0, 0.0, 1.0]),
        "inter": np.array([1.0, 1.0, 1.0, 1.0, 1e-2]),  # collectives outlast what they hide under
        "intra": np.array([1.0, 1.0, 1.0, 1.0, 1e-2]),
    }
    local = data_points(Points.of(values, 5), request.placed)
    every = evaluate_parts(jobs, local, keep_timeline=False)
    for n, one in enumerate(jobs):
        found, alone = every.of_part(n), evaluate(one, local)
        assert seconds_of(found).keys() == seconds_of(alone).keys()
        for name, seconds in seconds_of(alone).items():
            np.testing.assert_allclose(
                seconds_of(found)[name], seconds, rtol=1e-12, atol=0, err_msg=name
            )


def seconds_of(steps: Steps) -> dict[str, Any]:
    names = ("step_s", "makespan_s", "comm_s", "comm_beside_s", "host_micro_s", "load_period_s")
    return {**{name: getattr(steps, name) for name in names}, **steps.terms_s}


def test_equal_ranks_of_dualpipe_are_one_run() -> None:
    request = asked(*PIPELINES[1])
    assert request.placed is not None
    runs = predict(request).stages
    assert sum(run.count for run in runs) == 8
    assert max(run.count for run in runs) > 1
    assert [run.first for run in runs] == list(request.placed.run_starts)
    first, last = request.placed.stages[0], request.placed.stages[-1]
    assert first.workload is last.workload  # both ends hold the same two stages


def test_kernels_of_many_batches_take_what_each_takes_alone() -> None:
    request = asked("llama3-8b", "1x8xH100", {})
    job = job_of(request)
    values = values_of(request)
    batch = np.array([4.0, 1.0, 4.0, 2.0])
    pace = np.array([1.0, 1.0, 0.9, 0.8])

    def seconds(at: slice) -> Any:
        points = Points.of(
            {**values, "micro_batch": batch[at], "compute": pace[at]}, len(batch[at])
        )
        first, column = points.distinct_rates
        assert len(first) == len(batch[at])
        return class_phases(job.strategy, job.table, job.classes, points)[0][:, column]

    together = seconds(slice(None))
    for i in range(len(batch)):
        assert together[:, i].tolist() == seconds(slice(i, i + 1))[:, 0].tolist()
