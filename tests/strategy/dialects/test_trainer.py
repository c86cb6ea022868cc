"""Arguments of Hugging Face's Trainer, held against transformers' own names."""

from __future__ import annotations

import pytest

from simcore.strategy.dialects import read_launch
from simcore.strategy.dialects.line_record import LINES
from simcore.strategy.dialects.reading import Reading, Table
from simcore.strategy.dialects.source import Source
from simcore.strategy.dialects.trainer import settle_precision

LINE = "torchrun --nproc_per_node 4 train.py --per_device_train_batch_size 2 --bf16"


def test_names_are_those_of_transformers() -> None:
    arguments = pytest.importorskip("transformers.training_args")
    utilities = pytest.importorskip("transformers.trainer_utils")
    (optimizers,), (sharding,) = (LINES["trainer"].keys[key] for key in ("optim", "fsdp"))
    assert set(optimizers.values) == {o.value for o in arguments.OptimizerNames}
    assert set(optimizers.partly) <= set(optimizers.values)
    words = {o.value for o in utilities.FSDPOption}
    assert {*sharding.values, "offload", "auto_wrap"} - {"true"} == words


def test_fsdp_and_its_precision() -> None:
    """As an Accelerate FSDP file with mixed_precision bf16 says it, of transformers' models."""
    launch = read_launch(f"{LINE} --fsdp 'full_shard auto_wrap offload' --optim adamw_torch_fused")
    assert launch.words() == {
        "strategy": "zero3", "software": "transformers", "offload": "optimizer:cpu,params:cpu",
        "precision": "bf16", "optimizer": "adamw", "micro_batch": 2, "nnodes": 1,
        "nproc_per_node": 4, "recompute": "none",
    }  # fmt: skip
    assert launch.violations() == []
    split = read_launch(f"{LINE} --fsdp shard_grad_op auto_wrap")
    assert (split.strategy, split.precision, split.offload) == ("zero2", "bf16", None)
    hybrid = read_launch(f"{LINE} --fsdp 'hybrid_shard offload'")
    assert (hybrid.strategy, hybrid.software) == (
        "hsdp",
        "transformers",
    ) and not hybrid.violations()
    assert hybrid.offload == "optimizer:cpu,params:cpu"
    assert read_launch(LINE).precision == "amp-bf16"


@pytest.mark.parametrize(
    ("argument", "said", "word"),
    [
        ("--optim galore_adamw", "--optim galore_adamw is not supported yet", "optimizer"),
        ("--fsdp hybrid_shard_zero2", "hybrid_shard_zero2 is not supported yet", "strategy"),
        ("--fsdp 'shard_grad_op offload'", "kept after forward is not supported yet", "offload"),
    ],
)
def test_what_cannot_be_followed_is_refused(argument: str, said: str, word: str) -> None:
    launch = read_launch(f"{LINE} {argument}")
    assert [said in text for text in launch.violations()] == [True]
    assert launch.violations({word}) == []


def test_what_is_followed_in_part_is_told() -> None:
    launch = read_launch(f"{LINE} --optim paged_adamw_8bit --torch_compile True")
    assert launch.optimizer == "adamw-8bit/paged" and launch.violations() == []
    assert len(launch.approximated) == 1 and launch.compile


def test_a_script_with_arguments_of_its_own_is_left_alone() -> None:
    launch = read_launch(f"{LINE} --optim my_sgd --fsdp yes --torch_compile False")
    assert launch.violations() == [] and launch.approximated == ()
    assert (launch.optimizer, launch.strategy) == (None, "ddp")
    (told,) = launch.unknown
    assert "--optim my_sgd (no value of --optimizer), --fsdp yes (no value of " in told
    assert "of train.py: not understood" in told


SFT = (
    "accelerate launch --num_processes 1 sft.py --max_length 2048 --use_peft --lora_r 16"
    " --load_in_4bit --gradient_checkpointing"
)


@pytest.mark.parametrize(
    ("model", "base"),
    [("unsloth/llama-3-8b-bnb-4bit", "nf4"), ("Qwen/Qwen2.5-7B-Instruct-GPTQ-Int4", "gptq"),
     ("Qwen/Qwen2.5-7B-Instruct", None)],
)  # fmt: skip
def test_a_checkpoint_s_name_says_how_its_base_is_stored(model: str, base: str | None) -> None:
    line = f"llamafactory-cli train --stage sft --finetuning_type lora --model_name_or_path {model}"
    assert read_launch(line).words().get("quantised_base") == base


def test_a_line_of_fine_tuning() -> None:
    """What is said of TRL's and PEFT's arguments, and their defaults where nothing is said."""
    launch = read_launch(f"{SFT} --learning_rate 2e-4 --num_train_epochs 1 --lora_alpha 32")
    assert launch.unknown == ()
    words = launch.words()
    expected = {
        "lora_rank": 16, "lora_targets": "q_proj,v_proj", "quantised_base": "nf4-single",
        "seq_len": 2048, "recompute": "full", "precision": "bf16", "micro_batch": 8,
    }  # fmt: skip
    assert {name: words[name] for name in expected} == expected
    assert read_launch(f"{SFT} --use_bnb_nested_quant").words()["quantised_base"] == "nf4"
    short = read_launch("accelerate launch --num_processes 1 sft.py --use_peft")
    assert (short.words()["seq_len"], short.words()["lora_rank"]) == (1024, 16)
    own = read_launch(
        f"{SFT} --lora_target_modules q_proj k_proj --per_device_train_batch_size 2 --fp16"
    )
    assert own.words()["lora_targets"] == "q_proj,k_proj"
    assert (own.words()["micro_batch"], own.precision) == (2, "fp16")
    kept = read_launch(f"{SFT} --gradient_checkpointing false --use_liger_kernel False")
    assert kept.recompute == "none" and kept.unknown == ()


def test_adapters_only_with_use_peft() -> None:
    """TRL's get_peft_config makes none without it, so no default of adapters is taken."""
    words = read_launch("accelerate launch --num_processes 1 sft.py --max_length 2048").words()
    assert words["seq_len"] == 2048 and "lora_rank" not in words


def test_what_is_not_understood_is_named() -> None:
    (told,) = read_launch(f"{SFT} --wobble 3 --report_to none").unknown
    assert "--wobble of sft.py: not understood" in told


def test_every_argument_of_trainer_is_decided() -> None:
    """Each is read, told as followed in part, or known to leave a step as it is."""
    record = LINES["trainer"]
    known = {name for names in LINES["trainer"].table() for name in names}
    known |= {name for names in record.without_effect() for name in names}
    arguments = pytest.importorskip("transformers").TrainingArguments
    names = {name.replace("_", "-") for name in arguments.__dataclass_fields__}
    assert names <= known, sorted(names - known)


def test_a_base_stored_in_4_bits_counts_for_adapters_alone() -> None:
    line = "llamafactory-cli train --stage sft --model_name_or_path unsloth/llama-3-8b-bnb-4bit"
    assert "quantised_base" not in read_launch(f"{line} --finetuning_type full").words()


@pytest.mark.parametrize(
    ("said", "precision"),
    [
        ({"precision": "amp-bf16", "strategy": "ddp"}, "amp-bf16"),
        # FSDP's mixed precision keeps fp32 shards, unless they stay as loaded (accelerate 1.13.0)
        ({"precision": "amp-bf16", "strategy": "zero3"}, "bf16"),
        ({"precision": "amp-bf16", "strategy": "zero3", "other.dtype": "bf16"}, "bf16"),
        ({"precision": "amp-bf16", "strategy": "zero3", "other.dtype": "bf16",
          "other.shards": 16}, "bf16-true"),
        ({"precision": "amp-bf16", "strategy": "zero3", "other.shards": 16}, "bf16"),
        ({"strategy": "zero3", "other.dtype": "bf16"}, "bf16-true"),
        # without sharding weights stay as loaded; adapters on them are fp32
        ({"strategy": "ddp", "other.dtype": "bf16"}, "bf16-true"),
        ({"strategy": "ddp", "other.dtype": "auto"}, "bf16-true"),
        ({"strategy": "ddp", "other.dtype": "bf16", "lora_rank": 8}, "bf16"),
        ({"strategy": "ddp", "other.dtype": "fp32"}, "fp32"),
        # a quantised base is loaded in 16 bits where nothing is said
        ({"strategy": "ddp", "quantised_base": "nf4", "lora_rank": 8}, "bf16"),
        ({"strategy": "ddp"}, None),
    ],
)  # fmt: skip
def test_precision_follows_from_what_weights_are_loaded_in_and_how_they_are_sharded(
    said: dict[str, object], precision: str | None
) -> None:
    reading = Reading("trainer", Source("", "line"))
    for option, value in said.items():
        reading.say(option, value, f"--{option}")
    settle_precision(reading, Table({}))
    assert reading.said("precision") == precision
