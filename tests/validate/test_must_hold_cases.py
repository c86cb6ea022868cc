"""Public cases: how their file is read, and when a case counts as right."""

from __future__ import annotations

from pathlib import Path

import pytest

from simcore.base.errors import DataError
from validate.must_hold.cases import cases_file, lines_of, outcome_of, read_cases

_JOB = "predict --model gpt2 --gpus 1xH100 --precision bf16 --micro-batch 1 --seq-len 128"


def _file(tmp_path: Path, runs: str, more: str = "") -> Path:
    path = tmp_path / "cases.yaml"
    path.write_text(f"cases:\n  - name: one\n    source: a page\n{more}    runs:\n{runs}")
    return path


@pytest.mark.parametrize(
    ("called", "number"),
    [
        ("cases", 20),
        ("launch lines", 32),
        ("second round", 19),
        ("fresh lines", 11),
        ("blind lines", 6),
        ("issue lines", 17),
    ],
)
def test_every_case_has_a_source_and_every_command_is_understood(called: str, number: int) -> None:
    cases = read_cases(cases_file(called))
    assert len(cases) == number
    assert all(case.source and case.runs for case in cases)
    assert len({case.name for case in cases}) == len(cases)


def test_a_case_is_right_where_every_verdict_is_and_shows_its_figures(tmp_path: Path) -> None:
    ran = f"      - {{command: {_JOB}, runs: true, allocated: 3 GB}}\n"
    lost = ran + f"      - {{command: {_JOB}, runs: false}}\n"
    (good,), (bad,) = read_cases(_file(tmp_path, ran)), read_cases(_file(tmp_path, lost))
    found = outcome_of(good)
    assert found.right and not outcome_of(bad).right
    assert "reported 3" in lines_of(found)[1] and lines_of(found)[1].strip().startswith("runs")


def test_a_command_reads_files_of_its_case(tmp_path: Path) -> None:
    runs = f"      - {{command: {_JOB} --launch ds.json, runs: true}}\n"
    files = '    files: {ds.json: \'{"zero_optimization": {"stage": 1}}\'}\n'
    (case,) = read_cases(_file(tmp_path, runs, files))
    assert not outcome_of(case).refused
    (alone,) = read_cases(_file(tmp_path, runs))
    assert outcome_of(alone).refused and not outcome_of(alone).right


@pytest.mark.parametrize(
    ("runs", "told"),
    [
        (f"      - {{command: {_JOB}, ran: true}}\n", "no run has ran"),
        ("      - {command: predict --model gpt2, runs: true}\n", "--gpus is missing"),
    ],
)
def test_wrong_entries_are_refused_by_name(tmp_path: Path, runs: str, told: str) -> None:
    with pytest.raises(DataError, match=told):
        read_cases(_file(tmp_path, runs))
