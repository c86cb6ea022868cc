"""Which kernels compute a convolution, and which of them read channels-first tensors directly."""

from __future__ import annotations

from simcore.workload.graph import FULL_LOAD, KernelKind


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
