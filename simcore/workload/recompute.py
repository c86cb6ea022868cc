"""Recompute and offload of parts of a layer, as a model in which time and memory follow.

The forward of a recomputed part runs a second time in backward, and nothing inside it is saved in
between. The engine itself handles full recompute (a whole layer from its input); this module
rewrites the ops of a model.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache

from simcore.base.errors import UnknownName
from simcore.base.record import dataclass, replace
from simcore.workload.graph import FLASH_KINDS, Block, Kernel, Op, Workload
from simcore.workload.saved import NOTHING, Saved

#: Name of the block after the layers, and of the product in it.
_HEAD = "head"
_NORMS = ("norm", "norm1", "norm2", "mlp.norm")
#: Ops between the two products of experts.
_ACTIVATION = ("clamps", "product")
#: Activations of dense feed-forward layers.
_POINTWISE = (
    "gelu", "gelu_new", "quick_gelu", "relu", "relu2", "silu", "activation",
)  # fmt: skip
_MLP = (
    "gate", "up", "up.bias", "gate_up", "down", *_POINTWISE, *_ACTIVATION,
)  # fmt: skip
#: Prefix of ops of a layer that has two streams (models_db/architectures/image_and_text.yaml).
_STREAM = re.compile(r"^(image|text)\.")
#: Products and exchanges of a mixture of experts.
_ROUTER, _EXCHANGES = "router", ("dispatch", "combine")
_LATENT = (
    "q_b", "kv_b", "rope.q", "rope.k", "rope.kv", "kv.expand", "values", "q_a_norm", "kv_a_norm",
)  # fmt: skip


@dataclass(frozen=True)
class Module:
    """A part of a layer that can be recomputed: the ops that run a second time.

    ``output_kept``: the op that follows still saves the part's result.
    """

    picks: Callable[[Op], bool]
    output_kept: bool
    meaning: str


def _core_attention(op: Op) -> bool:
    first, _, rest = op.name.partition(".")
    return first == "attention" and rest in ("", "scores", "scores_scale", "mask", "softmax",
                                             "scores_dropout", "cast", "context")  # fmt: skip


#: Recompute modules, named as in Megatron-Core's --recompute-modules.
MODULES: dict[str, Module] = {
    "core_attn": Module(_core_attention, True, "scores, softmax, dropout and their product with v "
                        "(Korthikanti et al. 2022, selective recompute)"),
    "layernorm": Module(lambda op: op.name in _NORMS, False, "norms before attention and MLP"),
    "mlp": Module(lambda op: _STREAM.sub("", op.name) in _MLP, True, "dense feed-forward layers"),
    "mlp_act": Module(lambda op: op.name in _POINTWISE, False,
                      "activation of dense feed-forward layers (llm.c's -r 1)"),
    "moe_act": Module(lambda op: op.name in _ACTIVATION, False, "activation of experts"),
    "moe": Module(lambda op: op.part in ("experts", "exchange") or op.name in _ACTIVATION, True,
                  "experts with dispatch and combination"),
    "shared_experts": Module(lambda op: op.part == "shared", True,
                             "the experts that every token passes"),
    "mla_up_proj": Module(lambda op: op.name in _LATENT, False,
                          "products that spread latent attention's q, k and v"),
    "layer": Module(lambda op: True, True, "whole layers, whose input alone is saved; for some "
                    "of them (Megatron-LM's --recompute-method block)"),
    "operators": Module(lambda op: False, False, "all but attention and every second product "
                        "(torchtitan's selective activation checkpointing by operator)"),
    "all_but_attention": Module(lambda op: False, False, "all but attention, whose q, k, v and "
                                "result are kept (MaxText's remat_policy custom with context, "
                                "query_proj, key_proj and value_proj on the device)"),
}  # fmt: skip


def modules_named(text: str) -> tuple[str, ...]:
    """Modules of a list such as ``core_attn`` or ``layernorm+moe_act``. Raises UnknownName."""
    words = [w.strip() for w in text.replace("+", ",").split(",") if w.strip()]
    for word in words:
        if word not in MODULES:
            raise UnknownName("recompute module", word, list(MODULES))
    return tuple(dict.fromkeys(words))


def left_out(block: Block) -> tuple[Op, ...]:
    """The last ops of a layer, which a recompute that stops early does not run.

    These are the ops after the last one whose saved tensors the recompute must produce. A product
    saves its input, so a layer's last product need not run, nor the sum after it; other ops save
    tensors that they compute themselves and have to run.
    """
    ops = block.ops
    keeps = [i for i, op in enumerate(ops) if op.fwd and op.saved != NOTHING]
    last = max(keeps, default=len(ops))
    by_input = last < len(ops) and ops[last].fwd[0].kind == "gemm"
    return ops[last if by_input else last + 1 :]


@lru_cache(maxsize=256)
def recomputed(
    workload: Workload, modules: tuple[str, ...], first: int = 0, stops_early: bool = False,
    exchanges: bool = False,
) -> Workload:  # fmt: skip
    """The model with ``modules`` of its repeated layers recomputed in backward.

    ``first``: number of layers, counted from the input, that are recomputed; 0: all of them.
    ``stops_early``: a recomputed whole layer runs no further than backward needs. ``exchanges``:
    ranks exchange the rows of experts, which recompute by operator does not repeat.
    """
    if not modules:
        return workload
    rewritten = {
        i: _recomputed_layer(b, modules, stops_early, exchanges)
        for i, b in enumerate(workload.blocks)
        if b.recomputable
    }  # fmt: skip
    if not first:
        blocks = (rewritten.get(i, b) for i, b in enumerate(workload.blocks))
        return workload.replace(blocks=tuple(blocks))
    return _with_first(workload, rewritten, first)


@lru_cache(maxsize=256)
def head_recomputed(workload: Workload) -> Workload:
    """The model whose final norm and head are recomputed in backward as its layers are.

    Norm and head each save their input; the loss after them is not recomputed.
    """
    return workload.replace(
        blocks=tuple(_recomputed_head(b) if b.name == _HEAD else b for b in workload.blocks)
    )


def _recomputed_head(block: Block) -> Block:
    inputs = {op.saved for op in block.ops if op.name == _HEAD}
    kept = inputs.pop() if inputs else NOTHING
    ops = tuple(
        _run_twice(op, kept if op.name in _NORMS else op.saved)
        if op.name in (*_NORMS, _HEAD) or op.role == "joined_logits"
        else op
        for op in block.ops
    )
    changed = replace(block, ops=ops)
    return replace(changed, recomputed=block.saved + block.recomputed - changed.saved)


@lru_cache(maxsize=256)
def offloaded(workload: Workload, first: int, *, checkpointed: bool = False) -> Workload:
    """The model whose first ``first`` repeated layers keep their activations in host memory.

    The activations are on the device in forward and, while the layer's backward runs, once more
    (Megatron-Core's --cpu-offloading-num-layers). ``checkpointed``: layers are recomputed as a
    whole, and only their inputs are offloaded (torchtune's enable_activation_offloading).
    """
    if not first:
        return workload
    offload = _with_input_offloaded if checkpointed else _offloaded_layer
    away = {i: offload(b) for i, b in enumerate(workload.blocks) if b.recomputable}
    return _with_first(workload, away, first)


@lru_cache(maxsize=256)
def held_by_nodes(workload: Workload) -> Workload:
    """The model whose recomputed layers keep what autograd's nodes refer to (``Op.held_by_node``).

    A checkpoint that is not reentrant builds the graph in forward and drops only what
    save_for_backward was given (torch/utils/checkpoint.py, saved_tensors_hooks).
    """

    def holding(block: Block) -> Block:
        held = sum((op.held_by_node for op in block.ops), NOTHING)
        return replace(block, boundary=block.boundary + held) if held != NOTHING else block

    return workload.replace(
        blocks=tuple(holding(b) if b.recomputable else b for b in workload.blocks)
    )


def _offloaded_layer(block: Block) -> Block:
    """A layer all of whose saved activations are offloaded."""
    ops = tuple(replace(op, saved=NOTHING) for op in block.ops)
    return replace(block, ops=ops, recomputed=block.saved + block.recomputed, offloaded=block.saved)


def _with_input_offloaded(block: Block) -> Block:
    """A recomputed layer whose input is offloaded.

    Backward copies the input back; the first op that saves it counts its memory.
    """
    return replace(block, offloaded=block.boundary)


def _with_first(workload: Workload, changed: Mapping[int, Block], first: int) -> Workload:
    """The model whose first ``first`` layers are those of ``changed``, by the number of a block."""
    blocks = (*workload.blocks, *changed.values())
    moved = {i: len(workload.blocks) + at for at, i in enumerate(changed)}
    order, remaining = [], first
    for i in workload.order:
        order.append(moved[i] if i in moved and remaining > 0 else i)
        remaining -= i in moved
    kept = sorted(set(order))
    index = {old: new for new, old in enumerate(kept)}
    return workload.replace(
        blocks=tuple(blocks[i] for i in kept), order=tuple(index[i] for i in order)
    )


def _recomputed_layer(
    block: Block, modules: tuple[str, ...], stops_early: bool, exchanges: bool
) -> Block:
    before = block.saved
    routed = any(op.part == "experts" for op in block.ops)
    for name in (m for m in modules if m != "mlp" or not routed):
        if name == "layer" and stops_early and (unrun := left_out(block)):
            run = replace(block, ops=block.ops[: -len(unrun)])
            kept = tuple(replace(op, saved=NOTHING) for op in unrun)
            block = replace(block, ops=(*_by_module(run, MODULES[name]), *kept))
            continue
        if name == "operators":
            ops = _by_operator(block, exchanges)
        elif name == "all_but_attention":
            ops = _around_attention(block, left_out(block) if stops_early else ())
        else:
            ops = _by_module(block, MODULES[name])
        block = replace(block, ops=ops)
    return replace(block, recomputed=before - block.saved)


def _run_twice(op: Op, saved: Saved) -> Op:
    return replace(op, bwd=(*op.fwd, *op.bwd), saved=saved)


def _by_module(block: Block, module: Module) -> tuple[Op, ...]:
    ops: list[Op] = []
    inside, first_op = False, ""
    for op in block.ops:
        if module.picks(op):
            from_outside = _from_outside(op) if first_op.startswith("attention") else NOTHING
            ops.append(_run_twice(op, from_outside if inside else op.saved))
            first_op = first_op if inside else op.name
            inside = True
            continue
        discarded = inside and not module.output_kept and op.saved != NOTHING
        if discarded:
            result = _attention_output(op) if op.fwd and op.fwd[0].kind in FLASH_KINDS else NOTHING
            ops[-1] = replace(ops[-1], bwd=(_copy_back(op.saved - result), *ops[-1].bwd))
            op = replace(op, saved=result)
        ops.append(op)
        inside = False
    return tuple(ops)


def _attention_output(op: Op) -> Saved:
    """What latent attention saves apart from its input: its output and an fp32 number per row.

    It has as many heads of k as of q, and v is as wide as the output.
    """
    kernel = op.fwd[0]
    query = kernel.m.fixed * kernel.groups.per_sample * kernel.n.fixed
    return Saved(low=op.saved.low / 2 - query, raw_bytes=op.saved.raw_bytes)


def _copy_back(result: Saved) -> Kernel:
    """The copy of a recomputed result into the storage that forward had released.

    Megatron-Core, tensor_parallel/random.py, CheckpointWithoutOutput: resize_ and copy_. The result
    has the width of activations, whatever format a product then saves of it.
    """
    elems = result.low + result.matmul
    return Kernel(kind="copy", low=2 * elems, raw_bytes=2 * result.raw_bytes, issues=0.0)


def _from_outside(op: Op) -> Saved:
    """The inputs that an op saves in addition to its recomputed first input: v, of attention."""
    if not op.name.endswith("context"):
        return NOTHING
    kernel = op.fwd[0]
    columns, depth = kernel.n.fixed, kernel.k.fixed
    return Saved(low=kernel.groups.per_sample * columns * depth)


def _by_operator(block: Block, exchanges: bool) -> tuple[Op, ...]:
    """A layer's ops under torchtitan's selective recompute by operator.

    Matrix products save their result, but every second one is recomputed instead; attention and
    ``exchanges`` of experts' rows save theirs too (all_to_all_single, pull request 1672 of
    September 2025). All other ops are recomputed from the layer's input (torchtitan,
    activation_checkpoint.py): the experts' grouped products, which are no ``mm``, and the router's
    (per_op_sac_force_recompute_mm_shapes_by_fqns) among them.
    """
    ops: list[Op] = []
    products = 0
    for op in block.ops:
        kinds = {k.kind for k in op.fwd}
        if not kinds.isdisjoint(FLASH_KINDS) or not op.fwd:
            results = [_flash_result(k) for k in op.fwd if k.kind not in ("elementwise", "copy")]
            ops.append(replace(op, saved=results[0] if results else NOTHING))
        elif exchanges and op.name in _EXCHANGES:
            sent = min(k.low for k in op.fwd if k.low) / 2
            ops.append(_run_twice(op, Saved(low=sent)))
        elif "gemm" in kinds and op.part != "experts" and op.name != _ROUTER:
            products += 1
            kernel = op.fwd[0]
            result = kernel.m.per_sample * kernel.n.fixed
            kept = NOTHING if products % 2 == 0 else Saved(low=result)
            ops.append(_run_twice(op, NOTHING) if products % 2 == 0 else replace(op, saved=kept))
        else:
            ops.append(_run_twice(op, NOTHING))
    ops[0] = replace(ops[0], saved=ops[0].saved + block.boundary)
    return tuple(ops)


def _around_attention(block: Block, unrun: tuple[Op, ...]) -> tuple[Op, ...]:
    """A layer's ops where attention alone is kept, with its inputs; ``unrun``: do not run again.

    Products of q, k and v run again only where an op between them and attention needs their
    results (norms of q and k); other layers run again as a whole.
    """
    last, lone = len(block.ops) - len(unrun), ("gemm", "elementwise")
    at = {i for i, op in enumerate(block.ops) if any(k.kind in FLASH_KINDS for k in op.fwd)}
    first = min(at, default=0)
    products = [i for i, op in enumerate(block.ops[:first]) if op.fwd and op.fwd[0].kind == "gemm"]
    before = range(min(products, default=first), first)
    needed = any(k.kind not in lone for i in before for k in block.ops[i].fwd)
    kept_too = set() if needed else set(before)
    ops = [
        op if i in at else replace(op, saved=NOTHING) if i in kept_too or i >= last
        else _run_twice(op, NOTHING)
        for i, op in enumerate(block.ops)
    ]  # fmt: skip
    ops[0] = replace(ops[0], saved=ops[0].saved + block.boundary)
    return tuple(ops)


def _flash_result(kernel: Kernel) -> Saved:
    """The result of a flash attention kernel, as wide as v, and its fp32 number per row.

    Each key costs a query row two FLOP an element of q and two an element of v.
    """
    rows = kernel.m.fixed * kernel.groups.per_sample
    of_v = kernel.flop / (2.0 * kernel.k.fixed) - rows * kernel.n.fixed
    return Saved(low=of_v, raw_bytes=4.0 * rows)
