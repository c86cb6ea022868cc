"""Recorded figures of measured tables: what stops, what is listed, and what a record keeps."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

import simcore
from validate import drift
from validate.drift import Figure, Measured

HEAD = "id,model,gpus,strategy,micro_batch,step_time_s,peak_memory_gb\n"
KEY = ("t.csv", "all rows", "step_time")


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A table of three runs, as the only one that is compared, with no figure recorded yet."""
    path = tmp_path / "t.csv"
    rows = "".join(f"{i},gpt2,1x1xA100,ddp,4,{t},12\n" for i, t in enumerate((0.1, 0.2, 0.25)))
    path.write_text(HEAD + rows, encoding="utf-8")
    monkeypatch.setattr(drift, "TABLES", (Measured("t.csv"), Measured("elsewhere.csv", one_in=5)))
    monkeypatch.setattr(drift, "FIGURES", tmp_path / "figures.csv")
    monkeypatch.setenv("SIMCORE_TABLES", str(tmp_path))
    return path


def test_a_moved_figure_stops_until_it_is_listed_with_a_reason(
    table: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert drift.main(["--record"]) == 0
    assert drift.main([]) == 0
    first = drift.read_figures(drift.FIGURES)[KEY]
    told = capsys.readouterr().out
    assert "elsewhere.csv: not compared" in told and "(+0.00)" in told

    table.write_text(table.read_text().replace(",0.25,", ",0.5,"), encoding="utf-8")
    kept = drift.FIGURES.read_bytes()
    assert drift.main([]) == 1
    assert drift.main(["--record"]) == 1  # no reason
    assert drift.FIGURES.read_bytes() == kept
    assert str(first) in capsys.readouterr().out
    assert drift.main(["--record", "--reason", "a slower run"]) == 0
    listed = drift.read_figures(drift.FIGURES)[KEY]
    assert (listed.reason, listed.before) == ("a slower run", str(first))
    assert drift.main([]) == 0


def test_recording_again_changes_nothing(table: Path) -> None:
    drift.main(["--record"])
    once = drift.FIGURES.read_bytes()
    assert drift.main(["--record", "--reason", "another"]) == 0
    assert drift.FIGURES.read_bytes() == once


def test_the_mean_error_is_that_of_the_rows(table: Path) -> None:
    step_s = simcore.predict("gpt2", "1x1xA100", strategy="ddp", micro_batch=4).step_time_s.value
    errors = [abs(step_s / measured - 1.0) for measured in (0.1, 0.2, 0.25)]
    figure = drift.figures_of(Measured("t.csv"), 1)[KEY]
    assert figure.error_percent == pytest.approx(100.0 * sum(errors) / 3, abs=0.01)
    assert figure.n == 3


@pytest.mark.parametrize(
    ("n", "error_percent", "inside_percent", "near"),
    [
        (100, 10.3, 80.0, True), (100, 10.31, 80.0, False), (100, 9.69, 80.0, False),
        (99, 11.0, 80.0, True), (99, 11.1, 80.0, False), (99, 8.9, 80.0, False),
        (100, 10.0, 82.0, True), (100, 10.0, 77.9, False),
        (20, 10.0, 75.0, True), (20, 10.0, 70.0, False),  # one row of 20, and two
    ],
)  # fmt: skip
def test_tolerances(n: int, error_percent: float, inside_percent: float, near: bool) -> None:
    found = Figure(n, error_percent, inside_percent)
    assert found.near(Figure(n, 10.0, 80.0)) is near
    assert not found.near(Figure(n + 1, error_percent, inside_percent))  # other rows


def test_new_and_missing_groups_are_told_and_other_tables_are_left_alone() -> None:
    figure = Figure(20, 10.0, 80.0)
    other = ("u.csv", "all rows", "step_time")
    gone, new = ("t.csv", "arch moe", "step_time"), ("t.csv", "arch vit", "step_time")
    found = {KEY: replace(figure, error_percent=10.9), new: figure}
    recorded = {KEY: figure, gone: figure, other: figure}
    told = drift.differences(found, recorded)
    assert {k: v.split()[0].strip(",") for k, v in told.items()} == {gone: "MISSING", new: "NEW"}
    kept = drift.updated(found, recorded, "why")
    assert kept[KEY] is figure, "within its tolerance a figure keeps its record"
    assert kept.keys() == {KEY, new, other}


def test_a_sample_is_of_the_same_rows_wherever_they_stand(table: Path) -> None:
    head, *rows = table.read_text().splitlines(keepends=True)
    rows = [f"{i},gpt2,1x1xA100,ddp,4,{0.1 + i / 100},\n" for i in range(12)]
    table.write_text(head + "".join(rows), encoding="utf-8")
    found = drift.figures_of(Measured("t.csv"), 3)
    table.write_text(head + "".join(reversed(rows)), encoding="utf-8")
    assert drift.figures_of(Measured("t.csv"), 3) == found
    ((name, _, _), figure), *_ = found.items()
    assert name == "t.csv, 1 row in 3" and 0 < figure.n < 12


def test_every_table_has_figures() -> None:
    recorded = {table for table, _, _ in drift.read_figures(drift.FIGURES)}
    assert {t.name for t in drift.TABLES if "resnet152" not in t.name} <= recorded


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.skipif("SIMCORE_TABLES" not in os.environ, reason="SIMCORE_TABLES is not set")
def test_whole_tables_are_as_recorded() -> None:
    assert drift.main(["--all"]) == 0
