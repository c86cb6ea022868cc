"""The frozen base beside adapters: how wide it lies in memory."""

from __future__ import annotations

import pytest

from simcore import api

#: transformer/config.json of CogVideoX 5B has 5,570,283,072 parameters; all of them are frozen.
BASE = 5_570_283_072


@pytest.mark.parametrize(
    ("precision", "width"), [("fp32", 4), ("amp-bf16", 2), ("amp-fp16", 2), ("bf16-true", 2)]
)
def test_the_base_is_as_wide_as_products_read_it(precision: str, width: int) -> None:
    """diffusers' scripts: transformer.to(device, dtype=weight_dtype), 16 bit under autocast."""
    answer = api.predict(
        "cogvideox-5b", "A100-SXM-80GB", precision=precision, lora_rank=4, micro_batch=1
    )
    assert answer.memory.terms["frozen_models"] == pytest.approx(width * BASE, rel=1e-3)


@pytest.mark.parametrize(
    ("precision", "width", "base", "bits"),
    [("amp-bf16", 4, "nf4", 4.127), ("bf16-true", 2, "nf4", 4.127),
     ("bf16-true", 2, "nf4-single", 4 + 32 / 64)],
)  # fmt: skip
def test_beside_a_4_bit_base_autocast_means_one_made_ready(
    precision: str, width: int, base: str, bits: float
) -> None:
    """PEFT's prepare_model_for_kbit_training casts to fp32 whatever is not quantised.

    Mistral 7B: embeddings, head and 65 norms of its 7,241,732,096 parameters are not in products.
    """
    plain = 2 * 32_000 * 4_096 + 65 * 4_096
    answer = api.predict(
        "mistral-7b", "A100-SXM-80GB", precision=precision, quantised_base=base, lora_rank=16,
        micro_batch=1, seq_len=512, recompute="full",
    )  # fmt: skip
    packed = (7_241_732_096 - plain) * bits / 8
    assert answer.memory.terms["frozen_models"] == pytest.approx(packed + width * plain, rel=1e-3)
