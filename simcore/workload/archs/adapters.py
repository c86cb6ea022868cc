"""Low-rank adapters (LoRA, Hu et al. 2021) of a frozen base: targets, and its number format."""

from __future__ import annotations

from simcore.base.record import dataclass
from simcore.workload.archs import check_names

#: Bytes per parameter of a quantised base. nf4: 4 bits, and doubly quantised scales of 0.127 bit
#: (Dettmers et al. 2023, QLoRA, section 3); nf4-single: one fp32 scale for 64 parameters, 0.5 bit.
#: gptq: 4 bits, and a scale in 16 bit and a zero point in 4 for 128 parameters (AutoGPTQ's groups).
#: int8: LLM.int8's one fp32 scale per row is left out. fp8: one scale per tensor; fp8 products
#: read it without a cast (Transformer Engine's fp8 parameters).
QUANTISED_BYTES = {
    "nf4": (4 + 0.127) / 8, "nf4-single": (4 + 32 / 64) / 8, "gptq": (4 + 20 / 128) / 8,
    "int8": 1.0, "fp8": 1.0,
}  # fmt: skip
#: Formats whose products return the type of their input, fp32 where the input is fp32
#: (bitsandbytes, nn/modules.py, Linear4bit.forward: ``.to(inp_dtype)``).
AS_WIDE_AS_INPUT = ("nf4", "nf4-single")
QUANTISED = ("none", *QUANTISED_BYTES)

#: Names that checkpoints use for the products of a layer, and the names used here.
TARGETS = {
    "q_proj": ("q",), "k_proj": ("k",), "v_proj": ("v",), "o_proj": ("attention.out",),
    "out_proj": ("attention.out", "out_proj"), "o": ("attention.out",), "dense": ("attention.out",),
    "qkv_proj": ("qkv",), "query_key_value": ("qkv",), "c_attn": ("qkv",),
    "gate_proj": ("gate",), "up_proj": ("up",), "down_proj": ("down",), "c_fc": ("up",),
    "fc1": ("up",), "fc2": ("down",), "dense_h_to_4h": ("up",), "dense_4h_to_h": ("down",),
    "gate_up_proj": ("gate_up",), "c_proj": ("attention.out", "down"),
    "q_a_proj": ("q_a",), "q_b_proj": ("q_b",), "kv_b_proj": ("kv_b",),
    "kv_a_proj_with_mqa": ("kv_a",),
    "in_proj_qkvz": ("in_proj",), "in_proj_ba": ("in_proj1",),  # Qwen3-Next
    "in_proj_qkv": ("in_proj",), "in_proj_z": ("in_proj1",), "in_proj_b": ("in_proj2",),
    "in_proj_a": ("in_proj3",),  # Qwen3.5
    "to_q": ("q",), "to_k": ("k",), "to_v": ("v",),
    "to_out": ("attention.out",), "to_out.0": ("attention.out",),
    "add_q_proj": ("text.q",), "add_k_proj": ("text.k",), "add_v_proj": ("text.v",),
    "to_add_out": ("text.attention.out",),
}  # fmt: skip
ALL_LINEAR = "all-linear"
#: How an adapter runs in addition to its product. ``apart``: in tensor operations (PEFT,
#: tuners/lora/layer.py). ``redrawn``: the same, but backward draws the dropout once more, so that
#: no mask is saved (NeMo, parallel_adapters.py, dropout_recompute: Thunder's). ``joined``: sums and
#: scale are part of the products, of which the second adds to the result of the first, each way
#: (NeMo, TEFusedLoRALinear on Transformer Engine's operation fuser: AddExtraInput, MakeExtraOutput
#: and ConstantScale inside BasicLinear).
LORA_KERNELS = ("apart", "redrawn", "joined")


@dataclass(frozen=True)
class Adapters:
    """Low-rank adapters of ``rank`` on ``targets``.

    - ``quantised``: format of the frozen base.
    - ``drop``: each adapter has its own dropout before it (PEFT, tuners/lora/layer.py).
    - ``wide``: adapters are fp32 while weights are 16 bit, under autocast.
    - ``kernels``: one of ``LORA_KERNELS``.
    - ``wide_experts``: routed experts keep 16 bits on a quantised base: they are no modules of the
      kind that is quantised.
    - ``inputs``: a frozen product after a norm saves its input, as a trained one does (Transformer
      Engine 2, LayerNormLinear: saves ln_out whether or not the weight has a gradient); on a base
      in 4 bits every product does (``hangs_inputs``).
    """

    rank: int
    targets: frozenset[str]
    quantised: str = "none"
    drop: bool = False
    wide: bool = False
    kernels: str = "apart"
    inputs: bool = False
    wide_experts: bool = False

    @property
    def hangs_inputs(self) -> bool:
        """Whether a quantised product keeps its input on its autograd node, as ctx.tensors.

        bitsandbytes, autograd/_functions.py: MatMul8bitLt does, MatMul4Bit did before 0.43.2 (pull
        request 1270), which ``inputs`` says.
        """
        return self.quantised == "int8" or (self.inputs and self.quantised.startswith("nf4"))

    def on(self, name: str) -> bool:
        """Whether the product ``name`` of a layer has an adapter."""
        return ALL_LINEAR in self.targets or not self.targets.isdisjoint({name, plain_name(name)})


def plain_name(name: str) -> str:
    """A product's name without prefixes.

    These are the prefix of a shared layer, of one of two attentions, or of an image stream.
    Libraries match the end of a name. Where text is a separate stream, diffusers calls its products
    add_q_proj and so on.
    """
    for prefix in ("shared.", "image.", "self.", "cross."):
        name = name.removeprefix(prefix)
    return name


def adapters(
    rank: int,
    targets: str,
    quantised_base: str,
    dropout: float = 0.0,
    wide: bool = False,
    kernels: str = "apart",
    inputs: bool = False,
    wide_experts: bool = False,
    frozen: bool = False,
) -> Adapters | None:
    """The adapters that settings describe; None without any. Raises ValueError.

    ``frozen``: of rank 0, so that nothing of the model is trained and gradients pass through it.
    """
    check_names(quantised_base=(quantised_base, QUANTISED), lora_kernels=(kernels, LORA_KERNELS))
    if rank < 0:
        raise ValueError(f"lora_rank {rank} must not be negative")
    if frozen:
        if rank:
            raise ValueError("lora_rank trains adapters of a model that frozen_model freezes")
        return Adapters(0, frozenset(), quantised_base)
    if not rank:
        if quantised_base != "none":
            raise ValueError(f"quantised_base {quantised_base!r} needs a lora_rank")
        if targets:
            raise ValueError(f"lora_targets {targets!r} need a lora_rank")
        if dropout:
            raise ValueError(f"lora_dropout {dropout!r} needs a lora_rank")
        if wide:
            raise ValueError("lora_wide needs a lora_rank")
        return None
    if wide and kernels == "joined":
        raise ValueError("lora_kernels 'joined' has no adapters in fp32: leave out lora_wide")
    words = [w.strip() for w in (targets or ALL_LINEAR).split(",") if w.strip()]
    wanted = frozenset(ours for word in words for ours in TARGETS.get(word, (word,)))
    return Adapters(
        rank, wanted, quantised_base, dropout > 0, wide, kernels, inputs, wide_experts
    )  # fmt: skip


def assumptions(chosen: Adapters | None) -> tuple[str, ...]:
    """Sentences on what a prediction with adapters assumes."""
    if chosen is None:
        return ()
    base = "" if chosen.quantised == "none" else f" in {chosen.quantised}"
    drop = "with" if chosen.drop else "without"
    own = f"adapters of rank {chosen.rank} {drop} dropout; " if chosen.rank else ""
    return (f"{own}the frozen base{base} is sharded by zero3, whole on every rank otherwise",)
