"""How context-parallel ranks share a layer's attention: what they exchange, and how often.

ring        keys and values travel round a ring while attention over other blocks is computed (Liu
            et al. 2023; Transformer Engine's p2p)
all-gather  keys and values are gathered before attention, and their gradients reduced (Grattafiori
            et al. 2024, 3.3.2)
ulysses     every rank exchanges its tokens of all heads for all tokens of some heads, and back:
            all-to-alls of q, k, v and the output (Jacobs et al. 2023, 3.2)

Layers of Mamba-2 and gated DeltaNet can only be shared the ulysses way: tokens are exchanged for
heads before the convolution and back after the scan (Megatron-Core, ssm/mamba_context_parallel.py;
ssm/gated_delta_net.py since Megatron-LM's pull request 2642).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Self

from simcore.base.arrays import Array
from simcore.base.errors import InvalidConfig
from simcore.base.record import dataclass
from simcore.physics.collectives import Collective, Group, collective_time_s
from simcore.step.parallel.layer_ranks import DividedJob, LayerRanks
from simcore.strategy.layout import CpComm, Layout
from simcore.strategy.precision import Precision
from simcore.workload.archs.lm_layer import ATTENDING, RECURRENT
from simcore.workload.graph import FLASH_KINDS, Block, Kernel, Op, Workload
from simcore.workload.models import ModelRecord, Scalar
from simcore.workload.resolve import ModelSource
from simcore.workload.saved import NOTHING, Saved

#: Tensors that Ulysses exchanges by all-to-all: q, k, v and the output.
_TURNED = 4
#: Letters of a mixer pattern that stand for layers with Mamba-2 and with gated DeltaNet.
_OF_MAMBA, _OF_DELTA = frozenset("mh"), frozenset("g")
_SHARED = _OF_MAMBA | _OF_DELTA
#: The ops of such layers that need all tokens of a head.
_SCANS = ("mixer.scan", "mixer.rule")
#: Names of recurrent layers, by their letter in a mixer pattern.
_NAMES = {
    "m": "Mamba-2",
    "s": "Mamba-1",
    "h": "Mamba-2",
    "g": "gated DeltaNet",
    "k": "Kimi Delta Attention",
    "l": "lightning attention",
    "c": "convolution",
}


@dataclass(frozen=True)
class Way:
    """How context ranks exchange attention's tensors.

    ``op``: collective whose formula prices one exchange; ``sent``: collective that NCCL runs.
    ``forward``, ``backward``: exchanges a layer in each pass. ``seen_frac``: exposed share of the
    exchange's time, not hidden under attention over other blocks.
    """

    op: Collective
    sent: str
    forward: float
    backward: float
    seen_frac: float


#: Forward receives keys and values once; backward receives them again and sends their gradients.
#: Gathered or all-to-all tensors are needed before attention begins, so that nothing hides them.
WAYS: Mapping[CpComm, Way] = {
    "ring": Way("all_gather", "send_recv", 1.0, 2.0, 0.5),
    "all-gather": Way("all_gather", "all_gather", 1.0, 2.0, 1.0),
    "ulysses": Way("all_to_all", "all_to_all", _TURNED, _TURNED, 1.0),
}


@dataclass(frozen=True, kw_only=True)
class ContextRanks(LayerRanks):
    """Ranks that share the tokens of every sample; ``way``: how they exchange attention's."""

    name = "context parallel"

    way: Way

    @classmethod
    def of(cls, job: DividedJob) -> Self:
        """The context ranks of a job. Raises InvalidConfig where they cannot share its heads."""
        layout, strategy, way = job.layout, job.strategy, WAYS[job.layout.cp_comm]
        heads = heads_of(job.record.name, job.config, layout)
        again_frac = 1.0 if "core_attn" in strategy.recompute_modules else job.repeated_frac
        sent = elements(
            heads,
            layout,
            job.workload.tokens_per_sample,
            mixers_of(job.config, layout),
            attending_frac(job.config),
        )
        return cls(
            ranks=layout.cp,
            stride=float(layout.tp),
            sample_bytes=sent
            * strategy.precision.low_bytes
            * sent_frac(job.config, strategy.precision, layout),
            forward=way.forward,
            backward=way.backward + again_frac * way.forward,
            seen_frac=way.seen_frac,
            way=way,
        )

    @staticmethod
    def refused(record: ModelSource, layout: Layout, overrides: Mapping[str, Scalar]) -> list[str]:
        """Violations where ranks would divide a layer whose state runs along the sequence."""
        if layout.cp == 1 or not isinstance(record, ModelRecord):
            return []
        config = record.settings(overrides)
        letters = set(str(config.get("mixer_pattern", "a"))) & RECURRENT
        if not letters - _SHARED:
            return _unshared(record.name, config, layout) if letters else []
        named = " and ".join(sorted({_NAMES[x] for x in letters}))
        return [
            f"{record.name}: how context ranks share {named} layers is not modelled: "
            "use cp=1, with tp for long sequences"
        ]

    @staticmethod
    def divided(part: Workload, job: DividedJob) -> Workload:
        """A context rank's part: with the copies that an exchange of tokens for heads needs.

        Where keys and values are gathered, each rank holds those of all tokens during attention.
        """
        layout, heads = job.layout, heads_of(job.record.name, job.config, job.layout)
        if heads is None or layout.cp == 1 or layout.cp_comm == "ring":
            return part
        if layout.cp_comm == "all-gather":
            return gathered(part, heads, layout.cp)
        modules, precision = job.strategy.recompute_modules, job.strategy.precision
        sent = sent_frac(job.config, precision, layout)
        return turned(part, heads, modules, mixers_of(job.config, layout), sent)

    @property
    def collectives(self) -> Mapping[Collective, float]:
        """The collective whose formula prices an exchange."""
        return {self.way.op: 1.0}

    @property
    def layer_times(self) -> Mapping[str, float]:
        """Exchanges of a layer by the operation that NCCL runs."""
        return {self.way.sent: self.forward + self.backward}

    def once_s(self, n_bytes: Array, group: Group) -> dict[str, Array]:
        """Seconds of one exchange by the operation that NCCL runs."""
        return {self.way.sent: collective_time_s(self.way.op, n_bytes[None, :], group)[0]}


@dataclass(frozen=True)
class Heads:
    """Elements a token of a tensor rank's queries, output, keys and values.

    ``copies``: ranks that hold the same key and value head; above 1 where there are more context
    ranks than such heads.
    """

    queries: int
    output: int
    keys: int
    values: int
    copies: int = 1

    @property
    def turned(self) -> int:
        """Elements a token of all four tensors, copies included."""
        return self.queries + self.output + self.copies * (self.keys + self.values)


@dataclass(frozen=True)
class Mixers:
    """Elements per token in a tensor rank's recurrent layers, and these layers' share of all.

    ``taken``: inputs of convolution and scan: of Mamba-2 z, x, B, C and dt, with B and C once for
    each rank that shares a group's heads, of gated DeltaNet q, k, v, the gate, beta and alpha.
    ``output``: result of the scan. ``copied``: elements of the extra copies of B and C.
    """

    taken: int
    output: int
    copied: int
    layers_frac: float

    @property
    def turned(self) -> int:
        """Elements a token of all six exchanges."""
        return self.taken + self.output


def _letters(config: Mapping[str, Scalar]) -> str:
    layers = int(config.get("layers") or 1)
    return (str(config.get("mixer_pattern", "a")) * layers)[:layers]


def mixers_of(config: Mapping[str, Scalar], layout: Layout) -> Mixers | None:
    """Widths of a tensor rank's recurrent layers; None where context ranks exchange none."""
    letters = _letters(config)
    if layout.cp == 1 or layout.cp_comm != "ulysses" or not set(letters) & _SHARED:
        return None
    share = sum(x in _SHARED for x in letters) / len(letters)
    if set(letters) & _OF_DELTA:
        keys, values = _delta_heads(config, layout)
        inner = values * int(config["delta_value_dim"])
        taken = 2 * keys * int(config["delta_key_dim"]) + 2 * inner + 2 * values
        return Mixers(taken, inner, 0, share)
    heads, groups = (int(config[key]) // layout.tp for key in ("ssm_heads", "ssm_groups"))
    inner, state = heads * int(config["ssm_head_dim"]), 2 * groups * int(config["ssm_state"])
    copied = (max(1, layout.cp // groups) - 1) * state
    return Mixers(2 * inner + state + copied + heads, inner, copied, share)


def _delta_heads(config: Mapping[str, Scalar], layout: Layout) -> tuple[int, int]:
    """Heads of keys and of values of a tensor rank's gated DeltaNet."""
    keys, values = (int(config[k]) // layout.tp for k in ("delta_key_heads", "delta_value_heads"))
    return keys, values


def heads_of(name: str, config: Mapping[str, Scalar], layout: Layout) -> Heads | None:
    """Widths of a tensor rank's attention; None where the architecture has no count of heads.

    Raises InvalidConfig where context ranks cannot share the heads: their number must divide the
    query heads; it must divide the key and value heads too, or be a multiple of them, which are
    then replicated (DeepSpeed, runtime/sequence_parallel/ulysses_sp.py).
    """
    turns = layout.cp > 1 and layout.cp_comm == "ulysses"
    if not isinstance(config.get("heads"), int):  # none, or one for each U-Net level
        if turns:
            raise InvalidConfig([f"{name}: cp-comm ulysses needs attention heads to share"])
        return None
    whole = int(config["heads"])
    heads, width = whole // layout.tp, int(config.get("head_dim", 0))
    width = width or int(config["hidden"]) // whole
    value = int(config.get("value_dim", 0)) or width
    kv = max(1, (int(config.get("kv_heads", 0)) or whole) // layout.tp)
    copies = 1
    if turns:
        problems = []
        each = f"heads / tp = {heads}" if layout.tp > 1 else f"heads={heads}"
        if heads % layout.cp:
            fits = [d for d in range(1, heads + 1) if heads % d == 0]
            problems.append(f"cp={layout.cp} does not divide {each}, which cp-comm ulysses shares; "
                            f"allowed here: {fits}")  # fmt: skip
        elif kv % layout.cp and layout.cp % kv:
            problems.append(f"cp={layout.cp} and {kv} key heads a tensor rank: one must divide the "
                            "other with cp-comm ulysses")  # fmt: skip
        if problems:
            raise InvalidConfig([f"{name}: {p}" for p in problems])
        copies = max(1, layout.cp // kv)
    return Heads(heads * width, heads * value, kv * width, kv * value, copies)


def _unshared(name: str, config: Mapping[str, Scalar], layout: Layout) -> list[str]:
    """Violations where context ranks share the heads of Mamba-2 or of gated DeltaNet."""
    of_delta = set(_letters(config)) & _OF_DELTA
    if layout.cp_comm != "ulysses":
        named = _NAMES["g" if of_delta else "m"]
        return [
            f"{name}: context ranks can share {named} layers only by exchanging tokens for heads: "
            "use cp-comm ulysses (Megatron-Core's a2a)"
        ]
    if of_delta:
        keys = ("delta_key_heads", "delta_value_heads")
        return [
            f"{name}: cp={layout.cp} does not divide {key} / tp = {heads}"
            for key, heads in zip(keys, _delta_heads(config, layout), strict=True)
            if heads % layout.cp
        ]
    heads, groups = (int(config[key]) // layout.tp for key in ("ssm_heads", "ssm_groups"))
    problems = []
    if heads % layout.cp:
        problems.append(f"cp={layout.cp} does not divide ssm_heads / tp = {heads}")
    if groups % layout.cp and layout.cp % groups:
        problems.append(f"cp={layout.cp} and {groups} groups a tensor rank: one must divide the "
                        "other")  # fmt: skip
    return [f"{name}: {p}" for p in problems]


def sent_frac(config: Mapping[str, Scalar], precision: Precision, layout: Layout) -> float:
    """Bytes of an exchanged element over those of the run's tensors outside of products.

    Attention in 8 bits with a scale a tensor casts before it exchanges tokens for heads, and casts
    back afterwards: q, k, v and the output, and their gradients, travel in 8 bits (Transformer
    Engine 2.13, context_parallel.py, AttnFuncWithCPAndQKVOA2A: combine_and_quantize, delayed
    scaling). With a scale a block (MXFP8) a cast needs whole sequences, after the exchange.
    """
    blocks = precision.micro_scaled and precision.operand_bytes >= 1.0
    in_8_bits = config.get("attention") == "cudnn_fp8" and precision.operand_bytes and not blocks
    return 1.0 / precision.low_bytes if in_8_bits and layout.cp_comm == "ulysses" else 1.0


def elements(
    heads: Heads | None, layout: Layout, tokens: float, mixers: Mixers | None = None,
    attending_frac: float = 1.0,
) -> float:  # fmt: skip
    """Elements a sample of one exchange: keys and values gathered, or what a rank sends all-to-all.

    Where layers differ, the mean over layers, for as many exchanges as attention has.
    """
    if heads is None:
        return 0.0
    if mixers is not None:
        turned = attending_frac * heads.turned + mixers.layers_frac * mixers.turned
        return tokens / layout.cp * turned / _TURNED
    if layout.cp_comm == "ulysses":
        return tokens / layout.cp * heads.turned / _TURNED
    return tokens * (heads.keys + heads.values)


@lru_cache(maxsize=256)
def gathered(part: Workload, heads: Heads, ranks: int) -> Workload:
    """A part of the model whose attention reads keys and values of all ranks from one buffer.

    The buffer is gathered anew in backward, beside the gradients of all of it that are reduced
    (Transformer Engine, attention/dot_product_attention/context_parallel.py,
    AttnFuncWithCPAndKVAllGather; torch/distributed/tensor/experimental/_attention.py,
    _AllGatherRotater). Ops count all tokens, of which the engine gives each rank its share.
    """
    whole = Saved(low=ranks * part.tokens_per_sample * (heads.keys + heads.values))

    def of(op: Op) -> Op:
        flash = any(k.kind in FLASH_KINDS for k in op.fwd)
        return replace(op, beside=whole) if flash else op

    return part.replace(blocks=tuple(replace(b, ops=tuple(map(of, b.ops))) for b in part.blocks))


@lru_cache(maxsize=256)
def turned(
    part: Workload,
    heads: Heads,
    modules: tuple[str, ...],
    mixers: Mixers | None = None,
    width_frac: float = 1.0,
) -> Workload:
    """A part of the model whose layers exchange tokens for heads, with the copies that this needs.

    The copies are those of all tokens; the engine divides them among the ranks. Each tensor is
    copied once: q, k and v so that what a rank sends is contiguous, the output after it has arrived
    (ulysses_sp.py: _combine_local_sequences, _partition_global_sequence). Attention saves its own
    output in addition to the one that the output projection saves, and each extra copy of the key
    and value heads. In recurrent layers the inputs are gathered, joined and reordered, and the
    result is reordered back and joined; the copies of B and C are saved. Where the recomputed
    ``modules`` of a layer (``workload.recompute``) include attention, these copies are made again
    during recomputation, and are not saved in between. ``width_frac``: that of
    :func:`sent_frac`.
    """
    tokens = part.tokens_per_sample
    moved = 2.0 * tokens * heads.turned * width_frac
    copy = Kernel(kind="copy", low=moved, launches=float(_TURNED))
    more = heads.output + (heads.copies - 1) * (heads.keys + heads.values)
    kept = Saved(low=tokens * more * width_frac)
    once = Op(name="attention.turns", fwd=(copy,), bwd=(copy,), saved=kept)
    twice = replace(once, bwd=(copy, copy), saved=NOTHING)

    def of(block: Block) -> Block:
        # with recomputation of whole layers, only the first ones may run again
        recomputed = "core_attn" in modules or ("layer" in modules and block.recomputed != NOTHING)
        if not recomputed:
            return replace(block, ops=(*block.ops, once))
        return replace(block, ops=(*block.ops, twice), recomputed=block.recomputed + kept)

    def mixed(block: Block) -> Block:
        if mixers is None or not any(op.name in _SCANS for op in block.ops):
            return block
        moved = Kernel(
            kind="copy", low=2.0 * tokens * (3 * mixers.taken + 2 * mixers.output), launches=12.0
        )  # fmt: skip
        kept = Saved(low=tokens * mixers.copied)
        op = Op(name="mixer.turns", fwd=(moved,), bwd=(moved,), saved=kept)
        return replace(block, ops=(*block.ops, op))

    return part.replace(
        blocks=tuple(mixed(of(b) if b.recomputable and _attends(b.ops) else b) for b in part.blocks)
    )


def attending_frac(config: Mapping[str, Scalar]) -> float:
    """Share of a model's layers that have attention."""
    letters = _letters(config)
    return sum(map(letters.count, ATTENDING)) / len(letters)


def _attends(ops: tuple[Op, ...]) -> bool:
    return any("attention" in op.name.split(".") for op in ops)
