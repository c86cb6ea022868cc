"""One rank's part of a model: columns and heads over tensor ranks, layers over pipeline stages.

With tensor parallelism (Shoeybi et al. 2019) a rank's layer has the same hidden width, fewer heads,
a narrower MLP and a part of the vocabulary; the rank's part is the architecture built with those
numbers. Sequence parallelism (Korthikanti et al. 2022) then divides what every rank still holds
whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from simcore.base.errors import InvalidConfig
from simcore.base.record import dataclass, replace
from simcore.workload.archs.lm_layer import ATTENDING, last_products
from simcore.workload.graph import (
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

#: Settings that tensor ranks divide, by architecture; other architectures cannot be divided.
_DIVIDED = {
    "transformer": (
        "heads", "windowed_heads", "vocab", "ffn", "expert_ffn", "shared_ffn",
        "ssm_heads", "ssm_groups", "ssm_inner", "delta_key_heads", "delta_value_heads",
    ),
    "mmdit": ("heads", "ffn"),
    "wan": ("heads", "ffn"),
}  # fmt: skip
#: Settings that the number of tensor ranks must divide, with their defaults, by letter of the mixer
#: pattern. Tensor ranks take whole heads and whole groups, and no two ranks share one
#: (Megatron-Core, ssm/mamba_mixer.py, ssm/gated_delta_net.py).
_OF_MAMBA = {"ssm_heads": 0, "ssm_groups": 1}
_WHOLE = {
    "m": _OF_MAMBA, "h": _OF_MAMBA, "s": {"ssm_inner": 0},
    "g": {"delta_key_heads": 0, "delta_value_heads": 0}, "k": {"delta_value_heads": 0},
}  # fmt: skip
#: Settings of layers that tensor ranks do not divide, and why.
_UNDIVIDED = {
    "compress_pattern": "tp must be 1: every rank would hold the one head of compressed keys whole",
    "inner_norms": "tp must be 1: norms of last products' inputs (inner_norms) are over all heads",
}
#: Sums of a layer's output over tensor ranks in forward (backward has as many), for architectures
#: that do not have two (Shoeybi et al. 2019). Wan's layer has three sublayers, and its queries and
#: keys are normalised over all heads: ranks gather q, k and the q of cross-attention, each gather
#: half the traffic of a sum, and their gradients (DFM, dit_attention.py, layernorm_across_heads).
#: The keys of the caption are few and left out.
_SUMS_A_LAYER = {"wan": 3 + 3 / 2}
TENSOR_SUMS = 2.0
#: Words in names of ops that work on whole hidden rows: norms, the residual sum and ops next to it.
_WHOLE_ROWS = ("norm", "residual", "fork", "dropout", "positions", "tokens", "scale")
#: Products whose saved input is a whole hidden row, which sequence parallelism divides over ranks.
_WHOLE_INPUT = (
    "qkv", "q", "k", "v", "q_a", "kv_a", "gate", "up", "gate_up", "head", "router", "in_proj",
)  # fmt: skip

#: Products of which each tensor rank has some columns; the gradient of their input is summed over
#: ranks.
CUT_BY_COLUMNS = ("qkv", "q", "k", "v", "gate", "up", "gate_up", "in_proj")
#: Products of which each tensor rank has some rows; their output is summed over ranks.
CUT_BY_ROWS = ("out", "down", "out_proj")
#: Groups of these that read the same input where they are separate products.
ONE_INPUT = (("q", "k", "v"), ("gate", "up"))


@dataclass(frozen=True)
class Stage:
    """The part of a model that one pipeline rank holds.

    ``position``: place of the stage, counted from the input; ``n_layers``: its repeated layers.
    Stages with equal parts share one ``workload``.
    """

    workload: Workload
    position: int
    n_layers: int


def _divisors(whole: int, most: int) -> list[int]:
    return [d for d in range(1, min(whole, most) + 1) if whole % d == 0]


def _undivided_table(config: Mapping[str, Scalar]) -> dict[str, Scalar]:
    """Rows of the table of layers' inputs, which transformers' plans leave whole on each rank."""
    if not config.get("layer_input"):
        return {}
    return {"layer_input_vocab": int(config.get("layer_input_vocab", 0) or config["vocab"])}


def tensor_overrides(
    record: ModelRecord, tp: int, ep: int, expert_tp: int = 1
) -> dict[str, Scalar]:
    """The settings of the part that one tensor and expert rank holds.

    ``expert_tp``: a rank holds 1/``expert_tp`` of each expert's columns. Where tensor ranks hold
    different experts, it processes a fraction of the routed rows instead. Raises InvalidConfig with
    all violations.
    """
    if tp == 1 and ep == 1:
        return {}
    if tp > 1 and ep == 1 and tp == (record.traced or {}).get("tensor_ranks"):
        return {"tensor_ranks": tp}  # as the script that was captured divides it
    if captured := (record.traced or {}).get("tensor_ranks"):
        raise InvalidConfig(
            [f"{record.name}: the captured script divides it over {captured} tensor ranks: tp can "
             f"be {captured} or 1, and ep 1"]
        )  # fmt: skip
    if record.arch not in _DIVIDED:
        raise InvalidConfig(
            [f"{record.name}: only the architectures {', '.join(_DIVIDED)} can be divided over "
             f"tensor or expert ranks, not {record.arch}"]
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
    if tp > 1:
        problems += [what for key, what in _UNDIVIDED.items() if config.get(key)]
    for mixer in sorted(mixers & set(_WHOLE)):
        for key, usual in _WHOLE[mixer].items():
            if (whole := int(config.get(key, usual))) % tp:
                allowed = _divisors(whole, 64)
                problems.append(f"tp={tp} does not divide {key}={whole}; allowed here: {allowed}")
    if problems:
        raise InvalidConfig([f"{record.name}: {p}" for p in problems])
    overrides: dict[str, Scalar] = {"head_dim": int(config.get("head_dim", 0)) or hidden // heads}
    given = {"ffn": 4 * hidden, **config}
    for key in _DIVIDED[record.arch]:
        degree = expert_tp if key == "expert_ffn" else tp
        if value := int(given.get(key, 0)):
            overrides[key] = max(1, -(-value // degree))
    overrides["heads"] = max(1, heads // tp)
    if record.arch == "wan":
        overrides["qk_width"] = int(config.get("qk_width", 0)) or heads * int(overrides["head_dim"])
    if record.arch != "transformer":
        return overrides
    kv = int(config.get("kv_heads", 0)) or heads
    # Where there are fewer kv heads than ranks, each rank holds one whole head.
    overrides["kv_heads"] = max(1, kv // tp)
    if windowed := int(config.get("windowed_kv_heads", 0)):
        overrides["windowed_kv_heads"] = max(1, windowed // tp)
    if widths := str(config.get("ffn_widths", "")).split():
        overrides["ffn_widths"] = " ".join(str(-(-int(width) // tp)) for width in widths)
    overrides |= _undivided_table(config)
    if config.get("gathered_logits"):
        overrides["loss_vocab"] = int(config["vocab"])
    if experts:
        overrides["local_experts"] = experts // ep
        overrides["routed_share"] = expert_tp / tp
    return overrides


def tensor_sums(arch: str, config: Mapping[str, Scalar] | None = None) -> float:
    """Sums of a layer's output over tensor ranks in forward; backward has as many.

    There is one for each product that is divided by rows, averaged over the layers of ``config``.
    Mamba-1's second product is divided by rows too: ranks sum the step sizes, B and C, and their
    gradients (vLLM, mamba_mixer.py; Megatron-Core has no such layer).
    """
    if config and "tensor_sums" in config:
        return float(config["tensor_sums"])
    if arch != "transformer" or not config:
        return _SUMS_A_LAYER.get(arch, TENSOR_SUMS)
    mixers, feed_forward = str(config["mixer_pattern"]), str(config["expert_pattern"] or "d")
    layers = int(config["layers"])
    sums = TENSOR_SUMS / 2 * last_products(mixers, feed_forward, layers)
    if "s" not in mixers:
        return sums
    summed_width = int(config["ssm_rank"]) + 2 * int(config["ssm_state"])
    share = (mixers * layers)[:layers].count("s") / layers
    return sums + TENSOR_SUMS / 2 * share * summed_width / int(config["hidden"])


def splits(arch: str) -> bool:
    """Whether tensor ranks can divide an architecture."""
    return arch in _DIVIDED


def _scaled(kernel: Kernel, share: float) -> Kernel:
    return replace(
        kernel, low=kernel.low * share, high=kernel.high * share, relaid=kernel.relaid * share,
        raw_bytes=kernel.raw_bytes * share, indexed=kernel.indexed * share,
        mixed=kernel.mixed * share, autocasts=kernel.autocasts * share, rows=kernel.rows * share,
    )  # fmt: skip


def _sequence_parallel(block: Block, tp: int, gathered: bool) -> Block:
    share = 1.0 / tp

    def divided(op: Op) -> Op:
        parts = op.name.replace(".", " ").split()
        if parts[0] in ("qkv", "attention") and "out" in parts:
            return op
        if any(w.rstrip("0123456789") in _WHOLE_ROWS for w in parts):
            return replace(
                op,
                fwd=tuple(_scaled(k, share) for k in op.fwd),
                bwd=tuple(_scaled(k, share) for k in op.bwd),
                saved=op.saved * share,
                result=op.result * share,
            )
        if parts[-1] in _WHOLE_INPUT and parts[0] != "experts" and not gathered:
            return replace(op, saved=op.saved * share)
        return op

    return replace(
        block,
        ops=tuple(divided(op) for op in block.ops),
        boundary=block.boundary * share,
        recomputed=block.recomputed * share,
        offloaded=block.offloaded * share,
    )


@lru_cache(maxsize=256)
def sequence_parallel(workload: Workload, tp: int, gathered: bool = False) -> Workload:
    """The same part with norms, residual and their activations divided over the tensor ranks.

    ``gathered``: the gathered input of a product is saved, not gathered once more in backward.
    """
    if tp == 1:
        return workload
    return workload.replace(
        blocks=tuple(_sequence_parallel(b, tp, gathered) for b in workload.blocks)
    )


def layer_counts(workload: Workload) -> int:
    """Number of repeated layers of a model, which pipeline stages share out."""
    return len(workload.layer_starts)


def even_cut(n_layers: int, n_stages: int) -> tuple[int, ...]:
    """Layers of each stage, shared out evenly; a remainder goes to the stages in the middle.

    The first stage has the embedding and the last one the head, so the ends get fewer layers, as in
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
    """The pipeline stages, with ``sizes`` layers each; evenly many if these are not given.

    Blocks before the first layer belong to the first stage, blocks after the last layer to the last
    stage. ``one_table``: one rank holds both of these stages, and a table that they share once.
    Raises InvalidConfig if there are fewer layers than stages, or if ``sizes`` do not add up to the
    layers.
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


def _frozen_of_stage(net: Frozen, share: float) -> Frozen:
    """A frozen network of one stage; of the base weights under adapters, the layers' fraction."""
    return net if net.ops else replace(net, resident_numel=round(net.resident_numel * share))


def buffered(
    stages: tuple[Stage, ...], received: int, sent: int, logits_bytes: float
) -> tuple[Stage, ...]:
    """Stages that also hold pipeline buffers for each micro-batch in flight.

    ``received``: copies that a stage holds of the tensor received from the previous stage;
    ``sent``: copies of the tensor sent to the next one; both are as large as a layer's input.
    ``logits_bytes``: bytes per element of the logits that the last stage holds.
    """
    if not (received or sent or logits_bytes):
        return stages
    result = []
    for stage in stages:
        first, last = stage.position == 0, stage.position == len(stages) - 1
        copies = received * (not first) + sent * (not last)
        held = _with_buffers(stage.workload, copies, logits_bytes * last)
        result.append(replace(stage, workload=held))
    return tuple(result)


@lru_cache(maxsize=1000)
def _with_buffers(part: Workload, copies: int, logits_bytes: float) -> Workload:
    """The part with its buffers; equal parts are one object, as those of ``stretch``."""
    layer = next(b for b in part.blocks if b.recomputable)
    logits = max(op.saved.widest for op in part.blocks[part.order[-1]].ops)
    kept = Op(name="kept", fwd=(), saved=layer.boundary * copies)
    buffered = Saved(raw_bytes=logits_bytes * logits)
    last = Op(name="logits", fwd=(), saved=buffered, role="buffered_logits")
    ops = tuple(op for op in (kept, last) if op.saved != NOTHING)
    if not ops:
        return part
    # The buffers come before all other blocks, so that they are held until the backward of the
    # stage's first layer has run.
    blocks = (_buffers(ops), *part.blocks)
    return part.replace(blocks=blocks, order=(0, *(b + 1 for b in part.order)))


@lru_cache(maxsize=256)
def _buffers(ops: tuple[Op, ...]) -> Block:
    """A block that does nothing but keep what these ops save; equal ones are one object."""
    return Block(name="pipeline buffers", ops=ops)


def opposite_joined(stages: tuple[Stage, ...]) -> tuple[Stage, ...]:
    """Stages of a pipeline that is fed from both ends: rank s holds stages s and pp - 1 - s.

    The embedding and the head are then on one rank, which shares their table (DeepSeek-V3 2024,
    section 3.2.3); ``stages`` must have been made with ``one_table``.
    """
    pairs: dict[tuple[int, int], Workload] = {}  # equal pairs are one object, priced once
    made = []
    for s, stage in enumerate(stages):
        near, far = stages[min(s, len(stages) - 1 - s)], stages[max(s, len(stages) - 1 - s)]
        key = id(near.workload), id(far.workload)
        if key not in pairs:
            pairs[key] = joined(near.workload, far.workload)
        made.append(Stage(pairs[key], s, stage.n_layers + stages[-1 - s].n_layers))
    return tuple(made)


def joined(first: Workload, second: Workload) -> Workload:
    """Two parts of a model as one; the second runs after the first."""
    behind = len(first.blocks)
    return first.replace(
        blocks=first.blocks + second.blocks,
        order=first.order + tuple(b + behind for b in second.order),
        frozen=first.frozen + second.frozen,
        input_bytes=first.input_bytes + second.input_bytes,
    )


def stretch(workload: Workload, start: int, stop: int, *, one_table: bool = False) -> Workload:
    """The part of a model that runs from index ``start`` of ``order`` up to before ``stop``.

    Frozen networks and the input belong to the part with the first block. A head that shares the
    embedding's table gets its own table if the embedding is not on the same rank (``one_table``: it
    is, in another part), and so does a module that predicts a further token. Equal parts are one
    object, so that what is cached by a part is computed once for all cuts of a model.
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
        frozen=tuple(
            _frozen_of_stage(net, share) for net in workload.frozen if first or not net.ops
        ),
        input_bytes=workload.input_bytes if first else 0.0,
    )


def _own_tables(block: Block) -> tuple[Param, ...]:
    """Tables that a block's operators read and that another block, sharing them, holds."""
    for op in block.ops:
        if op.role == "next_tokens":
            return (Param(f"{op.name}.weight", round(op.bwd[0].weight)),)
    if all(op.role != "table_sum" for op in block.ops):
        return ()
    held = {p.name for p in block.params}
    products = ((f"{op.name}.weight", round(weight_grad_numel(op))) for op in block.ops)
    return tuple(Param(name, numel) for name, numel in products if numel and name not in held)


def _with_own_tables(blocks: list[Block]) -> list[Block]:
    """Blocks of a later stage, which holds its own copy of a table that the first stage has.

    Megatron-LM, module.py, initialize_word_embeddings, and models/gpt/gpt_model.py (an embedding
    where mtp_process is set); DeepSpeed, runtime/pipe/module.py, TiedLayerSpec: a module of each
    stage that uses it. The module that predicts a further token uses the head's copy too.
    """
    heads = [b for b in blocks if any(op.role == "table_sum" for op in b.ops)]
    holder = next((b for b in heads or blocks if _own_tables(b)), None)
    if holder is None:
        return blocks
    ops = tuple(op for op in holder.ops if op.role != "table_sum")
    with_tables = replace(holder, ops=ops, params=(*holder.params, *_own_tables(holder)))
    return [with_tables if b is holder else b for b in blocks]


@lru_cache(maxsize=1000)
def tied_numel(workload: Workload) -> int:
    """Elements of a table of which the first and last pipeline stage each hold a copy.

    The stages must keep their copies equal.
    """
    return max((sum(p.numel for p in _own_tables(b)) for b in workload.blocks), default=0)
