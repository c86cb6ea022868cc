"""Products and activations of a layer of experts, against a layer that was timed."""

import numpy as np
import pytest

from simcore.answer.request import make_request
from simcore.step.kernels import table_of
from simcore.timing.compute import phase_seconds
from simcore.timing.rates import class_rates
from simcore.workload.graph import Block, Workload
from simcore.workload.models import MODELS

#: marin-community/marin, issue 7282, on one GB200: gated experts, so many rows over all of them.
ROWS, WIDTH, INNER, EXPERTS = 262_144, 2_560, 1_280, 64


@pytest.mark.parametrize(
    ("precision", "fused", "measured_ms"),
    [
        ("bf16", False, 12.220),
        # products with activation and casts in them (cudnn-frontend), two operands cast apart
        ("mxfp8", True, 8.777),
    ],
)
def test_a_layer_of_experts_on_gb200(precision: str, fused: bool, measured_ms: float) -> None:
    """Forward and backward; in MXFP8 without the casts that are not in kernels of products."""
    model = MODELS["qwen3-30b-a3b"].build(
        layers=1, seq_len=ROWS, hidden=WIDTH, expert_ffn=INNER, experts=EXPERTS, top_k=1,
        weighed_early=True, fused_experts=fused, fused_pointwise=True,
    )  # fmt: skip
    (layer,) = (b for b in model.blocks if b.recomputable)
    ops = tuple(op for op in layer.ops if op.name in ("experts.gate_up", "product", "experts.down"))
    work = Workload(
        name="experts", sample_unit="sequence", blocks=(Block(name="experts", ops=ops),), order=(0,)
    )
    asked = make_request(
        "gpt2", "1xGB200", precision=precision, software="megatron", main_grads="weights"
    )
    rates = class_rates(asked.cluster.groups[0], asked.strategy.precision, asked.profile)
    one = np.ones(1)
    seconds = phase_seconds(table_of(work, asked.strategy), rates.kernels, one, one, one).sum()
    assert len(ops) == 3
    assert 1e3 * seconds == pytest.approx(measured_ms, rel=0.12)
