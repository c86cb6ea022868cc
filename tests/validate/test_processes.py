"""Rows shared out over processes: the same results in the same order, and clear errors."""

from __future__ import annotations

import gc
import os
from pathlib import Path

import pytest

from simcore.base.errors import SimcoreError
from simcore.base.question import once_a_question
from simcore.validate import processes
from simcore.validate.judge import judge
from simcore.validate.table import read_table

TABLES = Path(__file__).parents[2] / "validate" / "tables"


def doubled(x: int) -> tuple[int, int]:
    return 2 * x, os.getpid()


def refused(x: int) -> int:
    if x == 150:
        raise SimcoreError(f"row {x} is refused")
    return x


def killed(x: int) -> int:
    if x == 150:
        os._exit(1)
    return x


def test_results_come_in_the_order_of_the_rows() -> None:
    rows = range(2 * processes.LEAST_ROWS + 7)
    found = processes.in_order(doubled, rows, 2)
    assert [value for value, _ in found] == [2 * x for x in rows]
    assert os.getpid() not in {pid for _, pid in found}


def test_rows_that_are_alike_go_to_one_process_in_portions() -> None:
    rows = [*range(300)]
    found = processes.in_order(doubled, rows, 2, lambda x: x % 20)
    assert [value for value, _ in found] == [2 * x for x in rows]
    by_key = [{pid for _, pid in found[key::20]} for key in range(20)]
    assert all(len(pids) == 1 for pids in by_key)  # 15 rows each: no more than a portion


@pytest.mark.parametrize(("n", "jobs"), [(processes.LEAST_ROWS, 4), (1000, 1), (0, 2)])
def test_few_rows_or_one_process_start_no_other(n: int, jobs: int) -> None:
    assert {pid for _, pid in processes.in_order(doubled, range(n), jobs)} <= {os.getpid()}


def test_an_error_in_a_process_is_that_error_here() -> None:
    with pytest.raises(SimcoreError, match="row 150 is refused"):
        processes.in_order(refused, range(300), 2)


def test_a_process_that_ends_is_told() -> None:
    with pytest.raises(SimcoreError, match="try fewer --jobs"):
        processes.in_order(killed, range(300), 2)


def test_judged_by_several_processes_is_judged_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    tables = [read_table(TABLES / f"{name}.csv") for name in ("latte", "resnet152")]
    alone = judge(tables)
    monkeypatch.setattr(processes, "LEAST_ROWS", 2)
    monkeypatch.setattr(processes, "STRETCH", 3)
    shared = judge(tables, jobs=2)
    assert shared.to_dict(["model"]) == alone.to_dict(["model"])
    assert [(j.memory, j.time) for j in shared.judged] == [(j.memory, j.time) for j in alone.judged]


def test_files_are_looked_up_once_for_all_rows_and_the_collector_rests() -> None:
    looked_up = []

    @once_a_question
    def lookup(name: str) -> bool:
        looked_up.append(name)
        return gc.isenabled()

    assert gc.isenabled()
    assert processes.in_order(lookup, ["a", "b", "a"], 1) == [False] * 3
    assert looked_up == ["a", "b"]
    assert gc.isenabled()
