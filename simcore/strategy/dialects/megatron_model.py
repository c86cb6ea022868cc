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
#: Settings that no flag need say: of kernels and of the batch.
_UNSAID = (
    "seq_len", "upcast_loss", "fused_qkv", "fused_gate_up", "expert_groups", "top_groups",
    "rotary_joined",
)  # fmt: skip
_MLPS = {"swiglu": "swiglu", "squared-relu": "relu2", "quick-geglu": "geglu"}
#: gate and up together have as many parameters as a layer four times as wide as the model; a
#: multiple of 64.
_GATED_SHARE, _MULTIPLE = 4 * 2 / 3, 64
#: Dropout of the residual and of attention, and their rate by default (arguments.py). One rate is
#: followed, the residual's.
_DROPOUTS, _DROPOUT = ("hidden-dropout", "attention-dropout"), 0.1
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
    positions = {"learned_absolute": "learned", "yarn": "rope"}.get(positions, positions)
    found: Settings = {
        "layers": layers, "hidden": hidden, "heads": heads, "ffn": ffn, "mlp": mlp, "bias": bias,
        "norm": "rmsnorm" if given.get("normalization") == "RMSNorm" else "layernorm",
        "positions": positions,
        "tied": not given.get("untie-embeddings-and-output-weights"),
        "qk_norm": bool(given.get("qk-layernorm")),
        "dropout": float(given.get(_DROPOUTS[0], _DROPOUT)),
    }  # fmt: skip
    if given.get("group-query-attention"):
        found["kv_heads"] = _whole(given.get("num-query-groups")) or 1
    if size := _whole(given.get("kv-channels")):
        found["head_dim"] = size
    if given.get("add-qkv-bias"):
        found["qkv_bias"] = True
    if share := given.get("rotary-percent"):
        found["rotary_share"] = float(share)
    if size := _whole(given.get("max-position-embeddings")) if positions == "learned" else None:
        found["max_positions"] = size
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


def flags_of(shape: Mapping[str, Any], seq_len: int) -> dict[str, Any]:
    """Flags (without dashes) of the model with these settings, read back as the same ones.

    None for a model that the flags cannot describe. The vocabulary is the tokenizer's, which the
    user names.
    """
    if not shape:
        return {}
    shape = {k: v for k, v in shape.items() if k not in _UNSAID}
    if set(shape.get("expert_pattern", "e")) == {"e"}:
        shape.pop("expert_pattern", None)
    if int(shape.get("window", 0)) >= seq_len:  # each token sees all before it
        shape.pop("window", None)
    bias, norm = bool(shape.get("bias", True)), shape.get("norm", "layernorm")
    positions, mlp = shape.get("positions", "learned"), shape.get("mlp", "gelu")
    heads, groups = shape["heads"], shape.get("kv_heads")
    latent = bool(shape.get("kv_rank"))
    head = shape.get("head_dim")
    found: dict[str, Any] = {
        "num-layers": shape["layers"],
        "hidden-size": shape["hidden"],
        "num-attention-heads": heads,
        "ffn-hidden-size": shape.get("ffn") or 4 * shape["hidden"],
        "max-position-embeddings": max(seq_len, int(shape.get("max_positions") or 0)),
        "position-embedding-type": "learned_absolute" if positions == "learned" else positions,
        "normalization": "RMSNorm" if norm == "rmsnorm" else "LayerNorm",
        "vocab-size": shape["vocab"],
        "group-query-attention": groups not in (None, heads) and not latent,
        "disable-bias-linear": not bias,
        "add-qkv-bias": bool(shape.get("qkv_bias")) and not bias,
        "untie-embeddings-and-output-weights": not shape.get("tied", True),
        "qk-layernorm": bool(shape.get("qk_norm")) and not latent,
        "mtp-num-layers": shape.get("next_tokens"),
        "rotary-percent": shape.get("rotary_share"),
        **{flag: f"{shape.get('dropout', 0.0):g}" for flag in _DROPOUTS},
        **{flag: mlp == name for flag, name in _MLPS.items()},
    }
    if found["group-query-attention"]:
        found["num-query-groups"] = groups
    if latent:
        rope = shape["rope_dim"]
        found |= {
            "multi-latent-attention": True,
            "kv-lora-rank": shape["kv_rank"],
            "q-lora-rank": shape.get("q_rank"),
            "qk-pos-emb-head-dim": rope,
            "qk-head-dim": head - rope,
            "v-head-dim": shape.get("value_dim"),
        }
    elif head:
        found["kv-channels"] = head
    if experts := shape.get("experts"):
        kinds = str(shape.get("expert_pattern", "")).replace("e", "1").replace("d", "0")
        found |= {
            "num-experts": experts,
            "moe-router-topk": shape.get("top_k", 2),
            "moe-ffn-hidden-size": shape.get("expert_ffn"),
            "moe-shared-expert-intermediate-size": shape.get("shared_ffn"),
            "moe-layer-freq": f"[{','.join(kinds)}]" if kinds else None,
            "moe-grouped-gemm": not shape.get("experts_in_turn"),
        }
    flags = {flag: value for flag, value in found.items() if value not in (None, False, 0)}
    back = {"out_bias": bias, "mlp_bias": bias, "qkv_bias": bias, **described(flags)}
    return flags if all(back.get(k) == v for k, v in shape.items()) else {}


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
    if not given.get("moe-grouped-gemm"):
        found["experts_in_turn"] = True
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
