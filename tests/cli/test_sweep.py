"""``simcore sweep``: 80 columns, exit codes, every wrong word at once."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from simcore.planning import sweep as module

ASK = ("sweep", "--model", "latte-xl", "--gpus", "A6000ada:1..4x8", "--strategy", "all")


def test_the_answer_is_a_ranked_table_of_eighty_columns(simcore: Callable) -> None:
    ran = simcore(*ASK, "--batch", "1..4")
    assert ran.code == 0
    assert ran.err == ""
    lines = ran.out.splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[0].startswith("112 points in ")
    assert any(line.startswith(" 1  4x8xA6000ada") for line in lines)
    assert "does not fit in the GPU's memory" in ran.out
    assert "DataParallel" in ran.out


def test_layouts_of_several_models_fit_eighty_columns(simcore: Callable) -> None:
    ran = simcore(
        "sweep", "--model", "llama3-70b,llama2-70b", "--gpus", "H100:8,16x8", "--precision",
        "bf16,fp8", "--strategy", "zero1,zero3", "--tp", "1..8*2", "--pp", "1,4", "--vpp", "1,2",
        "--recompute", "all", "--global-batch", "512", "--micro-batch", "1,2", "--top", "20",
    )  # fmt: skip
    assert ran.code == 0
    assert max(map(len, ran.out.splitlines())) <= 80
    assert ran.out.count("H100-SXM") >= 20


def test_json_holds_the_same(simcore: Callable) -> None:
    ran = simcore(*ASK, "--json", "--top", "3")
    told = json.loads(ran.out)
    assert told["n_points"] == told["n_done"] == 28
    assert len(told["best"]) == 3
    assert told["best"][0]["samples_per_s"] >= told["best"][1]["samples_per_s"]
    assert told["n_fit"] + sum(told["invalid"].values()) == 28


def test_nothing_fits_is_exit_code_one(simcore: Callable) -> None:
    ran = simcore("sweep", "--model", "llama3-70b", "--gpus", "1x1xT4", "--precision", "fp16")
    assert ran.code == 1
    assert "No point fits" in ran.out


def test_everything_wrong_is_said_at_once(simcore: Callable, tmp_path: Path) -> None:
    ran = simcore(
        "sweep", "--model", "latte-xll", "--gpus", "H100:x4", "--strategy", "dpp", "--tp", "4..1",
        "--by", "thru", "-o", str(tmp_path / "x.txt"), "--top", "0",
    )  # fmt: skip
    assert ran.code == 2
    assert ran.out == ""
    for said in ("latte-xl'", "TYPE:NODESxGPUS", "did you mean 'dp'", "1..4", "thru", ".parquet",
                 "--top"):  # fmt: skip
        assert said in ran.err, said
    assert all(line.startswith("error: ") for line in ran.err.splitlines())


def test_missing_words_are_named(simcore: Callable) -> None:
    ran = simcore("sweep", "--resume")
    assert ran.code == 2
    for said in ("--model is missing", "--gpus is missing", "--resume needs"):
        assert said in ran.err


def test_interrupted_it_prints_the_best_so_far(
    simcore: Callable, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    whole = module._parts

    def stopping(*args: object) -> object:
        for i, batch in enumerate(whole(*args)):  # type: ignore[arg-type]
            if i == 5:
                raise KeyboardInterrupt
            yield batch

    monkeypatch.setattr(module, "_parts", stopping)
    output = tmp_path / "s.csv"
    ran = simcore(*ASK, "-o", str(output))
    assert ran.code == 130
    assert "STOPPED at" in ran.out
    assert "\n1  4x8xA6000ada" in ran.out
    assert "--resume" in ran.out
    monkeypatch.undo()
    again = simcore(*ASK, "-o", str(output), "--resume")
    assert again.code == 0
    assert output.read_text("utf-8").count("\n") == 1 + int(
        again.out.split(" points in " + str(output))[0].split()[-1]
    )
