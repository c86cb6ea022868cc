"""Feed-forward layers of language models: plain, gated, and mixtures of experts."""

from __future__ import annotations

from simcore.base.record import dataclass, replace
from simcore.workload import ops
from simcore.workload.archs.body import Body
from simcore.workload.archs.lm_settings import Experts, Implementation
from simcore.workload.graph import Kernel, Op
from simcore.workload.saved import Saved

#: Kinds of feed-forward layers, by their activation.
PLAIN = ("gelu", "gelu_new", "relu", "relu2", "quick_gelu", "xielu")
#: Plain ones whose kernel of Megatron-LM also multiplies an expert's rows by their weights
#: (moe/experts.py, bias_act_func: TEGroupedMLP fuses swiglu, quick_geglu and squared ReLU).
_WITH_WEIGHTS = ("relu2",)
GATED = ("swiglu", "geglu", "geglu_new", "swiglu_clamped", "swiglu_limited", "relu2_gated")


@dataclass(frozen=True, kw_only=True)
class RankShare:
    """This rank's part of the experts.

    ``local_experts``: experts that it holds (0: all); ``routed_share``: fraction of the tokens that
    it routes and computes. ``expert_rows``: rows that its experts compute, over those of balanced
    routing; ``permuted_rows``: rows that it sorts and combines, over the same.
    """

    local_experts: int = 0
    routed_share: float = 1.0
    expert_rows: float = 1.0
    permuted_rows: float = 1.0

    def check(self) -> None:
        """Raises ValueError for fewer rows than balanced routing has."""
        if min(self.expert_rows, self.permuted_rows) < 1:
            raise ValueError(
                f"expert_rows {self.expert_rows} and permuted_rows {self.permuted_rows} are below 1"
            )

    def times(self, rows: float) -> RankShare:
        """The same with ``rows`` times as many rows in all."""
        return replace(
            self, expert_rows=rows * self.expert_rows, permuted_rows=rows * self.permuted_rows
        )


@dataclass(frozen=True, kw_only=True)
class MlpShape:
    """Sizes and options of a dense feed-forward layer; ``fused``: gate and up are one product.

    - ``fused_pointwise``: activation and product of a gated layer are one kernel.
    - ``fp8_input``: that kernel saves its input in 8 bits.
    - ``clamps_apart``: the kernel does not include its clamps.
    - ``in_place``: its backward writes the gradients of gate and up over them.
    - ``inner_norm``: kind of a norm of the last product's input; empty without one.
    - ``casts``: the kernel writes its result and gradient in the format of the products that read
      them (Transformer Engine, pytorch/ops/basic/activation.py under its operation fuser).
    """

    seq: int
    hidden: int
    ffn: int
    kind: str
    bias: bool
    fused: bool = False
    fused_pointwise: bool = False
    fp8_input: bool = False
    clamps_apart: bool = False
    in_place: bool = False
    casts: bool = False
    inner_norm: str = ""


def gelu_new(elems: float) -> Op:
    """0.5 x (1 + tanh(c (x + a x^3))) in tensor operations, as in transformers' GPT-2.

    Forward has eight kernels (pow, mul, add, mul, tanh, mul, add, mul), backward eleven. Saves x,
    the tanh and both factors of the last product. Autocast runs pow in fp32, so that all kernels
    but ``0.5 x`` are fp32 and so is the result: ``x`` is cast before, and three gradients of ``x``
    are cast after.
    """
    fwd = Kernel(
        kind="elementwise", low=4 * elems, high=14 * elems, launches=8.0, mixed=2 * elems,
        autocasts=elems,
    )  # fmt: skip
    bwd = Kernel(
        kind="elementwise", low=9 * elems, high=19 * elems, launches=11.0, mixed=elems,
        autocasts=3 * elems,
    )  # fmt: skip
    saved = Saved(low=elems, high=3 * elems)
    return Op(name="gelu_new", fwd=(fwd,), bwd=(bwd,), saved=saved)


def _quick_gelu(elems: float) -> Op:
    """``x sigmoid(1.702 x)``: three kernels; saves x and the sigmoid."""
    fwd = Kernel(kind="elementwise", low=7 * elems, launches=3.0)
    bwd = Kernel(kind="elementwise", low=14 * elems, launches=5.0)
    return Op(name="quick_gelu", fwd=(fwd,), bwd=(bwd,), saved=Saved(low=2 * elems))


def _relu2(elems: float, fused: bool) -> Op:
    """ReLU and its square (So et al. 2021, Primer; Nemotron-4).

    Two kernels forward, of which the second saves the first's output, and four backward. ``fused``:
    one kernel each way, which saves its input. A square is a power, which autocast runs in fp32, so
    that four more bytes of its input are saved.
    """
    if fused:
        one = Kernel(kind="elementwise", low=2 * elems)
        back = Kernel(kind="elementwise", low=3 * elems)
        return Op(name="relu2", fwd=(one,), bwd=(back,), saved=Saved(low=elems))
    fwd = Kernel(
        kind="elementwise", low=2 * elems, high=2 * elems, launches=2.0, autocasts=elems
    )  # fmt: skip
    bwd = Kernel(
        kind="elementwise", low=3 * elems, high=7 * elems, launches=4.0, autocasts=elems
    )  # fmt: skip
    return Op(name="relu2", fwd=(fwd,), bwd=(bwd,), saved=Saved(low=elems, autocast=2 * elems))


def _xielu(elems: float) -> Op:
    """xIELU in tensor operations (Huang & Schlag 2024; transformers, activations.py).

    ``alpha_p x² + beta x`` above zero, ``alpha_n (expm1(min(x, eps)) - x) + beta x`` below. Forward
    is twelve kernels, and two on the scalars; it saves x, the first product, the exponential, the
    difference and the mask.
    """
    fwd = Kernel(kind="elementwise", low=27 * elems, raw_bytes=2 * elems, launches=14.0)
    bwd = Kernel(kind="elementwise", low=36 * elems, raw_bytes=2 * elems, launches=16.0)
    sums = Kernel(kind="reduction", low=2 * elems, launches=2.0)  # gradients of both scalars
    saved = Saved(low=4 * elems, raw_bytes=elems)
    return Op(name="xielu", fwd=(fwd,), bwd=(bwd, sums), saved=saved)


def plain_activation(kind: str, elems: float, fused: bool = False) -> Op:
    """The activation between the two products of a plain layer."""
    if kind == "relu2":
        return _relu2(elems, fused)
    if kind == "gelu_new":
        return gelu_new(elems)
    if kind == "quick_gelu":
        return _quick_gelu(elems)
    if kind == "xielu":
        return _xielu(elems)
    if kind == "relu":  # backward needs its output alone, which the next product saves
        return ops.activation("relu", elems, saves="none")
    return ops.activation("gelu", elems)


def _clamped_halves(elems: float) -> Op:
    """Clamps of gate and up, one by one, and their concatenation, before a kernel for the rest.

    Megatron-LM's fused_bias_geglu.py, weighted_bias_quick_geglu_impl, for gpt-oss. Saves both
    clamped halves, which the kernel reads, and both halves before the clamps, for the masks.
    Backward of a clamp compares (twice for up, with the results combined) and selects; the halves'
    gradients are joined. Halves of rows are strided.
    """
    fwd = (
        Kernel(kind="elementwise", low=4 * elems, launches=2.0, indexed=2 * elems),
        Kernel(kind="elementwise", low=4 * elems),
    )
    bwd = (
        Kernel(
            kind="elementwise", low=7 * elems, raw_bytes=8 * elems, launches=6.0, indexed=5 * elems
        ),
        Kernel(kind="elementwise", low=4 * elems),
    )
    return Op(name="clamps", fwd=fwd, bwd=bwd, saved=Saved(low=2 * elems))


def weighed_bias(rows: float, width: int, experts: int) -> Op:
    """Bias of the experts' last product, multiplied by fp32 routing weights and added per expert.

    Megatron-LM's experts.py, TEGroupedMLP._apply_bias: ``torch.cat([t + b * p ...]).to(dtype)``,
    with fp32 weights, as DeepEP and HybridEP take them (assumed for plain exchanges too). Forward:
    product, sum, concatenation and cast. Backward: cast, the product's two gradients with the sums
    of each, the rows' gradient cast and concatenated. Products are broadcast; sum and casts convert
    types. Saves weights and biases, which are small.
    """
    elems = rows * width
    fwd = Kernel(
        kind="elementwise",
        low=2 * elems,
        high=6 * elems,
        launches=2.0 * experts + 2.0,
        indexed=3 * elems,
    )
    bwd = Kernel(
        kind="elementwise",
        low=4 * elems,
        high=8 * elems,
        launches=6.0 * experts + 3.0,
        indexed=4 * elems,
    )
    return Op(name="experts.bias", fwd=(fwd,), bwd=(bwd,), saved=Saved(high=rows))


def gate_product(
    kind: str,
    elems: float,
    fused: bool = False,
    *,
    fp8_input: bool = False,
    clamps_apart: bool = False,
    halves: bool = False,
    in_place: bool = False,
) -> tuple[Op, ...]:
    """``act(gate) * up`` over ``elems`` elements; saves gate, up and the activated gate.

    ``fused``: one kernel forward (3 elements moved) and one backward (5) that recomputes the
    activation, so that only gate and up are saved (Megatron-LM, fused_bias_swiglu), in 8 bits with
    ``fp8_input`` (its activation_func_fp8_input_store). ``halves``: gate and up are halves of one
    product's rows, which are strided for tensor operations, and their gradients are joined.
    ``in_place``: the one kernel's backward writes both gradients over gate and up.
    """
    if fused and clamps_apart and kind == "swiglu_clamped":
        return (_clamped_halves(elems), *gate_product(kind, elems, True, fp8_input=fp8_input))
    if fused:
        fwd = Kernel(kind="elementwise", low=3 * elems)
        bwd = Kernel(kind="elementwise", low=5 * elems)
        kept = Saved(raw_bytes=2 * elems) if fp8_input else Saved(low=2 * elems)
        result = Saved(low=elems)
        return (
            Op(
                name="product", fwd=(fwd,), bwd=(bwd,), saved=kept, result=result,
                gradient_in_place=in_place,
            ),
        )  # fmt: skip
    if kind == "swiglu_clamped":
        # Both clamped, gate * sigmoid(alpha * gate), (up + 1) * that: gpt-oss in tensor operations.
        each = elems * halves
        fwd = Kernel(kind="elementwise", low=17 * elems, launches=7.0, indexed=2 * each)
        bwd = Kernel(kind="elementwise", low=26 * elems, launches=10.0, indexed=2 * each)
        return (Op(name="product", fwd=(fwd,), bwd=(bwd,), saved=Saved(low=6 * elems)),)
    if kind == "swiglu_limited":  # two clamps, which save their inputs, before the others
        clamp, each = Kernel(kind="elementwise", low=2 * elems), elems * halves
        fwd, back = (replace(clamp, launches=n, low=n * 2 * elems) for n in (2.0, 4.0))
        clamps = Op(name="clamps", fwd=(replace(fwd, indexed=2 * each),), bwd=(back,),
                    saved=Saved(low=2 * elems))  # fmt: skip
        return clamps, *gate_product("swiglu", elems)
    if kind in ("geglu_new", "relu2_gated"):
        apart = gelu_new(elems) if kind == "geglu_new" else _relu2(elems, False)
        return apart, ops.binary("product", elems, saves=2 * elems, grads=2)
    act = ops.activation("silu" if kind == "swiglu" else "gelu", elems)
    product = ops.binary("product", elems, saves=2 * elems, grads=2)
    if not halves:
        return act, product

    def strided(kernel: Kernel) -> Kernel:
        return replace(kernel, indexed=elems)

    # One of the product's two gradients reads up, the other the activated gate, which is
    # contiguous.
    act = replace(act, fwd=(strided(act.fwd[0]),), bwd=(strided(act.bwd[0]),))
    product = replace(
        product, fwd=(strided(product.fwd[0]),), bwd=(strided(product.bwd[0]), product.bwd[1])
    )
    return ops.grad_only("halves.cat", 4 * elems, kind="copy"), act, product


def _in_products(elems: float) -> Op:
    """A gated activation within the products before and after it.

    Transformer Engine's ForwardGroupedMLP_CuTeGEMMSwiGLU_MXFP8 and
    BackwardGroupedMLP_CuTeGEMMDSwiGLU (pytorch/ops/fused): the first product's kernel writes gate
    and up, and the activated gate in the second product's format; backward's kernel reads both
    halves once more.
    """
    reread = Kernel(kind="elementwise", low=2 * elems, launches=0.0)
    kept = Saved(low=2 * elems)
    return Op(name="product", fwd=(), bwd=(reread,), saved=kept, result=Saved(low=elems))


def _uncast(body: Body, names: tuple[str, ...], *, backward: bool) -> None:
    """Remove the cast before products of these names, whose inputs are in their format already.

    The kernel that writes these inputs is still counted with a width of 16 bit.
    """
    for i, op in enumerate(body.ops):
        if op.name in names:
            kernels = tuple(replace(k, cast=0.0) for k in (op.bwd if backward else op.fwd))
            body.ops[i] = replace(op, bwd=kernels) if backward else replace(op, fwd=kernels)


def dense(body: Body, s: MlpShape, reads: str, prefix: str = "") -> None:
    """Add one feed-forward layer that reads ``reads``."""
    inner = float(s.seq * s.ffn)
    product = f"{prefix}product"
    if s.kind in GATED:
        if s.fused:
            body.linear(f"{prefix}gate_up", s.seq, s.hidden, 2 * s.ffn, bias=s.bias, reads=reads)
        else:
            body.linear(f"{prefix}gate", s.seq, s.hidden, s.ffn, bias=s.bias, reads=reads)
            body.linear(f"{prefix}up", s.seq, s.hidden, s.ffn, bias=s.bias, reads=reads)
            body.add(
                ops.accumulate(
                    f"{prefix}mlp.inputs", float(s.seq * s.hidden), high=reads in body.high
                )
            )
        between = gate_product(
            s.kind, inner, s.fused_pointwise, fp8_input=s.fp8_input, clamps_apart=s.clamps_apart,
            halves=s.fused, in_place=s.in_place,
        )  # fmt: skip
    else:
        body.linear(f"{prefix}up", s.seq, s.hidden, s.ffn, bias=s.bias, reads=reads)
        between = (plain_activation(s.kind, inner, s.fused_pointwise),)
        if s.kind == "xielu":
            body.param(f"{prefix}alpha_p", 1)
            body.param(f"{prefix}alpha_n", 1)
    wide = f"{prefix}up" in body.high
    body.add(*(replace(ops.in_fp32(op) if wide else op, name=f"{prefix}{op.name}")
               for op in between))  # fmt: skip
    if wide or s.kind == "gelu_new" or (s.kind == "relu2" and not s.fused_pointwise):
        body.high.add(product)
    if s.inner_norm:
        body.norm(f"{prefix}inner_norm", s.seq, s.ffn, s.inner_norm, narrow=True)
        product = f"{prefix}inner_norm"
    body.linear(f"{prefix}down", s.seq, s.ffn, s.hidden, bias=s.bias, reads=product)
    if s.casts and s.kind in GATED and s.fused_pointwise:
        _uncast(body, tuple(f"{prefix}{p}" for p in ("gate", "up", "gate_up")), backward=True)
        _uncast(body, (f"{prefix}down",), backward=False)


def _in_turn(op: Op, experts: float) -> Op:
    """An op that runs once for each expert, on its rows alone."""
    if experts == 1:
        return op
    fwd, bwd = (
        tuple(replace(k, launches=experts * k.launches) for k in side) for side in (op.fwd, op.bwd)
    )
    return replace(op, fwd=fwd, bwd=bwd)


def _exchange(
    e: Experts, run: Implementation, tokens: float, width: int, copies: float, awaited: int | None
) -> tuple[Op, Op, Op]:
    """The ops that choose experts, dispatch rows to them, and combine what they make of these.

    ``awaited``: ``awaited_experts`` of ``ops.dispatch``.
    """
    every = e.expert_tokens == "all"
    if run.experts.joint_experts == "looked_up" and e.top_groups >= e.expert_groups and not every:
        from simcore.workload.ops import expert_lookups as by

        return (
            by.route_looked_up("route", tokens, e.choices, e.top_k),
            by.dispatch_looked_up("dispatch", tokens, width, copies),
            by.combine_looked_up("combine", tokens, width, copies),
        )
    weighed = not run.experts.weighed_early and not every
    fused = run.experts.weighed_early
    return (
        ops.route("route", tokens, e.choices, e.top_k, e.expert_groups, e.top_groups),
        ops.dispatch("dispatch", tokens, width, copies, fused=fused, awaited_experts=awaited),
        ops.combine("combine", tokens, width, copies, weighed=weighed),
    )


def experts(
    body: Body, s: MlpShape, e: Experts, run: Implementation, share: RankShare, reads: str
) -> None:
    """Add a mixture of experts: router, dispatch, two grouped products, combination."""
    local, ffn = share.local_experts or e.experts, e.expert_ffn or s.ffn
    tokens = float(s.seq) * share.routed_share
    rows = tokens * e.computed_top_k * share.expert_rows
    copies = e.computed_top_k * share.permuted_rows
    optional_moves = (
        ("regroup", run.experts.regrouped_rows and local > 1),
        ("pad", run.experts.padded_rows),
    )
    moves = [move for move, on in optional_moves if on]
    trained = body.trains
    body.linear("router", tokens, s.hidden, e.choices, bias=e.expert_bias, reads=reads, wide=True)
    width = e.expert_latent or s.hidden
    if e.expert_latent:
        body.linear("latent.down", tokens, s.hidden, width, reads=reads)
        body.add(ops.accumulate("latent.forks", tokens * s.hidden))
    gated = s.kind in GATED
    parts = (("gate", "up") if run.experts.expert_apart else ("gate_up",)) if gated else ("up",)
    cols = (2 * ffn // len(parts)) if gated else ffn
    joint = run.experts.fused_experts or run.experts.joint_experts != "none"
    looped = run.experts.weighed_early and not run.experts.experts_in_turn
    first = [
        ops.grouped_linear(
            f"experts.{part}", rows, width, cols, local, weight_grad=trained,
            save_input=part != "up" or not gated, joint=joint, looped=looped,
            edge_rows=run.experts.expert_tile,
        )
        for part in parts
    ]  # fmt: skip
    second = ops.grouped_linear(
        "experts.down", rows, ffn, width, local, weight_grad=trained, joint=joint, looped=looped,
        edge_rows=run.experts.expert_tile,
    )  # fmt: skip
    if not gated:
        between: tuple[Op, ...] = (plain_activation(s.kind, rows * ffn, s.fused_pointwise),)
        if run.experts.weighed_early and s.kind not in _WITH_WEIGHTS:
            elems = rows * ffn
            between += (ops.binary("weights", elems, broadcast=rows, saves=elems + rows, grads=2),)
    elif run.experts.fused_experts:
        between = (_in_products(rows * ffn),)
    else:
        between = gate_product(
            s.kind, rows * ffn, s.fused_pointwise, fp8_input=s.fp8_input,
            clamps_apart=s.clamps_apart, halves=not run.experts.expert_apart,
        )  # fmt: skip
    times = float(local if run.experts.experts_in_turn else 1)
    between = tuple(_in_turn(op, times) for op in between)
    every = e.expert_tokens == "all"
    awaited = (0 if joint else local) if run.experts.waits_for_counts else None
    routed, sent, back = _exchange(e, run, tokens, width, copies, awaited)
    body.add(routed)
    with body.within("exchange"):
        body.add(
            _in_turn(sent, times),
            *(ops.regroup(f"dispatch.{move}", rows, width) for move in moves),
        )
        if every:  # inputs times weights, which are zero where a token did not choose the expert
            elems = rows * width
            body.add(
                ops.binary("dispatch.weights", elems, broadcast=rows, saves=elems + rows, grads=2)
            )
    with body.within("experts"):
        body.add(*first)
    body.add(*between)
    with body.within("experts"):
        body.add(second)
        if e.expert_bias and run.experts.expert_bias_apart:
            body.add(weighed_bias(rows, width, local))
    with body.within("exchange"):
        body.add(
            *(ops.regroup(f"combine.{move}", rows, width) for move in moves), back,
        )  # fmt: skip
    if e.zero_experts:  # a token itself, weighted
        body.add(
            ops.binary(
                "zero_experts.product", tokens * s.hidden, broadcast=tokens, saves=tokens, grads=1
            ),
            ops.binary("zero_experts.sum", tokens * s.hidden, grads=0),
            ops.accumulate("zero_experts.fork", tokens * s.hidden),
        )
    with body.within("experts"):
        body.add(ops.accumulate("experts.forks", tokens * s.hidden))
        if run.experts.expert_apart and gated:
            body.add(ops.accumulate("experts.inputs", rows * width))
    for part in parts:
        body.stacked(f"experts.{part}", local * cols * width)
        if e.expert_bias:
            body.param(f"experts.{part}.bias", local * cols, routed=True)
    body.stacked("experts.down", local * ffn * width)
    if e.expert_bias:
        body.param("experts.down.bias", local * width, routed=True)
    if e.expert_latent:
        body.linear("latent.up", tokens, width, s.hidden, reads="combined")
    if e.shared_ffn:
        shape = MlpShape(
            seq=s.seq, hidden=s.hidden, ffn=e.shared_ffn, kind=s.kind, bias=False,
            fused=s.fused, fused_pointwise=s.fused_pointwise,
        )  # fmt: skip
        with body.within("shared"):
            dense(body, shape, reads, "shared.")
        tokens, elems = float(s.seq), float(s.seq * s.hidden)
        if e.shared_gate:
            body.linear("shared_gate", tokens, s.hidden, 1, reads=reads, wide=True)
            body.add(
                ops.activation("shared_gate.sigmoid", tokens, saves="output"),
                ops.binary("shared_gate.product", elems, broadcast=tokens, saves=elems, grads=1),
            )
        with body.within("shared"):
            body.add(ops.binary("shared.sum", elems, grads=0), ops.accumulate("shared.fork", elems))
