"""Names of tuned models are those of their base: the same shapes."""

from __future__ import annotations

import math

import pytest

from simcore.base.errors import UnknownName, UsageError
from simcore.workload.models import MODELS
from simcore.workload.resolve import record_named, resolve_model


@pytest.mark.parametrize(
    ("name", "record"),
    [
        ("meta-llama/Llama-3.1-8B-Instruct", "llama3-8b"),
        ("Qwen/Qwen3-8B-Base", "qwen3-8b"),
        ("google/gemma-3-27b-it", "gemma-3-27b"),
        ("meta-llama/Llama-2-7b-chat-hf", "llama2-7b"),
        ("mistralai/Mistral-7B-Instruct-v0.1", "mistral-7b"),
        ("bert-base", "bert-base"),
        ("meta-llama/Llama-3.3-70B-Instruct", "llama3-70b"),
        ("HuggingFaceTB/SmolLM2-1.7B-Instruct", "smollm2-1.7b"),
        # a hub page of somebody else's with the model's own name
        ("unsloth/Llama-3.2-1B-Instruct", "llama3.2-1b"),
        ("stabilityai/stable-diffusion-xl-base-1.0", "sdxl"),
        ("NousResearch/Llama-2-7b-hf", "llama2-7b"),
        ("NousResearch/Meta-Llama-3-8B", "llama3-8b"),
        # in another format, of a stated month or length
        ("unsloth/Meta-Llama-3.1-8B-Instruct-unsloth-bnb-4bit", "llama3-8b"),
        ("Qwen/Qwen2.5-Coder-32B-Instruct-GPTQ-Int8", "qwen2.5-32b"),
        ("Qwen/Qwen3-30B-A3B-Instruct-2507", "qwen3-30b-a3b"),
        ("Qwen/Qwen3-8B-FP8", "qwen3-8b"),
        ("mistralai/Mixtral-8x7B-Instruct-v0.1", "mixtral-8x7b"),
        ("mistralai/Mistral-7B-Instruct-v0.2", "mistral-7b-v0.2"),
        ("microsoft/Phi-3-medium-128k-instruct", "phi-3-medium"),
        ("llama3_1-8b-instruct", "llama3-8b"),
        ("qwen1half-7b-chat", "qwen1.5-7b"),
        ("Wan-AI/Wan2.1-T2V-14B-Diffusers", "wan2.1-14b"),
        ("black-forest-labs/FLUX.1-dev", "flux.1-dev"),
        # copies on a disk, and the hub's cache
        ("/data/models/Qwen2.5-7B-Instruct/", "qwen2-7b"),
        ("models--google--gemma-3-12b-it", "gemma-3-12b"),
        ("mistralai/Devstral-Small-2507", "mistral-small-24b"),
    ],
)
def test_tuned_models_have_the_shapes_of_their_base(name: str, record: str) -> None:
    assert resolve_model(name).name == record


@pytest.mark.parametrize(
    ("name", "full_name", "record"),
    [
        ("qwen2.5-7b", "Qwen2.5 7B", "qwen2-7b"),
        ("Qwen/Qwen2.5-7B-Instruct", "Qwen2.5 7B", "qwen2-7b"),
        ("Qwen/Qwen2-7B", "Qwen2 7B", "qwen2-7b"),
        ("meta-llama/Llama-3.3-70B-Instruct", "Llama 3.3 70B", "llama3-70b"),
        ("deit-small-16", "DeiT-S/16 (224 x 224)", "vit-s-16"),
    ],
)
def test_a_model_of_another_s_shapes_keeps_its_name(name: str, full_name: str, record: str) -> None:
    found = resolve_model(name)
    assert (found.full_name, found.name) == (full_name, record)
    assert resolve_model(name) is found  # caches know records by identity


def test_every_name_of_its_own_is_an_alias() -> None:
    for record in MODELS.all():
        for name, full_name in record.called.items():
            assert MODELS[name] is record and full_name != record.full_name


def test_models_of_libraries_are_named_by_a_colon() -> None:
    with pytest.raises(UsageError, match=r"'timm/resnet50': did you mean timm:resnet50\?"):
        resolve_model("timm/resnet50")
    with pytest.raises(UnknownName, match=r"nonet.*timm:NAME, torchvision:NAME"):
        resolve_model("nonet-qqqqqqqq")
    # the nearest names of models_db are none of such a family
    with pytest.raises(UnknownName, match=r"'swin-b' \(of vision libraries: .*:swin_b"):
        resolve_model("swin-b")
    with pytest.raises(UnknownName, match=r"'swin-q9' \(.*timm:swin_q9 or torchvision:swin_q9, if"):
        resolve_model("swin-q9")
    with pytest.raises(UnknownName) as near:
        resolve_model("lama3-8b")
    assert "timm" not in str(near.value)


def test_a_size_called_base_stays_one() -> None:
    assert resolve_model("somebody/whisper-base-chat").name == "whisper-base"


@pytest.mark.parametrize("name", ["owner/2", "bert-instruct-2407", "llama-3.1-instruct"])
def test_what_remains_must_be_a_whole_name(name: str) -> None:
    with pytest.raises(UnknownName):
        resolve_model(name)


def test_what_has_no_base_is_unknown_as_it_was_typed() -> None:
    with pytest.raises(UnknownName, match="'nobody-7b-instruct'"):
        resolve_model("nobody-7b-instruct")


@pytest.mark.parametrize(
    ("name", "frozen"),
    [
        # counted: transformers' Qwen2_5_VisionTransformer; CLIPVisionModel and LLaVA's projector
        ("qwen2.5-vl-7b", 676_550_144), ("Qwen/Qwen2.5-VL-7B-Instruct", 676_550_144),
        ("llava-1.5-7b", 303_507_456 + 20_979_712), ("qwen2.5-7b", 0),
    ],
)  # fmt: skip
def test_an_alias_may_see_through_a_frozen_encoder(name: str, frozen: int) -> None:
    record = record_named(name)
    held = sum(f.resident_numel for f in record.build().frozen)
    assert math.isclose(held, frozen, rel_tol=1e-4)
    assert record_named(name) is record, "caches compare records by identity"
