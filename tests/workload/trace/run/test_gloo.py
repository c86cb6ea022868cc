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
RANKS = 2


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What each of two real ranks measured."""
    folder = tmp_path_factory.mktemp("gloo")
    results = [folder / f"{rank}.json" for rank in range(RANKS)]
    words = [sys.executable, str(HERE / "gloo_rank.py")]
    started = [
        subprocess.Popen(
            [*words, str(rank), str(RANKS), str(folder / "meeting"), str(result), *SETUPS],
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        for rank, result in enumerate(results)
    ]  # fmt: skip
    for process in started:
        _, errors = process.communicate(timeout=200)
        assert process.returncode == 0, errors[-2000:]
    return [json.loads(result.read_text()) for result in results]


@pytest.mark.parametrize("name", SETUPS)
@pytest.mark.parametrize("rank", range(RANKS))
def test_a_dry_run_holds_and_sends_what_real_ranks_do(
    name: str, rank: int, real: list[dict[str, Any]]
) -> None:
    truth = real[rank][name]
    alone = name == "single"
    with simcore.dry_run(
        "1x2xH100", world_size=1 if alone else RANKS, rank=0 if alone else rank
    ) as job:
        step = SETUPS[name]()
        for _ in range(3):
            step()
    for term in ("parameters", "gradients", "optimizer_state"):
        assert job.bytes[term] == truth[term], term
    assert Counter(f"{c.kind} {c.n_bytes}" for c in job.collectives) == truth["collectives"]
    if alone:  # gloo's buffers live until their work ends, so that other peaks differ in every run
        assert job.bytes["peak"] == truth["peak"]
