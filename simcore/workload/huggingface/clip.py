"""Configs of clip."""

from __future__ import annotations

from simcore.workload.huggingface.decoder import PLAIN
from simcore.workload.huggingface.fields import Fields
from simcore.workload.huggingface.registry import ADAPTERS, Translated
from simcore.workload.huggingface.vit import image_sizes


@ADAPTERS.register("clip")
def clip(f: Fields) -> Translated:
    """Text and image encoders with projections, and the loss over all pairs of the local batch."""
    text, vision = f.inside("text_config"), f.inside("vision_config")
    hidden = text.count("hidden_size", default=512)
    width = vision.count("hidden_size", default=768)
    image, patch = image_sizes(
        vision
        if vision.has("patch_size")
        else Fields({"patch_size": 32, **vision.data}, vision.path, vision.text, vision.prefix)
    )
    positions = text.count("max_position_embeddings", default=77)
    return Translated(
        arch="clip", sample_unit="pair", positions=positions,
        config={
            "layers": text.layers("num_hidden_layers", default=12),
            "hidden": hidden,
            "heads": text.heads(hidden, "num_attention_heads", default=8),
            "ffn": text.count("intermediate_size", default=2048),
            "vocab": text.count("vocab_size", default=49_408),
            "max_positions": positions,
            "mlp": text.word("hidden_act", default="quick_gelu", among=PLAIN),
            "vision_layers": vision.layers("num_hidden_layers", default=12),
            "vision_hidden": width,
            "vision_heads": vision.heads(width, "num_attention_heads", default=12),
            "vision_ffn": vision.count("intermediate_size", default=3072),
            "vision_mlp": vision.word("hidden_act", default="quick_gelu", among=PLAIN),
            "image": image,
            "patch": patch,
            "channels": vision.count("num_channels", default=3),
            "projection": f.count("projection_dim", default=512),
        },
        notes=(
            "fused attention, without dropout",
            "the loss compares all pairs of one micro-batch; its work is small",
        ),
    )  # fmt: skip
