"""Look-ups in tables, sorts of indices that their gradients need, and the loss at the end.

Rows that were looked up several times have several gradients. To add them in one order PyTorch
sorts the indices: ``embedding_dense_backward`` (ATen native/cuda/Embedding.cu), ``index_put_`` with
accumulation, which is the gradient of ``x[index]`` (Indexing.cu), ``sort`` itself (Sort.cu). CUB's
radix sort is a chain of small kernels and memory clears that one call launches.
"""

from __future__ import annotations

from math import ceil, log2

from simcore.base.record import replace
from simcore.base.units import FP32_BYTES, INT64_BYTES, KIB
from simcore.workload.graph import AUXILIARY, Affine, Kernel, KernelKind, Op
from simcore.workload.ops.products import linear
from simcore.workload.saved import Saved

#: fp32 numbers of a row that a thread block holds in shared memory: 48 KiB unless a kernel requests
#: more (ATen SoftMax.cu, can_use_smem; CUDA C++ Programming Guide, technical specifications).
BLOCK_ROW = int(48 * KIB / FP32_BYTES)
#: Bits of a digit, by which one pass sorts (CUB, tuning_radix_sort.cuh, ONESWEEP_RADIX_BITS).
DIGIT_BITS = 8
#: Bits of an index (int64). ``embedding_dense_backward`` and ``sort`` sort by all of them.
INDEX_BITS = 8 * int(INT64_BYTES)
#: Launches of a sort beside its passes: two clears, a histogram of all digits and its sums; of a
#: pass: a clear and the pass (CUB of CUDA 13.0, dispatch_radix_sort.cuh, InvokeOnesweep).
SORT_LAUNCHES, PASS_LAUNCHES = 4.0, 2.0
#: Kernels of PyTorch that ``index_put_`` launches before it sorts: the remainder by the size, the
#: product with the stride, the quotient, a range (Indexing.cu, computeLinearIndex and
#: index_put_with_sort_kernel).
INDEX_KERNELS = 4.0
#: Kernels that ``embedding_dense_backward`` launches between its sort and its sums: the distinct
#: indices (two), parts of each, their offsets (two), their number, their beginnings
#: (EmbeddingBackwardKernel.cu, embedding_backward_cuda_kernel).
SEGMENT_LAUNCHES = 7.0
#: Indices of an embedding up to which one kernel adds all gradients, unsorted (Embedding.cu).
UNSORTED_INDICES = 3072
#: Bits of a number of rows up to 65,536: those of a micro-batch, where its size is not known.
LEAST_BITS = 16


def index_bits(rows: float) -> int:
    """Bits by which indices into ``rows`` rows of a sample are sorted, at least ``LEAST_BITS``."""
    return max(LEAST_BITS, ceil(log2(max(rows, 2.0))))


def sort_launches(bits: int = INDEX_BITS) -> float:
    """Kernels and clears of one radix sort by ``bits`` bits.

    One kernel sorts up to 2,304 pairs by itself (SingleTilePolicy); a micro-batch has more.
    """
    return SORT_LAUNCHES + PASS_LAUNCHES * ceil(bits / DIGIT_BITS)


def radix_sort(rows: float, bits: int = INDEX_BITS) -> Kernel:
    """``rows`` indices a sample sorted by ``bits`` bits, each with the place that it came from.

    A pass reads and writes both; the histogram reads the indices once.
    """
    moved = (1.0 + 4.0 * ceil(bits / DIGIT_BITS)) * INT64_BYTES
    return Kernel(kind=AUXILIARY, raw_bytes=moved * rows, launches=sort_launches(bits))


def added_at_indices(
    indices: float, into: float, *, low: float = 0.0, raw_bytes: float = 0.0
) -> tuple[Kernel, ...]:
    """The gradient of ``x[index]``: rows added into zeros in the order of sorted indices.

    ``indices`` a sample, into ``into`` rows. ``low``, ``raw_bytes``: elements or bytes of the rows'
    gradients; the sums have as many columns, are cleared, and are read and written for each row.
    """
    share, every = into / indices, INT64_BYTES * indices
    return (
        Kernel(kind="elementwise", low=share * low, raw_bytes=share * raw_bytes),
        Kernel(kind=AUXILIARY, raw_bytes=2.0 * INDEX_KERNELS * every, launches=INDEX_KERNELS),
        radix_sort(indices, index_bits(into)),
        Kernel(kind="gather", low=3.0 * low, raw_bytes=3.0 * raw_bytes + 2.0 * every),
    )


def embedding_gradient(tokens: float, dim: int, vocab: float) -> tuple[Kernel, ...]:
    """The gradient of a table of ``vocab`` rows: zeros, into which sums of sorted rows are written.

    Rows of one index are added ten at a time into fp32 sums, which a second kernel adds. Up to
    ``UNSORTED_INDICES`` one kernel adds all without a sort; a micro-batch has more.
    """
    rows, parts = tokens * dim, FP32_BYTES * tokens * dim
    every = INT64_BYTES * tokens
    return (
        Kernel(kind=AUXILIARY, weight=vocab * dim),
        Kernel(kind=AUXILIARY, raw_bytes=every),
        radix_sort(tokens),
        Kernel(kind=AUXILIARY, raw_bytes=2.0 * SEGMENT_LAUNCHES * every, launches=SEGMENT_LAUNCHES),
        Kernel(kind="gather", high=rows, raw_bytes=parts + every),
        Kernel(kind=AUXILIARY, high=rows, raw_bytes=parts),
    )


def embedding(name: str, tokens: float, dim: int, vocab: int, *, fused: bool = False) -> Op:
    """A gather in forward; in backward a gradient of the whole table, to which rows are added.

    ``fused``: a compiler adds them in one kernel; otherwise they are sorted first.
    Saves int64 indices.
    """
    rows = tokens * dim
    fwd = Kernel(kind="gather", high=2 * rows, raw_bytes=8.0 * tokens)
    bwd = embedding_gradient(tokens, dim, vocab)
    if fused:
        bwd = (replace(fwd, weight=float(vocab) * dim),)
    return Op(name=name, fwd=(fwd,), bwd=bwd, saved=Saved(raw_bytes=8.0 * tokens))


def cross_entropy(name: str, rows: float, classes: int, *, upcast: bool = False) -> Op:
    """log-softmax and negative log likelihood in fp32; saves the log-probabilities.

    ``upcast``: the script itself casts the logits to fp32, so that they are fp32 in pure 16-bit
    training too. Rows longer than ``BLOCK_ROW`` are read from memory once per pass: forward reads
    them for the maximum, the sum and the result; backward reads the gradient for its sum and a
    second time for the result. The gradient of the likelihood is a tensor of zeros except for one
    element per row.
    """
    elems = rows * classes
    fixed, free = FP32_BYTES * elems * upcast, elems * (not upcast)
    streams = classes > BLOCK_ROW
    kind: KernelKind = "elementwise" if streams else "softmax"

    def passes(times: float, launches: float = 1.0) -> Kernel:
        return Kernel(kind=kind, high=times * free, raw_bytes=times * fixed, launches=launches)

    # The gather of the likelihoods and the zeros are separate launches.
    gather = Kernel(kind=kind, raw_bytes=INT64_BYTES * rows)
    fwd, bwd = [gather, passes(2.0)], [passes(1.0), passes(3.0)]
    if streams:
        fwd[0] = passes(2.0)
        bwd = [
            passes(1.0, 0.5),
            bwd[0],
            passes(3.0, 0.5),
        ]  # half a launch each: one kernel that reads twice
    # each storage apart, so that tensors of one size stay of one size: fp32 logits beside labels
    saved = Saved(high=free, raw_bytes=fixed or INT64_BYTES * rows)
    loss = Saved(raw_bytes=float(FP32_BYTES))
    return Op(
        name=name, fwd=tuple(fwd), bwd=tuple(bwd), saved=saved, saves_result=True, result=loss
    )  # fmt: skip


def add_positions(name: str, rows: float, dim: int, *, table_rows: int = 0) -> Op:
    """``x[rows, dim] + p[rows, dim]``, with one ``p`` for the whole batch.

    ``table_rows``: ``p`` is looked up in a trained table of so many rows; 0: ``p`` itself is the
    parameter. Backward sums over the batch, then scatters into the table.
    """
    elems, weight = rows * dim, float(rows * dim)
    fwd = [Kernel(kind="elementwise", high=2 * elems, weight=weight, indexed=elems)]
    bwd = [Kernel(kind="reduction", high=elems, weight=weight)]
    if table_rows:
        fwd.insert(0, Kernel(kind="gather", weight=2 * weight))
        bwd.append(Kernel(kind=AUXILIARY, weight=float(table_rows) * dim))
        bwd.append(Kernel(kind="gather", weight=2 * weight))
    return Op(name=name, fwd=tuple(fwd), bwd=tuple(bwd))


def lm_loss(
    name: str, rows: float, vocab: int, *, upcast: bool = False, held: bool = True,
    shifted: bool = False,
) -> tuple[Op, ...]:  # fmt: skip
    """Loss over a vocabulary: the logits, their copy, log-softmax, likelihood and backward's seed.

    ``held``: the training step holds the model's output, so that the logits themselves (low) live
    until backward ends, in addition to the log-probabilities (high). The copy is the fp32 cast
    under autocast; in fp32 training it is the shift by one position (``logits[:,
    :-1].contiguous()``). ``upcast``: as for ``cross_entropy``. ``shifted``: the fp32 logits are
    copied once more for that shift, and held beside it until the loss is there, as the logits are.
    """
    elems = rows * vocab
    raw_bytes = FP32_BYTES * elems * upcast
    copy = Kernel(
        kind="copy", low=elems, high=elems * (not upcast), raw_bytes=raw_bytes, indexed=elems
    )
    saved = Saved(low=elems * held, raw_bytes=INT64_BYTES * rows * upcast)  # logits, labels
    kept = Op(name=f"{name}.logits", fwd=(copy,), bwd=(copy,), saved=saved, role="all_logits")
    loss = cross_entropy(name, rows, vocab, upcast=upcast), loss_seed()
    if not shifted:
        return kept, *loss
    again = Kernel(kind="copy", raw_bytes=2.0 * FP32_BYTES * elems, indexed=elems)
    both = Saved(low=elems, raw_bytes=2.0 * FP32_BYTES * elems)
    return kept, Op(name=f"{name}.shift", fwd=(again,), bwd=(again,), result=both), *loss


def loss_parallel(name: str, rows: float, vocab: int) -> tuple[Op, ...]:
    """Loss over logits that tensor ranks share, in fp32, as in torch's loss_parallel.

    It consists of tensor operations (torch/distributed/tensor/parallel/loss.py). Forward holds the
    logits, their shift and its exponential at the same time; backward holds a gradient of zeros and
    minus ones, the exponential and their sum, in addition to the saved log-probabilities.
    """
    eager = lm_loss(name, rows, vocab, upcast=True)
    three = 12.0 * rows * vocab  # bytes of three fp32 tensors
    pieces = (Kernel(kind="softmax", raw_bytes=three), Kernel(kind="softmax", raw_bytes=three))
    rest = Kernel(kind="elementwise", raw_bytes=2 * three / 3)
    loss = replace(eager[1], fwd=(*pieces, rest), bwd=(*pieces, rest))
    return eager[0], loss, eager[2]


def loss_vocab_parallel(
    name: str, rows: float, vocab: int, *, fused: bool = False, copied: bool = False
) -> tuple[Op, ...]:
    """Loss over a vocabulary as in Megatron-LM (core/tensor_parallel/cross_entropy.py).

    The logits are cast to fp32 once and read for their maximum. Shift, exponential and division
    work in that storage, which is read for the sum between them; backward turns it into the
    gradient before it is cast back. Operands with one number per row are broadcast. Saves 4 bytes
    per element.

    ``fused`` (core/fusions/fused_cross_entropy.py): compiled up to each sum over tensor ranks,
    which gives three kernels in forward (cast and maximum; shift to sum; division). Backward is one
    graph whose compiled code clones the saved tensor, since it changes its input, and writes the
    gradient back into that as well as in 16 bit (TORCH_LOGS=output_code, torch 2.13). ``copied``:
    the shift is a tensor of its own, while the caller holds the fp32 logits (nanotron,
    parallel/tensor_parallel/functional.py, _ShardedCrossEntropy).
    """
    elems = rows * vocab
    in_place = Kernel(kind="elementwise", raw_bytes=8.0 * elems)
    cast = Kernel(kind="elementwise", low=elems, raw_bytes=4.0 * elems)
    fwd: tuple[Kernel, ...] = (in_place, in_place)
    bwd: tuple[Kernel, ...] = (in_place,) * fused
    by_row = replace(in_place, indexed=elems)
    sums = Kernel(kind="reduction", raw_bytes=4.0 * elems)
    beside = Saved(raw_bytes=2.0 * elems * fused)  # twice of it, the clone, in backward
    cast_back = replace(cast, raw_bytes=(4.0 + 4.0 * fused) * elems)
    if not fused:
        cast = replace(cast, kind="copy", indexed=elems)
        fwd, bwd, cast_back = (sums, by_row, in_place, sums, by_row), (by_row,), cast
    fp32 = Saved(raw_bytes=4.0 * elems)
    shift: tuple[Op, ...] = ()
    if copied:
        shift, fwd = (Op(name=f"{name}.shift", fwd=(by_row,), result=fp32),), (sums, *fwd[2:])
    logits = Op(name=f"{name}.logits", fwd=(cast,), bwd=(cast_back,))
    return (
        replace(logits, beside=beside, role="all_logits"),
        *shift,
        Op(name=name, fwd=fwd, bwd=bwd, saved=fp32, in_place=True),
        loss_seed(),
    )


def loss_compiled(name: str, rows: float, vocab: int) -> tuple[Op, ...]:
    """Loss over a vocabulary fused by a compiler: the logits' fp32 values stay in registers.

    Saves the logits and two fp32 numbers per row; backward writes the logits' gradient in 16 bit.
    """
    elems = rows * vocab
    fwd = Kernel(kind="softmax", low=2 * elems, raw_bytes=8.0 * rows)
    bwd = Kernel(kind="softmax", low=2 * elems, raw_bytes=8.0 * rows)
    saved = Saved(low=elems, raw_bytes=8.0 * rows)
    return Op(name=name, fwd=(fwd,), bwd=(bwd,), saved=saved, sink=True), loss_seed()


def in_chunks(op: Op, chunks: int) -> Op:
    """An op of many rows, run as ``chunks`` ops of fewer rows, one after the other.

    Backward holds the gradient of one chunk's output at a time, and sums the chunks' gradients of
    the weight.
    """

    def part(kernel: Kernel) -> Kernel:
        def divided(side: Affine) -> Affine:
            return Affine(side.fixed, side.per_sample / chunks)

        return replace(
            kernel, flop=kernel.flop / chunks, low=kernel.low / chunks, high=kernel.high / chunks,
            raw_bytes=kernel.raw_bytes / chunks, m=divided(kernel.m), k=divided(kernel.k),
            cast=kernel.cast / chunks, autocasts=kernel.autocasts / chunks,
        )  # fmt: skip

    fwd, bwd = (tuple(part(k) for k in way for _ in range(chunks)) for way in (op.fwd, op.bwd))
    trained = any(k.kind == "gemm" and k.k.per_sample for k in op.bwd)
    sums = Kernel(
        kind="elementwise", weight=3.0 * op.gemm_weight * (chunks - 1), launches=chunks - 1.0
    )
    return replace(op, fwd=fwd, bwd=(*bwd, sums) if trained else bwd)


def logit_metrics(name: str, rows: float, vocab: int, times: int) -> Op:
    """Cross entropies of the logits that are logged in addition to the loss, one after the other.

    Under autocast torch computes them in fp32: a copy of the logits and its log-softmax. They run
    after backward, when activations have been freed.
    """
    elems = rows * vocab
    one = (
        Kernel(kind="elementwise", low=elems, raw_bytes=4.0 * elems),
        Kernel(kind="softmax", raw_bytes=8.0 * elems),
    )
    return Op(name=name, fwd=(), bwd=one * times, in_place=True)


def loss_flash(name: str, rows: float, vocab: int) -> tuple[Op, ...]:
    """Loss over a vocabulary as in flash-attn's kernel (csrc/xentropy, inplace_backward).

    Forward reads 16-bit logits for maxima and for sums; backward overwrites them with their
    gradient.
    """
    elems = rows * vocab
    each = Kernel(kind="softmax", low=2 * elems, raw_bytes=8.0 * rows)
    saved = Saved(low=elems, raw_bytes=8.0 * rows)
    return Op(name=name, fwd=(each,), bwd=(each,), saved=saved, in_place=True), loss_seed()


def loss_in_place(name: str, rows: float, vocab: int) -> tuple[Op, ...]:
    """Loss over a vocabulary as in Transformer Engine (pytorch/triton/cross_entropy.py).

    Forward reads the 16-bit logits for maxima and sums, then overwrites them with their gradient;
    backward scales that. Saves that storage and two fp32 numbers per row.

    In both kernels one program handles a row, and its arithmetic limits it, not its traffic: B200
    takes 3.3 ps per element, both ways and over 16,000 to 129,000 words (SimuMax, ce_fusion of
    configs/system/b200_bf16_ceperm.json: 0.28 of 8 TiB/s for 8 bytes per element), where bytes
    alone would take 1.8 ps. That is within 3 % of the cost of addressing one element at a time, and
    is counted as that (``indexed``).
    """
    elems = rows * vocab
    fwd = Kernel(kind="softmax", low=3 * elems, raw_bytes=16.0 * rows, launches=2.0, indexed=elems)
    bwd = Kernel(kind="elementwise", low=2 * elems)
    saved = Saved(low=elems, raw_bytes=8.0 * rows)
    return Op(name=name, fwd=(fwd,), bwd=(bwd,), saved=saved, in_place=True), loss_seed()


def loss_smoothed(rows: float, vocab: int) -> tuple[Op, ...]:
    """Label smoothing: fp32 log-probabilities, gathered and averaged (MLPerf's smoothing.py).

    ``log_softmax(..., dtype=torch.float32)`` reads 16 bit and writes fp32 in one kernel. The mean
    reads the result once more. Backward makes two gradients of that size: zeros to which the
    gathered ones are added, and the mean's, expanded by a division. It sums them and goes back
    through the softmax.
    """
    scores = rows * vocab
    fp32_bytes = FP32_BYTES * scores  # of one tensor
    # Long rows are read from memory once per pass, as in ``cross_entropy``.
    streams = vocab > BLOCK_ROW
    kind: KernelKind = "elementwise" if streams else "softmax"
    logits = Op(name="loss.logits", fwd=(), saved=Saved(low=scores), role="all_logits")
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
    return logits, loss


def loss_chunked(
    name: str, rows: float, hidden: int, vocab: int, *, trained: bool = True
) -> tuple[Op, ...]:
    """Head and loss together, a chunk of rows at a time (Liger-Kernel, fused_linear_cross_entropy).

    Forward computes the gradients immediately, so that only the gradient of the head's input is
    saved. A chunk has rows · hidden / vocab rows, so that its logits are as large as that input;
    its part of the weight's gradient is as large as the whole. A frozen head (``trained=False``)
    has no such gradient.
    """
    inner = linear(name, rows, hidden, vocab, weight_grad=trained)
    elems, width = rows * vocab, rows * hidden
    loss = Kernel(kind="softmax", low=2 * elems)
    done = Kernel(kind="elementwise", low=2 * width)
    return (
        Op(
            name=name, fwd=(*inner.fwd, *inner.bwd, loss, done), bwd=(done,),
            saved=Saved(low=width), gemm_weight=inner.gemm_weight * trained,
            grad_early=float(hidden) * vocab * trained,
            early_flop=sum(k.flop for k in inner.bwd),
        ),
        loss_seed(),
    )  # fmt: skip


def dice_loss(scores: float) -> Op:
    """Dice and cross-entropy of the scores of all classes (monai/losses/dice.py).

    Passes: softmax, log-softmax, one-hot labels, products and three sums; in backward the gradients
    of both.
    """
    fwd = Kernel(kind="elementwise", high=14.0 * scores, launches=24.0)
    bwd = Kernel(kind="elementwise", high=10.0 * scores, launches=20.0)
    return Op(name="loss", fwd=(fwd,), bwd=(bwd,), saved=Saved(high=3.0 * scores))


def loss_seed() -> Op:
    """The launch of ``ones_like(loss)``, with which backward starts."""
    return Op(name="loss_seed", fwd=(), bwd=(Kernel(kind="elementwise"),))
