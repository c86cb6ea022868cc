"""What is printed as making a job fit does so when typed, and changes no more than it must."""

from __future__ import annotations

import re
from typing import Any

import pytest

from simcore import api
from simcore.answer.result import Prediction
from simcore.base.errors import UsageError

#: Jobs that do not fit, of many kinds.
JOBS: list[tuple[str, str, dict[str, Any]]] = [
    ("llama3-8b", "1x1xRTX4090", {}),
    ("llama3-8b", "1x4xRTX4090", {"micro_batch": 4, "global_batch": 64}),
    ("llama3-70b", "1x8xA100", {"recompute": "none"}),
    ("llama3-70b", "1x8xRTX4090", {"global_batch": 64, "micro_batch": 2}),
    ("llama3-70b", "2x8xA100", {"tp": 2, "pp": 4, "global_batch": 64}),
    ("llama3.1-405b", "1x8xT4", {}),
    ("deepseek-v3", "1x8xA100", {}),
    ("deepseek-v3", "1x8xA100+1x8xT4", {}),
    ("kimi-k2", "8x8xRTX4090", {}),
    ("kimi-k2", "8x8xT4", {}),
    ("wan2.1-14b", "1x1xRTX4090", {}),
    ("latte-xl", "1x1xT4", {"micro_batch": 8}),
    ("gpt2", "1x1xT4", {"micro_batch": 256}),
    ("resnet-50", "1x2xT4", {"micro_batch": 2048}),
    ("llama3-70b", "1x8xMI50", {}),
]


def typed(said: str) -> dict[str, Any]:
    """The words of one change as it is printed, without its rate."""
    words: dict[str, Any] = {}
    text = re.sub(r" \([^)]*/s\)$", "", said)
    for part in re.split(r", (?=\D|\d+x)", text):
        name, _, value = part.partition(" ")
        if re.match(r"\d+x", part):
            words["gpus"] = part
        elif re.match(r"zero\d|ddp|hsdp", name):
            words["strategy"] = name
            words |= {"shard_ranks": None} if value == "over all GPUs" else {}
        elif name == "set":  # --set KEY=VALUE
            words["settings"] = value
        elif name.startswith("amp"):
            words["precision"] = name
        else:
            words[name.replace("-", "_")] = int(value) if value.isdigit() else value
    return words


def answered(model: str, gpus: str, words: dict[str, Any]) -> Prediction:
    asked = {**words}
    if "grad_accum" in asked:  # it stands for the samples of a step
        asked.pop("global_batch", None)
    return api.predict(model, asked.pop("gpus", gpus), **asked)


@pytest.mark.parametrize(("model", "gpus", "words"), JOBS)
def test_each_change_fits_when_it_is_typed(model: str, gpus: str, words: dict[str, Any]) -> None:
    p = api.predict(model, gpus, **words)
    assert not p.fits
    assert p.fixes, "something helps each of these"
    for said in (*p.fixes, *p.instead):
        again = answered(model, gpus, {**words, **typed(said)})
        assert again.fits, said
        rate = float(re.findall(r"\(([\d.,e-]+)/s\)$", said)[0].replace(",", ""))
        assert again.samples_per_s == pytest.approx(rate, rel=0.01), said


@pytest.mark.parametrize(
    ("model", "gpus", "words"), [job for job in JOBS if job[0] in ("llama3-8b", "llama3-70b")]
)
def test_with_more_gpus_no_change_is_needless(model: str, gpus: str, words: dict[str, Any]) -> None:
    for said in api.predict(model, gpus, **words).fixes:
        changed = typed(said)
        if "gpus" not in changed:
            continue
        for name in changed.keys() - {"gpus", "grad_accum"}:
            fewer = {k: v for k, v in changed.items() if k != name}
            try:
                fits = answered(model, gpus, {**words, **fewer}).fits
            except UsageError:  # a batch of samples that is then no whole number of micro-batches
                fits = False
            assert not fits, (said, name)


def test_adapters_are_told_as_another_kind_of_training() -> None:
    p = api.predict("qwen2.5-14b", "1x1xRTX4090")
    (said,) = p.instead
    assert "lora-rank" in said and "quantised-base nf4" in said
    text = str(p)
    assert "another kind of training" in text
    assert api.predict("llama3-8b", "1x1xRTX4090", lora_rank=16).instead == ()
    assert api.predict("llama3-8b", "1x8xH100").instead == (), "it fits"
    assert api.predict("llama3-70b", "1x8xA100").instead == (), "all weights do, with other words"
    assert api.predict("resnet-50", "1x1xT4", micro_batch=65536).instead == (), "has no adapters"


def test_what_no_number_of_gpus_holds_says_why_and_which_would() -> None:
    whole = api.predict("llama3.1-405b", "1x8xRTX3060", seq_len=2**20)
    assert "activations alone take 20.3 of 12.9 GB" in whole.why_none
    assert "256x8xRTX3060" in whole.why_none
    assert all("RTX3060" not in said for said in whole.fixes)
    assert "no number of these GPUs" in str(whole)


def test_a_plan_that_no_gpu_holds_says_what_does() -> None:
    plan = api.plan("llama3.1-405b", "T4:1..2x8", tokens=1e9)
    assert not plan.feasible and plan.leanest is not None
    (said,) = plan.fixes
    words = dict(plan.leanest.form.options) | {"micro_batch": plan.leanest.micro_batch}
    words["grad_accum"] = plan.leanest.grad_accum
    assert answered("llama3.1-405b", "", {**words, **typed(said)}).fits
    assert said.partition(",")[0] in str(plan)
    assert plan.to_dict()["fixes"] == [said]
    assert api.plan("llama3-8b", "1x8xH100", tokens=1e9).fixes == ()
