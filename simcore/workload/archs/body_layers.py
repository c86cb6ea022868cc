"""Networks that are records of layers on ``archs.body``: tensors have names, the base adapters.

A record with ``body`` (arguments of ``archs.body.adapters``) is as those of ``archs.layers``, but
for:

- ``stages``, in place of input, features and head: blocks in order, each ``name: {layers: ...}``.
  ``times``: how often it runs in a row. ``at``: stages in a row that have it take turns over their
  ``times``: at each ``depth``, counted from 0, the first of them runs for which it is true.
  ``shares``: instead of layers, the name of a block before, which runs once more with its weights.
  ``boundary``: what recompute keeps of it; it is then one of the layers that recompute runs again
  unless ``recomputed`` is false. ``in_layer``, ``fused``, ``bias_apart``, ``bias_grads``: as
  ``Body`` takes them. ``only_forward``: unless 0, it is a frozen network, with so many elements
  alive at once. ``compiled``: a compiler fuses its operators (``ops.compiled``). ``trained``: it
  is a block that is trained before the model's, though the rest of the record is frozen.
- Kinds of layers are methods of ``Body``, those named here, operators of ``workload.ops``, ``op``,
  ``group``, ``repeat``, ``refuse``, ``counted``, ``let`` and the record's parts. No result is
  handed on: a product names the tensor that it ``reads``.
- In formulas ``trains`` and ``conditioned`` are those of the stage's ``Body``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from simcore.workload import ops
from simcore.workload.archs import (
    ARCHS,
    BODY_LISTS,
    FROZEN_ARCHS,
    FROZEN_BODY_LISTS,
    adapter_assumptions,
    adapters,
    towers,
)
from simcore.workload.archs.body import Body, check_targets, frozen_parts, frozen_weight_flop
from simcore.workload.archs.layers import MAKERS, LayerList, Layers, Values, value_of
from simcore.workload.archs.lm_attention import rope
from simcore.workload.archs.lm_mlp import MlpShape, dense, plain_activation
from simcore.workload.archs.tape import T, Tape
from simcore.workload.archs.towers import Tower
from simcore.workload.graph import Block, Frozen, Op, Workload
from simcore.workload.saved import NOTHING, Saved

_NO_INPUT = T(1, (1,))


class BodyLayers(Layers):
    """Runs layers of a record on a ``Body``."""

    def __init__(
        self, body: Body, values: Values, parts: Mapping[str, Sequence[Mapping[str, Any]]],
        record: str,
    ) -> None:  # fmt: skip
        super().__init__(Tape(), values, parts, record)
        self.body = self.holder = body
        values.named |= {"trains": body.trains, "conditioned": body.conditioned}

    def _made(self, kind: str, inputs: Sequence[T], given: dict[str, Any]) -> T:
        if kind in _ON_BODY:
            _ON_BODY[kind](self.body, **given)
        elif kind in _OF_TOWER:
            _OF_TOWER[kind](self, **given)
        else:
            return super()._made(kind, inputs, given)
        return inputs[0]

    def tower(
        self, attend: str = "", feed: str = "", first_norm: bool = True, **sizes: Any
    ) -> None:
        """One layer with these fields of ``archs.towers.Tower``.

        ``attend``, ``feed``: parts of the record that run in place of attention, which ``reads`` a
        tensor, and of the feed-forward layer. ``first_norm``: as ``towers.add_layer`` takes it.
        """
        self.shape = Tower(**sizes)

        def attended(_body: Body, _t: Tower, prefix: str, reads: str) -> None:
            self._part(attend, [_NO_INPUT], {"prefix": prefix, "reads": reads})

        def fed(_body: Body, _t: Tower) -> None:
            self._part(feed, [_NO_INPUT], {})

        own_feed, own_attend = fed if feed else towers.feed, attended if attend else towers.attend
        towers.add_layer(self.body, self.shape, own_feed, own_attend, first_norm=first_norm)

    def scores(self) -> None:
        """Attention of the tower's layer from q, k and v to its context."""
        towers.scores(self.body, self.shape)

    def fed(self) -> None:
        """The tower's own feed-forward layer."""
        towers.feed(self.body, self.shape)

    def experts(self, layers: Sequence[Mapping[str, Any]]) -> None:
        """Layers that are the experts of a mixture."""
        with self.body.within("experts"):
            self.run(layers, _NO_INPUT)

    def _added(
        self, made: Sequence[Op], inputs: Sequence[T], makes: Any = None, saves_inputs: bool = False
    ) -> T:
        self.body.add(*made)
        return inputs[0]


def tensors(
    body: Body, kept: Iterable[str] = (), pinned: Iterable[str] = (), high: Iterable[str] = ()
) -> None:
    """Tensors that an operator has saved already (``kept``), by a separate 16-bit copy
    (``pinned``), or that autocast leaves in fp32 (``high``).
    """
    body.kept.update(kept)
    body.pinned.update(pinned)
    body.high.update(high)


def rotary(body: Body, name: str, elems: float, passed: float = 0.0) -> None:
    """Rotary positions (``archs.lm_attention.rope``)."""
    body.add(rope(name, elems, passed))


def feed_forward(body: Body, reads: str, prefix: str = "", **sizes: Any) -> None:
    """A feed-forward layer with these fields of ``archs.lm_mlp.MlpShape``."""
    dense(body, MlpShape(**sizes), reads, prefix)


def activation(body: Body, mlp: str, elems: float) -> None:
    """The activation of a plain feed-forward layer of this kind (``archs.lm_mlp``)."""
    body.add(plain_activation(mlp, elems))


_ON_BODY: dict[str, Callable[..., None]] = {
    "activation": activation,
    "linear": Body.linear, "norm": Body.norm, "embedding": Body.embedding, "param": Body.param,
    "tensors": tensors, "feed_forward": feed_forward, "rotary": rotary,
    "masked_lm_head": towers.masked_lm_head,
}  # fmt: skip
#: Kinds of layers of ``archs.towers``.
_OF_TOWER: dict[str, Callable[..., None]] = {
    "tower": BodyLayers.tower, "scores": BodyLayers.scores, "fed": BodyLayers.fed,
    "experts": BodyLayers.experts,
}  # fmt: skip
MAKERS["body"] = {
    **{kind: MAKERS["tape"][kind] for kind in ("op", "group", "repeat", "refuse", "counted")},
    **_ON_BODY, **_OF_TOWER,
}  # fmt: skip


#: Keys of a stage that are arguments of ``Body``.
_OF_BODY = ("in_layer", "fused", "bias_apart", "bias_grads")


def again(block: Block, name: str) -> Block:
    """A block at a further depth, with the weights of the first, to whose gradients it adds its."""
    sums = ops.grad_only("shared", 0.0, weight=3.0 * block.numel, launches=len(block.params))
    run = tuple(replace(op, gemm_weight=0.0) for op in block.ops)
    return replace(block, name=name, ops=(*run, sums), params=())


def _only_forward(block: Block, peak: float) -> Frozen:
    """A block as a frozen network of which at most ``peak`` elements are alive at once."""
    run = tuple(Op(name=op.name, fwd=op.fwd) for op in block.ops)
    return Frozen(name=block.name, resident_numel=block.numel, ops=run, transient_low=peak)


class BodyList(LayerList):
    """Builder of one record's network, with the settings of the record as its signature."""

    def _built(self, name: str, unit: str, values: Values) -> Workload | Frozen:
        asked = self._of(values, "body", {})
        chosen = adapters(**asked) if asked else None
        frozen: list[Frozen] = []
        blocks: list[Block] = []
        built: list[tuple[Body, int]] = []
        trained: list[Body] = []
        learned: set[int] = set()  # of the blocks, those of a frozen network that are trained
        # Block by the number of the first stage of those that take turns, and depth.
        runs: dict[tuple[int, int], int] = {}
        first, turns = 0, False
        for i, stage in enumerate(self.record["stages"]):
            (title, stated), = stage.items()  # fmt: skip
            given = {k: v for k, v in stated.items() if k not in ("layers", "at")}
            given = value_of(self.name, values, ("stages", i, title), given)
            first, turns = first if turns and "at" in stated else i, "at" in stated
            depths = self._depths(values, (i, title), stated, given.get("times", 1))
            free = [(first, depth) for depth in depths if (first, depth) not in runs]
            if not free:
                continue
            if "shares" in given:
                made = next(block for block in blocks if block.name == given["shares"])
                runs |= dict.fromkeys(free, len(blocks))
                blocks.append(again(made, title))
                continue
            body = Body(chosen, **{key: given[key] for key in _OF_BODY if key in given})
            layers = BodyLayers(body, values, self.record.get("parts", {}), self.name)
            layers.run(stated["layers"], _NO_INPUT)
            if peak := given.get("only_forward"):
                frozen.append(_only_forward(body.block(title), peak))
                continue
            kept = Saved(**given["boundary"]) if "boundary" in given else NOTHING
            trained += [body] if "boundary" in given else []
            recomputed = given.get("recomputed", "boundary" in given)
            made = body.block(title, boundary=kept, recomputable=recomputed)
            runs |= dict.fromkeys(free, len(blocks))
            learned |= {len(blocks)} if given.get("trained") else set()
            blocks.append(ops.compiled(made) if given.get("compiled") else made)
            built.append((body, len(free)))
        if "frozen" in self.record:
            order = [runs[place] for place in sorted(runs)]
            every = (op for i in order if i not in learned for op in blocks[i].ops)
            run = tuple(replace(op, bwd=(), saved=NOTHING) for op in every)
            parts = tuple(blocks[i] for i in order if i in learned)
            return Frozen(name=name, ops=run, trained=parts, **self._of(values, "frozen", {}))
        left_out = check_targets(chosen, trained)
        net = Workload(
            name=name, sample_unit=unit, blocks=tuple(blocks),
            order=tuple(runs[place] for place in sorted(runs)),
            frozen=(*frozen, *frozen_parts(built)), frozen_weight_flop=frozen_weight_flop(built),
            input_bytes=self._of(values, "input_bytes", 0.0),
            tokens_per_sample=self._of(values, "tokens", 0.0),
            notes=(*adapter_assumptions(chosen), *left_out),
        )  # fmt: skip
        return net.replace(**self._of(values, "workload", {}))

    def _depths(
        self, values: Values, stage: tuple[int, str], stated: Mapping[str, Any], times: int
    ) -> Iterator[int]:
        """The depths, of so many ``times``, at which a stage may run."""
        for depth in range(times):
            values.named["depth"] = depth
            if value_of(self.name, values, ("stages", *stage, "at"), stated.get("at", True)):
                yield depth


def register(name: str) -> None:
    """Register the network of a record that does not ship, unless it is parts of others alone.

    Raises DataError.
    """
    record = LayerList(name).record
    if "stages" in record or "features" in record:
        net = BodyList(name) if "stages" in record else LayerList(name)
        (FROZEN_ARCHS if "frozen" in record else ARCHS).register(name)(net)


for _name in BODY_LISTS:
    ARCHS.register(_name)(BodyList(_name))
for _name in FROZEN_BODY_LISTS:
    FROZEN_ARCHS.register(_name)(BodyList(_name))
