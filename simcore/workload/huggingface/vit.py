"""Configs of vit."""

from __future__ import annotations

from simcore.workload.huggingface.fields import Fields
from simcore.workload.huggingface.registry import ADAPTERS, Translated


def image_sizes(f: Fields) -> tuple[int, int]:
    """Pixels per side of the image and of a patch. Raises DataError."""
    image, patch = f.count("image_size", default=224), f.count("patch_size", default=16)
    if patch > image:
        raise f.error("patch_size", f"{patch} is larger than the image's {image}")
    return image, patch


@ADAPTERS.register("vit")
def vit(f: Fields) -> Translated:
    """A class token, learned positions, a linear head."""
    hidden = f.count("hidden_size")
    image, patch = image_sizes(f)
    f.word("hidden_act", default="gelu", among={"gelu": "gelu", "gelu_pytorch_tanh": "gelu"})
    classes = f.count("num_labels", default=2)
    if f.has("id2label"):
        classes = max(len(f.inside("id2label").data), 1)
    return Translated(
        arch="vit", sample_unit="image",
        config={
            "layers": f.layers("num_hidden_layers"),
            "hidden": hidden,
            "heads": f.heads(hidden, "num_attention_heads"),
            "ffn": f.count("intermediate_size"),
            "image": image,
            "patch": patch,
            "channels": f.count("num_channels", default=3),
            "qkv_bias": f.flag("qkv_bias", default=True),
            "packed": False,
            "classes": classes,
        },
        notes=("fused attention, without dropout",),
    )  # fmt: skip
