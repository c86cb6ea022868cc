"""Matrix products: linear, batched matmul, convolution and the kernels that compute it."""

from __future__ import annotations

from math import gcd, prod

from simcore.workload.graph import FULL_LOAD, Affine, Kernel, KernelKind, Op
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


def has_planes(kind: KernelKind, plane: float) -> bool:
    """Whether a convolution is a plain product of each image's channel planes of ``plane`` pixels.

    That holds for 1x1 at stride 1 (weights times channels) where rows of pixels are aligned; such a
    product reads channels-first tensors without transposing them.
    """
    return kind == "conv_pointwise" and plane % FULL_LOAD == 0


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
    planes = has_planes(kind, prod(in_grid)) and not channels_last

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
