"""BERT (Devlin et al. 2018) with its pooler and a classification head; post-norm encoder.

Op by op as the eager implementation of transformers 4.3x runs it: scores are written to memory,
with dropout on the probabilities; ``attention="sdpa"`` fuses them. TensorFlow's
layers run one kernel per node of the graph, or fused by XLA.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from simcore.base.units import INT64_BYTES
from simcore.workload import ops
from simcore.workload.archs import ARCHS, BIAS_ADDS, SCRIPTED, check_names, head_width
from simcore.workload.archs.body import Body
from simcore.workload.archs.params import norm_params
from simcore.workload.archs.towers import CORES, Tower, check_length, layer, masked_lm_head
from simcore.workload.graph import Block, Kernel, Op, Param, Workload
from simcore.workload.ops import tensorflow as tf
from simcore.workload.ops import xla as compiled
from simcore.workload.saved import Saved


def _dropout(name: str, elems: float, on: bool, *, high: bool = False) -> tuple[Op, ...]:
    return (ops.dropout(name, elems, high=high),) if on else ()


def embeddings(
    seq: int, hidden: int, vocab: int, max_positions: int, type_vocab: int, drop: bool, graph: bool
) -> Block:
    elems = float(seq * hidden)
    norm = tf.layer_norm if graph else ops.layer_norm
    dropped = _dropout("dropout", elems, drop, high=True)
    if graph and drop:
        dropped = (tf.dropout("dropout", elems),)
    mask = Kernel(kind="elementwise", high=2.0 * seq, launches=3.0)  # cast, 1 - mask, times min
    body = (
        Op(name="mask", fwd=(mask,), saved=Saved()),
        ops.embedding("word", seq, hidden, vocab),
        *(
            (
                ops.embedding("token_type", seq, hidden, type_vocab),
                ops.binary("add_token_type", elems, grads=0, high=True),
            )
            if type_vocab
            else ()
        ),
        ops.add_positions("position", seq, hidden, table_rows=max_positions),
        norm("norm", seq, hidden),
        *dropped,
    )
    params = (
        Param("word.weight", vocab * hidden),
        Param("position.weight", max_positions * hidden),
        *((Param("token_type.weight", type_vocab * hidden),) if type_vocab else ()),
        *norm_params("norm", hidden),
    )
    return Block(name="embeddings", ops=body, params=params)


def _scripted_gelu(elems: float, *, held: bool) -> Op:
    """``0.5 x (1 + erf(x / sqrt 2))`` as a script: one kernel each way; three factors are saved.

    ``held``: the factors of the step before are still in memory too (``ops.script_kept``).
    """
    fwd = Kernel(kind="elementwise", low=5 * elems)
    bwd = Kernel(kind="elementwise", low=5 * elems)
    kept = ops.script_kept(3 * elems, held=held)
    return Op(name="gelu.scripted", fwd=(fwd,), bwd=(bwd,), saved=kept)


def _adapted(op: Op, t: Tower, gelu: str, *, apart: bool, held: bool) -> Op:
    """An op of a layer with its bias added by another kernel, or with GELU as a script."""
    scripted = gelu == "scripted"  # adds the bias itself
    if op.name == "gelu" and scripted:
        return _scripted_gelu(float(t.rows * t.ffn), held=held)
    up_apart = gelu == "separate_bias" or (apart and not scripted)
    if not op.gemm_weight or not (up_apart if op.name == "up" else apart):
        return op
    product = op.fwd[0]
    bias = ops.added_bias(product.m.per_sample * product.n.fixed, int(product.n.fixed))
    return replace(op, fwd=(product, bias))


def _with_epilogues(op: Op, gelu_elems: float) -> Op:
    """An op of a layer whose products add biases, apply GELU and sum the biases' gradients.

    These are cuBLASLt's epilogues: ``up`` also writes the input of GELU, whose derivative is in the
    epilogue of ``down``'s gradient (CUBLASLT_EPILOGUE_GELU_AUX_BIAS, DGELU_BGRAD).
    """
    if op.name == "gelu":
        return Op(name=op.name, fwd=(), saved=op.saved)
    if not op.gemm_weight:
        return op
    fwd, bwd = list(op.fwd), [k for k in op.bwd if k.kind != "reduction"]
    if op.name == "up":
        fwd[0] = replace(fwd[0], low=fwd[0].low + gelu_elems)
    if op.name == "down":
        bwd[0] = replace(bwd[0], low=bwd[0].low + gelu_elems)
    return replace(op, fwd=tuple(fwd), bwd=tuple(bwd))


def graph_layer(t: Tower, *, tanh: bool) -> list[Op]:
    """A layer as TensorFlow runs it without XLA, one kernel per node of the graph.

    Nodes are those of the original modeling.py (attention_layer, transformer_model), TensorFlow 2's
    official/nlp/modeling/layers and ELECTRA's modeling_utils.py.

    Under mixed precision everything from q, k and v to the context is 16 bit. Norms begin with a
    mean, and GELU's approximation (``tanh``) with a power, so that everything from a product's
    result to the next product's operand is fp32: the bias, dropout and residual, GELU, and in
    backward everything between products. A result's gradient is cast once for both products that
    read it.
    """
    seq, hidden, heads, ffn, drop = t.rows, t.hidden, t.heads, t.ffn, t.drop
    elems, inner, scores = t.elems, float(seq * ffn), float(heads) * seq * seq
    body = [tf.crossed("qkv.input", elems, backward=False)]
    for part in "qkv":
        body += [
            ops.linear(part, seq, hidden, hidden, save_input=part == "q"),
            tf.bias(f"{part}.bias", elems, hidden, low=True, low_grad=True),
            ops.copy(f"{part}.transpose", elems, saves=elems),
        ]
    return [
        *body,
        ops.bmm("scores", heads, seq, seq, t.head_dim, save_left=False, save_right=False),
        Op(name="scale", fwd=(tf.node(2 * scores, low=True),), bwd=(tf.node(2 * scores),)),
        Op(name="mask", fwd=(tf.node(2 * scores, each=scores, low=True),)),
        tf.softmax("softmax", scores),
        *((tf.dropout("softmax.dropout", scores, low=True),) if drop else ()),
        # The gradient is cast before and after the scores; forward is 16 bit throughout.
        *(tf.crossed(f"scores.{end}", scores, forward=False) for end in ("in", "out")),
        ops.bmm("context", heads, seq, t.head_dim, seq, save_left=drop, save_right=False),
        ops.copy("merge", elems),
        ops.linear("attention.out", seq, hidden, hidden),
        *_added("attention", elems, hidden, drop, forks=3),
        tf.layer_norm("attention.norm", seq, hidden),
        tf.crossed("up.input", elems),
        ops.linear("up", seq, hidden, ffn),
        # Cast to fp32 for GELU's power and back; with erf, too, the gradient reaches the product in
        # fp32.
        tf.crossed("up.result", inner, forward=tanh),
        tf.bias("up.bias", inner, ffn, low=not tanh),
        tf.gelu("gelu", inner, tanh=tanh),
        *((tf.crossed("down.input", inner),) if tanh else ()),
        ops.linear("down", seq, ffn, hidden),
        *_added("mlp", elems, hidden, drop, forks=1),
        tf.layer_norm("mlp.norm", seq, hidden),
    ]


def _added(name: str, elems: float, width: int, drop: bool, *, forks: int) -> tuple[Op, ...]:
    """A branch's result cast to fp32, its bias, dropout and the residual.

    Backward sums the gradients of ``forks`` products and of the residual in one node (AddN).
    """
    fork = tf.node((forks + 2) * elems)
    casts = (ops.autocast_cast(elems),) * (forks if forks > 1 else 0)
    return (
        tf.crossed(f"{name}.result", elems),
        tf.bias(f"{name}.bias", elems, width),
        *((tf.dropout(f"{name}.dropout", elems),) if drop else ()),
        Op(name=f"{name}.residual", fwd=(tf.node(3 * elems),), bwd=(*casts, fork)),
    )


def xla_layer(t: Tower) -> list[Op]:
    """A layer that XLA compiles: ops between products and sums are one kernel, casts included.

    A bias is added where the result is read: by the copy to heads, by GELU, or by the sum with the
    residual, which also applies dropout. TensorFlow's kernels draw random numbers (``xla.random``).
    """
    seq, hidden, elems = t.rows, t.hidden, t.elems
    return [
        *(
            ops.linear(part, seq, hidden, hidden, bias=True, save_input=part == "q")
            for part in "qkv"
        ),
        *(ops.copy(f"{part}.heads", elems) for part in "qkv"),
        *compiled.attention("attention", t.heads, seq, t.head_dim, drop=t.drop),
        ops.linear("attention.out", seq, hidden, hidden, bias=True, save_input=False),
        compiled.added("attention.residual", elems, drop=t.drop),
        ops.accumulate("attention.forks", elems, times=3, high=True),
        compiled.layer_norm("attention.norm", seq, hidden),
        ops.linear("up", seq, hidden, t.ffn, bias=True),
        ops.activation("gelu", float(seq * t.ffn)),
        ops.linear("down", seq, t.ffn, hidden, bias=True),
        compiled.added("mlp.residual", elems, drop=t.drop),
        ops.accumulate("mlp.fork", elems, high=True),
        compiled.layer_norm("mlp.norm", seq, hidden),
    ]


def classifier_head(seq: int, hidden: int, classes: int, drop: bool, pooler: str) -> Block:
    """A classifier of the first token, after a product with an activation (``pooler``)."""
    body = Body(in_layer=False)
    # The first token is a view, so the whole last hidden state is saved for the pooler.
    body.add(
        ops.keep("last_hidden", float(seq * hidden), high=True),
        ops.grad_only("first_token", 2.0 * seq * hidden, high=True, kind="copy"),
    )
    body.kept.add("first")
    body.linear("pooler", 1, hidden, hidden, bias=True, reads="first")
    # The classifier saves dropout's output; the activation saves its own output.
    body.add(
        ops.activation(pooler, hidden, saves="output"), *_dropout("dropout", float(hidden), drop)
    )
    body.kept.update([] if drop else ["pooled"])
    body.linear("classifier", 1, hidden, classes, bias=True, reads="pooled")
    body.add(ops.cross_entropy("loss", 1, classes), ops.loss_seed())
    return body.block("head")


def masked_lm_block(*sizes: int, **how: Any) -> Block:
    """The block of ``towers.masked_lm_head``."""
    body = Body(in_layer=False)
    masked_lm_head(body, *sizes, **how)
    return body.block("head")


@ARCHS.register("bert")
def build(
    *,
    name: str,
    sample_unit: str = "sequence",
    layers: int,
    hidden: int,
    heads: int,
    ffn: int = 0,
    vocab: int = 30522,
    seq_len: int = 128,
    max_positions: int = 512,
    type_vocab: int = 2,
    token_types: bool = True,
    classes: int = 2,
    dropout: float = 0.1,
    attention: str = "eager",
    head: str = "classifier",
    pooler: str = "tanh",
    gelu: str = "fused",
    bias_add: str = "fused",
    epilogues: bool = False,
    framework: str = "torch",
    masked_share: float = 1.0,
    scripted_activations: str = "released",
    xla: bool = False,
) -> Workload:
    """BERT over ``seq_len`` tokens. ``ffn`` 0: four times hidden.

    - ``head``: ``classifier`` of the sequence after a pooler, or ``masked-lm``, with a loss over
      all positions or a fraction ``masked_share`` of them.
    - ``pooler``: its activation, tanh or relu (DistilBERT, which has no ``token_types``).
    - ``attention``: eager (or math), sdpa (or flash).
    - ``gelu``: ``fused``, torch's own; ``scripted``, the formula as a TorchScript function, which
      saves its three factors; ``separate_bias``, torch's own after a kernel that adds the bias;
      ``tanh``, the approximation.
    - ``scripted_activations``: whether backward frees these factors (``released``) or they live
      until the next loss (``held``: PyTorch before 1.7).
    - ``bias_add``: by the product (``fused``) or by a separate kernel (``separate``: PyTorch before
      1.12).
    - ``epilogues``: GELU and the biases' gradients are part of products (cuBLASLt).
    - ``framework``: layers as ``torch`` runs them, or as ``tensorflow`` does (one kernel per node;
      GELU by ``tanh``, or with erf as separate operators).
    - ``xla``: XLA compiles the layers, and pads products (gpu/transforms/cublas_pad_for_gemms.cc).
    """
    check_names(
        head=(head, ("classifier", "masked-lm")),
        pooler=(pooler, ("tanh", "relu")),
        attention=(attention, tuple(CORES)),
        gelu=(gelu, ("fused", "scripted", "separate_bias", "tanh")),
        framework=(framework, ("torch", "tensorflow")),
        bias_add=(bias_add, BIAS_ADDS),
        scripted_activations=(scripted_activations, SCRIPTED),
    )
    check_length(seq_len, max_positions)
    drop, types = dropout > 0, type_vocab if token_types else 0
    t = Tower(
        rows=seq_len, hidden=hidden, heads=heads, head_dim=head_width(hidden, heads),
        ffn=ffn or 4 * hidden, norm_first=False, attention=CORES[attention], mask="add", drop=drop,
        drop_mlp=drop, drop_scores=drop,
    )  # fmt: skip
    one, graph = layer(t, "layer"), framework == "tensorflow" and not xla
    body = [
        _adapted(op, t, gelu, apart=bias_add == "separate", held=scripted_activations == "held")
        for op in one.ops
    ]
    if graph:
        body = graph_layer(t, tanh=gelu == "tanh")
    elif xla:
        body = xla_layer(t)
    elif epilogues:
        body = [_with_epilogues(op, float(t.rows * t.ffn)) for op in body]
    blocks: tuple[Block, ...] = (
        embeddings(seq_len, hidden, vocab, max_positions, types, drop, graph),
        replace(one, ops=tuple(body)),
        classifier_head(seq_len, hidden, classes, drop, pooler)
        if head == "classifier"
        else masked_lm_block(seq_len, hidden, hidden, vocab, share=masked_share, padded=xla),
    )
    if xla:
        blocks = tuple(ops.compiled(b) for b in blocks)
    return Workload(
        name=name,
        sample_unit=sample_unit,
        blocks=blocks,
        order=(0, *[1] * layers, 2),
        buffers_numel=2 * max_positions,  # position ids, token type ids
        n_buffers=2,
        # Token ids, token types, attention mask; one label per sequence or per token.
        input_bytes=INT64_BYTES * (3 * seq_len + (1 if head == "classifier" else seq_len)),
        tokens_per_sample=seq_len,
    )
