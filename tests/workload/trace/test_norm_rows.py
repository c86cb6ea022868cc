"""Rows of traced norms: those of the module's input, beside the built operator's."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from simcore.workload import ops  # noqa: E402
from simcore.workload.graph import Kernel  # noqa: E402
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
        return {(k.rows, k.again) for k in kernels if k.kind == "norm"}

    traced = [op for block in workload.blocks for op in block.ops]
    assert rowwise(tuple(k for op in traced for k in op.fwd)) == rowwise(built.fwd) == {(6.0, 0.5)}
    assert rowwise(tuple(k for op in traced for k in op.bwd)) == rowwise(built.bwd)
