"""Every validated row is a command that a user can type, and it gives the row's figure."""

import json
import os
import random
import shlex
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from simcore import api
from simcore.validate.case import Case
from simcore.validate.judge import judge
from simcore.validate.table import Command, Table, commands_of, read_table
from simcore.workload.trace.zoos import zoo_of

TABLES = os.environ.get("SIMCORE_TABLES")
needs_tables = pytest.mark.skipif(
    not TABLES, reason="SIMCORE_TABLES names no folder of measured tables"
)
TABLE = (
    "id,model,gpus,settings,micro_batch,tp,step_time_s,memory_allocated_gib\n"
    "small,arch:transformer,1x1xA100,layers=2 hidden=512 heads=8 vocab=1000 seq_len=128,4,,0.1,\n"
    "cut,gpt2,1x2xA100,layers=4,1,2,0.1,\n"
    "wrong,,1x2xA100,,1,,0.1,\n"
)


def typed(commands: Sequence[Command]) -> dict[str, float]:
    """Step time of each command [s], typed into a shell of its own."""
    found = {}
    for command in commands:
        words = shlex.split(command.line, comments=True)
        assert words[0] == "simcore"
        ran = subprocess.run(
            [sys.executable, "-m", *words, "--json"],
            capture_output=True, text=True, env={**os.environ, "SIMCORE_CONFIG": "off"},
        )  # fmt: skip
        assert ran.returncode in (0, 1), f"{command.id}: {ran.stderr}"
        found[command.id] = json.loads(ran.stdout)["step_time_s"]["value"]
    return found


def judged(table: Table, cases: Sequence[Case]) -> dict[str, float]:
    """Step time that ``simcore validate`` predicts of some rows of a table [s]."""
    rows = judge([replace(table, cases=tuple(cases), skipped=())]).scored
    return {r.id: r.predicted for r in rows if r.quantity == "step_time"}


def test_rows_of_a_table_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    path.write_text(TABLE, encoding="utf-8")
    found = api.commands(path)
    assert [c.id for c in found] == ["small", "cut", "wrong"]
    assert found[2].line == "# wrong: no model"
    table = read_table(path)
    assert typed(found[:2]) == judged(table, table.cases)


@needs_tables
def test_a_handful_of_published_rows() -> None:
    _same(5)


@needs_tables
@pytest.mark.long
@pytest.mark.timeout(3600)
def test_300_published_rows() -> None:
    _same(300)


def _same(n: int) -> None:
    """Of rows drawn at random from both large tables, a command gives the row's figure."""
    for name, share in (("llm.csv", n - n // 2), ("ddp.csv", n // 2)):
        table = read_table(Path(str(TABLES)) / "steps" / name)
        timed = [c for c in table.cases if "step_time_s" in c.measured and not zoo_of(c.model)]
        drawn = random.Random(n).sample(timed, share)
        commands = commands_of([replace(table, cases=tuple(drawn), skipped=())])
        found = judged(table, drawn)
        assert len(found) > 0.9 * share
        assert typed([c for c in commands if c.id in found]) == found


@needs_tables
def test_every_row_that_is_predicted_has_a_command() -> None:
    for name in ("llm.csv", "ddp.csv", "llm_fits_or_not.csv", "mlperf_v6.csv"):
        found = api.commands(Path(str(TABLES)) / "steps" / name)
        assert all(c.reason or c.words[:2] == ("predict", "--model") for c in found)
        assert sum(not c.reason for c in found) > 0.4 * len(found)
        assert len({c.id for c in found}) == len(found)
