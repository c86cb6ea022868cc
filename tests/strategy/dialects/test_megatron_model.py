"""Models that Megatron-LM's flags describe: their parameters are those of the published models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from simcore import api
from simcore.base.errors import InvalidConfig
from simcore.strategy.dialects.megatron_model import described, flags_of
from simcore.strategy.dialects.shell import flags
from simcore.workload.models import ModelRecord
from simcore.workload.resolve import model_of

LLAMA = (
    "--num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32 "
    "--group-query-attention --num-query-groups 8 --swiglu --disable-bias-linear "
    "--normalization RMSNorm --position-embedding-type rope "
    "--untie-embeddings-and-output-weights --vocab-size 128256"
)
DEEPSEEK = (
    "--num-layers 61 --hidden-size 7168 --ffn-hidden-size 18432 --num-attention-heads 128 "
    "--multi-latent-attention --q-lora-rank 1536 --kv-lora-rank 512 --qk-head-dim 128 "
    "--qk-pos-emb-head-dim 64 --v-head-dim 128 --swiglu --disable-bias-linear "
    "--normalization RMSNorm --position-embedding-type rope "
    "--untie-embeddings-and-output-weights --padded-vocab-size 129280 --num-experts 256 "
    "--moe-router-topk 8 --moe-ffn-hidden-size 2048 --moe-shared-expert-intermediate-size 2048 "
    "--moe-layer-freq ([0]*3+[1]*58)"
)
GPT3 = (
    "--num-layers 96 --hidden-size 12288 --num-attention-heads 96 --max-position-embeddings 2048 "
    "--vocab-size 50257"
)
MIXTRAL = (
    "--num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32 "
    "--group-query-attention --num-query-groups 8 --swiglu --disable-bias-linear "
    "--normalization RMSNorm --position-embedding-type rope "
    "--untie-embeddings-and-output-weights --vocab-size 32000 --num-experts 8 --moe-router-topk 2"
)


def given(line: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for flag, values in flags(line.split()):
        found[flag[2:]] = values[0] if values else True
    return found


@pytest.mark.parametrize(
    ("line", "model"),
    [
        (LLAMA, "llama3-8b"),
        (DEEPSEEK, "deepseek-v3"),
        (GPT3, "gpt3-175b"),
        (MIXTRAL, "mixtral-8x7b"),
    ],
)
def test_flags_describe_published_models(line: str, model: str) -> None:
    known = model_of(model)
    assert isinstance(known, ModelRecord)
    settings = {**described(given(line)), "seq_len": known.config["seq_len"]}
    own = model_of("arch:transformer", settings=settings)
    assert isinstance(own, ModelRecord)
    assert own.build().trainable_numel == known.build().trainable_numel


def test_what_is_no_decoder_is_not_described() -> None:
    assert described(given("--num-layers 4 --hidden-size 64")) == {}
    assert described(given(LLAMA + " --hybrid-override-pattern M-M*")) == {}
    assert "vocab" not in described(given(LLAMA.replace("--vocab-size 128256", "")))


def test_what_a_line_leaves_out_is_as_its_parser_has_it() -> None:
    """arguments.py: dropout of 0.1, and experts in a loop unless their products are one."""
    assert described(given(LLAMA))["dropout"] == 0.1
    assert described(given(LLAMA + " --hidden-dropout 0.0"))["dropout"] == 0.0
    assert described(given(MIXTRAL))["experts_in_turn"] is True
    assert "experts_in_turn" not in described(given(MIXTRAL + " --moe-grouped-gemm"))


def test_a_line_without_a_model_is_predicted_as_it_describes_itself() -> None:
    words_of_run = "--seq-length 4096 --micro-batch-size 1 --bf16 --hidden-dropout 0"
    line = f"pretrain_gpt.py {LLAMA} {words_of_run}"
    words: dict[str, Any] = {"tp": 8, "strategy": "zero1"}
    own = api.predict("arch:transformer", "1x8xH100", launch=line, **words)
    named = api.predict("llama3-8b", "1x8xH100", launch=line, **words)
    assert own.step_time_s.value == pytest.approx(named.step_time_s.value, rel=1e-3)
    fewer = api.predict("arch:transformer", "1x8xH100", launch=line, settings="layers=16", **words)
    assert fewer.step_time_s.value < 0.6 * own.step_time_s.value
    with pytest.raises(InvalidConfig, match="--set vocab"):
        text = line.replace("--vocab-size 128256", "")
        api.predict("arch:transformer", "1x8xH100", launch=text, **words)


@pytest.mark.parametrize(
    "model",
    ["llama3-8b", "qwen2.5-7b", "qwen3-30b-a3b", "mixtral-8x7b", "deepseek-v3", "gpt3-175b", "gpt2",
     "mistral-7b", "nemotron4-15b", "starcoder-15b"],
)  # fmt: skip
def test_what_is_written_is_the_same_model_again(model: str) -> None:
    known = model_of(model)
    assert isinstance(known, ModelRecord)
    length = known.config["seq_len"]
    written = flags_of(known.config, int(length))
    own = model_of("arch:transformer", settings={**described(written), "seq_len": length})
    assert isinstance(own, ModelRecord)
    assert own.build().trainable_numel == known.build().trainable_numel


@pytest.mark.parametrize("model", ["gemma-2-9b", "gpt-oss-20b", "pythia-12b"])
def test_what_flags_cannot_say_is_left_to_the_user(model: str) -> None:
    known = model_of(model)
    assert isinstance(known, ModelRecord)
    assert flags_of(known.config, 4096) == {}
    assert f"model {model}" in api.launch_file("megatron", model, "8xH100", tp=2).left
    assert flags_of(known.config | {"window": 0}, 4096) == {}


def test_a_written_script_needs_no_model_beside_it(tmp_path: Path) -> None:
    script = tmp_path / "launch.sh"
    made = api.launch_file("slurm", "qwen3-8b", "2x8xH100", tp=2, software="megatron-lm")
    script.write_text(made.text, encoding="utf-8")
    own = api.predict("arch:transformer", "2x8xH100", launch=script)
    named = api.predict("qwen3-8b", "2x8xH100", launch=script)
    assert own.step_time_s.value == pytest.approx(named.step_time_s.value, rel=1e-3)


def test_a_model_that_a_line_describes_is_written_again(tmp_path: Path) -> None:
    first, second = tmp_path / "given.txt", tmp_path / "written.txt"
    line = f"{LLAMA} --seq-length 4096 --micro-batch-size 1 --bf16"
    first.write_text(line, encoding="utf-8")
    made = api.launch_file("megatron", "arch:transformer", "8xH100", launch=first)
    second.write_text(made.text, encoding="utf-8")
    steps = [api.predict("arch:transformer", "8xH100", launch=f) for f in (first, second)]
    assert steps[0].step_time_s == steps[1].step_time_s
    assert steps[0].memory.device_bytes == steps[1].memory.device_bytes


def test_sizes_that_flags_leave_out_are_megatrons_own() -> None:
    """Megatron-LM's arguments.py: kv-lora-rank 32, heads of 128 + 64 and 128, topk 2."""
    latent = described(given(LLAMA + " --multi-latent-attention"))
    sizes = ("kv_rank", "rope_dim", "head_dim", "value_dim", "q_rank")
    assert [latent.get(k) for k in sizes] == [32, 64, 192, 128, None]
    named = described(given(
        LLAMA + " --multi-latent-attention --qk-head-dim 96 --qk-pos-emb-head-dim 32 "
        "--v-head-dim 80 --kv-lora-rank 512 --q-lora-rank 7"
    ))  # fmt: skip
    assert [named.get(k) for k in sizes] == [512, 32, 128, 80, 7]
    experts = described(given(LLAMA + " --num-experts 8"))
    assert [experts.get(k) for k in ("experts", "top_k", "expert_ffn", "shared_ffn")] == [
        8, 2, 14336, None
    ]  # fmt: skip
    own = described(given(LLAMA + " --num-experts 8 --moe-router-topk 3 --moe-ffn-hidden-size 64"))
    assert [own.get(k) for k in ("top_k", "expert_ffn")] == [3, 64]


@pytest.mark.parametrize(("seq_len", "flag"), [(512, 2048), (2048, 2048)])
def test_there_are_at_least_as_many_positions_as_tokens(seq_len: int, flag: int) -> None:
    assert flags_of(described(given(GPT3)), seq_len)["max-position-embeddings"] == flag


@pytest.mark.parametrize(
    ("times", "layers", "kept"),
    [(9_999, 10_000, True), (10_000, 10_001, True), (10_001, 10_002, False)],
)
def test_a_pattern_of_layers_repeats_no_part_more_than_ten_thousand_times(
    times: int, layers: int, kept: bool
) -> None:
    """So that a few characters do not take gigabytes."""
    line = MIXTRAL.replace("--num-layers 32", f"--num-layers {layers}")
    found = described({**given(line), "moe-layer-freq": f"([0]*1+[1]*{times})"})
    assert ("expert_pattern" in found) is kept
    if kept:
        assert found["expert_pattern"] == "d" + "e" * times


def test_two_experts_see_a_token_where_no_number_is_said() -> None:
    """Megatron-LM's own default (moe_router_topk of arguments.py)."""
    bare = {k: v for k, v in described(given(MIXTRAL)).items() if k != "top_k"}
    assert flags_of({**bare, "top_k": 2}, 4096)["moe-router-topk"] == 2
    assert flags_of(bare, 4096)["moe-router-topk"] == 2


def test_experts_in_every_second_layer_begin_with_the_first() -> None:
    """Megatron-LM's ``1 if i % freq == 0 else 0`` (get_moe_layer_pattern of gpt_layer_specs)."""
    line = MIXTRAL.replace("--num-layers 32", "--num-layers 5")
    for freq, marks in (("2", "edede"), ("3", "edded"), ("1", None)):
        found = described({**given(line), "moe-layer-freq": freq})
        assert found.get("expert_pattern") == marks
