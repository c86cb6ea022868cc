"""Configs of switch_transformers: T5 with switch layers (google/switch-base-8 and larger)."""

from __future__ import annotations

from simcore.workload.huggingface.fields import Fields
from simcore.workload.huggingface.registry import ADAPTERS, Setting, Translated
from simcore.workload.huggingface.t5 import TRAINED_AT

#: Activation -> kind of layer; transformers' class has no gated feed-forward layer.
_LAYERS = {"relu": "relu", "gelu": "gelu", "gelu_new": "gelu_new"}


@ADAPTERS.register("switch_transformers")
def switch_transformers(f: Fields) -> Translated:
    """T5 with experts in every ``sparse_step``-th layer, of which a token uses one."""
    layers = f.layers("num_layers", default=12)
    decoder = f.layers("num_decoder_layers", default=layers)
    step = _sparse_step(f, "num_sparse_encoder_layers", layers)
    if step != _sparse_step(f, "num_sparse_decoder_layers", decoder):
        raise f.error(
            "num_sparse_decoder_layers",
            f"must give one switch layer in {step}, as in the encoder",
        )
    if f.flag("router_bias", default=False):
        raise f.error("router_bias", "a router with a bias is not supported")
    config: dict[str, Setting] = {
        "layers": layers,
        "decoder_layers": decoder,
        "hidden": f.count("d_model", default=768),
        "heads": f.count("num_heads", default=12),
        "head_dim": f.count("d_kv", default=64),
        "ffn": f.count("d_ff", default=2048),
        "vocab": f.count("vocab_size", default=32128),
        "buckets": f.count("relative_attention_num_buckets", default=32),
        "mlp": f.word("dense_act_fn", default="relu", among=_LAYERS),
        "dropout": f.number("dropout_rate", default=0.1, high=1.0),
        "experts": f.count("num_experts", default=8),
        "expert_capacity": f.count("expert_capacity", default=64),
        "sparse_step": step,
    }
    return Translated(
        arch="t5", sample_unit="sequence pair",
        positions=f.count("n_positions", default=TRAINED_AT),
        config=config,
        notes=(
            "source and target of the same length; attention as explicit products (position bias)",
            "experts run one after another with equal shares of tokens; router losses are left out",
        ),
    )  # fmt: skip


def _sparse_step(f: Fields, key: str, layers: int) -> int:
    """The period of layers with experts, as in SwitchTransformersConfig. Raises DataError."""
    sparse = f.count(key, default=3, low=0, high=layers)
    if not sparse:
        raise f.error(key, "a stack without switch layers is T5: use model_type t5")
    return layers // sparse
