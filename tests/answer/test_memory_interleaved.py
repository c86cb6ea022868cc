"""What an interleaved pipeline's last stage holds, against Megatron-LM's own measurements."""

from __future__ import annotations

from typing import Any

import pytest

from simcore.answer.predict import predict
from simcore.answer.request import make_request
from simcore.base.units import GIGA
from simcore.workload.models import ModelRecord
from simcore.workload.resolve import resolve_model

#: NVIDIA/Megatron-LM, tests/functional_tests/test_cases/gpt/gpt3_7b_*_memory_speed, model_config
#: .yaml: Megatron's defaults beside it (learned positions, biases, dropout of 0.1).
MODEL: dict[str, Any] = {
    "layers": 32, "hidden": 4096, "heads": 32, "kv_heads": 8, "ffn": 16384, "mlp": "gelu",
    "vocab": 131_072, "tied": False, "positions": "learned", "seq_len": 8192, "bias": True,
    "norm": "layernorm", "dropout": 0.1, "fused_pointwise": True,
}  # fmt: skip
JOB: dict[str, Any] = {
    "strategy": "zero1", "precision": "bf16", "software": "megatron", "main_grads": "fp32",
    "global_batch": 8,
}  # fmt: skip


def record(**changes: Any) -> ModelRecord:
    known = resolve_model("gpt2")
    assert isinstance(known, ModelRecord)
    return known.model_copy(update={"config": MODEL | changes})


@pytest.mark.parametrize(
    ("layout", "peak_bytes", "rel"),
    [
        # the writer is the last rank, on the stage with the head
        ({"pp": 4, "vpp": 8, "micro_batch": 1}, 60.52 * GIGA, 0.01),
        ({"tp": 4, "micro_batch": 2, "sequence_parallel": False}, 57.14 * GIGA, 0.01),
    ],
)
def test_seven_billion_parameters_on_eight_cards(
    layout: dict[str, Any], peak_bytes: float, rel: float
) -> None:
    """mem-max-allocated-bytes of golden_values_dev_dgx_h100.json."""
    found = predict(make_request(record(), "1x8xH100", **(JOB | layout)))
    assert found.memory.allocated_bytes == pytest.approx(peak_bytes, rel=rel)


@pytest.mark.parametrize("vpp", [1, 8])
def test_logits_wait_for_nobody(vpp: int) -> None:
    """However many chunks are under way, one micro-batch has come to the head."""

    def peak(vocab: int) -> float:
        words = JOB | {"pp": 4, "vpp": vpp, "micro_batch": 1, "global_batch": 32}
        last = make_request(record(vocab=vocab), "1x8xH100", **words)
        (run,) = [s for s in predict(last).stages if s.first + s.count == 4]
        return run.memory_bytes

    assert peak(262_144) - peak(131_072) == pytest.approx(
        131_072 * (4096 * (2 + 4 + 12 / 2) + 8192 * 6), rel=0.05
    )
