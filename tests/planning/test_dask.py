"""A Dask cluster gives what one process gives, also when a worker is killed in the middle."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from simcore import api
from simcore.base.errors import SimcoreError
from simcore.planning import evaluator, parallel, store
from simcore.planning.points import Batch
from simcore.planning.workers import dask_cluster
from simcore.planning.workers.dask_cluster import DaskWorkers

distributed = pytest.importorskip("distributed")

ASK = ("latte-s", "A6000ada:1..3x8")
WORDS: dict[str, Any] = {
    "strategy": "all", "recompute": "none,full", "micro_batch": "1..4", "grad_accum": "1..3",
    "precision": "tf32,amp-bf16",
}  # fmt: skip


@pytest.fixture(autouse=True)
def _others_do_it_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small spaces would otherwise end in this process, before anyone is asked."""
    monkeypatch.setattr(parallel, "HERE_S", 0.0)
    monkeypatch.setattr(DaskWorkers, "task_s", 0.01)
    monkeypatch.setattr(evaluator, "MAX_CALL", 12)


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """A worker in a thread of this process, at an address as a cluster has one."""
    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=2, processes=False, protocol="tcp", host="127.0.0.1",
        dashboard_address="127.0.0.1:0",
    ) as cluster:  # fmt: skip
        yield cluster.scheduler_address


def test_a_killed_worker_changes_no_result() -> None:
    alone = api.sweep(*ASK, **WORDS)
    killed: list[int] = []
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address="127.0.0.1:0", silence_logs=50
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        pids = client.run(os.getpid)
        assert len(pids) == 2 and os.getpid() not in pids.values()

        def kill(done: int, total: int, best: object) -> None:
            if not killed and done > total / 4:
                killed.append(next(iter(pids.values())))
                os.kill(killed[0], signal.SIGKILL)
                assert done < total

        found = api.sweep(*ASK, cluster=client, keep=False, progress=kill, **WORDS)
        assert client.status == "running", "a client that was given stays open"
    assert killed
    assert (found.best, found.front, found.invalid) == (alone.best, alone.front, alone.invalid)
    assert (found.n_done, found.n_evaluated) == (alone.n_done, alone.n_evaluated)


def test_points_come_back_where_they_are_asked_for(address: str) -> None:
    alone = api.sweep(*ASK, **WORDS).columns()
    shared = api.sweep(*ASK, cluster=address, **WORDS).columns()
    assert all(alone[name].tolist() == shared[name].tolist() for name in alone)


def test_a_damaged_part_is_computed_again_by_the_cluster(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file is that of an undisturbed sweep in one process, byte for byte."""
    monkeypatch.setattr(store, "PART_POINTS", 60)

    def stop(done: int, total: int, best: object) -> None:
        if done > total / 2:
            raise KeyboardInterrupt

    whole, path = tmp_path / "whole.csv", tmp_path / "points.csv"
    api.sweep(*ASK, output=whole, **WORDS)
    assert not api.sweep(*ASK, output=path, cluster=address, progress=stop, **WORDS).finished
    files = sorted(path.with_name("points.csv.parts").glob("part-*"))
    os.truncate(files[1], 100)
    with pytest.warns(UserWarning, match="is truncated.* computed again"):
        found = api.sweep(*ASK, output=path, cluster=address, resume=True, **WORDS)
    assert found.finished and path.read_bytes() == whole.read_bytes()


def test_sums_travel_where_they_are_not(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    parts: list[object] = []
    plain = DaskWorkers.answer

    def seen(self: DaskWorkers, asked: Any) -> Any:
        found = plain(self, asked)
        parts.extend(found.parts)
        return found

    monkeypatch.setattr(DaskWorkers, "answer", seen)
    found = api.sweep(*ASK, cluster=address, keep=False, **WORDS)
    assert len(parts) > 2
    assert not any(isinstance(p, Batch) for p in parts)
    assert found.n_done == found.n_points


def test_clusters_that_do_not_answer_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dask_cluster, "_CONNECT_S", 0.3)
    with pytest.raises(SimcoreError, match=r"tcp://127\.0\.0\.1:9 cannot be reached"):
        api.sweep(*ASK, cluster="tcp://127.0.0.1:9", **WORDS)
    with distributed.LocalCluster(
        n_workers=0, processes=False, protocol="tcp", host="127.0.0.1",
        dashboard_address="127.0.0.1:0",
    ) as empty, pytest.raises(SimcoreError, match="has no workers"):  # fmt: skip
        api.sweep(*ASK, cluster=empty.scheduler_address, **WORDS)


def test_other_versions_are_said(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    told = iter(["0.9"])
    plain = dask_cluster.about
    monkeypatch.setattr(
        dask_cluster, "about", lambda: {**plain(), "simcore": next(told, "another")}
    )
    with pytest.raises(SimcoreError, match=r"runs simcore another, this machine 0\.9"):
        api.sweep(*ASK, cluster=address, **WORDS)


def test_a_cluster_without_simcore_is_said(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    here = iter([True])
    plain = dask_cluster.about

    def about() -> dict[str, str]:
        if next(here, False):
            return plain()
        raise ModuleNotFoundError("No module named 'simcore'")

    monkeypatch.setattr(dask_cluster, "about", about)
    with pytest.raises(SimcoreError, match=r"has no 'simcore': install simcore"):
        api.sweep(*ASK, cluster=address, **WORDS)
