"""Models similar to llama: granite, smollm3, glm, stablelm and starcoder2, and, with their own
modeling code, internlm2, baichuan and chatglm (also ChatGLM2, ChatGLM3 and GLM-4)."""

from __future__ import annotations

from simcore.workload.huggingface.decoder import (
    PLAIN,
    gated_layers,
    rotary_share,
    shortest,
    sizes,
    tied,
    translated,
)
from simcore.workload.huggingface.fields import Fields
from simcore.workload.huggingface.llama import llama
from simcore.workload.huggingface.registry import ADAPTERS, Translated


@ADAPTERS.register("granite")
def granite(f: Fields) -> Translated:
    """llama with a kernel each that scales the embedding, residual sums and logits."""
    base = llama(f)
    scaled = {"scaled_embedding": True, "scaled_residual": True, "scaled_logits": True}
    return translated(f, base.config | scaled, base.positions)


@ADAPTERS.register("smollm3")
def smollm3(f: Fields) -> Translated:
    """llama without positions in every fourth layer.

    ``no_rope_layers`` has 1 for layers with positions, despite its name.
    """
    base = llama(f)
    layers, every = int(base.config["layers"]), f.count("no_rope_layer_interval", default=4)
    has_rope = f.counts("no_rope_layers") or tuple(int((i + 1) % every > 0) for i in range(layers))
    if len(has_rope) < layers:
        raise f.error("no_rope_layers", f"{len(has_rope)} entries for {layers} layers")
    pattern = "".join("r" if rope else "n" for rope in has_rope[:layers])
    config = base.config | {"rope_pattern": shortest(pattern), "tied": tied(f, True)}
    if f.flag("use_sliding_window", default=False) and (
        size := f.count("sliding_window", default=0)
    ):
        window_pattern = pattern.replace("r", "f").replace("n", "w")
        config |= {"window": size, "window_pattern": shortest(window_pattern)}
    return translated(f, config, base.positions)


@ADAPTERS.register("glm")
def glm(f: Fields) -> Translated:
    """Biases on q, k and v, rotary positions on half of each head, gate and up in one product."""
    config, positions = sizes(f)
    config |= {
        "head_dim": f.count("head_dim", default=128),
        **gated_layers(f),
        "qkv_bias": f.flag("attention_bias", default=True),
        "fused_gate_up": True,
        "rotary_share": rotary_share(f, 0.5),
        "rotary_joined": True,
    }
    return translated(f, config, positions)


@ADAPTERS.register("stablelm")
def stablelm(f: Fields) -> Translated:
    """Layer norms, gated layers, and rotary positions on a quarter of each head."""
    config, positions = sizes(f)
    if f.flag("qk_layernorm", default=False):
        raise f.error("qk_layernorm", "stablelm with a norm for every head is not supported")
    config |= {
        **gated_layers(f),
        "norm": "layernorm",
        "qkv_bias": f.flag("use_qkv_bias", default=False),
        "residual": "parallel_one_norm"
        if f.flag("use_parallel_residual", default=False)
        else "serial",
        "rotary_share": rotary_share(f, 0.25),
        "rotary_joined": True,
        "dropout": f.number("hidden_dropout", default=0.0, high=1.0),
    }
    return translated(f, config, positions)


@ADAPTERS.register("starcoder2")
def starcoder2(f: Fields) -> Translated:
    """Layer norms, biases, GELU without a gate, and possibly windowed attention."""
    config, positions = sizes(f)
    config |= {
        "ffn": f.count("intermediate_size"),
        "mlp": f.word("hidden_act", default="gelu_pytorch_tanh", among=PLAIN),
        "norm": "layernorm",
        "bias": f.flag("use_bias", default=True),
        "tied": tied(f, True),
        "dropout": f.number("residual_dropout", default=0.0, high=1.0),
    }
    if size := f.count("sliding_window", default=0):
        config["window"] = size
    return translated(f, config, positions)


@ADAPTERS.register("internlm2")
def internlm2(f: Fields) -> Translated:
    """llama whose q, k and v are one product (modeling_internlm2.py, ``wqkv``)."""
    config, positions = sizes(f)
    biased = f.flag("bias", default=False)
    config |= {**gated_layers(f), "fused_qkv": True, "qkv_bias": biased, "out_bias": biased}
    return translated(f, config, positions)


@ADAPTERS.register("baichuan")
def baichuan(f: Fields) -> Translated:
    """llama whose q, k and v are one product (modeling_baichuan.py, ``W_pack``).

    The larger model has ALiBi instead of rotary positions: slopes are added to attention scores.
    """
    config, positions = sizes(f, kv_heads=False)
    config |= {**gated_layers(f), "fused_qkv": True}
    if not f.has("max_position_embeddings"):
        config["positions"] = "alibi"
        positions = f.count("model_max_length", default=4096)
    return translated(f, config, positions)


@ADAPTERS.register("chatglm")
def chatglm(f: Fields) -> Translated:
    """The model in modeling_chatglm.py since ChatGLM2.

    q, k and v are one product with biases, gate and up another; half of each head has rotary
    positions.
    """
    hidden = f.count("hidden_size")
    heads = f.heads(hidden, "num_attention_heads", divides=not f.has("kv_channels"))
    grouped = f.flag("multi_query_attention", default=False)
    biased = f.flag("add_bias_linear", default=False)
    norm = "rmsnorm_eager" if f.flag("rmsnorm", default=True) else "layernorm"
    return translated(
        f,
        {
            "layers": f.layers("num_layers", "num_hidden_layers"),
            "hidden": hidden,
            "heads": heads,
            "kv_heads": f.count("multi_query_group_num", default=1) if grouped else heads,
            "head_dim": f.count("kv_channels", default=hidden // heads),
            "ffn": f.count("ffn_hidden_size"),
            "vocab": f.count("padded_vocab_size", "vocab_size"),
            "positions": "rope",
            "rotary_share": 0.5,
            "rotary_joined": True,
            "norm": norm,
            "mlp": "swiglu",
            "bias": biased,
            "qkv_bias": biased or f.flag("add_qkv_bias", default=True),
            "fused_gate_up": True,
            "tied": tied(f, False),
            "upcast_loss": True,
        },
        f.count("seq_length", default=8192),
    )
