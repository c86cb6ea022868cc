"""How context ranks share a layer's attention: what they exchange, how often, and what is seen.

ring        keys and values go round a ring under attention of other blocks (Liu et al. 2023;
            Transformer Engine's p2p)
all-gather  they are gathered before attention, and their gradients reduced (Grattafiori et al.
            2024, 3.3.2)
ulysses     every rank turns its tokens of all heads into all tokens of its heads, and back:
            all-to-alls of q, k, v and the output (Jacobs et al. 2023, 3.2)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

from simcore.base.errors import InvalidConfig
from simcore.physics.collectives import Collective
from simcore.strategy.layout import CpComm, Layout
from simcore.workload.archs.lm_kinds import RECURRENT
from simcore.workload.graph import NOTHING, Block, Kernel, Op, Saved, Workload
from simcore.workload.models import ModelRecord, Scalar
from simcore.workload.resolve import ModelSource

#: Tensors that Ulysses turns: q, k, v and the output.
_TURNED = 4
#: What recurrent layers are called, by letter of a mixer's pattern.
_NAMES = {
    "m": "Mamba-2",
    "s": "Mamba-1",
    "h": "Mamba-2",
    "g": "gated DeltaNet",
    "k": "Kimi Delta Attention",
    "l": "lightning attention",
}


@dataclass(frozen=True, slots=True)
class Way:
    """``op`` prices one exchange, ``sent`` is what NCCL runs; how often in forward and backward.

    ``seen_frac``: of its time, what no attention of another block hides.
    """

    op: Collective
    sent: str
    forward: float
    backward: float
    seen_frac: float


#: Keys and values come once forward; backward they come again and their gradients go. What is
#: gathered, or turned, is needed before attention begins, and hides under nothing.
WAYS: Mapping[CpComm, Way] = {
    "ring": Way("all_gather", "send_recv", 1.0, 2.0, 0.5),
    "all-gather": Way("all_gather", "all_gather", 1.0, 2.0, 1.0),
    "ulysses": Way("all_to_all", "all_to_all", _TURNED, _TURNED, 1.0),
}


@dataclass(frozen=True, slots=True)
class Heads:
    """Widths of a tensor rank's queries, output, keys and values, in elements a token.

    ``copies``: ranks that hold the same key and value head, where there are more ranks than heads.
    """

    queries: int
    output: int
    keys: int
    values: int
    copies: int = 1

    @property
    def turned(self) -> int:
        """Of all four tensors."""
        return self.queries + self.output + self.copies * (self.keys + self.values)


def heads_of(name: str, config: Mapping[str, Scalar], layout: Layout) -> Heads | None:
    """A tensor rank's widths; None where an architecture has no heads to tell.

    Raises InvalidConfig where context ranks cannot share the heads: query heads must divide, key
    and value heads too, or be copied to as many ranks (DeepSpeed, runtime/sequence_parallel/
    ulysses_sp.py: fewer of them than ranks are replicated).
    """
    turns = layout.cp > 1 and layout.cp_comm == "ulysses"
    if not isinstance(config.get("heads"), int):  # none, or as many as levels of a U-Net
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


def context_refused(
    record: ModelSource, layout: Layout, overrides: Mapping[str, Scalar]
) -> list[str]:
    """What is wrong where context ranks would cut a state that runs through the sequence."""
    if layout.cp == 1 or not isinstance(record, ModelRecord):
        return []
    letters = set(str(record.settings(overrides).get("mixer_pattern", "a"))) & RECURRENT
    if not letters:
        return []
    named = " and ".join(sorted({_NAMES[x] for x in letters}))
    return [
        f"{record.name}: how context ranks share layers of {named} is not described here: use "
        "cp=1, with tp for long sequences"
    ]


def context_told(layout: Layout, asked: object) -> tuple[str, ...]:
    """A sentence where a way was asked for and no ranks take it."""
    if asked is None or layout.cp > 1:
        return ()
    return (f"cp-comm {layout.cp_comm} changes nothing: cp is 1",)


def elements(heads: Heads | None, layout: Layout, tokens: float) -> float:
    """Elements a sample of one exchange: keys and values gathered, or of what a rank turns."""
    if heads is None:
        return 0.0
    if layout.cp_comm == "ulysses":
        return tokens / layout.cp * heads.turned / _TURNED
    return tokens * (heads.keys + heads.values)


@lru_cache(maxsize=256)
def turned(part: Workload, heads: Heads, modules: tuple[str, ...]) -> Workload:
    """A part whose layers turn tokens to heads and back, of all tokens (the engine cuts them).

    Each tensor is copied once: q, k and v so that what a rank sends lies together, the output once
    it has come (ulysses_sp.py: _combine_local_sequences, _partition_global_sequence). Attention
    keeps its own output beside that which the output's product keeps, and copied heads as often as
    it has them. Where ``modules`` of a layer run again (``workload.recompute``) and attention is
    one of them, they are copied and held again while it does, and not between.
    """
    tokens = part.tokens_per_sample
    copy = Kernel(kind="copy", low=2.0 * tokens * heads.turned, launches=float(_TURNED))
    more = heads.output + (heads.copies - 1) * (heads.keys + heads.values)
    kept = Saved(low=tokens * more)
    once = Op(name="attention.turns", fwd=(copy,), bwd=(copy,), saved=kept)
    twice = replace(once, bwd=(copy, copy), saved=NOTHING)

    def of(block: Block) -> Block:
        # of whole layers only the first ones may run again
        again = "core_attn" in modules or ("layer" in modules and block.remade != NOTHING)
        if not again:
            return replace(block, ops=(*block.ops, once))
        return replace(block, ops=(*block.ops, twice), remade=block.remade + kept)

    return part.replace(
        blocks=tuple(of(b) if b.recomputable and _attends(b.ops) else b for b in part.blocks)
    )


def _attends(ops: tuple[Op, ...]) -> bool:
    return any("attention" in op.name.split(".") for op in ops)
