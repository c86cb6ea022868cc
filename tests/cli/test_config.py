"""Defaults from files: who wins, what is told, what is wrong."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

ASK = ("predict", "--model", "gpt2", "--json")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder of its own and a user file beside it."""
    here = tmp_path / "work"
    here.mkdir()
    monkeypatch.chdir(here)
    (tmp_path / "user.toml").touch()
    monkeypatch.setenv("SIMCORE_CONFIG", str(tmp_path / "user.toml"))
    return here


def _write(path: Path, **values: object) -> None:
    lines = [f"{k.replace('_', '-')} = {json.dumps(v)}" for k, v in values.items()]
    path.write_text("\n".join(["[defaults]", *lines]) + "\n")


def test_the_command_line_wins_then_the_folder_then_the_user(
    simcore: Callable, place: Path
) -> None:
    _write(place.parent / "user.toml", gpus="1x8xA100", strategy="zero1", micro_batch=3)
    answer = json.loads(simcore(*ASK).out)
    assert answer["inputs"]["cluster"] == "1x8xA100-SXM-80GB"
    assert (answer["inputs"]["strategy"], answer["inputs"]["micro_batch"]) == ("zero1", 3)
    _write(place / "simcore.toml", gpus="1x4xA100", micro_batch=2)
    said = json.loads(simcore(*ASK).out)["inputs"]
    assert (said["n_gpus"], said["strategy"], said["micro_batch"]) == (4, "zero1", 2)
    said = json.loads(simcore(*ASK, "--gpus", "1x2xA100", "--micro-batch", "1").out)["inputs"]
    assert (said["n_gpus"], said["strategy"], said["micro_batch"]) == (2, "zero1", 1)


def test_what_was_taken_is_told(simcore: Callable, place: Path) -> None:
    _write(place / "simcore.toml", gpus="1x8xA100", network="ib-hdr")
    ran = simcore(*ASK)
    answer = json.loads(ran.out)
    sentence = "from simcore.toml: gpus 1x8xA100, network ib-hdr"
    assert sentence in ran.err and sentence in answer["assumptions"]
    assert not any(d.startswith("network") for d in answer["defaults"])
    text = simcore("predict", "--model", "gpt2").out
    assert "simcore.toml: gpus 1x8xA100" in " ".join(text.split())
    assert simcore(*ASK, "--gpus", "1x1xA100", "--network", "ib-ndr").err == ""


def test_without_files_nothing_changes(simcore: Callable, place: Path) -> None:
    ran = simcore(*ASK, "--gpus", "8xA100")
    assert ran.err == "" and json.loads(ran.out)["defaults"]
    assert simcore("predict", "--model", "gpt2").code == 2


def test_a_calibration_is_found_beside_its_file(simcore: Callable, place: Path) -> None:
    shipped = Path(__file__).parents[2] / "hardware_db" / "calibrations" / "latte-ddp.yaml"
    (place.parent / "latte-ddp.yaml").write_text(shipped.read_text())
    _write(place.parent / "user.toml", calibration="latte-ddp.yaml")
    ask = ("predict", "--model", "latte-l", "--gpus", "8xA6000ada", "--json")
    by_file = json.loads(simcore(*ask).out)
    by_name = json.loads(simcore(*ask, "--calibration", "latte-ddp").out)
    assert by_file["step_time_s"]["value"] == by_name["step_time_s"]["value"]


def test_a_batch_that_is_given_makes_its_rival_void(simcore: Callable, place: Path) -> None:
    _write(place / "simcore.toml", grad_accum=4, micro_batch=1)
    said = json.loads(simcore(*ASK, "--gpus", "8xA100", "--global-batch", "64").out)["inputs"]
    assert said["grad_accum"] == 8


def test_a_zero_stage_that_is_given_makes_the_strategy_void(simcore: Callable, place: Path) -> None:
    _write(place / "simcore.toml", strategy="ddp")
    said = json.loads(simcore(*ASK, "--gpus", "8xA100", "--zero", "2").out)["inputs"]
    assert said["strategy"] == "zero2"


def test_a_launch_file_describes_its_job_alone(simcore: Callable, place: Path) -> None:
    (place / "ds.json").write_text('{"train_micro_batch_size_per_gpu": 2, '
                                   '"zero_optimization": {"stage": 2}}')  # fmt: skip
    _write(place / "simcore.toml", gpus="1x8xA100", strategy="zero3", micro_batch=4)
    said = json.loads(simcore(*ASK, "--launch", "ds.json").out)["inputs"]
    assert (said["n_gpus"], said["strategy"], said["micro_batch"]) == (8, "zero2", 2)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[defaults]\ngpu = "8xA100"\n', ["simcore.toml:2: unknown key 'gpu'", "'gpus'"]),
        ('gpus = "8xA100"\n', ["simcore.toml:1", "settings stand under [defaults]"]),
        ('[default]\ngpus = "8xA100"\n', ["'default'", "did you mean 'defaults'"]),
        ("[defaults]\nmicro-batch = 1.5\n", ["simcore.toml:2", "text or a whole number"]),
        ("[defaults]\ngpus = 8x\n", ["simcore.toml: not valid TOML", "line 2"]),
        ("defaults = 3\n", ["must be a table"]),
        ('[defaults]\nnetwrk = "x"\nstrateg = "y"\n', ["'network'", "'strategy'"]),
    ],
)
def test_wrong_files_are_told_by_line(
    text: str, said: list[str], simcore: Callable, place: Path
) -> None:
    (place / "simcore.toml").write_text(text)
    for command in (("predict", "--model", "gpt2", "--gpus", "8xA100"), ("config",)):
        ran = simcore(*command)
        assert ran.code == 2 and ran.out == ""
        for sentence in said:
            assert sentence in ran.err
        assert "Traceback" not in ran.err


def test_a_wrong_value_is_a_wrong_word(simcore: Callable, place: Path) -> None:
    _write(place / "simcore.toml", gpus="8xA1000")
    ran = simcore("predict", "--model", "gpt2")
    assert ran.code == 2 and "unknown gpu" in ran.err
    assert "note: from simcore.toml: gpus 8xA1000" in ran.err


def test_values_may_be_written_as_toml_has_them(simcore: Callable, place: Path) -> None:
    asked = ("predict", "--model", "mixtral-8x7b", "--gpus", "8xH100", "--json")
    options = ("--grad-clip", "on", "--overlap", "grads,params", "--expert-imbalance", "1.3",
               "--set", "layers=6 tied=false")  # fmt: skip
    typed = json.loads(simcore(*asked, *options).out)
    (place / "simcore.toml").write_text(
        '[defaults]\ngrad-clip = true\noverlap = ["grads", "params"]\nexpert-imbalance = 1.3\n'
        "set = {layers = 6, tied = false}\n"
    )
    by_file = json.loads(simcore(*asked).out)
    assert by_file["step_time_s"] == typed["step_time_s"]
    assert by_file["inputs"] == typed["inputs"]


def test_config_shows_where_and_what(simcore: Callable, place: Path) -> None:
    _write(place.parent / "user.toml", network="ib-hdr", gpus="8xA100")
    _write(place / "simcore.toml", gpus="8xH100")
    ran = simcore("config")
    assert ran.code == 0
    rows = [line.split() for line in ran.out.splitlines()]
    assert ["gpus", "8xH100", "simcore.toml"] in rows
    assert ["network", "ib-hdr", str(place.parent / "user.toml")] in rows
    data = json.loads(simcore("config", "--json").out)
    assert data["defaults"]["gpus"] == {"value": "8xH100", "file": "simcore.toml"}
    assert [f["exists"] for f in data["files"]] == [True, True]
    assert {"model", "gpus", "network", "calibration"} <= set(data["keys"])


def test_the_user_file_can_be_switched_off(
    simcore: Callable, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _write(place.parent / "user.toml", gpus="8xA100")
    monkeypatch.setenv("SIMCORE_CONFIG", "off")
    assert simcore("predict", "--model", "gpt2").code == 2
    assert "user.toml" not in simcore("config").out


def test_python_calls_read_no_file(place: Path) -> None:
    from simcore import api

    _write(place / "simcore.toml", micro_batch=3)
    assert api.predict("gpt2", "8xA100").micro_batch != 3


def test_reports_take_defaults_too(simcore: Callable, place: Path) -> None:
    _write(place / "simcore.toml", gpus="1x8xA100", model="gpt2")
    ran = simcore("report", "-o", "run.html")
    assert ran.code == 0 and "from simcore.toml" in ran.err
    page = (place / "run.html").read_text()
    assert "1x8xA100" in page and "Defaults from simcore.toml: gpus 1x8xA100, model gpt2" in page
