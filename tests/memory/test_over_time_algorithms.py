"""Workspaces that are tried while cuDNN's algorithms are timed: sizes, which of them fit, where."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from simcore.answer.predict import predict
from simcore.answer.request import make_request
from simcore.memory.over_time import matrix_bytes, searched_bytes
from simcore.workload import ops
from simcore.workload.graph import Block, Workload

torch = pytest.importorskip("torch")

BATCH = 2


@pytest.mark.parametrize(
    ("channels", "size", "taps", "stride"), [(3, 16, 3, 1), (8, 15, 5, 2), (4, 12, 3, 3)]
)
def test_the_matrix_has_as_many_elements_as_torch_unfolds(
    channels: int, size: int, taps: int, stride: int
) -> None:
    unfolded = torch.nn.functional.unfold(
        torch.zeros(BATCH, channels, size, size), taps, padding=taps // 2, stride=stride
    )
    out = (size + 2 * (taps // 2) - taps) // stride + 1
    op = ops.conv("c", (size, size), (out, out), channels, 7, taps, stride=stride)
    assert matrix_bytes(op.fwd[0], BATCH) == 4 * unfolded.numel()


def test_what_is_its_own_matrix_or_runs_another_kernel_has_none() -> None:
    plane = ((8, 8), (8, 8))
    pointwise = ops.conv("p", *plane, 16, 32, 1)
    depthwise = ops.conv("d", *plane, 16, 16, 3, groups=16)
    assert matrix_bytes(pointwise.fwd[0], BATCH) == matrix_bytes(depthwise.fwd[0], BATCH) == 0.0


def two_convolutions() -> tuple[Workload, Any]:
    """64 points of 16 channels, then of 32, with 3 x 3 taps; and a strategy in fp32."""
    request = make_request("resnet-50", "1xA100", precision="fp32")
    plane = ((8, 8), (8, 8))
    made = (ops.conv("one", *plane, 16, 32, 3), ops.conv("two", *plane, 32, 8, 3))
    block = Block(name="net", ops=made)
    return replace(request.workload, blocks=(block,), order=(0,)), request.strategy


def test_the_largest_workspace_that_fits_beside_what_lives_then() -> None:
    """By hand, a sample: matrices of 64 x 9 x 16 and x 32 elements of 4 bytes; the second runs
    beside both inputs (64 x 48) and its own output (64 x 8)."""
    workload, strategy = two_convolutions()
    first, second = 4 * 64 * 9 * 16, 4 * 64 * 9 * 32
    at_second = 4 * 64 * (16 + 32 + 8)
    stays = 1000.0

    def most(room: float) -> float:
        return searched_bytes(workload, strategy, BATCH, stays, room)

    whole = stays + BATCH * (at_second + second)
    assert most(whole) == most(10 * whole) == whole
    at_first = stays + BATCH * (4 * 64 * (16 + 32) + first)
    assert most(whole - 1) == at_first
    assert most(at_first - 1) < at_first
    for room in range(0, int(whole), 997):
        assert most(float(room)) <= room


def test_only_what_the_allocator_reserves_grows() -> None:
    plain, timed = (
        predict(make_request("ssd300-r50", "1xA100", micro_batch=32, cudnn_benchmark=how)).memory
        for how in ("off", "on")
    )
    assert plain.terms == timed.terms and plain.needed_bytes == timed.needed_bytes
    assert plain.shown_bytes < timed.shown_bytes <= timed.capacity_bytes


def test_nvidias_images_time_algorithms_before_pytorch_2() -> None:
    def timed(software: str, model: str) -> bool:
        return make_request(model, "1xA100", software=software).cudnn_benchmark

    assert timed("nvidia-examples", "resnet-50") and timed("nvidia-examples", "ssd300-r50")
    assert timed("lambda-benchmark@torch-1.4", "ssd300-r50")
    assert not timed("lambda-benchmark@torch-2.1", "ssd300-r50")
    assert not timed("nvidia-examples", "mask-rcnn-r50-fpn")
