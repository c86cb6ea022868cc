"""Rows shared out over processes: the same results in the same order, and clear errors."""

from __future__ import annotations

import gc
import multiprocessing
import os
from pathlib import Path

import pytest

from simcore.base.errors import DataError, SimcoreError
from simcore.base.lookup import once_a_question
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


def test_work_in_one_context_is_done_by_the_same_processes() -> None:
    rows = range(3 * processes.LEAST_ROWS)

    def pids() -> set[int]:
        return {pid for _, pid in processes.in_order(doubled, rows, 2)}

    with processes.shared(), processes.shared():  # one within another is part of it
        first, second = pids(), pids()
    assert len(first | second) <= 2
    assert pids().isdisjoint(first | second)


def test_no_process_outlives_its_context() -> None:
    with processes.shared():
        processes.in_order(doubled, range(300), 2)
        assert multiprocessing.active_children()
    assert not multiprocessing.active_children()
    with pytest.raises(SimcoreError, match="refused"):
        processes.in_order(refused, range(300), 2)
    assert not multiprocessing.active_children()


def test_more_processes_take_the_place_of_few() -> None:
    with processes.shared():
        few = processes.in_order(doubled, range(2 * processes.LEAST_ROWS), 2)
        more = processes.in_order(doubled, range(5 * processes.LEAST_ROWS), 3)
    assert [value for value, _ in more] == [2 * x for x in range(5 * processes.LEAST_ROWS)]
    assert {pid for _, pid in few}.isdisjoint({pid for _, pid in more})


def test_a_table_read_by_several_processes_is_read_the_same(tmp_path: Path) -> None:
    lines = [f"r{n},gpt2,1x1xA100,ddp,{n + 1},0.2" for n in range(3 * processes.LEAST_ROWS)]
    lines[150], lines[200] = "r150,gpt2,1x1xA100,ddp,2", "r20,gpt2,1x1xA100,ddp,2,-1"
    path = tmp_path / "t.csv"
    head = "id,model,gpus,strategy,micro_batch,step_time_s\n"
    path.write_text(head + "\n".join(lines), encoding="utf-8")
    alone, shared = (read_table(path, on_bad="skip", jobs=jobs) for jobs in (1, 2))
    assert shared == alone
    assert [s.reason for s in shared.skipped] == [
        "t.csv:152: has 5 cells, not 6", "t.csv:202: id 'r20' is in line 22 already"
    ]  # fmt: skip
    with pytest.raises(DataError, match=r"t\.csv:152: has 5 cells, not 6"):  # the first one
        read_table(path, jobs=2)


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
