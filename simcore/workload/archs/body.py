"""A block while it is built: its operators, its parameters, and which tensors are already saved.

With adapters (LoRA, Hu et al. 2021) the base is frozen: its products have no weight gradient, its
parameters are resident but not trained, and each targeted product gets two small ones in addition.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from simcore.base.record import replace
from simcore.workload import ops
from simcore.workload.archs import (
    ALL_LINEAR,
    AS_WIDE_AS_INPUT,
    QUANTISED_BYTES,
    TARGETS,
    Adapters,
    plain_name,
)
from simcore.workload.graph import FULL_LOAD, Block, ExpertPart, Frozen, Kernel, Op, Param
from simcore.workload.saved import NOTHING, Saved


def check_targets(chosen: Adapters | None, bodies: Sequence[Body]) -> tuple[str, ...]:
    """A sentence on targets that this model does not have, as PEFT skips them (tuners_utils.py,
    inject_adapter, needs one match). Raises ValueError where no layer has any target, and for a
    word that is no product's name anywhere.
    """
    if chosen is None or not chosen.rank:
        return ()
    known = {plain for b in bodies for n in b.products for plain in (n, plain_name(n))}
    # A checkpoint's name for several products stands for those of them that exist.
    of_these_names = {product for several in TARGETS.values() if known & chosen.targets & {*several}
             for product in several}  # fmt: skip
    absent = sorted(chosen.targets - {ALL_LINEAR} - known - of_these_names)
    elsewhere = {product for several in TARGETS.values() for product in several}
    nowhere = [t for t in absent if t not in elsewhere]
    if nowhere or len(absent) == len(chosen.targets):
        raise ValueError(
            f"lora_targets {[*nowhere, *absent][0]!r} is no matrix product of a layer: "
            f"write {ALL_LINEAR} or some of {', '.join(sorted({plain_name(n) for n in known}))}"
        )
    return (f"no layer has {', '.join(absent)}: no adapter there",) if absent else ()


def _missing_flop(op: Op) -> float:
    """FLOP by which a product's backward falls short of twice its forward.

    Backward of a scan also runs its forward a second time, so that nothing is missing.
    """
    forward = sum(k.flop for k in op.fwd if k.kind == "gemm")
    backward = sum(k.flop for k in op.bwd if k.kind == "gemm")
    return max(0.0, 2 * (forward - op.early_flop) - (backward + op.early_flop))


def _onto(kernels: tuple[Kernel, ...], elems: float) -> tuple[Kernel, ...]:
    """The kernels, of which the first also reads a tensor of ``elems`` and adds to it."""
    return tuple(replace(k, low=k.low + elems) for k in kernels[:1]) + kernels[1:]


class Body:
    """Operators and parameters of one block in order of definition; mutable while it is built."""

    def __init__(
        self, chosen: Adapters | None = None, *, in_layer: bool = True, fused: bool = False,
        bias_apart: bool = False, bias_grads: bool = True,
    ) -> None:  # fmt: skip
        """An empty block; ``fused``: a compiler makes casts part of the kernels next to them.

        ``bias_apart``: biases are added by kernels of their own. ``bias_grads``: their gradients
        are summed by such kernels; otherwise by the products' epilogues.
        """
        self.adapters, self.in_layer, self.fused = chosen, in_layer, fused
        self.bias_apart, self.bias_grads = bias_apart, bias_grads
        self.ops: list[Op] = []
        self.part: ExpertPart = ""
        self.params: list[Param] = []
        self.kept: set[str] = set()  # storages that an earlier operator saves
        self.pinned: set[str] = set()  # those of them that it saves as a separate 16-bit copy
        self.held_by_node: set[str] = set()  # storages that a product's autograd node refers to
        self.high: set[str] = set()  # tensors that autocast leaves in fp32
        self.products: list[str] = []
        self.frozen_numel = 0
        self.quantised_numel = 0
        #: The parts of both counts that belong to routed experts.
        self.frozen_routed = 0
        self.quantised_routed = 0

    @property
    def trains(self) -> bool:
        """Whether the block's own parameters have gradients."""
        return self.adapters is None

    @property
    def conditioned(self) -> bool:
        """Whether shifts, scales and gates of adaptive norms have gradients: their product's."""
        return self.adapters is None or (self.in_layer and self.adapters.on("adaln.linear"))

    @property
    def routed_flop(self) -> float:
        """Forward FLOP per sample of the experts' grouped products."""
        return sum(k.flop for op in self.ops if op.part == "experts" for k in op.fwd)

    @property
    def frozen_weight_flop(self) -> float:
        """FLOP per sample of the weight gradients that a frozen base does not need."""
        if self.trains:
            return 0.0
        return sum(_missing_flop(op) for op in self.ops)

    def add(self, *new: Op) -> None:
        """Append operators without parameters."""
        self.ops += [replace(op, part=self.part) for op in new] if self.part else new

    @contextmanager
    def within(self, part: ExpertPart) -> Iterator[None]:
        """A context in which the operators belong to a part of a mixture of experts."""
        self.part = part
        yield
        self.part = ""

    def param(self, name: str, numel: int, *, trained: bool = True, routed: bool = False) -> None:
        """Add a parameter, trained or only resident; ``routed``: of routed experts."""
        if self.trains and trained:
            self.params.append(Param(name, numel, routed))
        else:
            self._freeze(Param(name, numel, routed))

    def _freeze(self, p: Param, *, packed: bool = False) -> None:
        """Add a parameter that is only resident, as wide as the run's weights or quantised."""
        if packed:
            self.quantised_numel += p.numel
            self.quantised_routed += p.numel * p.routed
        else:
            self.frozen_numel += p.numel
            self.frozen_routed += p.numel * p.routed

    def linear(
        self,
        name: str,
        rows: float,
        k: int,
        n: int,
        *,
        bias: bool = False,
        reads: str,
        weight: bool = True,
        wide: bool | None = None,
        input_grad: bool = True,
        padded: bool = False,
        bias_apart: bool | None = None,
        epilogue: tuple[float, float] = (0.0, 0.0),
    ) -> None:
        """Add ``[rows, k] @ [k, n]`` of the storage ``reads``, which is saved once for all ops.

        ``weight=False``: the weight belongs to another block (a tied head). ``wide``: the product
        is 16 bit whatever products compute in; None: outside of layers it is.
        ``input_grad=False``: the input is data. ``padded``: rows of the result are padded, so that
        each begins at an aligned address. ``bias_apart``: as the body's, unless given.
        ``epilogue``: elements that the product also writes forward, and its first one reads in
        backward, for an operator that is part of it.
        """
        chosen = self.adapters
        wide = not self.in_layer if wide is None else wide
        loaded = FULL_LOAD if padded or n == 1 else ops.row_elems(k, n)
        if chosen is None:
            apart = self.bias_apart if bias_apart is None else bias_apart
            op = ops.linear(name, rows, k, n, bias=bias, save_input=reads not in self.kept,
                            formatted=self.in_layer or not wide, wide=wide, row_elems=loaded,
                            input_grad=input_grad, input_high=reads in self.high,
                            bias_apart=apart)  # fmt: skip
            sums = [k for k in op.bwd if self.bias_grads or k.kind != "reduction"]
            op = replace(op, fwd=_onto(op.fwd, epilogue[0]), bwd=_onto(tuple(sums), epilogue[1]))
            if reads in self.pinned and self.in_layer:
                op = replace(op, saved=Saved(matmul_copy=rows * k))
                self.pinned.discard(reads)
            self.add(op)
            self.kept.add(reads)
            if weight:
                self.params.append(Param(f"{name}.weight", k * n))
            if bias:
                self.params.append(Param(f"{name}.bias", n))
            return
        base = ops.linear(
            name, rows, k, n, bias=bias, weight_grad=False, wide=wide, input_grad=input_grad,
            row_elems=loaded, input_high=reads in self.high,
        )  # fmt: skip
        quantised = self.in_layer and chosen.quantised != "none"
        if quantised or weight:
            self._freeze(Param(f"{name}.weight", k * n), packed=quantised)
        if quantised and chosen.quantised == "gptq":
            self.add(ops.unpacked(name, float(k) * n))
        elif quantised and chosen.quantised != "fp8":
            width = QUANTISED_BYTES[chosen.quantised]
            self.add(ops.dequantised(name, float(k) * n, width))
        self._freeze(Param(f"{name}.bias", n * bias))
        saved, held = self._frozen_input(name, rows * k, reads)
        self.add(Op(name=name, fwd=base.fwd, bwd=base.bwd, saved=saved, held_by_node=held))
        if not self.in_layer:
            return
        if chosen.quantised in AS_WIDE_AS_INPUT and reads in self.high:
            self.add(ops.brought_to_fp32(f"{name}.result", rows * n))
            self.high.add(name)
        self.products.append(name)
        if chosen.on(name):
            self._adapt(chosen.rank, name, rows, k, n, reads)

    def _frozen_input(self, name: str, elems: float, reads: str) -> tuple[Saved, Saved]:
        """The input that a frozen product saves, and what of it hangs on its autograd node.

        It saves a second copy if an adapter saves it too.
        """
        chosen = self.adapters
        if chosen is None or not self.in_layer:
            return NOTHING, NOTHING
        if chosen.hangs_inputs:
            # of an fp32 input each product in 4 bits keeps its own cast, LLM.int8 the input itself
            wide = reads in self.high
            first = Saved(high=elems) if wide and chosen.quantised == "int8" else Saved(low=elems)
            more = Saved(autocast=elems) if wide and chosen.quantised != "int8" else NOTHING
            saved = more if reads in self.kept else first
            held = more if reads in self.held_by_node else first
            self.held_by_node.add(reads)
            self.kept.add(reads)
            return saved, held
        if not (chosen.inputs and reads.startswith("norm")) or reads in self.pinned:
            return NOTHING, NOTHING
        self.pinned.add(reads)
        shared = chosen.on(name) and not (chosen.drop or chosen.wide)
        return (Saved(matmul_copy=elems) if shared else Saved(matmul=elems)), NOTHING

    def _adapt(self, rank: int, name: str, rows: float, k: int, n: int, reads: str) -> None:
        chosen = self.adapters
        assert chosen is not None
        dropped, wide, joined = chosen.drop, chosen.wide, chosen.kernels == "joined"
        high = reads in self.high
        if wide:
            self.add(ops.widened(f"{name}.lora_cast", rows * k, narrow=not high))
        if dropped:  # each has a separate result, although q, k and v read the same input
            draw = ops.dropout(f"{name}.lora_dropout", rows * k, high=high, wide=wide)
            self.add(
                draw if chosen.kernels == "apart" else ops.without_mask(draw, joined * rows * k)
            )
        has_own_input = dropped or wide
        down = ops.linear(
            f"{name}.lora_a", rows, k, rank, save_input=has_own_input or reads not in self.kept,
            input_high=high,
        )  # fmt: skip
        if not has_own_input:
            self.kept.add(reads)
        up = ops.linear(f"{name}.lora_b", rows, rank, n)
        if joined:
            base = self.ops[-1 - dropped]
            assert base.name == name
            self.ops[-1 - dropped] = replace(base, bwd=_onto(base.bwd, rows * k))
            self.add(down, replace(up, fwd=_onto(up.fwd, rows * n)))
        else:
            self.add(
                down,
                up,
                ops.scale(f"{name}.lora_scale", rows * n),
                ops.residual(f"{name}.lora_sum", rows * n, narrowed=rows * n)
                if name in self.high
                else ops.binary(f"{name}.lora_sum", rows * n, grads=0),
                ops.accumulate(f"{name}.lora_fork", rows * k, high=high),
            )
        self.params += [
            Param(f"{name}.lora_a.weight", k * rank),
            Param(f"{name}.lora_b.weight", rank * n),
        ]

    def stacked(self, name: str, numel: int) -> None:
        """Add all experts' matrices as one tensor: quantised with the base, without an adapter."""
        chosen = self.adapters
        if chosen is not None and chosen.quantised != "none" and not chosen.wide_experts:
            self._freeze(Param(f"{name}.weight", numel, routed=True), packed=True)
        else:
            self.param(f"{name}.weight", numel, routed=True)

    def norm(
        self, name: str, rows: float, dim: int, kind: str, *, reads: str = "", bias: bool = True,
        weight: bool = True, narrow: bool = False, own: bool = True,
    ) -> None:  # fmt: skip
        """Add a normalisation over ``dim``.

        ``kind``: ``norm`` of ``lm_settings.Norms``. ``reads``: name of its input, if another
        operator may save that too. ``narrow``: the input is the result of a product. ``own=False``:
        its weight is that of another norm.
        """
        saves_input = not reads or reads not in self.kept
        if not self.fused:
            self.high.add(name)
        if reads and kind != "layernorm_eager":  # which saves no input
            self.kept.add(reads)
        if kind in ("rmsnorm_eager", "rmsnorm_eager_wide"):
            op = ops.rms_norm_eager(
                name, rows, dim, trained=self.trains and weight, wide=kind == "rmsnorm_eager_wide",
                narrow=narrow and not self.fused,
            )  # fmt: skip
            if not saves_input:
                op = replace(op, saved=op.saved - Saved(raw_bytes=4.0 * rows * dim))
            self.add(op)
        elif kind == "layernorm_eager":
            self.add(
                ops.layer_norm_eager(
                    name,
                    rows,
                    dim,
                    trained=self.trains and weight,
                    narrow=narrow and not self.fused,
                )
            )
        elif kind == "rmsnorm_again":
            op = ops.rms_norm_again(name, rows, dim, trained=self.trains and weight)
            self.add(op if saves_input else replace(op, saved=NOTHING))
        else:
            rms = kind == "rmsnorm"
            affine = self.trains and weight
            self.add(
                ops.layer_norm(name, rows, dim, rms=rms, affine=affine, save_input=saves_input)
            )
        if not (weight and own):
            return
        self.param(f"{name}.weight", dim)
        if kind == "layernorm" and bias:
            self.param(f"{name}.bias", dim)

    def embedding(
        self, name: str, rows: float, dim: int, vocab: int, *, weight: bool = True,
        fused: bool = False,
    ) -> None:  # fmt: skip
        """Add a look-up in a table of ``vocab`` rows; ``weight=False``: of another block.

        ``fused``: a compiler adds up its gradient.
        """
        op = ops.embedding(name, rows, dim, vocab, fused=fused)
        self.add(op if self.trains else Op(name=name, fwd=op.fwd))
        if weight:
            self.param(f"{name}.weight", vocab * dim)

    def block(self, name: str, *, boundary: Saved = NOTHING, recomputable: bool = False) -> Block:
        """The finished block."""
        chosen = self.adapters
        packed = QUANTISED_BYTES.get(chosen.quantised, 0.0) if chosen else 0.0
        return Block(
            name=name, ops=tuple(self.ops), params=tuple(self.params), boundary=boundary,
            recomputable=recomputable, base_numel=self.frozen_numel if chosen else 0,
            packed_bytes=self.quantised_numel * packed,
            routed_base_numel=self.frozen_routed if chosen else 0,
            routed_packed_bytes=self.quantised_routed * packed,
        )  # fmt: skip


def frozen_weight_flop(bodies: Sequence[tuple[Body, int]]) -> float:
    """FLOP per sample of weight gradients that the frozen base of these bodies does not need.

    ``bodies``: each body with the number of blocks that it stands for.
    """
    return sum(body.frozen_weight_flop * count for body, count in bodies)


def frozen_parts(bodies: Sequence[tuple[Body, int]]) -> tuple[Frozen, ...]:
    """The resident frozen base of these bodies; empty if everything is trained.

    ``bodies``: each body with the number of blocks that it stands for.
    """
    plain = sum(b.frozen_numel * count for b, count in bodies)
    packed = sum(b.quantised_numel * count for b, count in bodies)
    parts = []
    if plain:
        # PEFT's prepare_model_for_kbit_training casts weights that are not quantised to fp32.
        parts.append(
            Frozen(name="frozen base", resident_numel=plain, ops=(), as_trained=bool(packed))
        )
    if packed:
        kind = next(b.adapters.quantised for b, _ in bodies if b.adapters)
        parts.append(
            Frozen(
                name=f"frozen base in {kind}", resident_numel=packed, ops=(),
                bytes_per_param=QUANTISED_BYTES[kind],
            )
        )  # fmt: skip
    return tuple(parts)
