"""Well-known models: published counts, transformers on the meta device, and models_db."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import transformers
from alike import first_of_each
from huggingface import cases
from huggingface.public import PUBLIC as LARGEST
from huggingface.public_asked import ASKED
from huggingface.public_encoders import ENCODERS
from huggingface.public_experts import EXPERTS
from huggingface.public_hybrids import HYBRIDS
from huggingface.public_mixers import MIXERS
from huggingface.public_more import MORE
from huggingface.public_recent import RECENT
from huggingface.public_sizes import SIZES
from huggingface.public_types import BILLIONS, TYPES

from simcore.workload.huggingface import read_config
from simcore.workload.models import MODELS

PUBLIC = {
    **LARGEST,
    **SIZES,
    **MORE,
    **ENCODERS,
    **MIXERS,
    **HYBRIDS,
    **EXPERTS,
    **TYPES,
    **RECENT,
    **ASKED,
}


def _file(folder: Path, config: dict[str, Any]) -> Path:
    path = folder / "config.json"
    path.write_text(json.dumps(config), encoding="utf-8")
    return path


@pytest.mark.parametrize("name", PUBLIC)
def test_parameters_are_the_known_count(name: str, tmp_path: Path) -> None:
    _, config, known = PUBLIC[name]
    assert read_config(_file(tmp_path, config)).build().trainable_numel == known


def _type_and_keys(name: str) -> tuple[str, frozenset[str]]:
    keys = PUBLIC[name][1]
    return keys["model_type"], frozenset(keys)


@pytest.mark.parametrize("name", first_of_each(PUBLIC, kind=_type_and_keys, name=str))
def test_real_sizes_match_transformers(name: str) -> None:
    """The known counts are right; of configs that differ in numbers alone one stands for all."""
    _, keys, known = PUBLIC[name]
    config = transformers.AutoConfig.for_model(**keys)
    config.architectures = keys["architectures"]
    assert cases.trained_numel(cases.model_of(config)) == known


@pytest.mark.parametrize("name", BILLIONS)
def test_totals_are_the_published_ones(name: str) -> None:
    known, billions = BILLIONS[name]
    assert known / 10**9 == pytest.approx(billions, rel=0.055)


@pytest.mark.parametrize("name", PUBLIC)
def test_models_db_has_the_same_model(name: str, tmp_path: Path) -> None:
    hub, config, known = PUBLIC[name]
    read, record = read_config(_file(tmp_path, config)), MODELS[name]
    assert record is MODELS[hub]
    assert (record.arch, record.params.value) == (read.arch, known)
    # models_db takes fused norms, experts of the tokens that chose them, and the length that the
    # model was trained at; its training loops hold the logits until backward ends, whereas the step
    # of a config lets go of them before
    same = {k: v for k, v in record.config.items() if k in ("norm", "seq_len", "expert_tokens")}
    if "loss" in read.config:
        same["loss"] = record.config.get("loss", "eager")
    ours, theirs = record.build(), read.build(**same)
    assert ours.forward_flop == theirs.forward_flop
    assert ours.saved == theirs.saved
    assert [b.params for b in ours.blocks] == [b.params for b in theirs.blocks]


@pytest.mark.parametrize(
    ("name", "billions"),
    [
        # "17B active parameters" of both (Meta 2025), "36B" of 132 (Databricks 2024), "5.1B" of
        # 117 (OpenAI 2025), "32B" of 1,040 (Kimi Team 2025), "21B" of 236 (DeepSeek-AI 2024)
        ("llama4-scout", 17), ("llama4-maverick", 17), ("dbrx", 36), ("gpt-oss-120b", 5.1),
        ("kimi-k2", 32), ("deepseek-v2", 21), ("qwen2-57b-a14b", 14), ("qwen1.5-moe-a2.7b", 2.7),
        # "3.2B" of 31.6, without the table (NVIDIA 2025, Nemotron 3 Nano)
        ("nemotron-3-nano-30b-a3b", 3.2),
        # "32B total / 9B activated" (IBM 2025, Granite 4.0)
        ("granite-4.0-h-small", 9),
        # "activates 18.6B-31.3B (27B on average)" (Meituan 2025, LongCat-Flash), with its head
        ("longcat-flash", 27),
        # "284B total", "13B activated"; "1.6T", "49B" (DeepSeek-AI 2026, V4's hub pages)
        ("deepseek-v4-flash", 13.3), ("deepseek-v4-pro", 49),
        # of their names
        ("nemotron-3-ultra-550b-a55b", 55), ("qwen3.5-397b-a17b", 17), ("glm-5.2", 40),
        # "94B active parameters", "12B active" (Jamba team 2024, Jamba-1.5)
        ("jamba-1.5-large", 94), ("jamba-1.5-mini", 12),
    ],
)  # fmt: skip
def test_active_parameters_are_the_published_ones(name: str, billions: float) -> None:
    record = MODELS[name]
    seq = 128
    blocks = record.build(seq_len=seq).instances()
    gemm = sum(k.flop for b in blocks for op in b.ops for k in op.fwd if k.kind == "gemm")
    embedding = int(record.config["vocab"]) * int(record.config["hidden"])
    active = gemm / seq / 2 + embedding
    # some count the table that is looked up, some do not
    assert active - embedding < 1.02e9 * billions
    assert active > 0.98e9 * billions


@pytest.mark.parametrize(
    ("name", "layers", "asleep", "of_one", "table", "billions"),
    [("nemotron-3-super-120b-a12b", 40, 512 - 22, 2 * 1024 * 2688, 131072 * 4096, 12),
     ("minimax-m2", 62, 256 - 8, 3 * 3072 * 1536, 200064 * 3072, 10),
     ("kimi-linear-48b-a3b", 26, 256 - 8, 3 * 2304 * 1024, 163840 * 2304, 3),
     # "45.9 billion parameters activated per token" (MiniMax 2025, MiniMax-M1)
     ("minimax-m1", 80, 32 - 2, 3 * 6144 * 9216, 2 * 200064 * 6144, 46),
     # which counts neither table (GLM-4.5 team 2025, table 1)
     ("glm-4.5", 89, 160 - 8, 3 * 5120 * 1536, 2 * 151552 * 5120, 32),
     ("glm-4.5-air", 45, 128 - 8, 3 * 4096 * 1408, 2 * 151552 * 4096, 12)],
)  # fmt: skip
def test_active_parameters_are_those_of_the_name(
    name: str, layers: int, asleep: int, of_one: int, table: int, billions: int
) -> None:
    """120B-A12B, 230B-A10B, 355B-A32B: without experts not taken and what is only looked up."""
    active = MODELS[name].build().trainable_numel - layers * asleep * of_one - table
    assert round(active / 1e9) == billions


@pytest.mark.parametrize(
    ("name", "billions"),
    [
        # from the size of the weights in 16 bit, 59.99 and 12.93 GiB (Hugging Face, Granite 4.0)
        ("granite-4.0-h-small", 59.99 * 2**30 / 2e9), ("granite-4.0-h-tiny", 12.93 * 2**30 / 2e9),
        # "9.78B" (transformers, model_doc/bamba)
        ("bamba-9b", 9.78),
        # "398B" in all (AI21, Jamba 1.5's hub page)
        ("jamba-1.5-large", 398),
        ("minimax-m1", 456),  # "456 billion" (MiniMax 2025, MiniMax-M1)
    ],
)  # fmt: skip
def test_parameters_are_the_published_total(name: str, billions: float) -> None:
    assert MODELS[name].build().trainable_numel == pytest.approx(1e9 * billions, rel=0.005)


@pytest.mark.parametrize(
    ("name", "billions"),
    [("nemotron-3-super-120b-a12b", 120), ("minimax-m2", 230), ("glm-4.5-air", 106),
     ("jamba-1.5-mini", 52)],
)  # fmt: skip
def test_parameters_are_the_published_total_of_few_digits(name: str, billions: float) -> None:
    assert MODELS[name].build().trainable_numel == pytest.approx(1e9 * billions, rel=0.01)


def test_active_parameters_of_mixtral_are_the_published_ones(tmp_path: Path) -> None:
    # "13B active parameters" (Jiang et al. 2024): two FLOP a token each, besides attention
    workload = read_config(_file(tmp_path, PUBLIC["mixtral-8x7b"][1])).build()
    gemm = sum(
        k.flop for b in workload.instances() for op in b.ops for k in op.fwd if k.kind == "gemm"
    )
    embedding = 32000 * 4096  # looked up, not multiplied
    assert gemm / 4096 / 2 + embedding == pytest.approx(12.88e9, rel=1e-3)


def test_active_parameters_of_deepseek_v3_are_the_published_ones(tmp_path: Path) -> None:
    # "37B activated for each token" (DeepSeek-AI 2024)
    workload = read_config(_file(tmp_path, PUBLIC["deepseek-v3"][1])).build()
    gemm = sum(
        k.flop for b in workload.instances() for op in b.ops for k in op.fwd if k.kind == "gemm"
    )
    assert gemm / 4096 / 2 + 129280 * 7168 == pytest.approx(37.5e9, rel=0.01)


def test_glm_counts_its_further_token_and_no_tables() -> None:
    # "355B": with the MTP layer, without embedding and output layer (GLM-4.5 team 2025, table 1)
    record = MODELS["glm-4.5"]
    tables = 2 * int(record.config["vocab"]) * int(record.config["hidden"])
    whole = record.build(next_tokens=1).trainable_numel - tables
    assert whole == pytest.approx(355e9, rel=0.003)


def test_multi_token_prediction_is_counted_on_request(tmp_path: Path) -> None:
    # "685B: 671B of the main model and 14B of the MTP module", of which 1.9B are the shared
    # embedding and head twice over (DeepSeek-V3's hub page): 11.5B of its own
    record = read_config(_file(tmp_path, PUBLIC["deepseek-v3"][1]))
    extra = record.build(next_tokens=1).trainable_numel - record.build().trainable_numel
    assert extra == pytest.approx(11.5e9, rel=0.02)
    assert record.build(next_tokens=1).forward_flop > 1.01 * record.build().forward_flop


def test_a_further_token_has_the_models_own_loss_and_head(tmp_path: Path) -> None:
    record = read_config(_file(tmp_path, PUBLIC["deepseek-v3"][1]))
    blocks = record.build(next_tokens=1, loss="in_place").blocks
    ops = [{op.name: op for op in b.ops} for b in blocks if any(op.name == "head" for op in b.ops)]
    losses = {name for o in ops for name, op in o.items() if op.in_place}
    assert losses == {"loss", "mtp.loss"}
    heads = [(k.flop, k.low, k.weight, k.wide) for o in ops for k in o["head"].fwd]
    assert len(heads) == 2 and heads[0] == heads[1]
