"""Configs of mamba2, and of nemotron_h (Nemotron-H, Nemotron Nano 2 and 3)."""

from __future__ import annotations

from simcore.workload.huggingface.decoder import PLAIN, ROUTING, shortest, sizes, tied, translated
from simcore.workload.huggingface.fields import Fields
from simcore.workload.huggingface.registry import ADAPTERS, Setting, Translated

KERNELS = "Mamba-2 layers run with mamba_ssm's kernels, not as tensor operations"
#: Letter in ``hybrid_override_pattern`` or word in ``layers_block_type`` -> letter of the layer.
_LETTERS = {
    "M": "M", "*": "*", "-": "-", "E": "E", "mamba": "M", "linear_attention": "M",
    "attention": "*", "full_attention": "*", "mlp": "-", "moe": "E",
}  # fmt: skip
#: Letter of the layer -> its mixer, and its feed-forward part (n: none).
_MIXERS = {"M": "m", "*": "a", "-": "n", "E": "n"}
_FEED_FORWARD = {"M": "n", "*": "n", "-": "d", "E": "e"}


@ADAPTERS.register("mamba2")
def mamba2(f: Fields) -> Translated:
    """Mamba-2 (Dao & Gu 2024): mixers only, without positions.

    The setting ``heads``, which is attention's elsewhere, is the mixer's number of heads.
    """
    hidden, heads = f.count("hidden_size", default=4096), f.count("num_heads", default=128)
    width = f.count("head_dim", default=64)
    inner = f.count("expand", default=2) * hidden
    if inner != heads * width:
        raise f.error("num_heads", f"{heads} of width {width} are not the inner width {inner}")
    if hidden % heads:
        raise f.error("num_heads", f"{heads} does not divide the hidden size {hidden}")
    config: dict[str, Setting] = {
        "layers": f.layers("num_hidden_layers", default=64),
        "hidden": hidden,
        "heads": heads,
        "vocab": f.count("vocab_size", default=32768),
        "positions": "none",
        "mixer_pattern": "m",
        "expert_pattern": "n",
        "ssm_heads": heads,
        "ssm_head_dim": width,
        "ssm_state": f.count("state_size", default=128),
        "ssm_groups": f.count("n_groups", default=8),
        "ssm_chunk": f.count("chunk_size", default=256),
        "conv_kernel": f.count("conv_kernel", default=4),
        "conv_bias": f.flag("use_conv_bias", default=True),
        "bias": f.flag("use_bias", default=False),
        "norm": "rmsnorm_eager",
        "tied": tied(f, False),
        "upcast_loss": True,
    }
    if heads % int(config["ssm_groups"]):
        raise f.error("n_groups", f"{config['ssm_groups']} does not divide {heads} heads")
    # The length is not limited; 2,048 is that of the training of Mamba-2's own models.
    return translated(f, config, 2048, KERNELS)


def _layers(f: Fields) -> tuple[str, str]:
    """The letters of the layers, and the key that lists them. Raises DataError."""
    key = next((k for k in ("layers_block_type", "layer_types") if f.has(k)), None)
    if key is not None:
        listed: tuple[str, ...] = f.words(key)
    else:
        key = "hybrid_override_pattern"
        listed = tuple(str(f.data.get(key) or "")) or ("M", "E", "*", "-")
    for kind in listed:
        if kind not in _LETTERS:
            raise f.error(key, f"{kind!r:.40} is none of {', '.join(sorted(_LETTERS))}")
    return "".join(_LETTERS[k] for k in listed), key


@ADAPTERS.register("nemotron_h")
def nemotron_h(f: Fields) -> Translated:
    """A layer is Mamba-2, attention without positions, feed-forward (squared ReLU) or experts."""
    letters, key = _layers(f)
    if f.has("num_hidden_layers") and f.layers("num_hidden_layers") != len(letters):
        raise f.error(key, f"has {len(letters)} layers, which is not num_hidden_layers")
    named = {"num_hidden_layers": len(letters), "head_dim": f.data.get("attention_head_dim", 128)}
    config, positions = sizes(Fields({**named, **f.data}, f.path, f.text, f.prefix))
    mlp = f.word("mlp_hidden_act", "hidden_act", default="relu2", among=PLAIN)
    config |= {
        "positions": "none",
        "mixer_pattern": shortest("".join(_MIXERS[x] for x in letters)),
        "expert_pattern": shortest("".join(_FEED_FORWARD[x] for x in letters)),
        "ssm_heads": f.count("mamba_num_heads", default=128),
        "ssm_head_dim": f.count("mamba_head_dim", default=64),
        "ssm_state": f.count("ssm_state_size", default=128),
        "ssm_groups": f.count("n_groups", "mamba_n_groups", default=8),
        "ssm_chunk": f.count("chunk_size", "mamba_chunk_size", default=128),
        "conv_kernel": f.count("conv_kernel", "mamba_d_conv", default=4),
        "conv_bias": f.flag("use_conv_bias", "mamba_conv_bias", default=True),
        "ffn": f.count("intermediate_size", default=21504),
        "mlp": mlp,
        "bias": f.flag("use_bias", default=False),
        "qkv_bias": False,
        "out_bias": False,
        "mlp_bias": f.flag("mlp_bias", default=False),
        "tied": tied(f, False),
    }
    if int(config["ssm_heads"]) % int(config["ssm_groups"]):
        raise f.error("n_groups", f"{config['ssm_groups']} does not divide the mixer's heads")
    if "E" not in letters:
        return translated(f, config, positions, KERNELS)
    if config["mlp_bias"]:
        raise f.error("mlp_bias", "biases of shared experts are not supported")
    config |= {
        "experts": f.count("n_routed_experts", "num_local_experts", default=8),
        "top_k": f.count("num_experts_per_tok", default=2),
        "expert_ffn": f.count("moe_intermediate_size", default=7688),
        "shared_ffn": f.count("moe_shared_expert_intermediate_size", default=7688),
    }
    if f.has("moe_latent_size"):
        config["expert_latent"] = f.count("moe_latent_size")
    return translated(f, config, positions, KERNELS, ROUTING)
