"""What is wrong with a config is said in one sentence, with file, line and key."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from huggingface import cases
from huggingface.public import PUBLIC
from huggingface.public_sizes import SIZES

from simcore.base.errors import DataError
from simcore.report.catalog import listing
from simcore.workload.huggingface import model_types, read_config
from simcore.workload.huggingface.records import shared
from simcore.workload.resolve import resolve_model

_GOOD = PUBLIC["llama2-7b"][1]


def _write(folder: Path, content: Any) -> Path:
    path = folder / "config.json"
    text = content if isinstance(content, str) else json.dumps(content, indent=2)
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("kind", "near"),
    [
        ("llama5", "llama"), ("qwen2.5", "qwen2"), ("mixtrall", "mixtral"), ("phi4", "phi"),
        ("deepseek_v33", "deepseek_v3"), ("gptneox", "gpt_neox"), ("gptoss", "gpt_oss"),
    ],
)  # fmt: skip
def test_an_unsupported_type_names_the_nearest(kind: str, near: str, tmp_path: Path) -> None:
    path = _write(tmp_path, {**_GOOD, "model_type": kind})
    with pytest.raises(DataError, match=f"config.json:2: model_type: '{kind}'.*'{near}'"):
        read_config(path)


def test_a_type_like_no_other_points_to_the_list(tmp_path: Path) -> None:
    with pytest.raises(
        DataError, match=r"`simcore list configs` has the supported ones; --model pack"
    ):
        read_config(_write(tmp_path, {"model_type": "zzzzzz"}))
    assert set(model_types()) <= {entry["name"] for entry in listing("configs").data}


def test_a_slip_is_told_from_another_network(tmp_path: Path) -> None:
    other = "nearest supported: 'gemma3', a different network"
    for kind, said in (("GPT-OSS", "did you mean 'gpt_oss'"), ("gemma3x", other)):
        with pytest.raises(DataError, match=said):
            read_config(_write(tmp_path, {**_GOOD, "model_type": kind}))


@pytest.mark.parametrize(
    "key", ["hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size",
            "intermediate_size", "model_type"],
)  # fmt: skip
@pytest.mark.parametrize("gone", ["missing", "null"])
def test_a_missing_key_is_named(key: str, gone: str, tmp_path: Path) -> None:
    content = {k: v for k, v in _GOOD.items() if k != key}
    if gone == "null":
        content[key] = None
    with pytest.raises(DataError, match=f"{key}: key is missing"):
        read_config(_write(tmp_path, content))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("hidden_size", -4096), ("hidden_size", 0), ("hidden_size", 10**12),
        ("hidden_size", "4096"),
        ("hidden_size", 4096.0), ("hidden_size", True), ("hidden_size", [4096, 2048]),
        ("num_hidden_layers", 10**6), ("num_hidden_layers", 0), ("num_hidden_layers", {}),
        ("vocab_size", 10**30), ("max_position_embeddings", -1), ("num_attention_heads", 33),
        ("num_key_value_heads", 5), ("hidden_act", "gulu"), ("hidden_act", 3),
        ("tie_word_embeddings", "yes"), ("attention_bias", 1), ("model_type", 7),
        ("intermediate_size", 0),
    ],
)  # fmt: skip
def test_an_odd_value_is_refused_with_its_line(key: str, value: Any, tmp_path: Path) -> None:
    content = {**_GOOD, key: value}
    path = _write(tmp_path, content)
    with pytest.raises(DataError) as caught:
        read_config(path)
    lines = path.read_text(encoding="utf-8").splitlines()
    line = next(i for i, text in enumerate(lines, 1) if f'"{key}"' in text)
    assert str(caught.value).startswith(f"{path}:{line}: {key}: ")
    assert "\n" not in str(caught.value)


def test_another_family_is_not_taken_for_a_known_one(tmp_path: Path) -> None:
    path = _write(tmp_path, {**_GOOD, "model_type": "zamba"})
    said = r"'zamba' is not supported \(nearest supported: 'zamba2', a different network"
    with pytest.raises(DataError, match=said):
        read_config(path)


@pytest.mark.parametrize("kind", shared()["missing"])
def test_a_network_that_cannot_be_described_says_what_is_missing(kind: str, tmp_path: Path) -> None:
    assert kind not in model_types()
    path = _write(tmp_path, {**_GOOD, "model_type": kind})
    with pytest.raises(DataError, match=f"'{kind}' is not supported: nothing here describes [a-z]"):
        read_config(path)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is empty"), ("{", "not valid JSON"), ("[1, 2]", "must be an object"),
        ("null", "must be an object"), ('{"model_type": "llama",}', ":1: not valid JSON"),
        ('{\n"model_type": NaN}', ":2: model_type: must be a word"),
        ('{"model_type": "llama", "hidden_size": Infinity}', "hidden_size: must be a whole number"),
        ("[" * 100_000, "not valid JSON"), ('{"a": ' + "9" * 5000 + "}", "not valid JSON"),
        ("{'model_type': 'llama'}", "not valid JSON"),
    ],
)  # fmt: skip
def test_what_is_no_config_is_refused(text: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=said):
        read_config(_write(tmp_path, text))


def test_numbers_that_json_lacks_are_read_where_no_setting_needs_them(tmp_path: Path) -> None:
    """Python's json writes them: Mamba-2's time_step_limit is (0, Infinity) by default."""
    plain = read_config(_write(tmp_path, _GOOD))
    odd = {**_GOOD, "time_step_limit": [0.0, float("inf")], "router_jitter": float("nan")}
    assert read_config(_write(tmp_path, odd)).config == plain.config


def test_a_large_or_binary_or_missing_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "weights.json").write_bytes(b" " * 5_000_000)
    (tmp_path / "binary.json").write_bytes(b"\xff\xfe\x00\x01")
    for name, said in [("weights", "too large"), ("binary", "UTF-8"), ("none", "cannot be read")]:
        with pytest.raises(DataError, match=said):
            read_config(tmp_path / f"{name}.json")


def test_nested_keys_are_named_with_their_path(tmp_path: Path) -> None:
    config = json.loads(json.dumps(PUBLIC["clip-vit-l-14"][1]))
    config["vision_config"]["patch_size"] = 0
    with pytest.raises(DataError, match=r"vision_config\.patch_size"):
        read_config(_write(tmp_path, config))


def test_length_defaults_to_the_positions_up_to_a_bound(tmp_path: Path) -> None:
    for positions, expected in ((512, 512), (4096, 4096), (131072, 4096)):
        path = tmp_path / f"{positions}.json"
        path.write_text(json.dumps({**_GOOD, "max_position_embeddings": positions}))
        record = read_config(path)
        assert record.build().tokens_per_sample == expected
        told = [
            any("--seq-len" in note for note in w.notes)
            for w in (record.build(), record.build(seq_len=4096), record.build(seq_len=256))
        ]
        assert told == [positions > 4096, False, False]  # not where a length is given
        assert record.build(seq_len=256).tokens_per_sample == 256


def test_the_record_says_how_it_trains_and_where_it_is_from(tmp_path: Path) -> None:
    record = read_config(_write(tmp_path, {**_GOOD, "_name_or_path": "meta-llama/Llama-2-7b-hf"}))
    assert record.name == "Llama-2-7b-hf"
    assert "meta-llama/Llama-2-7b-hf" in record.full_name
    assert "bf16" in record.training.source
    training = record.training
    assert (training.precision, training.optimizer, training.strategy) == ("bf16", "adamw", "ddp")
    assert (training.micro_batch, training.recompute) == (1, "none")


def test_a_folder_or_a_file_is_found_by_resolve(tmp_path: Path) -> None:
    path = _write(tmp_path, _GOOD)
    assert resolve_model(str(tmp_path)).build() is resolve_model(str(path)).build()


def test_a_changed_file_is_read_again(tmp_path: Path) -> None:
    path = _write(tmp_path, _GOOD)
    before = read_config(path).params.value
    _write(tmp_path, {**_GOOD, "num_hidden_layers": 16})
    os.utime(path, ns=(1, 1))
    assert read_config(path).params.value < before


def test_reading_loads_neither_torch_nor_transformers(tmp_path: Path) -> None:
    import subprocess
    import sys

    path = _write(tmp_path, _GOOD)
    code = (
        "import sys; from pathlib import Path\n"
        "from simcore.workload.huggingface import read_config\n"
        f"read_config(Path({str(path)!r})).build()\n"
        "print(sorted({'torch', 'transformers', 'scipy'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_windows_follow_layer_types(tmp_path: Path) -> None:
    config = {**PUBLIC["gemma-2-9b"][1], "num_hidden_layers": 4}
    config["layer_types"] = ["sliding_attention", "full_attention", "full_attention"]
    with pytest.raises(DataError, match="layer_types: 3 entries for 4 layers"):
        read_config(_write(tmp_path, config))
    config["layer_types"] = ["full_attention"] * 4
    wide = read_config(_write(tmp_path, config)).build(seq_len=8192).forward_flop
    path = tmp_path / "narrow.json"
    path.write_text(json.dumps({**config, "layer_types": ["sliding_attention"] * 4}))
    narrow = read_config(path).build(seq_len=8192).forward_flop
    # pairs within a window of w below the diagonal of S x S: w (2 S - w) / 2, or S² / 2 of all
    pairs = 8192**2 / 2 - 4096 * (2 * 8192 - 4096) / 2
    assert wide - narrow == pytest.approx(4 * 4 * 16 * 256 * pairs)


@pytest.mark.parametrize("kind", ["gemma3", "llama4"])
def test_what_also_sees_images_is_its_language_model(kind: str, tmp_path: Path) -> None:
    inner = json.loads(cases.config_of(f"{kind}_text").to_json_string())
    outer = {"model_type": kind, "text_config": inner, "vision_config": {"hidden_size": 64}}
    alone, whole = tmp_path / "alone.json", tmp_path / "whole.json"
    alone.write_text(json.dumps(inner), encoding="utf-8")
    whole.write_text(json.dumps(outer), encoding="utf-8")
    found = read_config(whole)
    assert found.params.value == read_config(alone).params.value
    assert any("vision encoder is left out" in note for note in found.notes)
    del outer["text_config"]["vocab_size"]
    outer["text_config"]["hidden_size"] = "wide"
    whole.write_text(json.dumps(outer), encoding="utf-8")
    os.utime(whole, ns=(1, 1))
    with pytest.raises(DataError, match=r"whole\.json:1: text_config\.hidden_size: must be"):
        read_config(whole)


def test_kimi_k2_is_read_as_deepseek_v3(tmp_path: Path) -> None:
    theirs = {**PUBLIC["deepseek-v3"][1], "model_type": "kimi_k2", "n_routed_experts": 384}
    ours = {**theirs, "model_type": "deepseek_v3"}
    counts = []
    for name, config in (("kimi", theirs), ("deepseek", ours)):
        path = tmp_path / f"{name}.json"
        path.write_text(json.dumps(config), encoding="utf-8")
        counts.append(read_config(path).params.value)
    assert counts[0] == counts[1]


@pytest.mark.parametrize(
    ("kind", "said", "groups"),
    [
        ("deepseek_v3", {"n_group": 4, "topk_group": 2}, (4, 2)),
        ("deepseek_v3", {"n_group": 1, "topk_group": 1}, (None, None)),
        ("deepseek_v3", {}, (8, 4)),  # transformers' defaults
        ("kimi_k2", {}, (None, None)),
    ],
)
def test_groups_of_experts(
    tmp_path: Path, kind: str, said: dict[str, int], groups: tuple[int | None, int | None]
) -> None:
    theirs = {**PUBLIC["deepseek-v3"][1], "model_type": kind}
    del theirs["n_group"], theirs["topk_group"]
    theirs |= said
    path = tmp_path / "config.json"
    path.write_text(json.dumps(theirs), encoding="utf-8")
    config = read_config(path).config
    assert (config.get("expert_groups"), config.get("top_groups")) == groups


def test_the_first_qwen_has_the_tensors_of_qwen2_with_one_product_of_q_k_and_v(
    tmp_path: Path,
) -> None:
    # Qwen-7B's own config: gate and up are counted together
    theirs = {
        "model_type": "qwen", "architectures": ["QWenLMHeadModel"], "hidden_size": 4096,
        "num_hidden_layers": 32, "num_attention_heads": 32, "kv_channels": 128, "no_bias": True,
        "intermediate_size": 22016, "vocab_size": 151936, "max_position_embeddings": 8192,
        "tie_word_embeddings": False,
    }  # fmt: skip
    read = read_config(_write(tmp_path, theirs))
    assert read.params.value == SIZES["qwen1.5-7b"][2]
    assert read.config["fused_qkv"] and read.config["ffn"] == 11008
    with pytest.raises(DataError, match="intermediate_size: must be even, not 22017"):
        read_config(_write(tmp_path, {**theirs, "intermediate_size": 22017}))


def test_layers_of_llama4_follow_its_lists(tmp_path: Path) -> None:
    keys = {
        **json.loads(cases.config_of("llama4_text").to_json_string()), "num_hidden_layers": 4,
        "no_rope_layers": [1, 1, 0, 0], "moe_layers": [3], "attention_chunk_size": None,
    }  # fmt: skip
    path = _write(tmp_path, keys)
    config = read_config(path).config
    assert (config["rope_pattern"], config["expert_pattern"]) == ("rrnn", "ddde")
    assert "window" not in config
    path = tmp_path / "short.json"
    path.write_text(json.dumps({**keys, "no_rope_layers": [1, 1]}), encoding="utf-8")
    with pytest.raises(DataError, match="no_rope_layers: 2 entries for 4 layers"):
        read_config(path)


@pytest.mark.parametrize(
    "case",
    ["llama", "deepseek_v3", "clip", "llama4_text", "dbrx", "mpt", "gptj", "phi", "nemotron",
     "gemma3n_text", "gemma4_text"],
)  # fmt: skip
def test_no_odd_value_of_any_key_is_more_than_a_data_error(case: str, tmp_path: Path) -> None:
    config = json.loads(cases.config_of(case).to_json_string())
    path = tmp_path / "odd.json"
    for key in config:
        for odd in (None, -1, 0, 3, 10**9, 1e308, True, "x", [], [1], {"a": 1}):
            path.write_text(json.dumps({**config, key: odd}), encoding="utf-8")
            os.utime(path, ns=(1, hash((key, repr(odd))) % 10**15))
            try:
                assert read_config(path).params.value > 0
            except DataError as err:
                assert "\n" not in str(err)


@pytest.mark.parametrize("key", ["intermediate_size", "activation_sparsity_pattern"])
@pytest.mark.parametrize("entries", [0, 5, 7])
def test_lists_of_gemma_3n_have_an_entry_for_each_layer(
    key: str, entries: int, tmp_path: Path
) -> None:
    config = json.loads(cases.config_of("gemma3n_text").to_json_string())
    assert config["num_hidden_layers"] == 6
    with pytest.raises(DataError, match=f"{key}: {entries} entries for 6 layers"):
        read_config(_write(tmp_path, {**config, key: [32] * entries}))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"hidden_size_per_layer_input": 0, "enable_moe_block": True}, "experts beside a dense"),
        (
            {"hidden_size_per_layer_input": 0, "per_layer_config": {"5": {"head_dim": "wide"}}},
            "head_dim 'wide' is no whole number",
        ),
    ],
)
def test_parts_of_gemma_4_that_are_not_described_say_so(
    changes: dict[str, Any], said: str, tmp_path: Path
) -> None:
    with pytest.raises(DataError, match=said):
        read_config(_write(tmp_path, {**_GOOD, "model_type": "gemma4_text", **changes}))
