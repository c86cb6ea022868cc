"""Page, command line and Python give the same answer to the last digit."""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import random
from typing import Any

from starlette.testclient import TestClient

from simcore import api
from simcore.base.errors import SimcoreError
from simcore.cli.main import run
from simcore.report.jsonout import dumps, to_dict

MODELS = ("gpt2", "llama3.2-1b", "llama3-8b", "mixtral-8x7b", "bert-large", "t5-large", "resnet-50",
          "vit-l-16", "dit-xl-2", "latte-xl", "mamba-130m", "ncf")  # fmt: skip
GPUS = ("1xT4", "8xA100", "2x8xH100", "4x8xA6000ada", "1x2xA100+1x4xT4", "2x4xMI300X", "v5p-16")
VALUES: dict[str, tuple[Any, ...]] = {
    "strategy": ("ddp", "zero1", "zero2", "zero3"), "recompute": ("none", "full"),
    "micro_batch": (1, 2, 7, "max"), "grad_accum": (1, 3), "precision": ("fp32", "bf16"),
    "network": ("eth-25", "100 Gbit/s"), "tp": (1, 2), "pp": (1, 2), "optimizer": ("sgd", "adam"),
    "steps": (1000, 2.5e4), "lora_rank": (8,), "offload": ("optimizer:cpu",),
}  # fmt: skip


def job(seed: int) -> dict[str, Any]:
    rng = random.Random(seed)
    words = {"model": rng.choice(MODELS), "gpus": rng.choice(GPUS)}
    return words | {k: rng.choice(VALUES[k]) for k in rng.sample(list(VALUES), rng.randrange(6))}


def answers(words: dict[str, Any], client: TestClient) -> tuple[int, str, str, Any]:
    """Exit code, output and errors of the command line, and the page's response."""
    flags = [f"--{k.replace('_', '-')}={v}" for k, v in words.items()]
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run(["predict", *flags, "--json"])
    page = client.get("/api/v1/predict", params={k: str(v) for k, v in words.items()})
    return code, out.getvalue(), err.getvalue(), page


def test_fifty_valid_jobs_and_as_many_others_have_one_answer(client: TestClient) -> None:
    valid = refused = 0
    for words in map(job, itertools.count()):
        if min(valid, refused) >= 25 and valid >= 50:
            break
        code, out, err, page = answers(words, client)
        try:
            found = api.predict(**words)
        except SimcoreError as error:
            refused += 1
            assert code == 2 and page.status_code == 422, words
            for sentence in error.sentences:
                assert " ".join(sentence.split()) in " ".join(err.split())
                assert sentence in " ".join(p["message"] for p in page.json()["problems"])
            continue
        valid += 1
        assert code == (0 if found.fits else 1) and page.status_code == 200, words
        wanted = json.loads(dumps(to_dict(found)))
        assert json.loads(out) == wanted, words
        assert page.json() == wanted, words
        shown = client.get("/api/v1/answer", params={k: str(v) for k, v in words.items()}).json()
        figures = {tile["label"]: tile["value"] for tile in shown["tiles"]}
        assert figures["step time"] == shown["step"]["value_s"] == found.step_time_s.value
        assert figures["throughput"] == found.work_per_s
        assert figures["memory a GPU"] == found.memory.device_bytes
        cost = api.predict(**words, cost=True).cost
        assert cost is not None and figures["cost"] == cost.usd_per_million
