"""Queues by hand, by theory, and at the size that a fleet has."""

from __future__ import annotations

import heapq
import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random

import pytest
from costs import cost_ratio

from simcore.base.errors import DataError, InvalidConfig, UnknownName
from simcore.planning.fleet import (
    POLICIES,
    FleetJob,
    fewest_gpus,
    read_jobs,
    run_fleet,
)


def job(name: str, submit: float, gpus: int, run: float, priority: int = 0) -> FleetJob:
    return FleetJob(name, submit, gpus, run, priority)


def random_jobs(
    n: int, *, days: float, load_gpus: float, sizes: Sequence[int] = (1, 2, 4, 8, 16, 32, 64, 128),
    seed: int = 0,
) -> list[FleetJob]:  # fmt: skip
    """Poisson arrivals over so many days; sizes drawn evenly; exponential run times whose mean
    makes ``load_gpus`` GPUs busy on average."""
    rng = Random(seed)
    span = days * 86_400.0
    mean_s = load_gpus * span / (n * sum(sizes) / len(sizes))
    at, jobs = 0.0, []
    for i in range(n):
        at += rng.expovariate(n / span)
        jobs.append(FleetJob(
            f"job {i + 1}", at, rng.choice(list(sizes)), rng.expovariate(1.0 / mean_s),
            rng.choice((0, 0, 0, 1)),
        ))  # fmt: skip
    return jobs


def starts(policy: str, jobs: list[FleetJob], gpus: int, **words: float) -> dict[str, float]:
    found = run_fleet(jobs, gpus, policy=policy, **words)
    return {d.job.name: d.start_s for d in found.done}


#: 8 GPUs: a takes 6 for 10 s; b needs all 8; c and d need 2, for 5 s and for 20 s.
QUEUE = [job("a", 0, 6, 10), job("b", 1, 8, 10), job("c", 2, 2, 5), job("d", 3, 2, 20)]


def test_who_starts_when_by_hand() -> None:
    assert starts("fifo", QUEUE, 8) == {"a": 0, "b": 10, "c": 20, "d": 20}
    # c is over before b can start; d is not, and b needs all GPUs.
    assert starts("backfill", QUEUE, 8) == {"a": 0, "b": 10, "c": 2, "d": 20}
    # With 10 GPUs b leaves two free: d may take them.
    assert starts("backfill", QUEUE, 10) == {"a": 0, "b": 10, "c": 2, "d": 3}
    urgent = [*QUEUE, job("u", 4, 8, 1, priority=1)]
    assert starts("priority", urgent, 8) == {"a": 0, "u": 10, "b": 11, "c": 21, "d": 21}


def test_preemption_loses_what_was_not_saved() -> None:
    jobs = [job("low", 0, 8, 100), job("high", 25, 4, 10, priority=1)]
    found = run_fleet(jobs, 8, policy="preempt", checkpoint_s=10.0)
    ends = {d.job.name: d.end_s for d in found.done}
    assert ends["high"] == 35.0
    assert ends["low"] == 35.0 + 100 - 20  # two checkpoints of ten seconds were kept
    assert found.preemptions == 1
    assert found.lost_gpu_s == 5 * 8
    free = run_fleet(jobs, 8, policy="preempt", checkpoint_s=0.0)
    assert {d.job.name: d.end_s for d in free.done}["low"] == 35.0 + 75
    at_once = [job("low", 0, 8, 10), job("high", 0, 8, 10, priority=1)]
    assert starts("preempt", at_once, 8) == {"low": 0.0, "high": 0.0}


@pytest.mark.parametrize("policy", POLICIES)
def test_no_policy_loses_work_or_oversubscribes(policy: str) -> None:
    jobs = random_jobs(400, days=1, load_gpus=100, sizes=(1, 8, 32), seed=5)
    found = run_fleet(jobs, 128, policy=policy, checkpoint_s=0.0)
    assert len(found.done) == 400
    assert all(d.wait_s >= 0 and d.end_s >= d.start_s + d.job.run_s - 1e-6 for d in found.done)
    work = sum(j.gpus * j.run_s for j in jobs)
    assert found.utilisation_frac * found.makespan_s * 128 == pytest.approx(work)
    if policy != "preempt":
        events = sorted(
            [(d.start_s, 1, d.job.gpus) for d in found.done]
            + [(d.end_s, 0, -d.job.gpus) for d in found.done]
        )
        busy = most = 0
        for _, _, gpus in events:
            busy += gpus
            most = max(most, busy)
        assert most <= 128


def erlang_c_wait_s(servers: int, load: float, service_s: float) -> float:
    """Mean wait of M/M/c (Erlang 1917)."""
    blocked = 1.0
    for k in range(1, servers + 1):
        blocked = load * blocked / (k + load * blocked)
    waits = blocked / (1.0 - load / servers * (1.0 - blocked))
    return waits * service_s / (servers - load)


def recursion_wait_s(jobs: list[FleetJob], servers: int) -> float:
    """Mean wait where each job takes the server that is free first (Kiefer & Wolfowitz 1955)."""
    free, waits = [0.0] * servers, 0.0
    for one in jobs:
        start = max(heapq.heappop(free), one.submit_s)
        waits += start - one.submit_s
        heapq.heappush(free, start + one.run_s)
    return waits / len(jobs)


@pytest.mark.parametrize(("servers", "load"), [(1, 0.5), (4, 2.4), (16, 11.0)])
def test_queue_theory(servers: int, load: float) -> None:
    rng = Random(servers)
    means = []
    for run in range(50):
        at, jobs = 0.0, []
        for i in range(4000):
            at += rng.expovariate(load / 60.0)
            jobs.append(job(str(i), at, 1, rng.expovariate(1 / 60.0)))
        means.append(recursion_wait_s(jobs, servers))
        if run < 3:
            played = run_fleet(jobs, servers, policy="fifo").mean_wait_s
            assert played == pytest.approx(means[-1], rel=1e-9)
    mean = sum(means) / len(means)
    error = math.sqrt(sum((m - mean) ** 2 for m in means) / (len(means) - 1) / len(means))
    assert mean == pytest.approx(erlang_c_wait_s(servers, load, 60.0), abs=4 * error)


def test_a_month_of_ten_thousand_jobs_on_four_thousand_gpus() -> None:
    jobs = random_jobs(10_000, days=30, load_gpus=3600)
    found = run_fleet(jobs, 4096)
    assert len(found.done) == 10_000
    assert 0.7 < found.utilisation_frac < 1.0


def test_cost_grows_with_the_jobs_alone() -> None:
    """Eight times the days and jobs cost some eight times as much; a look at all jobs, 64."""
    few, many = (random_jobs(n, days=n / 400, load_gpus=3600) for n in (500, 4_000))
    ratio = cost_ratio(
        lambda: run_fleet(few, 4096), lambda: run_fleet(many, 4096), rounds=3, calls=1
    )
    assert ratio < 24


def test_fewest_gpus_for_a_wait() -> None:
    jobs = random_jobs(500, days=2, load_gpus=200, sizes=(8, 16, 64), seed=3)
    found = fewest_gpus(jobs, 600.0, policy="fifo")
    assert found.wait_s(0.95) <= 600.0
    assert run_fleet(jobs, found.gpus - 8, policy="fifo").wait_s(0.95) > 600.0


def test_traces(tmp_path: Path) -> None:
    table = tmp_path / "jobs.csv"
    table.write_text("submit_s,gpus,run_s,priority\n0,8,100,\n5,4,50,2\n", encoding="utf-8")
    assert [(j.gpus, j.priority) for j in read_jobs(table)] == [(8, 0), (4, 2)]
    table.write_bytes("submit_s;gpus; run_s\r\n0;8;100\r\n".encode("utf-8-sig"))  # as Excel saves
    assert [(j.gpus, j.run_s) for j in read_jobs(table)] == [(8, 100.0)]
    swf = tmp_path / "t.swf"
    row = "7 100 -1 3600 64 -1 -1 64 7200 -1 1 3 1 -1 2 -1 -1 -1"
    swf.write_text(f"; Version: 2.2\n{row}\n{row.replace('3600', '-1')}\n", encoding="utf-8")
    assert read_jobs(swf) == [FleetJob("7", 100.0, 64, 3600.0, 2, 7200.0)]
    for row, said in (
        ("0,x,1", r"jobs\.csv:2: gpus: 'x' is not a whole number"),
        ("0,2.5,1", "'2.5' is not a whole"),
        ("0,1,1h", "run_s: '1h' is not a number of seconds"), ("0,1,inf", "'inf' is not a number"),
        ("0,1", "run_s: '' is not a number of seconds"),
    ):  # fmt: skip
        table.write_text(f"submit_s,gpus,run_s\n{row}\n", encoding="utf-8")
        with pytest.raises(DataError, match=said):
            read_jobs(table)
    with pytest.raises(UnknownName, match="backfill"):
        run_fleet(QUEUE, 8, policy="backfil")
    with pytest.raises(InvalidConfig, match="8 GPUs on a cluster of 6"):
        run_fleet(QUEUE, 6)


def test_the_command(simcore_cli: Callable, tmp_path: Path) -> None:
    table = tmp_path / "jobs.csv"
    rows = [f"{j.submit_s},{j.gpus},{j.run_s},{j.priority}" for j in random_jobs(
        60, days=1, load_gpus=60, sizes=(1, 8, 16), seed=2)]  # fmt: skip
    table.write_text("\n".join(["submit_s,gpus,run_s,priority", *rows]) + "\n", encoding="utf-8")
    code, out, _ = simcore_cli("fleet", str(table), "--gpus", "64", "--policy", "preempt")
    assert code == 0
    assert "60 jobs on 64 GPUs, preempt" in out
    assert max(map(len, out.splitlines())) <= 80
    code, out, _ = simcore_cli("fleet", str(table), "--p95-wait", "10min", "--json")
    told = json.loads(out)
    assert told["wait_p95_s"] <= 600
    code, _, err = simcore_cli("fleet", "nowhere.csv", "--policy", "fif", "--p95-wait", "x")
    assert code == 2
    for said in ("nowhere.csv", "did you mean 'fifo'", "--p95-wait 'x'"):
        assert said in err
