"""Workspaces of matrix libraries, as PyTorch and Transformer Engine allocate them."""

import pytest

from simcore import api
from simcore.base.units import MIB

DENSE, MIXTURE = "llama3-8b", "mixtral-8x7b"


@pytest.mark.parametrize(
    ("model", "gpus", "words", "mib"),
    [
        (DENSE, "1x8xH100", {"software": "fsdp"}, 2 * 32),  # PyTorch's two handles alone
        (DENSE, "1x8xH100", {"software": "megatron", "tp": 1}, 3 * 32),
        (DENSE, "1x8xA100", {"software": "megatron", "tp": 1}, 2 * 8.125 + 4),
        (DENSE, "1x8xH100", {"software": "megatron-lm@2022", "tp": 2}, 2 * 32),
        # three streams of products that overlap with what tensor ranks exchange
        (DENSE, "1x8xH100", {"software": "megatron-lm", "tp": 2, "overlap": "tensor"}, 6 * 32),
        # four streams of grouped products
        (MIXTURE, "1x8xH100", {"software": "megatron-lm", "ep": 8}, 7 * 32),
        (MIXTURE, "1x8xA100", {"software": "megatron-lm", "ep": 8}, 2 * 8.125 + 5 * 4),
        (MIXTURE, "1x8xH100",
         {"software": "megatron-lm", "ep": 8, "settings": {"experts_in_turn": True}}, 3 * 32),
        # CUBLAS_WORKSPACE_CONFIG=:4096:8, which --deterministic-mode sets: 32 MiB a handle
        (DENSE, "1x8xA100", {"software": "megatron-lm@deterministic", "tp": 1}, 2 * 32 + 4),
        (DENSE, "1x8xH100", {"software": "megatron-lm@deterministic", "tp": 1}, 3 * 32),
        # scores of 32 heads / 8 ranks, 2 samples of 1,024 x 1,024 in 16 bit; routers alone are TE's
        (DENSE, "1x8xA100", {"software": "megatron@local", "tp": 8, "micro_batch": 2,
                             "seq_len": 1024}, 2 * 8.125 + 2 * 4 * 2),
        (MIXTURE, "1x8xA100", {"software": "megatron-lm@local-deterministic", "tp": 1, "ep": 8,
                               "seq_len": 1024}, 2 * 32 + 4 + 32 * 2),
    ],
)  # fmt: skip
def test_workspaces_by_program_and_gpu(
    model: str, gpus: str, words: dict[str, object], mib: float
) -> None:
    words = {"micro_batch": 1, **words}
    found = api.predict(model, gpus, strategy="zero1", precision="bf16", **words)
    assert found.memory.terms["workspace"] == mib * MIB
