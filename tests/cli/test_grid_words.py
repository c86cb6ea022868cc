"""Words that sweep, compare and plan have from predict: ZeRO stages, torchrun's counts, a file."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from simcore import api

MEGATRON = (
    "torchrun --nnodes 4 --nproc-per-node 8 pretrain_gpt.py --tensor-model-parallel-size 2 "
    "--sequence-parallel --micro-batch-size 1 --global-batch-size 128 --bf16 --seq-length 4096 "
    "--use-distributed-optimizer --recompute-granularity selective"
)


def _best(simcore: Callable, *words: str) -> list[dict[str, Any]]:
    ran = simcore("sweep", "--model", "llama3-8b", *words, "--json")
    assert ran.code == 0, ran.err
    found: list[dict[str, Any]] = json.loads(ran.out)["best"]
    return found


def test_zero_stages_are_strategies(simcore: Callable) -> None:
    ask = ("--gpus", "H100:2,4x8")
    assert _best(simcore, *ask, "--zero", "2..3") == _best(
        simcore, *ask, "--strategy", "zero2,zero3"
    )


def test_torchruns_counts_are_those_of_bare_types(simcore: Callable) -> None:
    counted = _best(simcore, "--gpus", "H100,A100", "--nnodes", "2,4", "--nproc-per-node", "4,8")
    assert counted == _best(simcore, "--gpus", "H100:2,4x4,8,A100:2,4x4,8")


@pytest.mark.parametrize("command", ["sweep", "compare", "plan"])
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--zero", "4"), "--zero must be 1, 2 or 3, not '4'"),
        (("--zero", "one"), "--zero 'one' is not a number"),
        (("--zero", "1", "--strategy", "ddp"), "--strategy or --zero, not both"),
        (("--nnodes", "2"), "'2x8xH100' has counts already: drop --nnodes"),
        (("--launch", "nothing.sh"), "nothing.sh"),
        (("--launch", "--tensor-model-parallel-size 2 --encoder-tensor-model-parallel-size 4"),
         "is not supported yet"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_one_sentence(
    command: str, words: tuple[str, ...], said: str, simcore: Callable
) -> None:
    length = ("--tokens", "1e9") if command == "plan" else ()
    ran = simcore(command, "--model", "llama3-8b", "--gpus", "2x8xH100", *length, *words)
    assert ran.code == 2 and ran.out == ""
    assert [line for line in ran.err.splitlines() if said in line], ran.err


def test_a_launch_file_fills_what_no_word_says(simcore: Callable) -> None:
    """The same points as with its words written out; its counts are those of a bare type."""
    by_file = _best(simcore, "--gpus", "H100", "--launch", MEGATRON, "--pp", "1,2")
    told = ("--tp", "2", "--micro-batch", "1", "--global-batch", "128", "--precision", "bf16",
            "--seq-len", "4096", "--zero", "1", "--recompute", "selective", "--main-grads",
            "fp32", "--issuer", "megatron", "--overlap", "dgrad", "--with", "grad-clip=yes",
            "--pp", "1,2")  # fmt: skip
    by_hand = _best(simcore, "--gpus", "4x8xH100", *told)
    times = [(b["cluster"], b["step_time_s"]) for b in by_file]
    assert times == [(b["cluster"], b["step_time_s"]) for b in by_hand]


def test_a_point_of_a_launch_file_is_its_prediction(simcore: Callable) -> None:
    best = _best(simcore, "--gpus", "4x8xH100", "--launch", MEGATRON)[0]
    alone = api.predict("llama3-8b", "4x8xH100", launch=MEGATRON)
    assert best["step_time_s"] == pytest.approx(alone.step_time_s.value, rel=1e-9)
    column = api.compare("llama3-8b", "4x8xH100", launch=MEGATRON).predictions[0]
    assert column.step_time_s.value == pytest.approx(alone.step_time_s.value, rel=1e-9)


def test_what_came_from_the_file_and_what_won_is_told(simcore: Callable) -> None:
    ran = simcore("sweep", "--model", "llama3-8b", "--gpus", "H100", "--tp", "1,4", "--launch",
                  MEGATRON + " --tensr 3")  # fmt: skip
    assert "note: settings of launch line (Megatron-LM): strategy zero1" in ran.err
    assert "--tp 1,4 wins over --tensor-model-parallel-size" in ran.err
    assert "WARNING: " in ran.err and "--tensr" in ran.err


def test_a_plan_counts_its_own_nodes(simcore: Callable) -> None:
    """Nodes are what it looks for; GPUs a node may be said."""
    found = api.plan(
        "llama3-8b", "H100", tokens=1e10, launch=MEGATRON, nproc_per_node=4, max_gpus=64
    )
    assert found.best and all("x4xH100" in c.cluster and c.global_batch == 128 for c in found.best)
    assert len({c.cluster for c in found.best}) > 1


def test_a_kernel_that_no_model_names_is_left_out() -> None:
    flags = MEGATRON + " --attention-backend fused"
    named, _ = api.launched_words("llama3-8b", "H100", {"launch": flags})
    unnamed, _ = api.launched_words("llama3-8b,bert-base", "H100", {"launch": flags})
    assert named["attention"] == "cudnn" and unnamed["attention"] is None


def test_defaults_of_a_file_are_no_words_of_a_launch(
    simcore: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "simcore.toml").write_text('[defaults]\nrecompute = "full"\n', encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert _best(simcore, "--gpus", "4x8xH100")[0]["recompute"] == "full"
    assert _best(simcore, "--gpus", "4x8xH100", "--launch", MEGATRON)[0]["recompute"] == "selective"


def test_training_libraries_are_an_axis(simcore: Callable) -> None:
    words = ["--model", "gpt2", "--gpus", "A100:1x8", "--software", "plain,megatron"]
    swept = json.loads(simcore("sweep", *words, "--json").out)
    assert {p["more"] for p in swept["best"]} == {"software plain", "software megatron"}
    single = {
        name: api.predict("gpt2", "1x8xA100", software=name, grad_accum=1).samples_per_s
        for name in ("plain", "megatron")
    }
    by_name = {p["more"].split()[1]: p["samples_per_s"] for p in swept["best"]}
    assert by_name == pytest.approx(single, rel=1e-9)
