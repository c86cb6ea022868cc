"""State in managed memory (bitsandbytes' paged optimizers): outside of PyTorch's allocator."""

from __future__ import annotations

from typing import Any

import pytest

from simcore import api
from simcore.strategy.optimizers import optimizer_named

#: Parameters of Llama 2 7B.
NUMEL = 6_738_415_616
JOB: dict[str, Any] = {"strategy": "ddp", "micro_batch": 1, "seq_len": 128, "recompute": "full"}


@pytest.mark.parametrize(
    ("name", "state_bytes"),
    [
        ("paged_adamw_32bit", 8), ("paged_adamw_8bit", 2.03125), ("paged_lion_32bit", 4),
        ("paged_lion_8bit", 1.015625), ("paged_ademamix_32bit", 12), ("adamw/paged", 8),
    ],
)  # fmt: skip
def test_names_of_libraries_mean_paged_state(name: str, state_bytes: float) -> None:
    found = optimizer_named(name)
    assert found.paged and found.state_bytes == state_bytes
    assert not optimizer_named(found.name.partition("/")[0]).paged


@pytest.mark.parametrize("word", ["adamw", "adamw-8bit", "lion"])
def test_paged_state_is_on_the_host_and_not_among_tensors(word: str) -> None:
    plain = api.predict("llama2-7b", "1xH200", precision="amp-bf16", optimizer=word, **JOB).memory
    paged = api.predict(
        "llama2-7b", "1xH200", precision="amp-bf16", optimizer=f"{word}/paged", **JOB
    ).memory
    assert "optimizer_state" not in paged.terms
    state = plain.terms["optimizer_state"]
    assert state == NUMEL * optimizer_named(word).state_bytes
    assert paged.host_bytes - plain.host_bytes == pytest.approx(state)
    assert plain.device_bytes - paged.device_bytes > 0.5 * state


def test_fp32_state_keeps_its_width_beside_weights_of_16_bits() -> None:
    memory = api.predict(
        "llama2-7b", "1xH200", precision="bf16-true", optimizer="adamw/paged", **JOB
    ).memory
    assert memory.host_bytes == 8 * NUMEL


def test_master_weights_stay_on_the_device() -> None:
    memory = api.predict(
        "llama2-7b", "1xH200", precision="bf16", optimizer="adamw/paged", **JOB
    ).memory
    assert memory.terms["optimizer_state"] == 4 * NUMEL
    assert memory.host_bytes == 8 * NUMEL


def test_an_update_in_backward_with_paged_state_fits_where_the_weights_do() -> None:
    """torchtune's 7B_full_low_memory is made for one GPU of 24 GB."""
    job = JOB | {
        "precision": "bf16-true",
        "update_in_backward": True,
        "grad_clip": False,
        "strategy": "single",
    }
    assert api.predict("llama2-7b", "1xRTX4090", optimizer="adamw/paged", **job).fits
    assert not api.predict("llama2-7b", "1xRTX4090", optimizer="adamw", **job).fits
