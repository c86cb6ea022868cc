"""One rank's part of a model: columns and heads over tensor ranks, layers over pipeline stages.

Tensor parallelism (Shoeybi et al. 2019) leaves a layer of the same hidden width with fewer heads,
a narrower MLP and a part of the vocabulary, so a rank's part is the architecture built with those
numbers. Sequence parallelism (Korthikanti et al. 2022) then cuts what is left whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

from simcore.base.errors import InvalidConfig
from simcore.workload.archs.lm_kinds import ATTENDING, last_products
from simcore.workload.graph import (
    NEXT_TOKENS,
    TIE,
    Block,
    Frozen,
    Kernel,
    Op,
    Param,
    Workload,
    weight_grad_numel,
)
from simcore.workload.models import ModelRecord, Scalar
from simcore.workload.saved import NOTHING, Saved

#: What tensor ranks divide of an architecture that they can cut.
_DIVIDED = {
    "transformer": (
        "heads", "vocab", "ffn", "expert_ffn", "shared_ffn",
        "ssm_heads", "ssm_groups", "ssm_inner", "delta_key_heads", "delta_value_heads",
    ),
    "mmdit": ("heads", "ffn"),
    "wan": ("heads", "ffn"),
}  # fmt: skip
#: Of layers by letter of a mixer's pattern, what must divide: tensor ranks take whole heads and
#: groups (Megatron-Core, ssm/mamba_mixer.py, ssm/gated_delta_net.py), none of which two may share.
_OF_MAMBA = {"ssm_heads": 0, "ssm_groups": 1}
_WHOLE = {
    "m": _OF_MAMBA, "h": _OF_MAMBA, "s": {"ssm_inner": 0},
    "g": {"delta_key_heads": 0, "delta_value_heads": 0}, "k": {"delta_value_heads": 0},
}  # fmt: skip
#: How often a layer sums its output up over tensor ranks, in forward and again in backward, where
#: it is not twice (Shoeybi et al. 2019). Wan's has three sublayers, and its queries and keys are
#: normalised over all heads: ranks gather q, k and the q of cross-attention, half of a sum each,
#: and their gradients (DFM, dit_attention.py, layernorm_across_heads); the caption's keys are few.
_SUMS_A_LAYER = {"wan": 3 + 3 / 2}
TENSOR_SUMS = 2.0
#: Ops of a layer that work on whole hidden rows: norms, the residual sum and what belongs to it.
_WHOLE_ROWS = ("norm", "residual", "fork", "dropout", "positions", "tokens", "scale")
#: Products whose kept input is a whole hidden row, cut over the ranks by sequence parallelism.
_WHOLE_INPUT = (
    "qkv", "q", "k", "v", "q_a", "kv_a", "gate", "up", "gate_up", "head", "router", "in_proj",
)  # fmt: skip

#: Products of a layer that tensor ranks have columns of; the gradient of their input is summed up.
CUT_BY_COLUMNS = ("qkv", "q", "k", "v", "gate", "up", "gate_up", "in_proj")
#: Those of them that read one input, where they are products apart.
ONE_INPUT = (("q", "k", "v"), ("gate", "up"))


@dataclass(frozen=True)
class Stage:
    """The part of one pipeline rank. ``position`` counts from the input; ``n_layers`` repeated.

    Stages of equal parts share one ``workload``.
    """

    workload: Workload
    position: int
    n_layers: int


def _divisors(whole: int, most: int) -> list[int]:
    return [d for d in range(1, min(whole, most) + 1) if whole % d == 0]


def tensor_overrides(
    record: ModelRecord, tp: int, ep: int, expert_tp: int = 1
) -> dict[str, Scalar]:
    """Settings of one tensor and expert rank's part. Raises InvalidConfig with every violation.

    Of an expert's columns a rank has 1/``expert_tp``; a part of the routed rows instead where
    tensor ranks hold different experts.
    """
    if tp == 1 and ep == 1:
        return {}
    if record.arch not in _DIVIDED:
        raise InvalidConfig(
            [f"{record.name}: tensor and expert ranks cut architectures "
             f"{', '.join(_DIVIDED)}, not {record.arch}"]
        )  # fmt: skip
    config = record.config
    heads, hidden = int(config["heads"]), int(config["hidden"])
    problems = []
    mixers = set(str(config.get("mixer_pattern", "a")))
    if heads % tp and mixers & (ATTENDING | {"l"}):
        allowed = _divisors(heads, 64)
        problems.append(f"tp={tp} does not divide heads={heads}; allowed here: {allowed}")
    experts = int(config.get("experts", 0))
    if ep > 1 and (not experts or experts % ep):
        problems.append(
            f"ep={ep} does not divide experts={experts}; allowed here: "
            f"{_divisors(experts, experts)}"
            if experts else
            f"no experts to spread over ep={ep}"
        )  # fmt: skip
    for mixer in sorted(mixers & set(_WHOLE)):
        for key, usual in _WHOLE[mixer].items():
            if (whole := int(config.get(key, usual))) % tp:
                allowed = _divisors(whole, 64)
                problems.append(f"tp={tp} does not divide {key}={whole}; allowed here: {allowed}")
    if problems:
        raise InvalidConfig([f"{record.name}: {p}" for p in problems])
    out: dict[str, Scalar] = {"head_dim": int(config.get("head_dim", 0)) or hidden // heads}
    given = {"ffn": 4 * hidden, **config}
    for key in _DIVIDED[record.arch]:
        degree = expert_tp if key == "expert_ffn" else tp
        if value := int(given.get(key, 0)):
            out[key] = max(1, -(-value // degree))
    out["heads"] = max(1, heads // tp)
    if record.arch == "wan":
        out["qk_width"] = int(config.get("qk_width", 0)) or heads * int(out["head_dim"])
    if record.arch != "transformer":
        return out
    kv = int(config.get("kv_heads", 0)) or heads
    # Fewer kv heads than ranks: each rank keeps a whole one.
    out["kv_heads"] = max(1, kv // tp)
    if config.get("gathered_logits"):
        out["loss_vocab"] = int(config["vocab"])
    if experts:
        out["local_experts"] = experts // ep
        out["routed_share"] = expert_tp / tp
    return out


def tensor_sums(arch: str, config: Mapping[str, Scalar] | None = None) -> float:
    """How often a layer of an architecture sums its output up over tensor ranks, each way.

    Once for each product cut by rows, on average over the layers of ``config``. Mamba-1's second
    product is cut by rows too: ranks sum up steps, B and C, and their gradients (vLLM,
    mamba_mixer.py, of which Megatron-Core has none).
    """
    if arch != "transformer" or not config:
        return _SUMS_A_LAYER.get(arch, TENSOR_SUMS)
    mixers, fed = str(config["mixer_pattern"]), str(config["expert_pattern"] or "d")
    layers = int(config["layers"])
    sums = TENSOR_SUMS / 2 * last_products(mixers, fed, layers)
    if "s" not in mixers:
        return sums
    narrow = int(config["ssm_rank"]) + 2 * int(config["ssm_state"])
    share = (mixers * layers)[:layers].count("s") / layers
    return sums + TENSOR_SUMS / 2 * share * narrow / int(config["hidden"])


def splits(arch: str) -> bool:
    """Whether tensor ranks can cut an architecture."""
    return arch in _DIVIDED


def _thin(kernel: Kernel, share: float) -> Kernel:
    return replace(
        kernel, low=kernel.low * share, high=kernel.high * share, relaid=kernel.relaid * share,
        raw_bytes=kernel.raw_bytes * share, indexed=kernel.indexed * share,
        mixed=kernel.mixed * share, autocasts=kernel.autocasts * share, rows=kernel.rows * share,
    )  # fmt: skip


def _sequence_parallel(block: Block, tp: int, gathered: bool) -> Block:
    share = 1.0 / tp

    def cut(op: Op) -> Op:
        words = op.name.replace(".", " ").split()
        if words[0] in ("qkv", "attention") and "out" in words:
            return op
        if any(w.rstrip("0123456789") in _WHOLE_ROWS for w in words):
            return replace(
                op,
                fwd=tuple(_thin(k, share) for k in op.fwd),
                bwd=tuple(_thin(k, share) for k in op.bwd),
                saved=op.saved * share,
                result=op.result * share,
            )
        if words[-1] in _WHOLE_INPUT and not gathered:
            return replace(op, saved=op.saved * share)
        return op

    return replace(
        block,
        ops=tuple(cut(op) for op in block.ops),
        boundary=block.boundary * share,
        remade=block.remade * share,
        away=block.away * share,
    )


@lru_cache(maxsize=256)
def sequence_parallel(workload: Workload, tp: int, gathered: bool = False) -> Workload:
    """The same part with norms, residual and their activations cut over the tensor ranks.

    ``gathered``: what products read is kept as it was gathered, not gathered again in backward.
    """
    if tp == 1:
        return workload
    return workload.replace(
        blocks=tuple(_sequence_parallel(b, tp, gathered) for b in workload.blocks)
    )


def layer_counts(workload: Workload) -> int:
    """How many repeated layers a model has: what pipeline stages divide."""
    return len(workload.layer_starts)


def even_cut(n_layers: int, n_stages: int) -> tuple[int, ...]:
    """Layers of each stage dealt out evenly; what does not divide goes to the middle.

    The last stage has the head, the first the embedding: the ends are the shorter ones, as in
    Megatron-LM with embedding and loss counted as layers.
    """
    base, longer = divmod(n_layers, n_stages)
    if longer < n_stages - 1:
        return tuple(base + (1 <= s <= longer) for s in range(n_stages))
    return tuple(base + (s < longer) for s in range(n_stages))


@lru_cache(maxsize=256)
def pipeline_stages(
    workload: Workload, pp: int, sizes: tuple[int, ...] | None = None, *, one_table: bool = False
) -> tuple[Stage, ...]:
    """The stages of ``sizes`` layers each, evenly where these are not given.

    What comes before the first layer is the first stage's, what follows the last layer the last
    stage's. ``one_table``: a rank holds both of these, and what they share once. Raises
    InvalidConfig where there are fewer layers than stages, or not as many.
    """
    layers = workload.layer_starts
    if len(layers) < pp:
        raise InvalidConfig([f"{workload.name}: pp={pp} is more than its {len(layers)} layers"])
    sizes = even_cut(len(layers), pp) if sizes is None else sizes
    if sum(sizes) != len(layers):
        raise InvalidConfig(
            [f"{workload.name}: stages of {sum(sizes)} layers; it has {len(layers)}"]
        )
    stages, at = [], 0
    for s, size in enumerate(sizes):
        start = 0 if s == 0 else layers[at]
        stop = len(workload.order) if s == pp - 1 else layers[at + size]
        stages.append(Stage(stretch(workload, start, stop, one_table=one_table), s, size))
        at += size
    return tuple(stages)


def _part(net: Frozen, share: float) -> Frozen:
    """A frozen network of one stage; of adapters' base, which lies in the layers, its share."""
    return net if net.ops else replace(net, resident_numel=round(net.resident_numel * share))


def buffered(
    stages: tuple[Stage, ...], received: int, sent: int, logits_bytes: float
) -> tuple[Stage, ...]:
    """Stages whose pipeline buffers hold what they exchange as long as a micro-batch is in flight.

    ``received``, ``sent``: copies of a layer's input; ``logits_bytes``: on the last stage, of an
    element of the logits.
    """
    if not (received or sent or logits_bytes):
        return stages
    made: dict[tuple[int, bool, bool], Workload] = {}
    out = []
    for stage in stages:
        ends = stage.position == 0, stage.position == len(stages) - 1
        key = (id(stage.workload), *ends)
        if key not in made:
            made[key] = _with_buffers(
                stage.workload, received * (not ends[0]) + sent * (not ends[1]),
                logits_bytes * ends[1],
            )  # fmt: skip
        out.append(replace(stage, workload=made[key]))
    return tuple(out)


def _with_buffers(part: Workload, copies: int, logits_bytes: float) -> Workload:
    layer = next(b for b in part.blocks if b.recomputable)
    logits = max(widest(op.saved) for op in part.blocks[part.order[-1]].ops)
    kept = layer.boundary * copies + Saved(raw_bytes=logits_bytes * logits)
    if kept == NOTHING:
        return part
    # before all others: held until the backward of the stage's first layer has run
    held = Block(name="pipeline buffers", ops=(Op(name="kept", fwd=(), saved=kept),))
    return part.replace(blocks=(held, *part.blocks), order=(0, *(b + 1 for b in part.order)))


def widest(saved: Saved) -> float:
    """Elements of the widest tensor that an op keeps; bytes alone are those of fp32."""
    return max(saved.low, saved.high, saved.raw_bytes / 4.0)


def opposite_joined(stages: tuple[Stage, ...]) -> tuple[Stage, ...]:
    """Stages of a pipeline fed from both ends: rank s holds stage s and stage pp - 1 - s.

    So the embedding and the head lie on one rank, which shares their table (DeepSeek-V3 2024,
    section 3.2.3): the stages are those of ``one_table``.
    """
    pairs: dict[tuple[int, int], Workload] = {}  # equal pairs are one part, and priced once
    made = []
    for s, stage in enumerate(stages):
        near, far = stages[min(s, len(stages) - 1 - s)], stages[max(s, len(stages) - 1 - s)]
        key = id(near.workload), id(far.workload)
        if key not in pairs:
            pairs[key] = joined(near.workload, far.workload)
        made.append(Stage(pairs[key], s, stage.n_layers + stages[-1 - s].n_layers))
    return tuple(made)


def joined(first: Workload, second: Workload) -> Workload:
    """Two parts of a model as one, the second behind the first."""
    behind = len(first.blocks)
    return first.replace(
        blocks=first.blocks + second.blocks,
        order=first.order + tuple(b + behind for b in second.order),
        frozen=first.frozen + second.frozen,
        input_bytes=first.input_bytes + second.input_bytes,
    )


def stretch(workload: Workload, start: int, stop: int, *, one_table: bool = False) -> Workload:
    """The part of a model from one place in ``order`` to before another.

    Frozen networks and the input are what the first block needs. A head whose table is the
    embedding's has one of its own where the embedding is not there too (``one_table``: it is, in
    another stretch of the rank's), and so has a module that predicts a further token. Equal
    stretches are one object, whoever asks: what is cached by it is worked out once for all cuts of
    a model.
    """
    return _stretch(workload, start == 0, workload.order[start:stop], one_table)


@lru_cache(maxsize=1000)
def _stretch(workload: Workload, first: bool, order: tuple[int, ...], one_table: bool) -> Workload:
    used = sorted(set(order))
    index: Mapping[int, int] = {b: i for i, b in enumerate(used)}
    share = sum(workload.blocks[b].recomputable for b in order) / max(1, layer_counts(workload))
    blocks = [workload.blocks[b] for b in used]
    if not (first or one_table):
        blocks = _with_own_tables(blocks)
    return workload.replace(
        blocks=tuple(blocks),
        order=tuple(index[b] for b in order),
        frozen=tuple(_part(net, share) for net in workload.frozen if first or not net.ops),
        input_bytes=workload.input_bytes if first else 0.0,
    )


def _own_tables(block: Block) -> tuple[Param, ...]:
    """Matrices that a block's operators read and another block holds, which shares them."""
    for op in block.ops:
        if op.name == NEXT_TOKENS:
            return (Param(f"{op.name}.weight", round(op.bwd[0].weight)),)
    if all(op.name != TIE for op in block.ops):
        return ()
    held = {p.name for p in block.params}
    products = ((f"{op.name}.weight", round(weight_grad_numel(op))) for op in block.ops)
    return tuple(Param(name, numel) for name, numel in products if numel and name not in held)


def _with_own_tables(blocks: list[Block]) -> list[Block]:
    """Blocks of a later stage, which keeps one copy of a table that the first has too.

    Megatron-LM, module.py, initialize_word_embeddings, and models/gpt/gpt_model.py (an embedding
    where mtp_process is set); DeepSpeed, runtime/pipe/module.py, TiedLayerSpec: a module of each
    stage that uses it. A head's table serves the module that predicts a further token too.
    """
    heads = [b for b in blocks if any(op.name == TIE for op in b.ops)]
    holder = next((b for b in heads or blocks if _own_tables(b)), None)
    if holder is None:
        return blocks
    ops = tuple(op for op in holder.ops if op.name != TIE)
    kept = replace(holder, ops=ops, params=(*holder.params, *_own_tables(holder)))
    return [kept if b is holder else b for b in blocks]


def tied_numel(workload: Workload) -> int:
    """Elements of what the first and the last stage of a pipeline both hold and must keep equal."""
    return max((sum(p.numel for p in _own_tables(b)) for b in workload.blocks), default=0)
