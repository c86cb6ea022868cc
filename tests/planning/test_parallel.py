"""Whoever evaluates gives the same points in the same order, even when one is killed."""

from __future__ import annotations

import os
import pickle
import signal
from dataclasses import fields, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from simcore.base.errors import InvalidConfig, UsageError
from simcore.hardware.profile import load_profile
from simcore.planning import evaluator as evaluating
from simcore.planning import parallel
from simcore.planning.evaluator import Evaluator, batches
from simcore.planning.parallel import Cost, Unsubmitted, shared_parts
from simcore.planning.points import Batch
from simcore.planning.space import make_space
from simcore.planning.sweep import run_sweep
from simcore.planning.tally import Summary, Tally, Wanted
from simcore.planning.workers import Answer, Worker, processes, workers_of
from simcore.planning.workers.processes import Processes

WORDS: dict[str, Any] = {
    "strategy": "all", "recompute": "none,full", "micro_batch": "1..4", "grad_accum": "1,2",
}  # fmt: skip


@pytest.fixture(autouse=True)
def _others_do_it_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small spaces would otherwise end in this process, before anyone is asked."""
    monkeypatch.setattr(parallel, "HERE_S", 0.0)
    monkeypatch.setattr(Processes, "task_s", 0.002)
    monkeypatch.setattr(evaluating, "MAX_CALL", 7)


def space() -> Any:
    return make_space("latte-s", "A6000ada:1..3x8", **WORDS)


def same(a: Batch, b: Batch) -> bool:
    return all(
        np.array_equal(getattr(a, f.name), getattr(b, f.name))
        if isinstance(getattr(a, f.name), np.ndarray)
        else getattr(a, f.name) == getattr(b, f.name)
        for f in fields(Batch)
    )


def test_two_processes_write_what_one_does(tmp_path: Path) -> None:
    one, two = tmp_path / "one.csv", tmp_path / "two.csv"
    alone = run_sweep(space(), output=one)
    both = run_sweep(space(), output=two, jobs=2)
    assert one.read_bytes() == two.read_bytes()
    summed = run_sweep(space(), jobs=2)
    for other in (both, summed):
        assert alone.invalid == other.invalid
        assert (alone.best, alone.front) == (other.best, other.front)
        assert (alone.n_done, alone.n_evaluated, alone.n_fit) == (
            other.n_done, other.n_evaluated, other.n_fit)  # fmt: skip


@pytest.mark.parametrize(
    ("by", "gpus"), [("throughput", "A6000ada:1..3x8"), ("memory", "1x8xA6000ada")]
)
def test_stretches_add_up_in_whatever_sizes(by: str, gpus: str) -> None:
    """The best and the front of sums of ranges are those of all points at once."""
    asked = make_space("latte-s", gpus, **WORDS)
    found = Evaluator(asked)
    wanted = Wanted(by, top=5)
    whole = Tally(asked.clusters, wanted)
    for batch in found.batches(0, len(found)):
        whole.add(batch)
    rng = np.random.default_rng(3)
    for _ in range(3):
        cuts = [0, *np.sort(rng.choice(np.arange(1, len(found)), 6, replace=False)), len(found)]
        added = Tally(asked.clusters, wanted)
        for first, last in pairwise(cuts):
            part = Tally(asked.clusters, wanted)
            for batch in found.batches(int(first), int(last)):
                part.add(batch)
            added.add(pickle.loads(pickle.dumps(part.summary())))
        assert added.summary() == whole.summary()
    kept = run_sweep(asked, by=by, top=5, keep=True)
    columns = kept.columns()
    on_front = np.flatnonzero(kept.on_front(columns))
    assert sorted(columns["samples_per_s"][on_front]) == [p.samples_per_s for p in kept.front]
    assert whole.front.points == list(kept.front)


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (0, 2, 1, 3), (3, 0, 1, 2)])
def test_a_worker_returns_what_its_earlier_ranges_do_not_exceed(order: tuple[int, ...]) -> None:
    """All ranges of two workers, one of which was lost, add up to all points at once."""
    asked = make_space("latte-s", "A6000ada:1..3x8", **WORDS)
    found, wanted = Evaluator(asked), Wanted(top=5)
    whole = Tally(asked.clusters, wanted)
    for batch in found.batches(0, len(found)):
        whole.add(batch)
    cuts = np.linspace(0, len(found), len(order) + 1).astype(int).tolist()
    one, other = Worker(found, wanted), Worker(found, wanted)
    answers = {}
    for n, k in enumerate(order):
        answers[k] = (other if n == 1 else one).evaluate(cuts[k], cuts[k + 1])
    added = Tally(asked.clusters, wanted)
    for k in sorted(answers):
        (part,) = answers[k].parts
        added.add(part)
    assert added.summary() == whole.summary()
    again = one.evaluate(cuts[0], cuts[1]).parts[0]  # before its last range: with all its points
    assert isinstance(again, Summary)
    assert again == answers[0].parts[0]


def test_points_of_earlier_ranges_are_not_sent_again() -> None:
    asked = make_space("latte-s", "A6000ada:1..3x8", **WORDS)
    found, wanted = Evaluator(asked), Wanted(top=5)
    worker, middle = Worker(found, wanted), len(found) // 2
    first, later = (worker.evaluate(*r).parts[0] for r in ((0, middle), (middle, len(found))))
    assert isinstance(first, Summary)
    assert isinstance(later, Summary)
    assert first.best
    alone = Worker(found, wanted).evaluate(middle, len(found)).parts[0]
    assert isinstance(alone, Summary)
    assert len(later.best) < len(alone.best)
    assert not set(later.front) & set(first.front)


def test_it_goes_on_within_a_unit() -> None:
    whole = list(batches(space()))
    at = next(i for i, b in enumerate(whole) if b.piece == 1)
    first = Evaluator(space()).number(whole[at].unit, whole[at].piece)
    assert first == at
    with Processes(2) as two:
        rest = list(
            shared_parts(Evaluator(space()), two, Wanted(points=True), [(first, len(whole))])
        )
    assert len(rest) == len(whole) - at
    assert all(same(a, b) for a, b in zip(rest, whole[at:], strict=True))  # type: ignore[arg-type]


def test_interrupted_processes_keep_what_is_done_and_go_on(tmp_path: Path) -> None:
    whole, part = tmp_path / "whole.csv", tmp_path / "part.csv"
    full = run_sweep(space(), output=whole)

    def interrupt(done: int, total: int, best: object) -> None:
        if done > total / 3:
            raise KeyboardInterrupt

    stopped = run_sweep(space(), output=part, jobs=2, progress=interrupt)
    assert not stopped.finished
    assert 0 < stopped.n_done < full.n_done
    assert stopped.best, "the best so far"
    ended = run_sweep(space(), output=part, jobs=2, resume=True)
    assert (ended.best, ended.front, ended.invalid) == (full.best, full.front, full.invalid)
    assert part.read_bytes() == whole.read_bytes()


def test_a_killed_process_loses_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    mark = tmp_path / "killed"
    plain = processes._evaluate

    def dying(first: int, last: int) -> Answer:
        if first >= 6 and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return plain(first, last)

    monkeypatch.setattr(processes, "_evaluate", dying)
    dying.__qualname__, dying.__module__ = "_evaluate", processes.__name__
    alone, both = run_sweep(space()), run_sweep(space(), jobs=2)
    assert mark.exists()
    assert (alone.invalid, alone.n_done) == (both.invalid, both.n_done)
    assert (alone.best, alone.front) == (both.best, both.front)


def test_an_evaluator_travels(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """To a machine whose database lies elsewhere, though not to one whose figures differ."""
    found = Evaluator(space())
    whole = list(found.batches(0, 9))
    own = load_profile().efficiency_file
    sent = pickle.dumps(found)
    assert all(same(a, b) for a, b in zip(pickle.loads(sent).batches(0, 9), whole, strict=True))
    moved = tmp_path / "blind.yaml"
    moved.write_bytes(own.read_bytes())
    sent = pickle.dumps(
        Evaluator(space(), profile=replace(load_profile(), efficiency_file=moved, _seen={}))
    )
    moved.unlink()
    assert pickle.loads(sent)._profile.efficiency_file == own
    moved.write_text("another: 1\n")
    with pytest.raises(UsageError, match="other efficiencies"):
        pickle.loads(sent)


def test_a_sweep_that_fails_at_once_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Else the next try would be told to go on with it."""

    def unreachable(self: Processes) -> Processes:
        raise UsageError("nobody there")

    monkeypatch.setattr(Processes, "__enter__", unreachable)
    with pytest.raises(UsageError, match="nobody there"):
        run_sweep(space(), output=tmp_path / "points.csv", jobs=2)
    assert not list(tmp_path.iterdir())


def test_ranges_end_between_models_where_they_can() -> None:
    left = Unsubmitted([(3, 40), (50, 90)], alike=16)
    assert left.take(7) == (3, 16), "to the end of those alike, twice as many at most"
    assert left.take(20) == (16, 32), "to the nearest end"
    assert left.take(5) == (32, 37), "that end is too far"
    assert left.take(9) == (37, 40) and left.take(1) == (50, 51), "no further than the given range"
    assert left.take(64) == (51, 90) and not left.pieces


def test_stretches_are_long_enough_and_end_together() -> None:
    cost = Cost(1e-6)
    assert cost.pieces(1.0, 9600, 2) == 200, "what is not known yet goes out in small shares"
    cost = Cost(0.1)
    cost.learn(0.1)
    assert cost.pieces(1.0, 10_000, 2) == 10
    assert cost.pieces(1.0, 20, 2) == 5, "a share of what is left"
    assert cost.pieces(1.0, 4, 2) == 2, "never less than a quarter"
    assert cost.pieces(1.0, 1, 2) == 1
    cost.learn(1e9)
    assert cost.pieces(1.0, 10_000, 2) == 1


@pytest.mark.parametrize(
    ("jobs", "cluster", "said"),
    [
        (0, None, "--jobs must be 1 to 1,000"),
        (2, "local", "--jobs or --cluster"),
        (1, "host:8786", "tcp://HOST:PORT, local, or local:N"),
        (1, "local:0", "local:N"),
        (1, "pigeon://home:1", "tcp://HOST:PORT"),
        (1, "tcp://home", "tcp://HOST:PORT"),
    ],
)
def test_wrong_workers_are_said(jobs: int, cluster: str | None, said: str) -> None:
    with pytest.raises(InvalidConfig, match=said):
        workers_of(jobs, cluster)


def test_a_cluster_without_dask_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(InvalidConfig, match=r"\.\[dask\]"):
        workers_of(1, "tcp://nowhere:1")
