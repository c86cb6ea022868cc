"""Products of matrices, convolution, and attention: fused (flash) or operator by operator (eager).

Scores of fused attention never reach device memory.
"""

from __future__ import annotations

from dataclasses import replace
from math import gcd, prod
from typing import Any, Literal

from simcore.base.record import dataclass
from simcore.base.units import FP32_BYTES, HALF_BYTES
from simcore.workload.graph import FULL_LOAD, Affine, Kernel, KernelKind, Op
from simcore.workload.ops.norm import autocast_cast, cast, softmax
from simcore.workload.ops.pointwise import binary, copy, dropout, scale
from simcore.workload.saved import NOTHING, Saved


def conv_kind(
    taps: tuple[int, ...], *, stride: int = 1, dilation: int = 1, groups: int = 1,
    transposed: bool = False, channels: int = 0,
) -> KernelKind:  # fmt: skip
    """The kind of the kernels of a convolution, the same in all three passes.

    ``taps``: the kernel's size by dimension; ``channels``: channels of the input.
    """
    if 1 < groups == channels:
        return "conv_depthwise"
    if stride != 1 or dilation != 1 or groups != 1 or transposed:
        return "conv"
    if set(taps) == {1}:
        return "conv_pointwise"
    return "conv_winograd" if taps == (3, 3) else "conv"


def plane_bytes(kind: KernelKind, plane: float, *, tf32: bool = True) -> tuple[int, ...]:
    """Bytes of the elements with which a convolution is a plain product of channel planes.

    That holds for 1x1 at stride 1 (weights times each image's channels of ``plane`` pixels) where
    rows of pixels are aligned to a full load; such a product reads channels-first tensors without
    transposing them. ``tf32``: in TF32 too, as cuDNN has it since some release after 8.3.2.
    """
    widths = (HALF_BYTES, FP32_BYTES)[: 1 + tf32]
    full = FULL_LOAD * HALF_BYTES
    return tuple(w for w in widths if kind == "conv_pointwise" and plane * w % full == 0)


def row_elems(*widths: int) -> int:
    """Elements, up to 8, that divide rows of all these widths; an argument of ``linear``."""
    return gcd(FULL_LOAD, *widths)


def added_bias(elems: float, width: int) -> Kernel:
    """A bias of ``width`` elements that a kernel of its own adds to a product's result."""
    return Kernel(kind="elementwise", low=2.0 * elems, weight=float(width), indexed=elems)


def linear(
    name: str,
    rows: float,
    k: int,
    n: int,
    *,
    save_input: bool = True,
    input_grad: bool = True,
    weight_grad: bool = True,
    bias: bool = False,
    bias_apart: bool = False,
    formatted: bool = False,
    wide: bool = False,
    row_elems: int = FULL_LOAD,
    vector_units: bool = False,
    input_high: bool = False,
) -> Op:
    """``[rows, k] @ [k, n]`` with ``rows`` rows per sample.

    - ``save_input``: False where another op already saves the input's storage.
    - ``input_grad``, ``weight_grad``: whether backward computes these gradients.
    - ``bias``: a bias is added in the product's epilogue; its gradient is a separate reduction
      (eager PyTorch: a sum over the rows).
    - ``bias_apart``: a separate kernel adds the bias to the result, as in PyTorch before 1.12 (pull
      requests 72148 and 72728).
    - ``formatted``: the input is saved in the format in which products compute, if activations have
      another.
    - ``wide``: the product stays in 16 bit where that format is narrower. Otherwise its input is
      cast before forward and the gradient of its output, once, in backward.
    - ``row_elems``: elements that the beginnings of operands' rows are multiples of, if fewer than
      8 (``load_elems`` of a kernel).
    - ``vector_units``: 16-bit products with such rows compute on vector units, as in cuBLAS before
      11.
    - ``input_high``: the input is a tensor that autocast keeps in fp32. Each product casts it and
      saves the cast itself (the cache of ATen's ``autocast_mode.cpp`` holds parameters only), and
      backward casts its gradient.
    """
    casts = rows * k * input_high
    narrow = row_elems < FULL_LOAD
    flop, weight = 2.0 * rows * k * n, float(k) * n

    def product(
        m: Affine, cols: Affine, depth: Affine, cast: float, autocasts: float = 0.0
    ) -> Kernel:
        return Kernel(
            kind="gemm", flop=flop, low=rows * (k + n), weight=weight,
            m=m, n=cols, k=depth, cast=0.0 if wide else cast, wide=wide,
            load_elems=FULL_LOAD if vector_units else row_elems, unaligned=narrow and vector_units,
            autocasts=autocasts,
        )  # fmt: skip

    fwd = [product(Affine(0, rows), Affine(n), Affine(k), rows * k, casts)]
    if bias and bias_apart:
        fwd.append(added_bias(float(rows * n), n))
    bwd = []
    if input_grad:
        bwd.append(product(Affine(0, rows), Affine(k), Affine(n), rows * n, casts))
    if weight_grad:
        bwd.append(product(Affine(k), Affine(n), Affine(0, rows), rows * n * (not input_grad)))
    if bias and weight_grad:
        bwd.append(Kernel(kind="reduction", low=rows * n, weight=float(n)))
    saved = NOTHING
    if save_input and weight_grad:
        saved = Saved(matmul=rows * k) if formatted else Saved(low=rows * k)
    elif weight_grad:
        saved = Saved(autocast=casts)
    return Op(name=name, fwd=tuple(fwd), bwd=tuple(bwd), saved=saved, gemm_weight=weight)


def bmm(
    name: str,
    batch: float,
    m: int,
    n: int,
    k: int,
    *,
    save_left: bool = True,
    save_right: bool = True,
    aligned: bool = True,
) -> Op:
    """``batch`` products per sample of ``[m, k] @ [k, n]``, both activations, in 16 bit or wider.

    Rows in memory have ``k`` or ``n`` elements (queries, keys and values: one head's dimension;
    scores: a row of keys), in forward and in both products of backward; the kernels load as many
    elements at a time as divide both.
    """
    flop = 2.0 * batch * m * n * k
    loaded = row_elems(n, k) if aligned else FULL_LOAD
    io = batch * (m * k + k * n + m * n)
    groups = Affine(0, batch)

    def kernel(rows: int, cols: int, depth: int) -> Kernel:
        return Kernel(
            kind="gemm", flop=flop, low=io,
            m=Affine(rows), n=Affine(cols), k=Affine(depth), groups=groups, wide=True,
            unaligned=not aligned, load_elems=loaded,
        )  # fmt: skip

    saved = Saved(low=batch * (m * k * save_left + k * n * save_right))
    return Op(
        name=name, fwd=(kernel(m, n, k),), bwd=(kernel(m, k, n), kernel(k, n, m)), saved=saved
    )


def conv(
    name: str,
    in_grid: tuple[int, ...],
    out_grid: tuple[int, ...],
    cin: int,
    cout: int,
    kernel: int | tuple[int, ...],
    *,
    images: float = 1.0,
    stride: int = 1,
    dilation: int = 1,
    groups: int = 1,
    transposed: bool = False,
    channels_last: bool = False,
    vector_units: bool = False,
    planes_in_tf32: bool = True,
    save_input: bool = True,
    input_high: bool = False,
    input_grad: bool = True,
    weight_grad: bool = True,
    bias: bool = False,
) -> Op:
    """Convolution of ``images`` grids per sample in one to three dimensions, as an implicit GEMM.

    The product of the input's gradient has a row per input point (trace/flop.py counts the same way
    what torch dispatches). cuDNN leaves a ``bias`` to a separate addition, and its gradient to a
    reduction. Where tensors are not ``channels_last``, kernels of matrix units transpose them;
    those of the forward pass write either layout, so that only their input is transposed.

    - ``kernel``: its size, or its size in each dimension.
    - ``input_high``: the input is a tensor that autocast keeps in fp32; each product casts it.
    - ``vector_units``: no kernel of matrix units takes it.
    - ``planes_in_tf32``: ``tf32`` of ``plane_bytes``.
    """
    taps = (kernel,) * len(in_grid) if isinstance(kernel, int) else kernel
    points_in, points_out = images * prod(in_grid), images * prod(out_grid)
    products, channels = (points_in, cin) if transposed else (points_out, cout)
    weight = cin * cout // groups * prod(taps)
    flop, depth, moved_in = 2.0 * products * weight, weight // channels, points_in * cin
    added = points_out * cout
    kind = conv_kind(
        taps, stride=stride, dilation=dilation, groups=groups, transposed=transposed, channels=cin
    )
    planes = () if channels_last else plane_bytes(kind, prod(in_grid), tf32=planes_in_tf32)

    def product(m: Affine, n: float, k: Affine, relaid: float) -> Kernel:
        return Kernel(
            kind=kind, flop=flop, low=moved_in + added, weight=float(weight), m=m, n=Affine(n), k=k,
            groups=Affine(groups), relaid=relaid * (not channels_last), planes=planes,
            unaligned=vector_units, autocasts=moved_in * input_high,
        )  # fmt: skip

    rows, columns, both = Affine(0, products), channels // groups, moved_in + added
    fwd, bwd = [product(rows, columns, Affine(depth), moved_in)], []
    if weight_grad:
        bwd.append(product(Affine(depth), columns, rows, both))
    if input_grad:
        inner = Affine(flop / (2.0 * points_in * cin))
        bwd.append(product(Affine(0, points_in), cin // groups, inner, both))
    if bias:
        fwd.append(added_bias(added, cout))
    if bias and weight_grad:
        bwd.append(Kernel(kind="reduction", low=added, weight=float(cout)))
    saved = Saved(low=moved_in) if save_input else NOTHING
    return Op(name=name, fwd=tuple(fwd), bwd=tuple(bwd), saved=saved, gemm_weight=float(weight))


#: 16-bit elements that NVIDIA's matrix units load at a time; products whose rows begin at other
#: multiples run on vector units. A head's rows begin at multiples of its dimension (docs/model.md).
ALIGNED = 8
#: Bytes that a strided read fetches for each element: the memory's transactions have 32 bytes (CUDA
#: C++ Best Practices Guide, Coalesced Access to Global Memory). Scores are assumed not to fit in
#: L2.
_SECTOR_BYTES = 32.0
#: Cost of a score's dropout inside a fused kernel, in elements addressed one by one, which take 51
#: integer operations (``hardware.estimates``). Philox 4x32-10 makes four numbers in ten rounds
#: of two wide products, two three-way exclusive ors and two sums of the key (Salmon et al. 2011;
#: curand_philox4x32_x.h), 15 operations a number; comparison, selection and product with the scale
#: are 3 more. Backward draws the same numbers again.
DRAWN_SCORE = (10 * 6 / 4 + 3) / 51


@dataclass(frozen=True, kw_only=True)
class WindowKernel(Kernel):
    """A kernel of fused attention whose window cuts tiles of scores.

    ``edges``: edges of the window, besides a causal diagonal, at which tiles are computed whole; of
    a query on average, for queries near the ends of a sequence reach none.
    """

    edges: float


def sdpa(
    name: str,
    batch: float,
    heads: int,
    kv_heads: int,
    seq_q: int,
    seq_kv: int,
    head_dim: int,
    *,
    causal: bool = False,
    value_dim: int = 0,
    window: int = 0,
    chunked: bool = False,
    kind: KernelKind = "attention",
    drop: bool = False,
    masked: bool = False,
) -> Op:
    """Flash attention over ``batch`` sequences per sample (Dao 2022).

    Forward has 4·Sq·Skv·d FLOP per head, backward 2.5 times that (five products instead of two).
    Where v is narrower than q, backward in 16 bit takes as long as if it were as wide: with 192 and
    128 it takes 3.5 to 4.3 times as long as forward, with equal widths 3.0 to 3.4 (H200 with cuDNN
    9.19, GB200 and GB300 with 9.22: NVIDIA/cudnn-frontend 3929da24,
    benchmark/sdpa_benchmark_training/results, dsv3, kimiK26 and llama3.1); in 8 bits it does not.
    ``causal``: the mask halves both. A causal ``window`` leaves only the pairs within it, or, if
    ``chunked``, the pairs within chunks of that length; one that is not causal leaves ``window``
    keys on either side of a query and that at its own position. ``value_dim``: width of v and of
    the output where it differs from q's. Saves q, k, v, the output and one fp32 log-sum-exp per
    query row. ``drop``: scores have dropout, whose random numbers both passes draw. ``masked``: all
    pairs are computed, and each head reads a mask of them in 16 bit. The geometry's depth is the
    number of keys that a query attends to on average; a window has edges at which kernels compute
    whole tiles (``WindowKernel``).

    ``kind``: ``attention`` is FlashAttention-2; ``FLASH_KINDS`` has the others. In 8 bits q, k, v,
    the output and gradients are cast, or the results are cast back, and saved tensors are 8-bit too
    (Transformer Engine, FusedAttnFunc with NVTE_FP8_DPA_BWD=1, its default).
    """
    value_dim = value_dim or head_dim
    counted_frac, edges = 0.5 if causal else 1.0, 0.0
    if causal and 0 < window < seq_kv:
        whole, rest = divmod(seq_kv, window)
        pairs, edges = window * (2.0 * seq_kv - window), 1.0 - window / seq_kv
        if chunked:
            pairs, edges = whole * window**2 + float(rest) ** 2, 0.0
        counted_frac = pairs / (2.0 * seq_kv**2)
    elif not causal and window:
        reach = min(window, seq_kv - 1)
        counted_frac = (seq_kv * (2.0 * reach + 1) - reach * (reach + 1.0)) / seq_kv**2
        edges = 2.0 * (seq_kv - 1.0 - reach) / seq_kv
    flop = 2.0 * batch * heads * seq_q * seq_kv * (head_dim + value_dim) * counted_frac
    out = batch * heads * seq_q * value_dim
    qs = batch * heads * seq_q * head_dim
    q = (qs + out) / 2.0
    kv = 1.0 * batch * kv_heads * seq_kv * (head_dim + value_dim)
    geometry: dict[str, Any] = {
        "m": Affine(seq_q), "n": Affine(head_dim), "k": Affine(seq_kv * counted_frac),
        "groups": Affine(0, batch * heads),
        "indexed": DRAWN_SCORE * batch * heads * seq_q * seq_kv * counted_frac * drop,
    }  # fmt: skip
    in_fp8 = kind == "attention_cudnn_fp8"
    geometry["cast"] = (out + qs + kv) * in_fp8
    mask = batch * heads * seq_q * seq_kv * masked
    wide = flop if in_fp8 else flop * 2.0 * max(head_dim, value_dim) / (head_dim + value_dim)
    fwd = Kernel(kind=kind, flop=flop, low=2 * q + kv + mask, **geometry)
    bwd = Kernel(kind=kind, flop=2.5 * wide, low=4 * q + 2 * kv + mask, launches=3.0, **geometry)
    if edges:
        fwd, bwd = (WindowKernel(**vars(k), edges=edges) for k in (fwd, bwd))
    kept = out + qs + kv
    saved = Saved(
        low=kept * (not in_fp8), matmul=kept * in_fp8, raw_bytes=4.0 * batch * heads * seq_q
    )
    return Op(name=name, fwd=(fwd,), bwd=(bwd,), saved=saved)


def attention_eager(
    name: str,
    heads: int,
    seq_q: int,
    seq_kv: int,
    head_dim: int,
    *,
    mask: Literal["none", "add", "add_causal", "where", "bias", "permuted_bias"] = "none",
    drop: bool = False,
    value_dim: int = 0,
    scaled: bool = True,
    upcast: bool = False,
) -> tuple[Op, ...]:
    """Attention as separate operators, for one sequence per sample.

    The operators are matmul, scale, mask, softmax and matmul.

    ``mask``: ``add`` adds a row of keys, ``add_causal`` a value for each pair; ``bias`` adds a
    tensor with a value per score (T5: position bias and mask, summed before the first layer);
    ``permuted_bias`` is such a tensor with heads innermost, as a look-up in a table leaves it, so
    that each element is in a different memory sector. ``scaled=False``: scores are not scaled, as
    in T5. ``upcast``: the softmax is fp32 whatever the precision, and its result is cast back, as
    in transformers' Llama.

    q, k and v are permuted views: matmul copies them and saves the copies. An additive mask is
    fp32, so under autocast the masked scores are too, and their gradient is cast back. Autocast's
    softmax is fp32: the second product casts the probabilities to 16 bit, and backward casts their
    gradient to fp32 (torch ``aten/src/ATen/autocast_mode.h``: softmax is in the fp32 list, bmm in
    the 16-bit list). Before a softmax of 16-bit scores bf16 has one more cast each way, which
    fp16's kernel includes; it is left out. Without dropout the second product saves the softmax's
    output, which is counted there, and under autocast its cast.
    """
    value_dim = value_dim or head_dim
    aligned = not (head_dim % ALIGNED or value_dim % ALIGNED)
    scores = float(heads) * seq_q * seq_kv
    q, k = float(heads) * seq_q * head_dim, float(heads) * seq_kv * head_dim
    v = float(heads) * seq_kv * value_dim
    parts = [copy(f"{name}.q", q), copy(f"{name}.k", k), copy(f"{name}.v", v)]
    parts.append(bmm(f"{name}.scores", heads, seq_q, seq_kv, head_dim, aligned=aligned))
    if scaled:
        parts.append(scale(f"{name}.scores_scale", scores))
    if mask == "bias":
        parts.append(binary(f"{name}.bias", scores, grads=0, high=True))
    elif mask == "permuted_bias":
        read = Kernel(
            kind="elementwise", high=2 * scores, raw_bytes=_SECTOR_BYTES * scores, indexed=scores
        )
        parts.append(Op(name=f"{name}.bias", fwd=(read,)))
    elif mask in ("add", "add_causal"):
        masked = seq_kv if mask == "add" else seq_q * seq_kv
        parts.append(binary(f"{name}.mask", scores, broadcast=masked, grads=0, high=True))
    elif mask == "where":
        select = Kernel(kind="elementwise", low=2 * scores, indexed=scores)
        parts.append(
            Op(name=f"{name}.mask", fwd=(select, Kernel(kind="elementwise")), bwd=(select,))
        )
    normed = softmax(f"{name}.softmax", scores, row=seq_kv)
    parts.append(_in_fp32(normed, scores, kept=not drop) if upcast else normed)
    if drop:
        parts.append(dropout(f"{name}.scores_dropout", scores, high=True))
    to_16_bit = autocast_cast(scores)
    back = (to_16_bit,) * (1 + (mask not in ("none", "where")))
    kept = Saved(autocast=scores * (not drop and not upcast))
    parts.append(Op(name=f"{name}.cast", fwd=(to_16_bit,), bwd=back, saved=kept))
    parts.append(
        bmm(f"{name}.context", heads, seq_q, value_dim, seq_kv, save_left=drop, aligned=aligned)
    )
    parts.append(copy(f"{name}.merge", float(heads) * seq_q * value_dim))
    return tuple(parts)


def _in_fp32(normed: Op, scores: float, *, kept: bool) -> Op:
    """A softmax in fp32 between a cast of its scores and a cast back to their width.

    transformers, ``modeling_llama.py``: ``softmax(..., dtype=torch.float32).to(query.dtype)``.
    ``kept``: the product that follows saves the result of the second cast.
    """

    def between_casts(kernels: tuple[Kernel, ...]) -> tuple[Kernel, ...]:
        both = (cast(scores), cast(scores))
        return (*(replace(k, raw_bytes=FP32_BYTES * k.high, high=0.0) for k in kernels), *both)

    saved = Saved(raw_bytes=FP32_BYTES * scores, narrowed=scores * kept)
    return replace(
        normed, fwd=between_casts(normed.fwd), bwd=between_casts(normed.bwd), saved=saved
    )


def attention_fused_softmax(
    name: str,
    heads: int,
    seq_q: int,
    seq_kv: int,
    head_dim: int,
    *,
    drop: bool = False,
    passes: bool = False,
) -> tuple[Op, ...]:
    """Attention as Megatron-LM ran it before flash kernels, one sequence per sample.

    The product for the scores reads q and k as strided views and scales in its epilogue; one kernel
    scales, masks and normalises (Megatron-LM, fused_kernels/scaled_upper_triang_masked_softmax);
    then follow dropout, the product with v, and one copy to token order. Saves q, k, v, the
    probabilities and, with dropout, its mask and output: Korthikanti et al. 2022, section 4.1.

    ``passes``: as XLA fuses it for GPUs without its Triton softmax. A fusion ends at a reduction,
    and exponentials are cheap enough to be computed twice (gpu/instruction_fusion.cc, IsExpensive):
    the scores are read for their maximum, for the sum and for the quotient, which is written.
    Backward, p (g - sum(p g)), reads p and g for the sum and a second time for the product.
    """
    aligned = head_dim % ALIGNED == 0
    scores = float(heads) * seq_q * seq_kv
    fwd: tuple[Kernel, ...] = (Kernel(kind="softmax", low=2 * scores, n=Affine(seq_kv)),)
    bwd: tuple[Kernel, ...] = (Kernel(kind="softmax", low=3 * scores, n=Affine(seq_kv)),)
    if passes:
        sums = Kernel(kind="reduction", low=scores)
        fwd = (sums, sums, Kernel(kind="elementwise", low=2 * scores))
        bwd = (
            Kernel(kind="reduction", low=2 * scores),
            Kernel(kind="elementwise", low=3 * scores),
        )
    fused = Op(name=f"{name}.softmax", fwd=fwd, bwd=bwd, saved=Saved(low=scores))
    parts = [bmm(f"{name}.scores", heads, seq_q, seq_kv, head_dim, aligned=aligned), fused]
    if drop:
        parts.append(dropout(f"{name}.scores_dropout", scores))
    parts.append(
        bmm(f"{name}.context", heads, seq_q, head_dim, seq_kv, save_left=drop, aligned=aligned)
    )
    parts.append(copy(f"{name}.merge", float(heads) * seq_q * head_dim))
    return tuple(parts)
