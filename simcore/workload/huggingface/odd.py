"""Settings that no other expression of a record can state, each computed by a function."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from simcore.workload.huggingface.expressions import FORMS, Expression, Translation
from simcore.workload.huggingface.layers import letters_of, shortest

#: Kinds of attention of ModernBERT.
_WHOLE, _LOCAL = "full_attention", "sliding_attention"
#: Kind of a U-Net's block, and whether it has transformer layers.
_DOWN = {"CrossAttnDownBlock2D": True, "DownBlock2D": False}
_UP = {"CrossAttnUpBlock2D": True, "UpBlock2D": False}


def _listed_layers(t: Translation, x: Expression) -> str:
    """A letter for each layer that a config lists, by words or in a text. Raises DataError."""
    f, among = t.fields, x["are"]
    key = next((k for k in x["words"] if f.has(k)), x["text"])
    letters = letters_of(t, key, among) if key != x["text"] else str(f.value(key) or x["default"])
    for letter in letters:
        if letter not in among:
            raise f.error(key, f"{letter!r:.40} is none of {', '.join(sorted(among))}")
    if f.has("num_hidden_layers") and f.count("num_hidden_layers") != len(letters):
        raise f.error(key, f"has {len(letters)} layers, which is not num_hidden_layers")
    return letters


def _sorted_words(t: Translation, x: Expression) -> str:
    """Words of a list, or of a text in which ``by`` separates them, in order of the alphabet."""
    written = t.fields.value(x["key"])
    text = isinstance(written, str)
    words = written.lower().split(x["by"]) if text else t.fields.words(x["key"])
    return str(x["by"]).join(sorted({word.strip() for word in words}))


def _whole_attention_period(t: Translation, _: Expression) -> int:
    """The period of layers with full attention; the first layer always has it."""
    f, layers = t.fields, t.named("layers")
    every = f.count("global_attn_every_n_layers", default=3)
    if not (kinds := f.words("layer_types")):
        return every
    if len(kinds) != layers:
        raise f.error("layer_types", f"{len(kinds)} entries for {layers} layers")
    whole = [i for i, kind in enumerate(kinds) if kind == _WHOLE]
    every = whole[1] if len(whole) > 1 else layers
    if kinds != tuple(_LOCAL if i % every else _WHOLE for i in range(layers)):
        raise f.error("layer_types", "full attention must recur at equal distances")
    return every


def _square_patch(t: Translation, x: Expression) -> int:
    """Side of a patch of one frame. Raises DataError for another patch."""
    patch = t.fields.counts(x["key"]) or tuple(x["default"])
    if len(patch) != 3 or patch[0] != 1 or patch[1] != patch[2]:
        raise t.fields.error(x["key"], "must be one frame and a square, such as [1, 2, 2]")
    return patch[1]


def _attending_levels(t: Translation) -> list[bool]:
    """Whether each level of a U-Net has transformer layers. Raises DataError."""
    f = t.fields
    down, up = f.words("down_block_types"), f.words("up_block_types")
    for key, kinds, known in (("down_block_types", down, _DOWN), ("up_block_types", up, _UP)):
        for kind in kinds:
            if kind not in known:
                raise f.error(key, f"{kind} is not supported")
    attends = [_DOWN[kind] for kind in down]
    if attends != [_UP[kind] for kind in reversed(up)]:
        raise f.error("up_block_types", "must mirror down_block_types")
    if len(attends) != len(f.counts("block_out_channels")):
        raise f.error("down_block_types", "must have as many entries as block_out_channels")
    return attends


def _levels(t: Translation, key: str, default: int) -> tuple[int, ...]:
    """A number for each level of a U-Net, from a list or from one number for all of them."""
    f, count = t.fields, len(_attending_levels(t))
    listed = isinstance(f.value(key), list)
    numbers = f.counts(key) if listed else (f.count(key, default=default),) * count
    if len(numbers) != count:
        raise f.error(key, f"must have {count} numbers")
    return numbers


def _of_levels(t: Translation, x: Expression) -> str:
    """A number for each level of a U-Net."""
    return " ".join(map(str, _levels(t, x["key"], x["default"])))


def _last_of_levels(t: Translation, x: Expression) -> int:
    """The number of a U-Net's last level."""
    return _levels(t, x["key"], x["default"])[-1]


def _transformer_layers_of_levels(t: Translation, _: Expression) -> str:
    """Transformer layers of each level of a U-Net; 0 where its blocks have none."""
    depths = _levels(t, "transformer_layers_per_block", 1)
    both = zip(depths, _attending_levels(t), strict=True)
    return " ".join(str(depth * attends) for depth, attends in both)


def _blocks(t: Translation) -> list[tuple[int, int]]:
    """Kv heads and feed-forward width of each layer of DeciLM, 0 for a part that it does not have.

    A width is two thirds of a multiple of the hidden size, rounded up to 256 (modeling_decilm.py,
    _ffn_mult_to_intermediate_size). Layers without either part are left out. Raises DataError.
    """
    f, hidden, heads = t.fields, t.named("hidden"), t.named("heads")
    listed = f.value("block_configs")
    if not isinstance(listed, list) or not listed:
        raise f.error("block_configs", "must be a list with an object for each layer")
    found = []
    for block in listed:
        try:
            attention, ffn = block["attention"], block["ffn"]
            if attention.get("replace_with_linear") or ffn.get("replace_with_linear"):
                raise f.error("block_configs", "layers replaced by a product are not supported")
            kv_heads = 0 if attention.get("no_op") else heads // attention["n_heads_in_group"]
            share = 0.0 if ffn.get("no_op") else float(ffn["ffn_mult"])
        except (TypeError, KeyError, AttributeError, ValueError, ZeroDivisionError):
            raise f.error("block_configs", f"{str(block)[:60]} is no layer of DeciLM") from None
        width = -(-int(2 * share * hidden / 3) // 256) * 256
        if kv_heads or width:
            found.append((kv_heads, width))
    if len({kv for kv, _ in found if kv}) != 1:
        raise f.error("block_configs", "layers of different numbers of kv heads are not supported")
    return found


def _layers_chosen(t: Translation, x: Expression) -> Any:
    """One property of DeciLM's layers: ``layers``, ``kv_heads``, ``ffn``, ``widths``, patterns."""
    blocks = _blocks(t)
    return {
        "layers": len(blocks),
        "kv_heads": max(kv for kv, _ in blocks),
        "ffn": max(width for _, width in blocks),
        "widths": " ".join(str(width) for _, width in blocks),
        "mixers": "".join("a" if kv else "n" for kv, _ in blocks),
        "fed": "".join("d" if width else "n" for _, width in blocks),
    }[x["of"]]


def _rounded_up_ffn(t: Translation, _: Expression) -> int:
    """LFM2's feed-forward width: two thirds of the stated one, times a factor, rounded up."""
    f = t.fields
    width = f.count("block_ff_dim", "intermediate_size", default=12288)
    if not f.flag("block_auto_adjust_ff_dim", default=True):
        return width
    width = int(f.number("block_ffn_dim_multiplier", default=1.0) * int(2 * width / 3))
    multiple = f.count("block_multiple_of", default=256)
    return -(-width // multiple) * multiple


def _wider_where_shared(t: Translation, _: Expression) -> str:
    """A width for each of Gemma 4's layers: those that share keys and values are twice as wide."""
    layers, shared = t.named("layers"), t.named("shared")
    width = t.fields.count("intermediate_size", default=9216)
    return " ".join([str(width)] * (layers - shared) + [str(2 * width)] * shared)


def _of_gemma3n(t: Translation, x: Expression) -> Any:
    """A property of Gemma 3n's feed-forward: ``ffn``, ``widths``, number of ``sparse`` layers."""
    f, layers = t.fields, t.named("layers")
    listed = isinstance(f.value("intermediate_size"), list)
    widths = f.counts("intermediate_size") if listed else ()
    sparse = [0.95] * 10 + [0.0] * (layers - 10) if layers > 10 else [0.0] * layers
    if f.has("activation_sparsity_pattern"):  # else configuration_gemma3n.py, __post_init__
        sparse = f.value("activation_sparsity_pattern")
    if not isinstance(sparse, list) or any(type(s) not in (int, float) for s in sparse):
        raise f.error("activation_sparsity_pattern", "must be a list of numbers")
    for key, found in (("intermediate_size", widths), ("activation_sparsity_pattern", sparse)):
        if len(found) != layers and (listed or found is sparse):
            raise f.error(key, f"{len(found)} entries for {layers} layers")
    return {
        "ffn": max(widths) if listed else f.count("intermediate_size", default=16384),
        "widths": " ".join(map(str, widths)) if len(set(widths)) > 1 else "",
        "sparse": sum(share > 0 for share in sparse),
    }[x["of"]]


def _of_full_attention(t: Translation, x: Expression) -> Any:
    """A size of Gemma 4's layers without a window.

    Files of the hub state it under a key of its own, ``stated``; those that transformers writes as
    the exception of such layers. Otherwise it is ``default``.
    """
    f = t.fields
    others = f.value("per_layer_config")
    if isinstance(others, dict) and others:
        written = next(iter(others.values()))
        size = written.get(x["key"]) if isinstance(written, dict) else None
        if size is not None and type(size) is not int:
            raise f.error("per_layer_config", f"{x['key']} {size!r:.40} is no whole number")
        return size or t.value(x["default"])
    return f.count(x["stated"], default=0, low=0) or t.value(x["default"])


def _heads_by_layer(t: Translation, x: Expression) -> int:
    """Heads of the layers with a window (``letter`` w) or without one (f). Raises DataError."""
    key, layers = "num_attention_heads_per_layer", t.named("layers")
    listed = t.fields.counts(key)
    if not listed:
        return t.fields.count("num_attention_heads")
    if len(listed) != layers:
        raise t.fields.error(key, f"{len(listed)} entries for {layers} layers")
    letters = (t.named("window_layers") * layers)[:layers]
    heads = {n for n, letter in zip(listed, letters, strict=True) if letter == x["letter"]}
    if len(heads) > 1:
        raise t.fields.error(key, "must be equal among layers with a window, and among the others")
    return heads.pop() if heads else listed[0]


def _turned_if_windowed_or_dense(t: Translation, _: Expression) -> str:
    """Letters of positions of Cohere 2's layers with experts (Cohere2MoeAttention, force_rope).

    Layers with a window are rotary, and so are dense ones unless they have windows of their own
    pattern.
    """
    layers = t.named("layers")
    windows = (t.named("window_layers") * layers)[:layers]
    fed = (t.named("expert_pattern") * layers)[:layers]
    forced = t.named("dense_pattern") == 1
    return shortest("".join(
        "r" if window == "w" or (forced and part == "d") else "n"
        for window, part in zip(windows, fed, strict=True)
    ))  # fmt: skip


#: Letters of DeepSeek-V4's kinds of attention, by their words and by the tokens of an entry.
_COMPRESSED = {
    "sliding_attention": "w", "compressed_sparse_attention": "s",
    "heavily_compressed_attention": "h",
}  # fmt: skip
_COMPRESSED_BY_RATE = {0: "w", 4: "s", 128: "h"}


def _compressed_layers(t: Translation, _: Expression) -> str:
    """Letters of the layers' attention. Raises DataError.

    By default two heavily compressed layers, then both kinds in turn (DeepseekV4Config).
    """
    f, layers = t.fields, t.named("layers")
    if f.has("layer_types"):
        letters = letters_of(t, "layer_types", _COMPRESSED)
    elif rates := f.counts("compress_ratios"):
        if unknown := set(rates) - _COMPRESSED_BY_RATE.keys():
            raise f.error("compress_ratios", f"{unknown.pop()} is none of 0, 4, 128")
        letters = "".join(_COMPRESSED_BY_RATE[rate] for rate in rates)
    else:
        letters = "hh" + "hs" * layers
    if len(letters) < layers:
        raise f.error("layer_types", f"{len(letters)} entries for {layers} layers")
    return shortest(letters[:layers])


_FUNCTIONS: Mapping[str, Callable[[Translation, Expression], Any]] = {
    "listed_layers": _listed_layers,
    "sorted_words": _sorted_words,
    "whole_attention_period": _whole_attention_period,
    "square_patch": _square_patch,
    "of_levels": _of_levels,
    "last_of_levels": _last_of_levels,
    "transformer_layers_of_levels": _transformer_layers_of_levels,
    "layers_chosen": _layers_chosen,
    "rounded_up_ffn": _rounded_up_ffn,
    "wider_where_shared": _wider_where_shared,
    "of_gemma3n": _of_gemma3n,
    "of_full_attention": _of_full_attention,
    "compressed_layers": _compressed_layers,
    "heads_by_layer": _heads_by_layer,
    "turned_if_windowed_or_dense": _turned_if_windowed_or_dense,
}


@FORMS.register("computed")
def _computed(t: Translation, name: str, x: Expression) -> Any:
    return _FUNCTIONS[name](t, x)
