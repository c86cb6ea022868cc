"""The closed loop's section of the report, and the runs that are kept."""

from __future__ import annotations

import json
import math
import statistics
from pathlib import Path

import pytest

from simcore.base.errors import DataError
from simcore.calibrate.machine.selftest import judged
from simcore.validate.report_sections import closed_loop, read_run

KEPT = sorted((Path(__file__).parents[2] / "validate" / "selftest").glob("*.json"))


def run(folder: Path, **changes: object) -> Path:
    row = {
        "net": "mlp", "ranks": 2, "kind": "ddp", "counted": True, "predicted_s": 0.9,
        "low_s": 0.8, "high_s": 1.1, "measured_s": 1.0, "error_frac": -0.1, "inside": False,
    } | changes  # fmt: skip
    told = {"rows": [row], "holds": False, "median_error_frac": 0.1, "inside": 0, "steps": 1,
            "conditions": {"processor": "a processor", "torch": "2.13.0"},
            "calibration_notes": ["busy"]}  # fmt: skip
    path = folder / f"run{len(list(folder.iterdir()))}.json"
    path.write_text(json.dumps(told), encoding="utf-8")
    return path


def test_a_table_of_runs_and_one_of_steps_with_a_column_a_run(tmp_path: Path) -> None:
    text = closed_loop([run(tmp_path), run(tmp_path, inside=True)])
    (line,) = [part for part in text.splitlines() if part.startswith("| mlp")]
    last = "900 ms (800 ms to 1.10 s), measured 1.00 s"
    assert line == f"| mlp | 2 ddp | {last} | -10 %, outside | -10 % |"
    assert "| run0 | a processor, - | 2.13.0 | 10.0 % | 0 of 1 | does not hold | busy |" in text


def test_a_step_that_did_not_run_says_why(tmp_path: Path) -> None:
    path = run(tmp_path)
    told = json.loads(path.read_text(encoding="utf-8"))
    told["rows"].append({"net": "dit", "ranks": 2, "kind": "zero3", "counted": False, "note": "no"})
    path.write_text(json.dumps(told), encoding="utf-8")
    assert "| dit | 2 zero3, not counted | - | no |" in closed_loop([path])


@pytest.mark.parametrize("text", ["", "[]", '{"rows": []}', "{"])
def test_another_file_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match="selftest"):
        read_run(path)


@pytest.mark.parametrize("path", KEPT, ids=lambda p: p.stem)
def test_kept_runs_say_what_their_rows_say(path: Path) -> None:
    found = read_run(path)
    now = judged(found["rows"])
    assert [found[k] for k in ("inside", "steps")] == [now[k] for k in ("inside", "steps")]
    if path.stem > "2026-11-24":  # earlier ones were held to 15 % and six of eight
        assert found["holds"] is now["holds"]
    counted = [r for r in found["rows"] if r["counted"]]
    errors = [abs(r["predicted_s"] / r.get("stated_s", r["measured_s"]) - 1) for r in counted]
    assert found["median_error_frac"] == pytest.approx(statistics.median(errors))
    if "pulses_s" in found:  # stated at one speed of the device, beside what was measured
        errors = [abs(r["predicted_s"] / r["measured_s"] - 1) for r in counted]
        assert found["median_measured_error_frac"] == pytest.approx(statistics.median(errors))
    for row in (r for r in found["rows"] if "rounds" in r):
        for of in row["rounds"]:
            factor = math.prod(of["slower"][kind] ** share for kind, share in row["shares"].items())
            assert of["stated_s"] == pytest.approx(of["measured_s"] / factor)
        stated = [of["stated_s"] for of in row["rounds"]]
        assert min(stated) * (1 - 1e-9) <= row["stated_s"] <= max(stated) * (1 + 1e-9)
    assert found["conditions"]["date"] and found["conditions"]["torch"]


def test_three_runs_are_kept() -> None:
    assert len(KEPT) >= 3
