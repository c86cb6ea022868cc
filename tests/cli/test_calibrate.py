"""``simcore calibrate --from``: a table in, a calibration out, mistakes in one sentence."""

import json
from pathlib import Path

import pytest

from simcore.answer.request import tables_folder
from simcore.cli.main import run

LATTE = str(tables_folder() / "latte.csv")


def test_writes_and_says_how_to_use_it(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "mine.yaml"
    assert run(["calibrate", "--from", LATTE, "-o", str(target)]) == 0
    said = capfd.readouterr().out
    assert f"--calibration {target}" in said
    assert "flagged latte-09" in said
    assert run(["predict", "--model", "latte-l", "--gpus", "1x8xA6000ada",
                "--calibration", str(target)]) == 0  # fmt: skip
    assert "calibrated on 10 measured rows" in " ".join(capfd.readouterr().out.split())


def test_json(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Of a few rows: what the fit of all leaves is judged in tests/validate."""
    few = tmp_path / "few.csv"
    few.write_text("".join(Path(LATTE).read_text("utf-8").splitlines(True)[:8]), encoding="utf-8")
    assert run(["calibrate", "--from", str(few), "--json"]) == 0
    found = json.loads(capfd.readouterr().out)
    assert 0 < found["leave_one_out_mape_frac"] <= 0.30
    assert {"knob", "value", "sd_log", "prior_sd_log", "identified"} <= set(found["knobs"][0])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--from", "none.csv"], "no such file: 'none.csv'"),
        (
            ["--from", LATTE, "--minutes", "2"],
            "--minutes, --resume, --device and --refit are for benchmarks",
        ),
        (["--from", LATTE, "-o", "x.json"], "a calibration is a .yaml file"),
    ],
)
def test_mistakes(arguments: list[str], said: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["calibrate", *arguments]) == 2
    err = capfd.readouterr().err
    assert said in err.lower()
    assert "Traceback" not in err


def test_a_network_that_no_row_states_is_said(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    def said(network: str) -> str:
        rows = tmp_path / "rows.csv"
        rows.write_text(
            "id,model,gpus,strategy,network,step_time_s\n"
            f"a,gpt2,2x8xA100-SXM-80GB,ddp,{network},0.1\n",
            encoding="utf-8",
        )
        assert run(["calibrate", "--from", str(rows)]) == 0
        return " ".join(capfd.readouterr().out.split())

    assert "ib-hdr: no row states how many adapters a node has" in said("")
    assert "no row states" not in said("8xib-hdr")
