"""Elements that the kernel of an aten op addresses or converts one by one.

ATen's elementwise kernels load vectors of elements if all operands are dense, have the same layout
and the same dtype (TensorIterator's ``is_contiguous``, ``gpu_kernel_impl``). Copies that change
neither layout nor dtype are memcpys, and ``cat`` of contiguous tensors has a kernel with vector
loads (CatArrayBatchedCopy).
"""

from __future__ import annotations

from math import prod
from typing import Any, Final

import torch
from torch._prims_common import suggest_memory_format
from torch.utils._pytree import tree_leaves

from simcore.workload.ops.pointwise import pool_elements

#: Copies that may change the layout or the dtype of their operand.
_MOVES: Final = {"clone", "copy", "_to_copy", "contiguous"}
#: Ops whose kernels compute a position for every single element.
_PLACES: Final = {
    "slice_backward", "select_backward", "slice_scatter", "select_scatter", "constant_pad_nd",
    "roll", "flip", "repeat", "permute_copy", "as_strided_copy", "pixel_shuffle",
    "pixel_unshuffle", "_pad_circular",
}  # fmt: skip
_JOINS: Final = {"cat", "stack"}
#: Prefixes of ops with dedicated kernels, which do not use TensorIterator.
_OWN: Final = ("max_pool", "avg_pool", "_adaptive", "adaptive", "upsample", "grid_sampler")


def indexed_elements(kind: str, name: str, args: Any, out: Any) -> float:
    """Elements of the traced batch that the op's kernel handles one by one; 0 with vector loads."""
    if name.startswith("max_pool2d_with_indices"):
        return _pooled(name, args, out)
    if not isinstance(out, torch.Tensor):
        return 0
    operands = [
        t for t in tree_leaves(args) if isinstance(t, torch.Tensor) and t.dim()
    ]  # scalar tensors do not count
    if name in _PLACES:
        return operands[0].numel() if operands else 0
    if name in _JOINS:
        return 0 if all(t.is_contiguous() for t in operands) else out.numel()
    if (kind != "elementwise" and name not in _MOVES) or name.startswith(_OWN):
        return 0
    to_16_bit = name in _MOVES and out.itemsize == 2  # vector loads (ATen Copy.cu, from fp32)
    return 0 if all(_alike(t, out, to_16_bit) for t in operands) else out.numel()


def _pooled(name: str, args: Any, out: Any) -> float:
    """Elements that max pooling, or its backward, handles one by one."""
    backward = name.endswith("_backward")
    x, y = (args[1], args[0]) if backward else (args[0], out[0])
    sides = args[1 + backward]  # of the window: two, or one of a square
    window_elems = prod(sides) ** (2 // len(sides))
    last = suggest_memory_format(x) == torch.channels_last
    return pool_elements(x.numel(), y.numel(), window_elems, channels_last=last)[backward]


def _alike(a: torch.Tensor, out: torch.Tensor, any_type: bool = False) -> bool:
    """Whether one offset addresses an element in both: same shape, strides and dtype, and dense.

    ``any_type``: the data types may differ.
    """
    if a.shape != out.shape:
        return False
    same_type = any_type or a.dtype == out.dtype or torch.bool in (a.dtype, out.dtype)
    strides = [
        tuple(s for n, s in zip(t.shape, t.stride(), strict=True) if n > 1) for t in (a, out)
    ]
    return same_type and strides[0] == strides[1] and _dense(a)


def _dense(t: torch.Tensor) -> bool:
    """Whether a tensor's elements fill a range of memory without gaps, in any order of axes."""
    expected = 1
    for stride, n in sorted((s, n) for n, s in zip(t.shape, t.stride(), strict=True) if n > 1):
        if stride != expected:
            return False
        expected *= n
    return True
