"""Rows and channels of traced norms: those of the module's input, beside the built operator's."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from simcore.workload import ops  # noqa: E402
from simcore.workload.archs.traced import ops_text, read_ops  # noqa: E402
from simcore.workload.graph import CUDNN_NORM, NATIVE_NORM, Affine, Kernel  # noqa: E402
from simcore.workload.trace import convert  # noqa: E402
from simcore.workload.trace.tracer import trace  # noqa: E402


def test_rows_are_those_of_the_input() -> None:
    model = nn.Sequential(nn.Linear(24, 24), nn.LayerNorm(24))
    one, two = (
        trace(model, (torch.zeros(batch, 6, 24),), loss=lambda out: out.sum()) for batch in (2, 3)
    )
    workload, _ = convert.converted(
        (one, two), (2, 3), name="net", sample_unit="sample", tokens_per_sample=0.0
    )
    built = ops.layer_norm("norm", 6.0, 24)

    def rowwise(kernels: tuple[Kernel, ...]) -> set[tuple[float, float]]:
        return {(k.rows, k.reread_frac) for k in kernels if k.kind == "norm"}

    traced = [op for block in workload.blocks for op in block.ops]
    assert rowwise(tuple(k for op in traced for k in op.fwd)) == rowwise(built.fwd) == {(6.0, 0.5)}
    assert rowwise(tuple(k for op in traced for k in op.bwd)) == rowwise(built.bwd)

    def summed(kernels: Iterable[Kernel]) -> list[tuple[Affine, Affine]]:
        return [(k.m, k.n) for k in kernels if k.kind == "reduction" and k.n.fixed > 1.0]

    assert (
        summed(k for op in traced for k in op.bwd)
        == summed(built.bwd)
        == [(Affine(0, 6.0), Affine(24.0))]
    )


def test_channels_and_planes_are_those_of_the_tensors() -> None:
    """A block a channel of what is channels first; the text of a trace keeps all of them."""
    net = nn.Sequential(
        nn.Conv2d(4, 8, 1, bias=False), nn.BatchNorm2d(8), nn.Conv2d(8, 6, 3, padding=1, bias=False)
    )

    def kernels(*, last: bool) -> list[Kernel]:
        layout = torch.channels_last if last else torch.contiguous_format
        shape = (4, 4, 4)
        one, two = (
            trace(
                net.to(memory_format=layout),
                (torch.zeros(batch, *shape).to(memory_format=layout),),
                loss=lambda out: out.sum(),
            )
            for batch in (2, 3)
        )
        workload, _ = convert.converted(
            (one, two), (2, 3), name="net", sample_unit="sample", tokens_per_sample=0.0
        )
        traced = [op for block in workload.blocks for op in block.ops]
        assert read_ops(ops_text(traced)) == tuple(
            replace(op, name=op.name.replace(" ", "_")) for op in traced
        )
        return [k for op in traced for k in (*op.fwd, *op.bwd)]

    built = ops.batch_norm("norm", 8 * 16.0, 8, channels_first=True)
    first = kernels(last=False)
    norms = [k for k in first if k.kind in (CUDNN_NORM, NATIVE_NORM)]

    def work(kernels: Iterable[Kernel]) -> list[object]:
        return [
            (
                k.kind,
                k.low + k.high,
                k.blocks,
                round(k.block_clocks, 6),
                round(k.indexed, 6),
                k.launches,
            )
            for k in kernels
        ]

    assert work(norms) == work((*built.fwd, *built.bwd))
    assert {k.kind for k in first if k.planes} == {"conv_pointwise"}
    assert {k.kind for k in first if k.relaid} == {"conv_pointwise", "conv_winograd"}
    last = kernels(last=True)
    assert not any(k.planes or k.relaid for k in last)
    built = ops.batch_norm("norm", 8 * 16.0, 8)
    norms = [k for k in last if k.kind in (CUDNN_NORM, NATIVE_NORM)]
    assert work(norms) == work((*built.fwd, *built.bwd))


def test_instance_norm_has_a_block_for_each_channel_of_each_image() -> None:
    net = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.InstanceNorm2d(8))
    traces = tuple(
        trace(net, (torch.zeros(batch, 3, 4, 4),), loss=lambda out: out.sum()) for batch in (2, 3)
    )
    workload, _ = convert.converted(
        traces, (2, 3), name="net", sample_unit="image", tokens_per_sample=0.0
    )
    found = [op for block in workload.blocks for op in block.ops]
    norms = [
        k for op in read_ops(ops_text(found)) for k in (*op.fwd, *op.bwd) if k.kind == "batch_norm"
    ]
    assert [k.blocks for k in norms] == [Affine(0.0, 8.0)] * 2
