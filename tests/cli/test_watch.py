"""``predict --watch``: what is watched, and that each change is answered."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from simcore.cli import watch as watching
from simcore.cli.main import run

MODEL = Path(__file__).parents[2] / "models_db" / "gpt2.yaml"


def test_every_change_asks_again_without_the_flag(capfd: pytest.CaptureFixture[str]) -> None:
    asked: list[list[str]] = []

    def answer(words: Sequence[str]) -> int:
        asked.append(list(words))
        return len(asked) - 1

    def changes(paths: Sequence[Path]) -> Iterator[set[tuple[object, str]]]:
        assert paths
        yield {(1, "/somewhere/mine.yaml")}
        yield {(1, "/somewhere/mine.yaml"), (2, "/somewhere/a.yaml")}

    words = ["predict", "--model", "gpt2", "--watch", "--gpus", "8xA100"]
    code = watching.watch(words, run=answer, changes=changes)
    assert code == 2
    assert asked == [["predict", "--model", "gpt2", "--gpus", "8xA100"]] * 3
    told = capfd.readouterr().err
    assert "mine.yaml changed" in told and "a.yaml, mine.yaml changed" in told


def test_files_on_the_line_and_databases_are_watched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SIMCORE_CONFIG", "off")
    for name in ("mine.yaml", "ds.json", "simcore.toml"):
        (tmp_path / name).write_text("")
    (tmp_path / "hardware_db").mkdir()
    found = watching.watched(["predict", "--model=mine.yaml", "--launch", "ds.json", "--gpus", "x"])
    for name in ("mine.yaml", "ds.json", "simcore.toml", "hardware_db"):
        assert (tmp_path / name).resolve() in found
    flags = " ".join(["--tensor-model-parallel-size 2"] * 100)
    assert all(p.exists() for p in watching.watched(["predict", "--launch", flags]))


def test_help_is_help(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["predict", "--watch", "--help-all"]) == 0
    assert "--watch" in capfd.readouterr().out


def test_without_watchfiles_one_sentence_says_so(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "watchfiles", None)
    assert run(["predict", "--model", "gpt2", "--gpus", "8xA100", "--watch"]) == 2
    assert "'.[watch]'" in capfd.readouterr().err


def test_a_real_change_is_answered(tmp_path: Path) -> None:
    """The micro-batch of a model file is edited while the command watches it."""
    mine = tmp_path / "mine.yaml"
    text = MODEL.read_text().replace("name: gpt2\n", "name: mine\n", 1)
    text = "\n".join(line for line in text.splitlines() if not line.startswith("aliases")) + "\n"
    assert "micro_batch: " in text
    mine.write_text(text)
    old = next(line for line in text.splitlines() if "micro_batch: " in line)
    new = old.split(":")[0] + ": 3"
    out = tmp_path / "out.txt"
    with out.open("w") as stream:
        started = subprocess.Popen(
            [sys.executable, "-m", "simcore", "predict", "--model", str(mine), "--gpus", "1xA100",
             "--watch"], stdout=stream, stderr=subprocess.STDOUT, cwd=tmp_path,
            env={**os.environ, "SIMCORE_CONFIG": "off", "PYTHONUNBUFFERED": "1"},
        )  # fmt: skip
        try:
            _wait(lambda: "watching" in out.read_text())
            time.sleep(0.5)  # until the watcher has its folder
            mine.write_text(text.replace(old, new))
            _wait(lambda: out.read_text().count("FITS") >= 2)
        finally:
            started.terminate()
            started.wait()
    told = out.read_text()
    assert "mine.yaml changed" in told
    assert "micro-batch 3 (default)" in told.partition("changed")[2]


def _wait(done: object, seconds: float = 60.0) -> None:
    assert callable(done)
    end = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < end, "it did not answer in time"
        time.sleep(0.1)
