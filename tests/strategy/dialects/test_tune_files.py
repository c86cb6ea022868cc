"""What torchtune's files say of the model, its adapters and its sharding, by hand."""

from __future__ import annotations

from typing import Any

import pytest

from simcore.strategy.dialects import torchtune  # noqa: F401  (registers what is odd)
from simcore.strategy.dialects.lines import ODD
from simcore.strategy.dialects.reading import Reading, Table
from simcore.strategy.dialects.source import Source

MLP = "gate_proj,up_proj,down_proj"


def read(rule: str, data: dict[str, Any], **said: Any) -> Reading:
    reading = Reading("torchtune", Source("", "run.yaml"))
    for option, value in said.items():
        reading.say(option.replace("__", "."), value, "before")
    ODD[rule](reading, Table(data))
    return reading


@pytest.mark.parametrize(
    ("builder", "stated"),
    [
        ("torchtune.models.llama3_1.llama3_1_8b", {"model": "llama3.1-8b"}),
        ("torchtune.models.qwen2_5.lora_qwen2_5_7b_base", {"model": "qwen2.5-7b"}),
        ("torchtune.models.qwen2_5.qwen2_5_1_5b_instruct", {"model": "qwen2.5-1.5b"}),
        ("qlora_llama2_70b", {"model": "llama2-70b", "quantised_base": "nf4"}),
    ],
)
def test_a_builder_names_the_model(builder: str, stated: dict[str, str]) -> None:
    found = read("recipe's model", {"model.-component-": builder})
    assert found.facts == stated and found.finish().approximated == ()
    assert found.key_of("model") == "model._component_"
    known = read("recipe's model", {"model.-component-": builder}, model="gpt2")
    assert known.said("model") == "gpt2"


def test_a_builder_of_ones_own_is_told_and_none_is_nothing() -> None:
    for data, told in (({"model.-component-": "mine.Net"}, True), ({}, False)):
        found = read("recipe's model", data)
        assert found.facts == {}
        assert any("is not read" in text for text in found.finish().approximated) == told


@pytest.mark.parametrize(
    ("data", "targets", "told"),
    [
        ({}, None, False),
        ({"lora-attn-modules": "q_proj, output_proj"}, "q_proj,o_proj", False),
        ({"lora-attn-modules": "v_proj", "apply-lora-to-mlp": True}, f"v_proj,{MLP}", False),
        ({"apply-lora-to-mlp": "True"}, MLP, False), ({"apply-lora-to-mlp": "true"}, MLP, False),
        ({"apply-lora-to-mlp": False}, None, False), ({"apply-lora-to-mlp": "false"}, None, False),
        ({"apply-lora-to-output": True}, None, True),
        ({"apply-lora-to-output": "true"}, None, True),
        ({"apply-lora-to-output": "True"}, None, True),
        ({"apply-lora-to-output": False}, None, False),
    ],
)  # fmt: skip
def test_modules_with_adapters(data: dict[str, Any], targets: str | None, told: bool) -> None:
    found = read("recipe's model", {f"model.{key}": value for key, value in data.items()})
    assert found.said("lora_targets") == targets
    assert any("the head has no adapter" in text for text in found.finish().approximated) == told


def test_recipes_for_several_devices_shard() -> None:
    assert read("recipe's sharding", {}).said("strategy") == "zero3"
    alone = read("recipe's sharding", {}, other__script="lora_finetune_single_device")
    assert alone.said("strategy") == "single"
    several = read("recipe's sharding", {}, other__script="lora_finetune_distributed")
    assert several.said("strategy") == "zero3"
    assert read("recipe's sharding", {}, strategy="ddp").said("strategy") == "ddp"
