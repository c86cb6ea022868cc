"""Encoders of images that are trained: parameters and FLOP against transformers and torch."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from huggingface import cases
from torch.utils.flop_counter import FlopCounterMode

from simcore import api
from simcore.base.errors import InvalidConfig
from simcore.strategy.dialects import read_launch
from simcore.workload.graph import Workload
from simcore.workload.huggingface import read_config
from simcore.workload.settings import with_settings

_TEXT: dict[str, Any] = {
    "vocab_size": 101, "hidden_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4,
    "num_key_value_heads": 2, "intermediate_size": 72, "max_position_embeddings": 64,
}  # fmt: skip
_CLIP: dict[str, Any] = {
    "model_type": "clip_vision_model", "hidden_size": 32, "intermediate_size": 96,
    "num_hidden_layers": 3, "num_attention_heads": 4, "image_size": 56, "patch_size": 14,
}  # fmt: skip


def _llava() -> Any:
    text = {**_TEXT, "model_type": "llama"}
    return transformers.LlavaConfig(text_config=text, vision_config=_CLIP, image_token_index=100)


def _qwen() -> Any:
    vision = {"depth": 4, "hidden_size": 32, "intermediate_size": 48, "num_heads": 2,
              "out_hidden_size": 48, "fullatt_block_indexes": [3]}  # fmt: skip
    return transformers.Qwen2_5_VLConfig(text_config=_TEXT, vision_config=vision)


def _ours(config: Any, folder: Path, **settings: Any) -> Workload:
    return with_settings(read_config(cases.written(config, folder)), settings).build()


def _flop(run: Callable[[], Any]) -> float:
    with FlopCounterMode(display=False) as counter:
        run()
    return float(counter.get_total_flops())


def _of_encoder(made: Workload) -> float:
    """FLOP of forward and backward of the encoder's blocks."""
    blocks = [made.blocks[i] for i in made.order[: made.encoder_blocks]]
    return sum(k.flop for b in blocks for op in b.ops for k in (*op.fwd, *op.bwd))


@pytest.mark.parametrize("config", [_llava(), _qwen()], ids=["clip", "qwen2.5"])
def test_all_of_it_is_trained_or_its_projector_alone(config: Any, tmp_path: Path) -> None:
    frozen = _ours(config, tmp_path)
    (tower,) = frozen.frozen
    whole = _ours(config, tmp_path, trained="all")
    assert whole.frozen == ()
    assert whole.trainable_numel == frozen.trainable_numel + tower.resident_numel
    projector = _ours(config, tmp_path, trained="projector")
    assert projector.encoder_blocks == 1
    (rest,) = projector.frozen
    assert projector.trainable_numel + rest.resident_numel == whole.trainable_numel
    none = _ours(config, tmp_path, trained="all", images=0)
    assert none.trainable_numel == frozen.trainable_numel, "what sees no images has no gradients"


def test_the_projector_of_llava_is_two_products(tmp_path: Path) -> None:
    made = _ours(_llava(), tmp_path, trained="projector")
    model = transformers.LlavaForConditionalGeneration(_llava()).model
    told = sum(p.numel() for p in model.multi_modal_projector.parameters())
    assert made.blocks[made.order[0]].numel == told + 2 * 32  # and a norm's


def test_the_flop_of_a_trained_clip_and_projector(tmp_path: Path) -> None:
    model = transformers.LlavaForConditionalGeneration(_llava()).model
    model.vision_tower.set_attn_implementation("eager")
    pixels = torch.zeros(1, 3, 56, 56)

    def run() -> None:
        found = model.get_image_features(pixel_values=pixels, vision_feature_layer=-1)
        features = getattr(found, "pooler_output", found)
        torch.cat(list(features)).sum().backward()

    made = _ours(_llava(), tmp_path, trained="all")
    assert math.isclose(_of_encoder(made), _flop(run), rel_tol=0.03), "of 17 tokens one is no patch"


def test_a_frozen_language_model_passes_gradients_to_the_projector(tmp_path: Path) -> None:
    """LLaVA's first stage: torch counts forward twice, less what nothing needs."""
    model = transformers.LlavaForConditionalGeneration(_llava())
    model.set_attn_implementation("eager")
    model.requires_grad_(False)
    model.model.multi_modal_projector.requires_grad_(True)
    tokens = torch.tensor([[1] * 8 + [100] * 16 + [2] * 8])
    pixels = torch.zeros(1, 3, 56, 56)
    told = _flop(
        lambda: model(
            input_ids=tokens, pixel_values=pixels, labels=tokens, vision_feature_layer=-1
        ).loss.backward()
    )
    made = _ours(_llava(), tmp_path, trained="projector", frozen_model=True, seq_len=32)
    ops = [op for block in made.instances() for op in block.ops]
    ours = sum(k.flop for op in ops for k in (*op.fwd, *op.bwd)) + made.frozen_flop
    # causal attention is half of what torch's eager one computes: six products of 32 x 32 a layer
    eager = 3 * 6 * 2 * 4 * 32 * 32 * 12 / 2
    assert math.isclose(ours + eager, told, rel_tol=0.03)
    trained = _ours(_llava(), tmp_path, trained="projector", seq_len=32)
    assert made.trainable_numel < 0.2 * trained.trainable_numel


def test_llava_s_stages_from_its_own_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("zero2.json").write_text(
        '{"bf16": {"enabled": "auto"}, "zero_optimization": {"stage": 2}}'
    )
    line = (
        "deepspeed llava/train/train_mem.py --deepspeed zero2.json --bf16 True "
        "--model_name_or_path lmsys/vicuna-7b-v1.5 --vision_tower clip-vit-large-patch14-336"
    )
    alone = read_launch(f"{line} --tune_mm_mlp_adapter True")
    assert alone.settings == {"trained": "projector", "frozen_model": True}
    assert read_launch(line).settings == {"trained": "projector"}
    assert read_launch(f"{line} --freeze_mm_mlp_adapter True").settings == {}
    other = read_launch(f"{line} --tune_mm_mlp_adapter True".replace("lmsys/vicuna-7b-v1.5", "my"))
    assert len(other.violations()) == 1


def test_the_first_stage_needs_no_optimizer_for_the_language_model() -> None:
    job: dict[str, Any] = {"precision": "bf16", "strategy": "zero2", "software": "deepspeed"}
    settings = {"trained": "projector", "frozen_model": True}
    made = api.predict("llava-1.5-7b", "8xA100", settings=settings, **job)
    assert made.n_params == 1024 * 4096 + 4096 + 4096 * 4096 + 4096 + 2 * 1024
    assert made.memory.terms["frozen_models"] == pytest.approx(
        2 * (6_738_415_616 + 303e6), rel=0.01
    )


def test_the_first_stage_is_the_same_by_its_line_and_what_a_user_sets_wins() -> None:
    line = (
        "deepspeed llava/train/train_mem.py --deepspeed zero2.json --bf16 True --vision_tower "
        "clip-vit-large-patch14-336 --model_name_or_path lmsys/vicuna-7b-v1.5 "
        "--tune_mm_mlp_adapter True"
    )
    made = api.predict("llava-1.5-7b", "8xA100", launch=line)
    assert made.n_params == 1024 * 4096 + 4096 + 4096 * 4096 + 4096 + 2 * 1024
    whole = api.predict("llava-1.5-7b", "8xA100", launch=line, settings={"trained": "all"})
    assert whole.n_params == pytest.approx(made.n_params + 304e6, rel=0.01)


@pytest.mark.parametrize(
    ("model", "words", "said"),
    [
        ("llava-1.5-7b", {"settings": {"trained": "projector"}, "tp": 2}, "leave the layout out"),
        ("llava-1.5-7b", {"settings": {"frozen_model": True}}, "nothing is trained"),
        ("llama2-7b", {"settings": {"frozen_model": True}}, "nothing is trained"),
        ("llava-1.5-7b", {"settings": {"trained": "tower"}}, "none of none, projector, all"),
    ],
)
def test_what_cannot_be_trained_is_refused(model: str, words: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidConfig, match=said):
        api.predict(model, "8xA100", **words)
