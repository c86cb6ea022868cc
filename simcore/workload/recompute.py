"""Recompute of parts of a layer: their forward runs again in backward, and keeps nothing between.

Full recompute (a whole layer from its input) is the engine's own; what is here rewrites a model so
that time and memory follow without more ado.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache

from simcore.base.errors import UnknownName
from simcore.workload.graph import FLASH_KINDS, Block, Kernel, Op, Workload
from simcore.workload.saved import NOTHING, Saved

#: The block behind the layers, and its product.
_HEAD = "head"
_NORMS = ("norm", "norm1", "norm2", "mlp.norm")
#: Of experts: what lies between their products.
_ACTIVATION = ("clamps", "product")
_MLP = (
    "gate", "up", "up.bias", "gate_up", "down", "gelu", "gelu_new", "quick_gelu", "relu", "relu2",
    "silu", "activation", *_ACTIVATION,
)  # fmt: skip
#: Of two streams in one layer (archs.mmdit).
_STREAM = re.compile(r"^(image|text)\.")
_LATENT = ("q_b", "kv_b", "rope.q", "rope.k", "kv.expand", "q_a_norm", "kv_a_norm")


@dataclass(frozen=True, slots=True)
class Module:
    """Which ops of a layer run again. ``output_kept``: what follows still keeps their result."""

    picks: Callable[[Op], bool]
    output_kept: bool
    meaning: str


def _core_attention(op: Op) -> bool:
    first, _, rest = op.name.partition(".")
    return first == "attention" and rest in ("", "scores", "scale", "mask", "softmax",
                                             "scores_dropout", "cast", "context")  # fmt: skip


#: Names as Megatron-Core's --recompute-modules has them.
MODULES: dict[str, Module] = {
    "core_attn": Module(_core_attention, True, "scores, softmax, dropout and their product with v "
                        "(Korthikanti et al. 2022, selective recompute)"),
    "layernorm": Module(lambda op: op.name in _NORMS, False, "norms before attention and MLP"),
    "mlp": Module(lambda op: _STREAM.sub("", op.name) in _MLP, True, "dense feed-forward layers"),
    "moe_act": Module(lambda op: op.name in _ACTIVATION, False, "activation of experts"),
    "moe": Module(lambda op: op.name.startswith(("experts.", "dispatch", "combine"))
                  or op.name in _ACTIVATION, True, "experts with dispatch and combination"),
    "shared_experts": Module(lambda op: op.name.startswith("shared."), True,
                             "the experts that every token passes"),
    "mla_up_proj": Module(lambda op: op.name in _LATENT, False,
                          "products that spread latent attention's q, k and v"),
    "layer": Module(lambda op: True, True, "whole layers, of which their input is kept; for some "
                    "of them (Megatron-LM's --recompute-method block)"),
    "operators": Module(lambda op: False, False, "all but attention and every second product "
                        "(torchtitan's selective activation checkpointing by operator)"),
}  # fmt: skip


#: Those that Megatron-Core has (transformer_config.py, recompute_modules).
MEGATRON_MODULES = tuple(m for m in MODULES if m not in ("layer", "operators"))

#: What Megatron-LM's --recompute-granularity selective runs again.
DEFAULT_MODULES = "core_attn"


def modules_named(text: str) -> tuple[str, ...]:
    """Modules of a list such as ``core_attn`` or ``layernorm+moe_act``. Raises UnknownName."""
    words = [w.strip() for w in text.replace("+", ",").split(",") if w.strip()]
    for word in words:
        if word not in MODULES:
            raise UnknownName("recompute module", word, list(MODULES))
    return tuple(dict.fromkeys(words))


def left_out(block: Block) -> tuple[Op, ...]:
    """The last ops of a layer, which a recompute need not run where it stops early.

    What no op after them keeps for backward: a product keeps its input, so that a layer's last one
    does not run again, nor the sum behind it; of others what is kept is their own.
    """
    ops = block.ops
    keeps = [i for i, op in enumerate(ops) if op.fwd and op.saved != NOTHING]
    last = max(keeps, default=len(ops))
    by_input = last < len(ops) and ops[last].fwd[0].kind == "gemm"
    return ops[last if by_input else last + 1 :]


@lru_cache(maxsize=256)
def recomputed(
    workload: Workload, modules: tuple[str, ...], first: int = 0, stops_early: bool = False
) -> Workload:
    """The model with ``modules`` of its repeated layers recomputed in backward.

    ``first``: of so many layers from the input on; 0 is of all. ``stops_early``: a whole layer is
    run no further than backward needs.
    """
    if not modules:
        return workload
    again = {
        i: _block(b, modules, stops_early)
        for i, b in enumerate(workload.blocks)
        if b.recomputable
    }  # fmt: skip
    if not first:
        blocks = (again.get(i, b) for i, b in enumerate(workload.blocks))
        return workload.replace(blocks=tuple(blocks))
    moved = {i: len(workload.blocks) + at for at, i in enumerate(again)}
    order, left = [], first
    for i in workload.order:
        order.append(moved[i] if i in moved and left > 0 else i)
        left -= i in moved
    return _used(workload, (*workload.blocks, *again.values()), order)


@lru_cache(maxsize=256)
def head_recomputed(workload: Workload) -> Workload:
    """The model whose final norm and head run again in backward, as its layers do.

    Each keeps its input; of the loss behind them nothing runs again.
    """
    return workload.replace(
        blocks=tuple(_head_again(b) if b.name == _HEAD else b for b in workload.blocks)
    )


def _head_again(block: Block) -> Block:
    inputs = {op.saved for op in block.ops if op.name == _HEAD}
    kept = inputs.pop() if inputs else NOTHING
    ops = tuple(
        _again(op, kept if op.name in _NORMS else op.saved)
        if op.name in (*_NORMS, _HEAD, f"{_HEAD}.join")
        else op
        for op in block.ops
    )
    found = replace(block, ops=ops)
    return replace(found, remade=block.saved + block.remade - found.saved)


@lru_cache(maxsize=256)
def offloaded(workload: Workload, first: int, *, checkpointed: bool = False) -> Workload:
    """The model whose first ``first`` repeated layers keep their activations on the host.

    They are there in forward and again in backward, while the layer runs (Megatron-Core's
    --cpu-offloading-num-layers). ``checkpointed``: layers are recomputed as a whole, and their
    inputs alone go (torchtune's enable_activation_offloading).
    """
    if not first:
        return workload
    sent = _input_away if checkpointed else _away
    away = {i: sent(b) for i, b in enumerate(workload.blocks) if b.recomputable}
    moved = {i: len(workload.blocks) + at for at, i in enumerate(away)}
    order, left = [], first
    for i in workload.order:
        order.append(moved[i] if i in moved and left > 0 else i)
        left -= i in moved
    return _used(workload, (*workload.blocks, *away.values()), order)


def _away(block: Block) -> Block:
    ops = tuple(replace(op, saved=NOTHING) for op in block.ops)
    return replace(block, ops=ops, remade=block.saved + block.remade, away=block.saved)


def _input_away(block: Block) -> Block:
    """Backward brings the input back, which the first op that keeps it counts."""
    return replace(block, away=block.boundary)


def _used(workload: Workload, blocks: tuple[Block, ...], order: list[int]) -> Workload:
    """The model with those of ``blocks`` that ``order`` names."""
    kept = sorted(set(order))
    index = {old: new for new, old in enumerate(kept)}
    return workload.replace(
        blocks=tuple(blocks[i] for i in kept), order=tuple(index[i] for i in order)
    )


def _block(block: Block, modules: tuple[str, ...], stops_early: bool) -> Block:
    before = block.saved
    routed = any(op.name.startswith("experts.") for op in block.ops)
    for name in (m for m in modules if m != "mlp" or not routed):
        if name == "layer" and stops_early and (unrun := left_out(block)):
            run = replace(block, ops=block.ops[: -len(unrun)])
            kept = tuple(replace(op, saved=NOTHING) for op in unrun)
            block = replace(block, ops=(*_by_module(run, MODULES[name]), *kept))
            continue
        ops = _by_operator(block) if name == "operators" else _by_module(block, MODULES[name])
        block = replace(block, ops=ops)
    return replace(block, remade=before - block.saved)


def _again(op: Op, saved: Saved) -> Op:
    return replace(op, bwd=(*op.fwd, *op.bwd), saved=saved)


def _by_module(block: Block, module: Module) -> tuple[Op, ...]:
    ops: list[Op] = []
    inside, began = False, ""
    for op in block.ops:
        if module.picks(op):
            outside = _from_outside(op) if began.startswith("attention") else NOTHING
            ops.append(_again(op, outside if inside else op.saved))
            began = began if inside else op.name
            inside = True
            continue
        discarded = inside and not module.output_kept and op.saved != NOTHING
        if discarded:
            own = _attended(op) if op.fwd and op.fwd[0].kind in FLASH_KINDS else NOTHING
            ops[-1] = replace(ops[-1], bwd=(_copied(op.saved - own), *ops[-1].bwd))
            op = replace(op, saved=own)
        ops.append(op)
        inside = False
    return tuple(ops)


def _attended(op: Op) -> Saved:
    """What latent attention keeps that is not its input: its output and an fp32 number a row.

    It has as many heads of k as of q, and as many of v as its output has.
    """
    kernel = op.fwd[0]
    query = kernel.m.fixed * kernel.groups.per_sample * kernel.n.fixed
    return Saved(low=op.saved.low / 2 - query, raw_bytes=op.saved.raw_bytes)


def _copied(result: Saved) -> Kernel:
    """What was computed again goes to the storage that forward had let go of.

    Megatron-Core, tensor_parallel/random.py, CheckpointWithoutOutput: resize_ and copy_. It is as
    activations are, whatever format a product then keeps of it.
    """
    elems = result.low + result.matmul
    return Kernel(kind="copy", low=2 * elems, raw_bytes=2 * result.raw_bytes, issues=0.0)


def _from_outside(op: Op) -> Saved:
    """Of an op whose first input is computed again, what it keeps of others: v, of attention."""
    if not op.name.endswith("context"):
        return NOTHING
    kernel = op.fwd[0]
    columns, depth = kernel.n.fixed, kernel.k.fixed
    return Saved(low=kernel.groups.per_sample * columns * depth)


def _by_operator(block: Block) -> tuple[Op, ...]:
    """Matrix products keep their result, but every second runs again; so does attention.

    Nothing else is kept but the layer's input (torchtitan, activation_checkpoint.py).
    """
    ops: list[Op] = []
    products = 0
    for op in block.ops:
        kinds = {k.kind for k in op.fwd}
        if not kinds.isdisjoint(FLASH_KINDS) or not op.fwd:
            results = [_output(k) for k in op.fwd if k.kind not in ("elementwise", "copy")]
            ops.append(replace(op, saved=results[0] if results else NOTHING))
        elif "gemm" in kinds:
            products += 1
            kernel = op.fwd[0]
            result = kernel.m.per_sample * kernel.n.fixed
            kept = NOTHING if products % 2 == 0 else Saved(low=result)
            ops.append(_again(op, NOTHING) if products % 2 == 0 else replace(op, saved=kept))
        else:
            ops.append(_again(op, NOTHING))
    ops[0] = replace(ops[0], saved=ops[0].saved + block.boundary)
    return tuple(ops)


def _output(kernel: Kernel) -> Saved:
    """The result of a flash kernel and its fp32 number a row."""
    rows = kernel.m.fixed * kernel.groups.per_sample
    return Saved(low=rows * kernel.n.fixed, raw_bytes=4.0 * rows)
