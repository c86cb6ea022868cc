"""Weights of few bits: what PyTorch moves to unpack them, against PyTorch's own operators."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from simcore.workload import ops
from simcore.workload.ops.quantised import GPTQ_GROUP

ROWS, COLUMNS = 1024, 256


class Moved(TorchDispatchMode):
    """Sums the bytes of storages that operators read and of tensors that they write."""

    def __init__(self) -> None:
        super().__init__()
        self.each: list[int] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if not func.is_view:
            read = {a.untyped_storage().data_ptr(): a for a in args if isinstance(a, torch.Tensor)}
            small = sum(a.untyped_storage().nbytes() for a in read.values())
            self.each.append(small + out.numel() * out.element_size())
        return out


def _unpack(packed: Any, zeros: Any, scales: Any, shifts: Any) -> Any:
    """The weight of AutoGPTQ's QuantLinear on many rows, in its words."""
    zeros = torch.bitwise_right_shift(
        torch.unsqueeze(zeros, 2).expand(-1, -1, 8), shifts.unsqueeze(0)
    ).to(torch.int8)
    torch.bitwise_and(zeros, 15, out=zeros)
    zeros = (zeros + 1).reshape(-1, 1, COLUMNS)
    weight = torch.bitwise_right_shift(
        torch.unsqueeze(packed, 1).expand(-1, 8, -1), shifts.unsqueeze(-1)
    ).to(torch.int8)
    torch.bitwise_and(weight, 15, out=weight)
    weight = weight.reshape(-1, GPTQ_GROUP, COLUMNS)
    return scales.reshape(-1, 1, COLUMNS) * (weight - zeros)


def test_unpacking_moves_what_pytorch_moves() -> None:
    groups = ROWS // GPTQ_GROUP
    whole = torch.iinfo(torch.int32).max
    packed = torch.randint(whole, (ROWS // 8, COLUMNS), dtype=torch.int32)
    zeros = torch.randint(whole, (groups, COLUMNS // 8), dtype=torch.int32)
    scales = torch.rand(groups, COLUMNS, dtype=torch.float16)
    shifts = torch.arange(0, 32, 4, dtype=torch.int32).unsqueeze(0)
    with Moved() as moved:
        weight = _unpack(packed, zeros, scales, shifts)
    assert weight.dtype is torch.float16
    op = ops.unpacked("up", ROWS * COLUMNS)
    assert len(op.fwd) == len(moved.each)
    assert sum(k.weight for k in op.fwd) * 2 == pytest.approx(sum(moved.each), rel=1e-3)
    assert not op.bwd  # autograd keeps the weight


def test_one_kernel_reads_packed_weights_and_writes_16_bit() -> None:
    op = ops.dequantised("up", 1000.0, 0.5)
    assert [k.weight * 2 for k in op.fwd] == [2500.0]
    assert op.bwd == op.fwd
