"""Which kernels a convolution has: their kind, and what they take as it lies."""

from __future__ import annotations

from simcore.workload.graph import FULL_LOAD, KernelKind


def conv_kind(
    taps: tuple[int, ...], *, stride: int = 1, dilation: int = 1, groups: int = 1,
    transposed: bool = False, channels: int = 0,
) -> KernelKind:  # fmt: skip
    """The kind of a convolution's kernels, all three; of its input's ``channels``."""
    if 1 < groups == channels:
        return "conv_depthwise"
    if stride != 1 or dilation != 1 or groups != 1 or transposed:
        return "conv"
    if set(taps) == {1}:
        return "conv_pointwise"
    return "conv_winograd" if taps == (3, 3) else "conv"


def has_planes(kind: KernelKind, plane: float) -> bool:
    """Whether a convolution is a product of each image's planes, of so many pixels, as they lie.

    That is weights times channels, of 1x1 at stride 1, where rows of pixels are aligned.
    """
    return kind == "conv_pointwise" and plane % FULL_LOAD == 0
