"""Configs of gemma, gemma2 and the language model of gemma3."""

from __future__ import annotations

from simcore.workload.huggingface.decoder import GATED, sizes, tied, translated, windows
from simcore.workload.huggingface.fields import Fields
from simcore.workload.huggingface.registry import ADAPTERS, Setting, Translated


def _common(f: Fields) -> tuple[dict[str, Setting], int]:
    """The settings of all generations, and the number of positions."""
    config, positions = sizes(f)
    biased = f.flag("attention_bias", default=False)
    config |= {
        "head_dim": f.count("head_dim", default=256),
        "ffn": f.count("intermediate_size"),
        "mlp": f.word("hidden_activation", "hidden_act", default="gelu_pytorch_tanh", among=GATED),
        "tied": tied(f, True),
        "norm": "rmsnorm_gemma",
        "scaled_embedding": True,
        "qkv_bias": biased,
        "out_bias": biased,
    }
    return config, positions


@ADAPTERS.register("gemma")
def gemma(f: Fields) -> Translated:
    """Wide heads, a scaled embedding, gated GELU."""
    return translated(f, *_common(f))


@ADAPTERS.register("gemma2")
def gemma2(f: Fields) -> Translated:
    """Norms before and after attention and feed-forward, and capped scores and logits.

    Every second layer has windowed attention.
    """
    config, positions = _common(f)
    window = f.count("sliding_window", default=4096, low=0)

    def capped(key: str) -> bool:
        """Whether values are capped: not if the key is null, but by default if it is missing."""
        return key not in f.data or f.has(key)

    config |= {
        "residual": "sandwich",
        "attention_softcap": capped("attn_logit_softcapping"),
        "logit_softcap": capped("final_logit_softcapping"),
        **windows(f, "wf", int(config["layers"]), window),
    }
    return translated(f, config, positions)


@ADAPTERS.register("gemma3_text")
def gemma3_text(f: Fields) -> Translated:
    """gemma2 without caps, with norms on q and k; one layer in six has full attention."""
    config, positions = _common(f)
    every = f.count("sliding_window_pattern", "_sliding_window_pattern", default=6)
    window = f.count("sliding_window", default=4096, low=0)
    config |= {
        "residual": "sandwich",
        "qk_norm": True,
        "attention_softcap": f.has("attn_logit_softcapping"),
        "logit_softcap": f.has("final_logit_softcapping"),
        **windows(f, "w" * (every - 1) + "f", int(config["layers"]), window),
    }
    return translated(f, config, positions)


@ADAPTERS.register("gemma3")
def gemma3(f: Fields) -> Translated:
    """The language model of the multimodal model; its vision encoder is left out."""
    if not f.has("text_config"):
        return gemma3_text(f)
    base = gemma3_text(_with_defaults(f.inside("text_config")))
    left_out = "the language model only: the vision encoder is left out"
    return Translated(
        arch=base.arch, sample_unit=base.sample_unit, config=base.config,
        positions=base.positions, notes=(*base.notes, left_out),
    )  # fmt: skip


def _with_defaults(f: Fields) -> Fields:
    """The fields with gemma3_text's defaults, which released files do not state."""
    defaults = {
        "vocab_size": 262_208, "num_attention_heads": 8, "num_key_value_heads": 4,
        "head_dim": 256, "max_position_embeddings": 131_072,
    }  # fmt: skip
    return Fields({**defaults, **f.data}, f.path, f.text, f.prefix)
