"""Translations that the configs of decoder-only language models share."""

from __future__ import annotations

from simcore.workload.huggingface.fields import Fields
from simcore.workload.huggingface.registry import Setting, Translated

#: Activation of a gated feed-forward layer -> kind of layer.
GATED = {
    "silu": "swiglu", "swish": "swiglu", "gelu": "geglu", "gelu_pytorch_tanh": "geglu",
    "gelu_new": "geglu_new",
}  # fmt: skip
#: Activation of a feed-forward layer without a gate -> kind of layer. ``gelu_fast`` consists of the
#: same tensor operations as ``gelu_new``.
PLAIN = {
    "gelu": "gelu", "gelu_pytorch_tanh": "gelu", "gelu_new": "gelu_new", "gelu_fast": "gelu_new",
    "relu": "relu", "relu2": "relu2", "quick_gelu": "quick_gelu",
}  # fmt: skip
EAGER = (
    "norms and rotary positions as transformers writes them in tensor operations, fused attention"
)
ROUTING = "experts: products grouped by expert; the auxiliary loss is left out"


def sizes(f: Fields, *, kv_heads: bool = True) -> tuple[dict[str, Setting], int]:
    """The settings that llama and similar models share, and the number of positions.

    ``kv_heads``: whether the config may have fewer heads of k and v than of q.
    """
    hidden = f.count("hidden_size")
    has_head_dim = f.has("head_dim")
    heads = f.heads(hidden, "num_attention_heads", divides=not has_head_dim)
    grouped = f.count("num_key_value_heads", default=heads) if kv_heads else heads
    if heads % grouped:
        raise f.error("num_key_value_heads", f"{grouped} does not divide {heads} attention heads")
    config: dict[str, Setting] = {
        "layers": f.layers("num_hidden_layers"),
        "hidden": hidden,
        "heads": heads,
        "kv_heads": grouped,
        "head_dim": f.count("head_dim", default=hidden // heads),
        "vocab": f.count("vocab_size"),
        "positions": "rope",
        "bias": False,
        "fused_qkv": False,
        "norm": "rmsnorm_eager",
        "upcast_loss": True,
    }
    return config, f.count("max_position_embeddings", default=2048)


def translated(f: Fields, config: dict[str, Setting], positions: int, *notes: str) -> Translated:
    """The translation of a causal language model, whose samples are sequences."""
    return Translated(
        arch="transformer", sample_unit="sequence", config=config, positions=positions,
        notes=(EAGER, *notes),
    )  # fmt: skip


def tied(f: Fields, default: bool) -> bool:
    """Whether the head's weight is tied to the embedding's."""
    return f.flag("tie_word_embeddings", default=default)


def gated_layers(f: Fields) -> dict[str, Setting]:
    """Width and kind of llama's feed-forward layers, and whether the head's weight is tied."""
    return {
        "ffn": f.count("intermediate_size"),
        "mlp": f.word("hidden_act", default="silu", among=GATED),
        "tied": tied(f, False),
    }


def rotary_share(f: Fields, default: float, *older: str) -> float:
    """The fraction of each head's dimensions with rotary positions.

    Newer files state it in ``rope_parameters``, older ones in ``partial_rotary_factor`` or in one
    of the keys ``older``.
    """
    rope = f.inside("rope_parameters") if f.has("rope_parameters") else f
    if rope.has("partial_rotary_factor"):
        return rope.number("partial_rotary_factor", default=default, high=1.0)
    return f.number("partial_rotary_factor", *older, default=default, high=1.0)


def windows(f: Fields, default: str, layers: int, size: int) -> dict[str, Setting]:
    """Settings of windowed attention over ``size`` tokens; none if no layer is windowed.

    The layers follow from ``layer_types``, or else from the pattern ``default``, whose letters are
    w (windowed) and f (full attention).
    """
    kinds = f.words("layer_types")
    if kinds:
        known = {"sliding_attention": "w", "full_attention": "f"}
        for kind in kinds:
            if kind not in known:
                raise f.error("layer_types", f"{kind!r} is none of {', '.join(known)}")
        if len(kinds) < layers:
            raise f.error("layer_types", f"{len(kinds)} entries for {layers} layers")
        default = shortest("".join(known[k] for k in kinds[:layers]))
    return {"window": size, "window_pattern": default} if size and "w" in default else {}


def shortest(pattern: str) -> str:
    """The shortest prefix of ``pattern`` whose repetition gives ``pattern``."""
    n = len(pattern)
    for length in range(1, n):
        if (pattern[:length] * n)[:n] == pattern:
            return pattern[:length]
    return pattern


def sparse_layers(f: Fields, layers: int) -> str:
    """The pattern of layers with experts (e) and without (d).

    It follows from ``decoder_sparse_step`` and ``mlp_only_layers``.
    """
    step = f.count("decoder_sparse_step", default=1)
    only = set(f.counts("mlp_only_layers"))
    return shortest("".join("d" if i in only or (i + 1) % step else "e" for i in range(layers)))
