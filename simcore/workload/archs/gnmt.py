"""GNMT v2, op by op as PyTorch runs it (Wu et al. 2016; MLPerf's RNN translator).

Encoder: a bidirectional LSTM layer, then one-directional ones. Decoder: an LSTM with normalised
additive attention, whose context is joined to the input of every further layer. Both have residuals
from the third layer on. One sample is a pair of sentences, both ``seq_len`` tokens long; batches
are bucketed by length and padded, so that this is a mean.
"""

from __future__ import annotations

from simcore.base.units import INT64_BYTES
from simcore.workload import ops
from simcore.workload.archs import ARCHS
from simcore.workload.archs.parts import BIAS_ADDS, check_names
from simcore.workload.graph import Block, Kernel, KernelKind, Op, Param, Workload
from simcore.workload.ops.lookup import BLOCK_ROW
from simcore.workload.ops.recurrent import lstm
from simcore.workload.saved import Saved

_GATES = 4


def _lstm_params(name: str, k: int, hidden: int) -> tuple[Param, ...]:
    return (
        Param(f"{name}.weight_ih", _GATES * hidden * k),
        Param(f"{name}.weight_hh", _GATES * hidden * hidden),
        Param(f"{name}.bias_ih", _GATES * hidden),
        Param(f"{name}.bias_hh", _GATES * hidden),
    )


def _attention(steps: int, source: int, hidden: int) -> tuple[Op, ...]:
    """Additive attention: scores ``v · tanh(W q + U k)`` of all pairs, and the weighted mean."""
    pairs = float(steps * source)
    pair_elems = pairs * hidden
    score = Op(
        name="attention.score",
        fwd=(
            # Queries and keys are broadcast over each other, then the bias over both.
            Kernel(
                kind="elementwise", low=pair_elems + hidden * (steps + source), indexed=pair_elems
            ),
            Kernel(kind="elementwise", low=2 * pair_elems, indexed=pair_elems),
            Kernel(kind="elementwise", low=2 * pair_elems),  # tanh
            Kernel(kind="gemm", flop=2 * pair_elems, low=pair_elems + pairs),
        ),
        bwd=(
            Kernel(kind="gemm", flop=2 * pair_elems, low=pair_elems + pairs),
            Kernel(kind="gemm", flop=2 * pair_elems, low=pair_elems + pairs),
            Kernel(kind="elementwise", low=3 * pair_elems),
            Kernel(kind="reduction", low=pair_elems, launches=3.0),  # bias, query, keys
        ),
        saved=Saved(low=pair_elems),
    )
    return (
        ops.linear("attention.query", steps, hidden, hidden, save_input=False),
        ops.linear("attention.keys", source, hidden, hidden, save_input=False),
        score,
        ops.softmax("attention.softmax", pairs),
        ops.bmm("attention.context", 1, steps, hidden, source, save_left=False, save_right=False),
        ops.keep("attention.out", float(steps * hidden)),
    )


def _smoothed_loss(rows: float, vocab: int) -> tuple[Op, ...]:
    """Label smoothing as in smoothing.py: fp32 log-probabilities, gathered and averaged.

    ``log_softmax(..., dtype=torch.float32)`` reads 16 bit and writes fp32 in one kernel. The mean
    reads the result once more. Backward makes two gradients of that size: zeros to which the
    gathered ones are added, and the mean's, expanded by a division. It sums them and goes back
    through the softmax.
    """
    scores = rows * vocab
    fp32_bytes = 4.0 * scores  # bytes of one fp32 tensor
    # Long rows are read from memory once per pass, as in ``ops.cross_entropy``.
    streams = vocab > BLOCK_ROW
    kind: KernelKind = "elementwise" if streams else "softmax"
    logits = Op(name="loss.logits", fwd=(), saved=Saved(low=scores))
    read = 3.0 if streams else 1.0
    loss = Op(
        name="loss",
        fwd=(
            Kernel(kind=kind, low=read * scores, raw_bytes=fp32_bytes + 8.0 * rows),
            Kernel(kind="reduction", raw_bytes=fp32_bytes, launches=2.0),
        ),
        bwd=(
            Kernel(kind="elementwise", raw_bytes=fp32_bytes),
            Kernel(kind="elementwise", raw_bytes=fp32_bytes, indexed=scores),
            Kernel(kind="elementwise", raw_bytes=3 * fp32_bytes),
            Kernel(kind=kind, low=scores, raw_bytes=(3.0 if streams else 2.0) * fp32_bytes),
        ),
        saved=Saved(raw_bytes=8.0 * rows + fp32_bytes),
    )
    return logits, loss, ops.loss_seed()


@ARCHS.register("gnmt")
def build(
    *,
    name: str,
    sample_unit: str = "sentence pair",
    layers: int = 4,
    hidden: int,
    vocab: int = 31794,
    seq_len: int = 25,
    dropout: float = 0.2,
    bias_add: str = "fused",
) -> Workload:
    """GNMT with ``layers`` layers each way; both share the embedding, the output layer is separate.

    ``bias_add``: its bias is added by the product (``fused``) or by a separate kernel
    (``separate``: PyTorch before 1.12).
    """
    check_names(bias_add=(bias_add, BIAS_ADDS))
    if layers < 3:
        raise ValueError(f"layers must be at least 3, not {layers}")
    s, h = seq_len, hidden
    elems, drop = float(s * h), dropout > 0

    def layer(part: str, i: int, k: int, *, residual: bool) -> Block:
        body: list[Op] = []
        if drop:
            body.append(ops.dropout("dropout", float(s * k)))
        body.append(lstm("lstm", s, k, h, save_input=drop or k != h))
        if residual:
            body += [ops.binary("residual", elems, grads=0), ops.accumulate("fork", elems)]
        label = f"{part}.{'residual' if residual else i}"
        return Block(name=label, ops=tuple(body), params=_lstm_params("lstm", k, h))

    join = ops.copy("concat_context", float(s * 2 * h))
    first = Block(
        name="encoder.bidirectional",
        ops=(
            ops.embedding("embedding", s, h, vocab),
            *((ops.dropout("dropout", elems),) if drop else ()),
            lstm("forward", s, h, h),
            lstm("backward", s, h, h, save_input=False),
            ops.copy("concat", 2 * elems),
        ),
        params=(
            Param("embedding.weight", vocab * h),
            *_lstm_params("forward", h, h),
            *_lstm_params("backward", h, h),
        ),
    )
    decoder = Block(
        name="decoder.attention",
        ops=(
            ops.embedding("embedding", s, h, vocab),
            *((ops.dropout("dropout", elems),) if drop else ()),
            lstm("lstm", s, h, h),
            *_attention(s, s, h),
        ),
        params=(
            *_lstm_params("lstm", h, h),
            Param("attention.query", h * h),
            Param("attention.keys", h * h),
            Param("attention.v", h),
            Param("attention.bias", h),
            Param("attention.scale", 1),
        ),
    )
    decoder_layer = layer("decoder", 1, 2 * h, residual=False)
    decoder_residual = layer("decoder", 2, 2 * h, residual=True)
    with_context = tuple(
        Block(name=b.name, ops=(join, *b.ops), params=b.params)
        for b in (decoder_layer, decoder_residual)
    )
    head = Block(
        name="classifier",
        ops=(
            ops.linear("classifier", s, h, vocab, bias=True, bias_apart=bias_add == "separate"),
            *_smoothed_loss(float(s), vocab),
        ),
        params=(Param("classifier.weight", vocab * h), Param("classifier.bias", vocab)),
    )
    return Workload(
        name=name,
        sample_unit=sample_unit,
        blocks=(
            first, layer("encoder", 1, 2 * h, residual=False),
            layer("encoder", 2, h, residual=True), decoder, *with_context, head,
        ),
        order=(0, 1, *[2] * (layers - 2), 3, 4, *[5] * (layers - 2), 6),
        input_bytes=2.0 * INT64_BYTES * s,
        tokens_per_sample=2.0 * s,
    )  # fmt: skip
