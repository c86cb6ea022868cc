"""Any number of processes gives the same points in the same order, even when one is killed."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from simcore.base.errors import InvalidConfig
from simcore.planning import parallel
from simcore.planning.points import Batch, batches
from simcore.planning.space import make_space
from simcore.planning.sweep import run_sweep

WORDS: dict[str, Any] = {
    "strategy": "all", "recompute": "none,full", "micro_batch": "1..4", "grad_accum": "1,2",
    "precision": "tf32,amp-bf16",
}  # fmt: skip


def space() -> Any:
    return make_space("latte-s", "A6000ada:1..3x8", **WORDS)


def test_two_processes_write_what_one_does(tmp_path: Path) -> None:
    one, two = tmp_path / "one.csv", tmp_path / "two.csv"
    alone = run_sweep(space(), output=one)
    both = run_sweep(space(), output=two, jobs=2)
    assert one.read_bytes() == two.read_bytes()
    assert alone.invalid == both.invalid
    assert [p.to_dict() for p in alone.best] == [p.to_dict() for p in both.best]


def test_it_goes_on_within_a_unit() -> None:
    whole = [(b.unit, b.piece, b.n_points) for b in batches(space())]
    first = (whole[3][0], whole[3][1])
    rest = [(b.unit, b.piece, b.n_points) for b in parallel.parallel_batches(
        space(), 2, first=first)]  # fmt: skip
    assert rest == whole[3:]


def test_a_killed_process_loses_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    mark = tmp_path / "killed"
    plain = parallel._stretch

    def dying(first: int, last: int) -> list[Batch]:
        if first >= 6 and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return plain(first, last)

    whole = [(b.unit, b.piece, b.n_points, len(b)) for b in batches(space())]
    monkeypatch.setattr(parallel, "_stretch", dying)
    dying.__qualname__, dying.__module__ = "_stretch", parallel.__name__
    found = [(b.unit, b.piece, b.n_points, len(b)) for b in parallel.parallel_batches(space(), 2)]
    assert mark.exists()
    assert found == whole


def test_a_wrong_number_of_processes() -> None:
    with pytest.raises(InvalidConfig, match="--jobs"):
        next(parallel.parallel_batches(space(), 0))
