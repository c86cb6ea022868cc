"""Shortcuts of a job with a pipeline: what is priced or looked at once is what each would be."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from simcore.answer.predict import predict
from simcore.answer.request import make_request
from simcore.memory import moments
from simcore.memory.job import fullest_over, memory_of_stages, memory_over, run_memories
from simcore.memory.moments import Moments, Walked, moments_of
from simcore.memory.terms import RankJob, memory_of
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
    every = evaluate_parts(jobs, local)
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


@pytest.mark.parametrize("of", UNLIKE)
def test_memory_of_parts_together_is_that_of_each_alone(of: Any) -> None:
    request = asked(*of)
    assert request.placed is not None
    parts = [request.placed.stages[i].workload for i, _ in request.placed.distinct_stages]
    batch, accum, ranks = np.array([1.0, 2.0, 3.0]), np.array([4.0, 1.0, 1.0]), np.full(3, 16.0)
    over = (batch, accum, ranks, ranks / 8.0)
    words: dict[str, Any] = {"nvlink": True, "cuda_context_bytes": 1e9, "stuck_frac": 0.1}
    part = np.repeat(np.arange(len(parts)), 3)
    every = (np.tile(x, len(parts)) for x in over)
    found = memory_of(RankJob(tuple(parts), request.strategy, *every, part=part, **words))
    for n, workload in enumerate(parts):
        alone = memory_of(RankJob(workload, request.strategy, *over, **words))
        mine = found.take(part == n)
        assert mine.terms.keys() == alone.terms.keys()
        for name, term in alone.terms.items():
            np.testing.assert_array_equal(mine.terms[name], term, err_msg=name)
        for name in ("allocated", "cached", "needed", "moment"):
            np.testing.assert_array_equal(getattr(mine, name), getattr(alone, name), err_msg=name)


@pytest.mark.parametrize("of", PIPELINES)
def test_instances_on_a_straight_line_never_have_the_peak_alone(of: Any) -> None:
    """Against every instance of every block: the most for any weights of the columns."""
    request = asked(*of)
    strategy = request.strategy
    part = request.placed.stages[0].workload if request.placed else request.workload
    words = [Walked(part, strategy.recompute == "full", 1)], strategy.precision
    with patch.object(moments, "_corners", lambda _, kinds: np.ones(kinds.shape, bool)):
        every = moments_of(*words)[0]
    few = moments_of(*words)[0]
    assert len(few.held) <= len(every.held)
    rng = np.random.default_rng(0)
    for _ in range(50):
        weights = rng.exponential(size=6) * rng.integers(0, 2, 6)
        assert most(few, weights) == pytest.approx(most(every, weights), rel=1e-12)


def most(of: Moments, weights: Any) -> float:
    columns = (of.grads * 1e9, of.cast, of.window, of.whole, of.stub, of.early)
    total = of.held + of.working + sum(w * c for w, c in zip(weights, columns, strict=True))
    return float(total.max())


def test_equal_ranks_of_dualpipe_are_one_run() -> None:
    request = asked(*PIPELINES[1])
    assert request.placed is not None
    runs = predict(request).stages
    assert sum(run.count for run in runs) == 8
    assert max(run.count for run in runs) > 1
    assert [run.first for run in runs] == list(request.placed.run_starts)
    first, last = request.placed.stages[0], request.placed.stages[-1]
    assert first.workload is last.workload  # both ends hold the same two stages


@pytest.mark.parametrize("of", PIPELINES[:3])
def test_memory_of_runs_is_that_of_their_first_stages(of: Any) -> None:
    request = asked(*of)
    cluster = request.cluster
    over = (request.micro_batch, request.grad_accum, cluster.n_gpus, cluster.n_nodes)
    batch, accum, gpus, nodes = (np.array([float(v)]) for v in over)
    first = memory_over(request, batch, accum, gpus, nodes)
    runs = run_memories(request)
    assert runs is not None
    assert runs.needed[0] == first[0].needed
    assert predict(request).memory.needed_bytes == max(float(m.needed[0]) for m in first)


@pytest.mark.parametrize("of", PIPELINES[:3])
@pytest.mark.parametrize("n_points", [3, 400])  # all stages at once, and one at a time
def test_memory_of_stages_asked_together_is_that_of_each(of: Any, n_points: int) -> None:
    request = asked(*of)
    assert request.placed is not None
    batch = 1.0 + np.arange(n_points) % 4
    accum = 1.0 + np.arange(n_points) % 7
    gpus, nodes = (np.full(n_points, float(n)) for n in (request.cluster.n_gpus, 8))
    over = (batch, accum, gpus, nodes)
    stages = [request.placed.stages[i] for i, _ in request.placed.distinct_stages]
    together = memory_over(request, *over, stages)
    for stage, found in zip(stages, together, strict=True):
        alone = memory_of_stages(request, [stage], *over)
        assert found.device.tolist() == alone.device.tolist()
        assert found.needed.tolist() == alone.needed.tolist()
    first = memory_over(request, *over)
    assert [m.needed.tolist() for m in first] == [m.needed.tolist() for m in together]


@pytest.mark.parametrize("of", [*PIPELINES[:3], ("llama3-70b", "8x8xH100", {"tp": 4, "pp": 8})])
@pytest.mark.parametrize("recompute", ["none", "full"])
@pytest.mark.parametrize("n_points", [7, 400])  # all stages at once, and one at a time
def test_the_fullest_rank_is_that_of_the_terms(of: Any, recompute: str, n_points: int) -> None:
    """With any number of micro-batches in flight, in a shuffled order."""
    model, gpus, options = of
    request = asked(model, gpus, {**options, "recompute": recompute})
    assert request.placed is not None
    shuffled = np.random.default_rng(0).permutation(n_points)
    batch = 1.0 + shuffled % 3
    accum = request.placed.schedule.multiple_of * (1.0 + shuffled % 19)
    nodes = np.where(shuffled % 5 > 2, 8.0, 16.0)
    over = (batch, accum, 8 * nodes, nodes)
    stages = [request.placed.stages[i] for i, _ in request.placed.distinct_stages]
    device, needed = fullest_over([(request, stage) for stage in stages], *over)
    every = memory_over(request, *over, stages)
    np.testing.assert_allclose(device, [m.device for m in every], rtol=1e-14)
    np.testing.assert_allclose(needed, [m.needed for m in every], rtol=1e-14)
    np.testing.assert_allclose(device, [sum(m.terms.values()) for m in every], rtol=1e-12)


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
