"""BERT (Devlin et al. 2018) with its pooler and a classification head; post-norm encoder.

Op by op as the eager implementation of transformers 4.3x runs it: scores are written to memory,
with dropout on the probabilities; ``attention="sdpa"`` fuses them. TensorFlow's layers are in
``bert_tensorflow.py``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from simcore.base.units import INT64_BYTES
from simcore.workload import ops
from simcore.workload.archs import ARCHS
from simcore.workload.archs.bert_tensorflow import graph_layer, xla_layer
from simcore.workload.archs.checks import BIAS_ADDS, SCRIPTED, check_names, head_width
from simcore.workload.archs.params import norm_params, weight_and_bias
from simcore.workload.graph import TIE, Block, Kernel, Op, Param, Workload
from simcore.workload.ops import tensorflow
from simcore.workload.saved import Saved


def _dropout(name: str, elems: float, on: bool, *, high: bool = False) -> tuple[Op, ...]:
    return (ops.dropout(name, elems, high=high),) if on else ()


def embeddings(
    seq: int, hidden: int, vocab: int, max_positions: int, type_vocab: int, drop: bool, graph: bool
) -> Block:
    elems = float(seq * hidden)
    norm = tensorflow.layer_norm if graph else ops.layer_norm
    dropped = _dropout("dropout", elems, drop, high=True)
    if graph and drop:
        dropped = (tensorflow.dropout("dropout", elems),)
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


def _with_epilogues(body: tuple[Op, ...], gelu_elems: float) -> tuple[Op, ...]:
    """A layer whose products add biases, apply GELU and sum the biases' gradients themselves.

    These are cuBLASLt's epilogues: ``up`` also writes the input of GELU, whose derivative is in the
    epilogue of ``down``'s gradient (CUBLASLT_EPILOGUE_GELU_AUX_BIAS, DGELU_BGRAD).
    """

    def fused(op: Op) -> Op:
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

    return tuple(fused(op) for op in body)


def _layer(
    seq: int,
    hidden: int,
    heads: int,
    ffn: int,
    drop: bool,
    attention: Literal["eager", "sdpa"],
    gelu: str,
    apart: bool,
    epilogues: bool,
    held: bool,
) -> tuple[Op, ...]:
    elems, head_dim = float(seq * hidden), hidden // heads
    scripted = gelu == "scripted"  # adds the bias itself
    up_apart = gelu == "separate_bias" or (apart and not scripted)
    fused = attention == "sdpa"
    if fused:
        core: tuple[Op, ...] = (ops.sdpa("attention", 1, heads, heads, seq, seq, head_dim),)
    else:
        core = ops.attention_eager("attention", heads, seq, seq, head_dim, mask="add", drop=drop)
    body: tuple[Op, ...] = (
        ops.linear("q", seq, hidden, hidden, bias=True, bias_apart=apart, input_high=True),
        *(
            ops.linear(
                part,
                seq,
                hidden,
                hidden,
                bias=True,
                bias_apart=apart,
                save_input=False,
                input_high=True,
            )
            for part in "kv"
        ),
        *core,
        ops.linear(
            "attention.out", seq, hidden, hidden, bias=True, bias_apart=apart, save_input=not fused
        ),
        *_dropout("attention.dropout", elems, drop),
        ops.residual("attention.residual", elems),
        ops.accumulate(
            "attention.forks", elems, times=3, high=True, casts=elems
        ),  # q, k, v, residual
        ops.layer_norm("attention.norm", seq, hidden),
        ops.linear("up", seq, hidden, ffn, bias=True, bias_apart=up_apart, input_high=True),
        _scripted_gelu(float(seq * ffn), held=held)
        if scripted
        else ops.activation("gelu", seq * ffn),
        ops.linear("down", seq, ffn, hidden, bias=True, bias_apart=apart),
        *_dropout("mlp.dropout", elems, drop),
        ops.residual("mlp.residual", elems),
        ops.accumulate("mlp.fork", elems, high=True, casts=elems),
        ops.layer_norm("mlp.norm", seq, hidden),
    )
    return _with_epilogues(body, float(seq * ffn)) if epilogues else body


def _layer_block(body: tuple[Op, ...], seq: int, hidden: int, ffn: int) -> Block:
    params = (
        *weight_and_bias("q", hidden, hidden),
        *weight_and_bias("k", hidden, hidden),
        *weight_and_bias("v", hidden, hidden),
        *weight_and_bias("attention.out", hidden, hidden),
        *norm_params("attention.norm", hidden),
        *weight_and_bias("up", hidden, ffn),
        *weight_and_bias("down", ffn, hidden),
        *norm_params("mlp.norm", hidden),
    )
    boundary = Saved(high=float(seq * hidden))
    return Block(name="layer", ops=body, params=params, boundary=boundary, recomputable=True)


def classifier_head(seq: int, hidden: int, classes: int, drop: bool, pooler: str) -> Block:
    # The first token is a view, so the whole last hidden state is saved for the pooler.
    pinned = ops.keep("last_hidden", float(seq * hidden), high=True)
    first = ops.grad_only("first_token", 2.0 * seq * hidden, high=True, kind="copy")
    body = (
        pinned,
        first,
        ops.linear("pooler", 1, hidden, hidden, bias=True, save_input=False),
        # The classifier saves dropout's output; the activation saves its own output.
        ops.activation(pooler, hidden, saves="output"),
        *_dropout("dropout", hidden, drop),
        ops.linear("classifier", 1, hidden, classes, bias=True, save_input=drop),
        ops.cross_entropy("loss", 1, classes),
        ops.loss_seed(),
    )
    params = (
        *weight_and_bias("pooler", hidden, hidden),
        *weight_and_bias("classifier", hidden, classes),
    )
    return Block(name="head", ops=body, params=params)


def _masked_lm(seq: int, hidden: int, vocab: int, share: float) -> Block:
    """A product, GELU and norm before the tied table; loss over ``share`` of the positions."""
    rows = seq * share
    gathered = Kernel(kind="gather", high=2.0 * rows * hidden)
    chosen = (Op(name="positions", fwd=(gathered,), bwd=(gathered,)),) if share < 1.0 else ()
    body = (
        *chosen,
        ops.linear("transform", rows, hidden, hidden, bias=True, input_high=True),
        ops.activation("gelu", rows * hidden),
        ops.layer_norm("norm", rows, hidden),
        ops.linear("decoder", rows, hidden, vocab, bias=True, input_high=True),
        ops.grad_only(TIE, 0.0, weight=3.0 * vocab * hidden),
        *ops.lm_loss("loss", rows, vocab),
    )
    params = (
        *weight_and_bias("transform", hidden, hidden),
        *norm_params("norm", hidden),
        Param("decoder.bias", vocab),
    )
    return Block(name="head", ops=body, params=params)


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
    - ``xla``: XLA compiles the layers.
    """
    check_names(
        head=(head, ("classifier", "masked-lm")),
        pooler=(pooler, ("tanh", "relu")),
        attention=(attention, ("eager", "sdpa", "math", "flash")),
        gelu=(gelu, ("fused", "scripted", "separate_bias", "tanh")),
        framework=(framework, ("torch", "tensorflow")),
        bias_add=(bias_add, BIAS_ADDS),
        scripted_activations=(scripted_activations, SCRIPTED),
    )
    head_width(hidden, heads)
    if not 0 < seq_len <= max_positions:
        raise ValueError(f"seq_len {seq_len} is not within 1..{max_positions}")
    drop, inner = dropout > 0, ffn or 4 * hidden
    kind: Literal["eager", "sdpa"] = "sdpa" if attention in ("sdpa", "flash") else "eager"
    graph, types = framework == "tensorflow" and not xla, type_vocab if token_types else 0
    if graph:
        body = graph_layer(seq_len, hidden, heads, inner, drop=drop, tanh=gelu == "tanh")
    elif xla:
        body = xla_layer(seq_len, hidden, heads, inner, drop=drop)
    else:
        body = _layer(
            seq_len,
            hidden,
            heads,
            inner,
            drop,
            kind,
            gelu,
            bias_add == "separate",
            epilogues,
            scripted_activations == "held",
        )
    blocks: tuple[Block, ...] = (
        embeddings(seq_len, hidden, vocab, max_positions, types, drop, graph),
        _layer_block(body, seq_len, hidden, inner),
        classifier_head(seq_len, hidden, classes, drop, pooler)
        if head == "classifier"
        else _masked_lm(seq_len, hidden, vocab, masked_share),
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
