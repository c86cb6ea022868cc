"""Dry runs against two real processes over gloo: bytes held, collectives, peak of a step."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from setups import SETUPS

import simcore

HERE = Path(__file__).parent
#: Set-ups of two ranks; those of four take twice as long.
TWO = [name for name in SETUPS if name not in ("fsdp2", "hsdp", "both", "experts")]
FOUR = ["hsdp", "both", "experts"]
#: Of these each rank holds or sends something else.
DIFFER = ("zero", "pipeline")


def real(folder: Path, ranks: int, names: list[str]) -> list[dict[str, Any]]:
    """What each of some real ranks measured."""
    ran = subprocess.run(
        [sys.executable, str(HERE / "gloo_rank.py"), str(ranks), str(folder), *names],
        capture_output=True, text=True, timeout=200, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr[-2000:]
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(ranks)]


def check(name: str, rank: int, truth: list[dict[str, Any]]) -> None:
    """The dry run of a rank against the real one, or all of them where they are alike."""
    ranks = 1 if name == "single" else len(truth)
    with simcore.dry_run("1x8xH100", world_size=ranks, rank=rank) as job:
        step = SETUPS[name]()
        for _ in range(3):
            step()
    for found in [truth[rank]] if name in DIFFER else truth:
        for term in ("parameters", "gradients", "optimizer_state"):
            assert job.bytes[term] == found[name][term], term
        assert (
            Counter(f"{c.kind} {c.n_bytes}" for c in job.collectives) == found[name]["collectives"]
        )
        within = 0.04 if name == "experts" else 1e-3  # real ranks hold five more messages then
        assert job.bytes["peak"] == pytest.approx(found[name]["peak"], rel=within)


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    return real(tmp_path_factory.mktemp("two"), 2, TWO)


@pytest.mark.parametrize(("name", "rank"), [*((n, 0) for n in TWO), *((n, 1) for n in DIFFER)])
def test_a_dry_run_holds_and_sends_what_two_real_ranks_do(
    name: str, rank: int, two: list[dict[str, Any]]
) -> None:
    check(name, rank, two)


@pytest.mark.long
def test_four_real_ranks(tmp_path: Path) -> None:
    truth = real(tmp_path, 4, FOUR)
    for name in FOUR:
        check(name, 0, truth)
