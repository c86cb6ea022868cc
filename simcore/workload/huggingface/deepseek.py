"""Configs of deepseek_v2, deepseek_v3 (also R1) and kimi_k2: latent attention, small experts."""

from __future__ import annotations

from simcore.workload.huggingface.decoder import GATED, ROUTING, sizes, tied, translated
from simcore.workload.huggingface.fields import Fields
from simcore.workload.huggingface.registry import ADAPTERS, Setting, Translated


def _latent(f: Fields, defaults: dict[str, int]) -> tuple[dict[str, Setting], int]:
    config, positions = sizes(f)
    rope_dim = f.count("qk_rope_head_dim", default=64)
    biased = f.flag("attention_bias", default=False)
    # With null, q is not compressed; if the key is missing, as in the released models.
    q_rank = f.count("q_lora_rank", default=0 if "q_lora_rank" in f.data else 1536)
    width = f.count("moe_intermediate_size", default=defaults["width"])
    layers = int(config["layers"])
    dense = min(f.count("first_k_dense_replace", default=defaults["dense"], low=0), layers)
    config |= {
        "kv_heads": config["heads"],
        "head_dim": f.count("qk_nope_head_dim", default=128) + rope_dim,
        "value_dim": f.count("v_head_dim", default=128),
        "rope_dim": rope_dim,
        "q_rank": q_rank,
        "kv_rank": f.count("kv_lora_rank", default=512),
        "qkv_bias": biased,
        "out_bias": biased,
        "ffn": f.count("intermediate_size"),
        "mlp": f.word("hidden_act", default="silu", among=GATED),
        "mlp_bias": f.flag("mlp_bias", default=False),
        "tied": tied(f, False),
        "experts": f.count("n_routed_experts", "num_experts", default=defaults["experts"]),
        "top_k": f.count("num_experts_per_tok", default=defaults["top_k"]),
        **_groups(f, defaults),
        "expert_ffn": width,
        "shared_ffn": width * f.count("n_shared_experts", default=defaults["shared"], low=0),
        "expert_pattern": "d" * dense + "e" * (layers - dense) if dense else "e",
    }
    return config, positions


def _groups(f: Fields, defaults: dict[str, int]) -> dict[str, Setting]:
    """Settings of grouped experts, of which a token uses only some groups; else none."""
    groups = f.count("n_group", default=defaults.get("groups", 1))
    top = f.count("topk_group", default=defaults.get("top_groups", groups))
    return {"expert_groups": groups, "top_groups": top} if top < groups else {}


@ADAPTERS.register("deepseek_v2")
def deepseek_v2(f: Fields) -> Translated:
    """Latent attention, two shared experts, and experts chosen by softmax."""
    defaults = {"width": 1407, "dense": 0, "experts": 64, "top_k": 6, "shared": 2}
    return translated(f, *_latent(f, defaults), ROUTING)


@ADAPTERS.register("deepseek_v3")
def deepseek_v3(f: Fields) -> Translated:
    """Latent attention, one shared expert, and grouped experts.

    The module that predicts a second token is left out, as in transformers (``next_tokens=1``
    includes it).
    """
    return _further_token(f, {"groups": 8, "top_groups": 4})


@ADAPTERS.register("kimi_k2")
def kimi_k2(f: Fields) -> Translated:
    """deepseek_v3 without groups of experts."""
    return _further_token(f, {})


def _further_token(f: Fields, grouped: dict[str, int]) -> Translated:
    defaults = {"width": 2048, "dense": 3, "experts": 256, "top_k": 8, "shared": 1, **grouped}
    config, positions = _latent(f, defaults)
    left_out = "multi-token prediction is left out, as in transformers (next_tokens includes it)"
    return translated(f, config, positions, ROUTING, left_out)
