"""The language model that Megatron-LM's flags describe, as settings of ``arch:transformer``.

Names and defaults: megatron/training/arguments.py of Megatron core 0.16 (validate_args,
``_add_network_size_args``, ``_add_moe_args``, ``_add_mla_args``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

Settings = dict[str, int | str | bool | float]

#: Flags of models of other kinds, which are not described here.
_OTHER = (
    "encoder-num-layers", "decoder-num-layers", "hybrid-override-pattern", "hybrid-layer-pattern",
    "is-hybrid-model", "retro-add-retriever", "img-h", "vision-pretraining", "bert-binary-head",
    "spec", "group-query-attention-pattern",
)  # fmt: skip
_MLPS = {"swiglu": "swiglu", "squared-relu": "relu2", "quick-geglu": "geglu"}
#: gate and up together have as many parameters as a layer four times as wide as the model; a
#: multiple of 64.
_GATED_SHARE, _MULTIPLE = 4 * 2 / 3, 64
#: Vocabularies of tokenizers that need no file.
_TOKENIZERS = {"gpt2bpetokenizer": 50257}
_MOST_LAYERS = 10_000


def described(given: Mapping[str, Any]) -> Settings:
    """Settings of the model that flags (without dashes) describe; none where they do not.

    The vocabulary is left out where only a tokenizer's file knows it.
    """
    sizes = {k: _whole(given.get(k)) for k in ("num-layers", "hidden-size", "num-attention-heads")}
    if not all(sizes.values()) or any(given.get(k) for k in _OTHER):
        return {}
    layers, hidden, heads = (n or 0 for n in sizes.values())
    mlp = next((v for k, v in _MLPS.items() if given.get(k)), "gelu")
    ffn = _whole(given.get("ffn-hidden-size")) or (
        int(hidden * _GATED_SHARE / _MULTIPLE) * _MULTIPLE if mlp == "swiglu" else 4 * hidden
    )
    rope = given.get("use-rotary-position-embeddings")
    positions = "rope" if rope else str(given.get("position-embedding-type", "learned_absolute"))
    bias = not given.get("disable-bias-linear")
    found: Settings = {
        "layers": layers, "hidden": hidden, "heads": heads, "ffn": ffn, "mlp": mlp, "bias": bias,
        "norm": "rmsnorm" if given.get("normalization") == "RMSNorm" else "layernorm",
        "positions": {"learned_absolute": "learned", "yarn": "rope"}.get(positions, positions),
        "tied": not given.get("untie-embeddings-and-output-weights"),
        "qk_norm": bool(given.get("qk-layernorm")),
    }  # fmt: skip
    if given.get("group-query-attention"):
        found["kv_heads"] = _whole(given.get("num-query-groups")) or 1
    if size := _whole(given.get("kv-channels")):
        found["head_dim"] = size
    if given.get("add-qkv-bias"):
        found["qkv_bias"] = True
    if given.get("multi-latent-attention"):
        found |= _latent(given)
    if experts := _whole(given.get("num-experts")):
        found |= _mixture(given, experts, ffn, layers)
    if tokens := _whole(given.get("mtp-num-layers")):
        found["next_tokens"] = tokens
    kind = str(given.get("tokenizer-type", "")).lower()
    vocab = _whole(given.get("padded-vocab-size")) or _whole(given.get("vocab-size"))
    if vocab := vocab or _TOKENIZERS.get(kind):
        found["vocab"] = vocab
    return found


def _latent(given: Mapping[str, Any]) -> Settings:
    """Multi-latent attention: ranks, and sizes of a head."""
    rope = _whole(given.get("qk-pos-emb-head-dim")) or 64
    ranks: Settings = {
        "kv_rank": _whole(given.get("kv-lora-rank")) or 32, "rope_dim": rope, "fused_qkv": False,
        "head_dim": (_whole(given.get("qk-head-dim")) or 128) + rope,
        "value_dim": _whole(given.get("v-head-dim")) or 128,
    }  # fmt: skip
    if rank := _whole(given.get("q-lora-rank")):
        ranks["q_rank"] = rank
    return ranks


def _mixture(given: Mapping[str, Any], experts: int, ffn: int, layers: int) -> Settings:
    """Routed experts, the shared one, and which layers have them."""
    found: Settings = {
        "experts": experts,
        "top_k": _whole(given.get("moe-router-topk")) or 2,
        "expert_ffn": _whole(given.get("moe-ffn-hidden-size")) or ffn,
    }
    if shared := _whole(given.get("moe-shared-expert-intermediate-size")):
        found["shared_ffn"] = shared
    if pattern := _pattern(str(given.get("moe-layer-freq", 1)), layers):
        found["expert_pattern"] = pattern
    return found


def _pattern(text: str, layers: int) -> str:
    """``e`` for each layer of experts and ``d`` for each other one; "" where all have experts.

    ``text``: every how many layers, or lists such as ``[0]*3+[1]*58``.
    """
    if text.isdigit():
        every = max(int(text), 1)
        marks = "".join("e" if i % every == 0 else "d" for i in range(layers))
    else:
        marks = ""
        for part in re.findall(r"\[[^\]]*\](?:\*\d+)?", text.replace(" ", "")):
            inside, _, times = part.partition("]")
            marks += inside.strip("[").replace(",", "") * min(int(times[1:] or 1), _MOST_LAYERS)
        marks = marks.replace("1", "e").replace("0", "d")[:layers]
    return marks if "d" in marks and "e" in marks and len(marks) == layers else ""


def _whole(value: Any) -> int | None:
    """A size, or None where it is absent or no whole number above 0."""
    text = str(value).replace("_", "")
    return int(text) if text.isdigit() and int(text) > 0 else None
