"""Configs of siglip."""

from __future__ import annotations

from simcore.workload.huggingface.decoder import PLAIN
from simcore.workload.huggingface.fields import Fields
from simcore.workload.huggingface.registry import ADAPTERS, Translated
from simcore.workload.huggingface.vit import image_sizes

_TANH = "gelu_pytorch_tanh"


@ADAPTERS.register("siglip")
def siglip(f: Fields) -> Translated:
    """Text encoder, image encoder with attention pooling, and a sigmoid loss over all pairs."""
    text, vision = f.inside("text_config"), f.inside("vision_config")
    hidden = text.count("hidden_size", default=768)
    width = vision.count("hidden_size", default=768)
    if not vision.flag("vision_use_head", default=True):
        raise vision.error("vision_use_head", "must be true: the loss compares the head's output")
    if text.count("projection_size", default=hidden) != width:
        raise text.error("projection_size", f"must be the image encoder's width {width}")
    usual = {"image_size": 224, "patch_size": 16, **vision.data}
    image, patch = image_sizes(Fields(usual, vision.path, vision.text, vision.prefix))
    positions = text.count("max_position_embeddings", default=64)
    return Translated(
        arch="siglip", sample_unit="pair", positions=positions,
        config={
            "layers": text.layers("num_hidden_layers", default=12),
            "hidden": hidden,
            "heads": text.heads(hidden, "num_attention_heads", default=12),
            "ffn": text.count("intermediate_size", default=3072),
            "vocab": text.count("vocab_size", default=32_000),
            "max_positions": positions,
            "mlp": text.word("hidden_act", default=_TANH, among=PLAIN),
            "vision_layers": vision.layers("num_hidden_layers", default=12),
            "vision_hidden": width,
            "vision_heads": vision.heads(width, "num_attention_heads", default=12),
            "vision_ffn": vision.count("intermediate_size", default=3072),
            "vision_mlp": vision.word("hidden_act", default=_TANH, among=PLAIN),
            "image": image,
            "patch": patch,
            "channels": vision.count("num_channels", default=3),
        },
        notes=(
            "fused attention, without dropout",
            "the loss compares all pairs of one micro-batch; its work is small",
        ),
    )  # fmt: skip
