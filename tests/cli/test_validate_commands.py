"""``simcore validate --commands``: a command a row."""

from collections.abc import Callable
from pathlib import Path

import pytest

from simcore import api

TABLE = (
    "id,model,gpus,settings,micro_batch,tp,step_time_s\n"
    "small,arch:transformer,1x1xA100,layers=2 hidden=512 heads=8 vocab=1000 seq_len=128,4,,0.1\n"
    "cut,gpt2,1x2xA100,layers=4,1,2,0.1\n"
    "wrong,,1x2xA100,,1,,0.1\n"
)


@pytest.fixture
def table(tmp_path: Path) -> str:
    path = tmp_path / "mine.csv"
    path.write_text(TABLE, encoding="utf-8")
    return str(path)


def test_a_line_a_row(table: str, simcore: Callable) -> None:
    printed = simcore("validate", table, "--commands").out.splitlines()
    assert printed == [c.line for c in api.commands(table)]
    assert printed[1].startswith("simcore predict --model gpt2 --gpus 1x2xA100 ")
    assert printed[1].endswith("  # cut")
    assert printed[2] == "# wrong: no model"


def test_some_rows(table: str, simcore: Callable) -> None:
    printed = simcore("validate", table, "--commands", "--only", "id=cut").out.splitlines()
    assert len(printed) == 1 and "--tp 2" in printed[0]


def test_without_what_names_a_program(table: str, simcore: Callable) -> None:
    printed = simcore("validate", table, "--commands", "--unnamed").out
    assert "--set layers=4" in printed and "--micro-batch 4" in printed


@pytest.mark.parametrize("other", [("--by", "gpu"), ("--json",), ("--calibrated",), ("--fill",)])
def test_commands_stand_alone(table: str, other: tuple[str, ...], simcore: Callable) -> None:
    ran = simcore("validate", table, "--commands", *other)
    assert ran.code == 2 and f"--commands and {other[0]}: give one of them" in ran.err
