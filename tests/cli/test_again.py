"""The command under a plan: typed again, it predicts the very job that was chosen."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable

import pytest

from simcore.cli.options import command_of

PLANS = {
    # Its own default is to recompute, the plan's choice is not to.
    "no recompute": ["--model", "llama3-70b", "--gpus", "B200:16x8", "--strategy", "zero3",
                     "--tp", "2", "--micro-batch", "1", "--recompute", "none,full",
                     "--network", "8xib-hdr"],
    "stages of its own": ["--model", "llama3-8b", "--gpus", "RTX4090:3x8", "--pp", "4",
                          "--strategy", "zero1", "--micro-batch", "1", "--recompute", "full"],
    "adapters": ["--model", "qwen2.5-7b", "--gpus", "RTX4090:1x8", "--lora-rank", "16",
                 "--quantised-base", "nf4", "--seq-len", "2048", "--tp", "1", "--pp", "1",
                 "--micro-batch", "1..4*2"],
}  # fmt: skip


@pytest.mark.parametrize("name", PLANS)
def test_the_command_predicts_what_was_chosen(name: str, simcore: Callable) -> None:
    words = ["plan", *PLANS[name], "--tokens", "1e9"]
    chosen = json.loads(simcore(*words, "--json").out)["best"][0]
    text = simcore(*words).out
    assert max(map(len, text.splitlines())) <= 80
    command = shlex.split(text[text.index("\nsimcore predict") :].replace("\\\n", " "))
    again = json.loads(simcore(*command[1:], "--json").out)
    assert again["step_time_s"]["value"] == pytest.approx(chosen["step_time_s"]["value"], rel=1e-9)
    assert again["inputs"]["recompute"] == chosen["recompute"]
    assert again["inputs"]["global_batch"] == chosen["global_batch"]


def test_no_recompute_is_said(simcore: Callable) -> None:
    said = simcore("plan", *PLANS["no recompute"], "--tokens", "1e9").out
    assert ", no recompute, bf16" in " ".join(said.split())


def test_quotes_and_what_has_no_flag() -> None:
    options = {"network": "8xib-ndr 4:1 leaf=16", "tp": 1, "offload": None, "launch_blocking": True}
    said = command_of("my models/net.yaml", "8xH100", options)
    assert shlex.split(said.replace("\\\n", " ")) == [
        "simcore", "predict", "--model", "my models/net.yaml", "--gpus", "8xH100",
        "--network", "8xib-ndr 4:1 leaf=16", "--launch-blocking", "on",
    ]  # fmt: skip
    assert command_of("gpt2", "8xH100", {"prefetch_blocks": 2}).endswith("--prefetch-blocks 2")
    assert command_of("gpt2", "8xH100", {"profile": object()}) == ""


def test_settings_are_one_option() -> None:
    said = command_of("gpt2", "8xH100", {"settings": {"layers": 16, "bias": False}})
    assert shlex.split(said)[-2:] == ["--set", "layers=16 bias=false"]
