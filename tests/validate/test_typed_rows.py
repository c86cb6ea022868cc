"""Every simulated row of a measured table is a command that a user can type."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from simcore import api
from simcore.validate.judge import judge
from simcore.validate.table import read_table

SHARED = os.environ.get("SIMCORE_TABLES")
ROWS, SEED = 150, 26

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(not SHARED, reason="SIMCORE_TABLES names no folder of measured tables"),
]


def typed(words: tuple[str, ...]) -> float:
    """Seconds of a step as the command prints them."""
    line = [sys.executable, "-m", "simcore", *words, "--json"]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), (words, done.stderr)  # 1: it does not fit
    return float(json.loads(done.stdout)["step_time_s"]["value"])


@pytest.mark.parametrize("name", ["ddp.csv", "llm.csv"])
def test_random_rows_typed_give_the_row_s_figure_to_the_last_digit(name: str) -> None:
    table = read_table(Path(SHARED or "") / "steps" / name)
    every = api.commands(table.path)
    lines = {c.id: c.words for c in every if not c.reason}
    assert set(lines) == {c.id for c in table.cases}
    assert {c.id for c in every if c.reason} == {s.id for s in table.skipped}
    chosen = random.Random(SEED).sample(table.cases, ROWS)
    ours = {
        j.case.id: j.prediction.step_time_s.value
        for j in judge([replace(table, cases=tuple(chosen))]).judged
    }
    assert set(ours) == {c.id for c in chosen}
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        theirs = dict(zip(ours, pool.map(typed, (lines[i] for i in ours)), strict=True))
    assert theirs == ours
