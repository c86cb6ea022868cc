"""Configs of zamba2."""

from __future__ import annotations

from simcore.workload.huggingface.fields import Fields
from simcore.workload.huggingface.mamba import KERNELS
from simcore.workload.huggingface.registry import ADAPTERS, Translated

#: Word in ``layers_block_type`` (a letter in the first files) -> letter of the layer: Mamba-2 (m),
#: or Mamba-2 with the shared transformer block before it (s).
_LETTERS = {"mamba": "m", "linear_attention": "m", "m": "m", "hybrid": "s", "g": "s"}
#: Default pattern of the layers.
_USUAL = "m" * 6 + "s" + ("m" * 5 + "s") * 6 + "m" * 4 + "s" + "m" * 3 + "s" + "m" * 2


@ADAPTERS.register("zamba2")
def zamba2(f: Fields) -> Translated:
    """Mamba-2 layers, some of which come after a transformer block that they share."""
    hidden, layers = f.count("hidden_size", default=2560), f.layers("num_hidden_layers", default=54)
    key = "layers_block_type" if f.has("layers_block_type") else "layer_types"
    kinds = f.words(key)
    for kind in kinds:
        if kind not in _LETTERS:
            raise f.error(key, f"{kind!r:.40} is none of {', '.join(_LETTERS)}")
    pattern = "".join(_LETTERS[k] for k in kinds) or _USUAL
    if len(pattern) != layers:
        raise f.error(key, f"{len(pattern)} entries for {layers} layers")
    if not f.flag("tie_word_embeddings", default=True):
        raise f.error("tie_word_embeddings", "must be true: an untied head is not supported")
    inner = f.count("mamba_expand", "expansion_factor", default=2) * hidden
    if f.has("n_mamba_heads") or not f.has("mamba_headdim"):
        mixers = f.count("n_mamba_heads", default=8)
    else:  # The first files state the width of a head.
        mixers = inner // f.count("mamba_headdim")
    if inner % mixers:
        raise f.error("n_mamba_heads", f"{mixers} does not divide the inner width {inner}")
    if 2 * hidden % (heads := f.count("num_attention_heads", default=32)):
        raise f.error("num_attention_heads", f"{heads} does not divide twice {hidden}")
    groups = f.count("mamba_ngroups", default=1)
    if mixers % groups:
        raise f.error("mamba_ngroups", f"{groups} does not divide {mixers} heads")
    f.word("hidden_act", default="gelu", among={"gelu": "geglu"})
    positions = f.count("max_position_embeddings", default=4096)
    return Translated(
        arch="zamba2", sample_unit="sequence", positions=positions, notes=(KERNELS,),
        config={
            "layers": layers,
            "hidden": hidden,
            "heads": heads,
            "kv_heads": f.count("num_key_value_heads", default=heads),
            "ffn": f.count("intermediate_size", "ffn_hidden_size", default=4 * hidden),
            "vocab": f.count("vocab_size", default=32000),
            "shared_pattern": pattern,
            "shared_blocks": f.count("num_mem_blocks", default=1),
            "adapter_rank": f.count("adapter_rank", "lora_rank", default=128),
            "adapted_attention": f.flag(
                "use_shared_attention_adapter", "use_shared_attention_lora", default=False
            ),
            "rotary": f.flag("use_mem_rope", default=False),
            "ssm_heads": mixers,
            "ssm_head_dim": inner // mixers,
            "ssm_state": f.count("mamba_d_state", "state_size", default=64),
            "ssm_groups": groups,
            "ssm_chunk": f.count("chunk_size", default=256),
            "conv_kernel": f.count("mamba_d_conv", "conv_dimension", default=4),
            "bias": f.flag("add_bias_linear", default=False),
            "norm": "rmsnorm_eager",
        },
    )  # fmt: skip
