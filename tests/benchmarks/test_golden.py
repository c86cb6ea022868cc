"""Recorded answers are those of the code as it is, and a difference is told as what it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.golden.compare import Renames, changes_of, chosen, compared, report
from benchmarks.golden.jobs import Job
from benchmarks.golden.record import SAMPLE, answered, read, rounded, write
from benchmarks.golden.run import run

JOB: Job = {"kind": "predict", "model": "gpt2", "gpus": "8xA100", "words": {"tp": 2}}


def test_the_recorded_sample_is_predicted_as_it_was() -> None:
    """After a change that is meant: python -m benchmarks.golden record --sample-file --keep-jobs"""
    records = read(SAMPLE)
    assert len(records) >= 200
    answers = answered([job for job, _ in records], 1)
    found = [
        compared(job, old, new) for (job, old), new in zip(records, answers, strict=True)
    ]  # fmt: skip
    assert all(one.kind == "equal" for one in found), report(found)


def test_a_relative_difference_beyond_a_billionth_is_a_change() -> None:
    old = {"step_time_s": {"value": 2.0}, "rows": {"a 1.5 step_time": {"low": 4.0}}, "n": 3}
    new = {"step_time_s": {"value": 2.0 + 1e-10}, "rows": {"a 1.5 step_time": {"low": 5.0}}, "n": 3}
    (change,) = changes_of("", old, new)
    assert (change.field, change.group) == ("rows.a 1.5 step_time.low", "rows[].low")
    assert change.frac == pytest.approx(0.25)


def test_texts_lists_and_what_is_only_in_one_answer_are_changes() -> None:
    old = {"bound_by": "host", "stages": [{"layers": 4}, {"layers": 4}], "gone": 1.0}
    new = {"bound_by": "loader", "stages": [{"layers": 4}, {"layers": 5}], "new": 1.0}
    found = {c.group: (c.old, c.new) for c in changes_of("", old, new)}
    assert found == {
        "bound_by": ("host", "loader"), "stages[].layers": (4, 5), "gone": (1.0, None),
        "new": (None, 1.0),
    }  # fmt: skip
    assert compared(JOB, old, new, ["bound_by", "stages", "gone", "new"]).kind == "equal"


@pytest.mark.parametrize(
    ("old", "new", "kind"),
    [
        ({"fits": True}, {"error": "InvalidConfig", "message": "no"}, "newly refused"),
        ({"error": "InvalidConfig", "message": "no"}, {"fits": True}, "newly accepted"),
        ({"error": "A", "message": "no"}, {"error": "A", "message": "never"}, "other message"),
        ({"fits": True}, {"fits": False}, "differs"),
        ({"fits": True}, {"fits": True}, "equal"),
    ],
)
def test_a_refusal_that_comes_goes_or_changes_is_told(old: dict, new: dict, kind: str) -> None:
    one = compared(JOB, old, new)
    assert one.kind == kind
    assert kind in report([one])


def test_a_renamed_option_or_value_is_asked_and_expected_in_the_words_of_now() -> None:
    job = {**JOB, "words": {"optimizer": "bert-adam", "tp": 2}}
    renames = Renames(["optimizer:bert-adam=optimizer:adam,bias_correction:off", "tp=tensor"])
    assert renames.job(job)["words"] == {
        "optimizer": "adam", "bias_correction": "off", "tensor": 2,
    }  # fmt: skip
    told = {"inputs": {"optimizer": "bert-adam"}, "defaults": []}
    assert renames.answer(told) == {"inputs": {"optimizer": "adam"}, "defaults": []}
    assert renames.job({**JOB, "words": {"optimizer": "sgd"}})["words"] == {"optimizer": "sgd"}


def test_a_recording_comes_back_as_it_was_written(tmp_path: Path) -> None:
    record = (JOB, {"step_time_s": 1.0 / 3.0, "terms": [2e9 / 3.0, "a"], "fits": True})
    write(tmp_path / "a.gz", [record])
    assert read(tmp_path / "a.gz") == [record]
    write(tmp_path / "b.gz", [record], 3)
    assert read(tmp_path / "b.gz")[0][1] == rounded(record[1], 3)
    assert rounded(record[1], 3)["step_time_s"] == 0.333


def test_a_sample_is_the_same_part_every_time() -> None:
    records = [({**JOB, "id": str(i)}, {}) for i in range(50)]
    few = chosen(records, ["predict"], 5)
    assert len(few) == 5
    assert few == chosen(records, ["predict"], 5)
    assert chosen(records, ["sweeps"], 5) == []


def test_an_error_is_an_answer_of_one_sentence_without_the_path_of_its_file() -> None:
    job = {**JOB, "files": {"a.json": "{"}, "words": {"launch": "a.json"}}
    said = run(job)
    assert said["error"] == "DataError"
    assert said["message"].startswith("a.json")
