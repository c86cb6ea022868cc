"""Encoders with fused attention, in fp32 and in 16 bit, against transformers on the CPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from huggingface import cases
from reference import measure
from torch import Tensor, nn

from simcore.workload.archs.modernbert import build as modernbert
from simcore.workload.graph import Workload
from simcore.workload.huggingface import read_config

_BATCH, _SEQ = 2, 48


def _step(model: nn.Module, inputs: dict[str, Any], held: list[Tensor]) -> Tensor:
    out = model(**inputs)
    held[:] = [out.logits]
    return out.loss  # type: ignore[no-any-return]


def _pair(case: str, folder: Path, attention: str) -> tuple[Workload, nn.Module, dict[str, Any]]:
    config = cases.config_of(case)
    config._attn_implementation = attention
    torch.manual_seed(0)
    model = cases.model_of(config, "cpu").train()
    ids = torch.randint(3, 100, (_BATCH, _SEQ))
    labels = ids if "Masked" in config.architectures[0] else torch.tensor([0, 1])
    workload = read_config(cases.written(config, folder)).build(seq_len=_SEQ)
    return workload, model, {"input_ids": ids, "labels": labels}


@pytest.mark.parametrize("width", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("case", ["modernbert", "modernbert classes", "modernbert mean"])
def test_storages_under_torchs_own_attention(case: str, width: torch.dtype, tmp_path: Path) -> None:
    # the mask of a local layer, which is written and kept as numbers, among them
    workload, model, inputs = _pair(case, tmp_path, "sdpa")
    model, held = model.to(width), []

    def step() -> Tensor:
        return _step(model, inputs, held)

    step()
    truth = measure.saved_bytes(model, step) + held[0].untyped_storage().nbytes()
    s = workload.saved
    ours = width.itemsize * (s.low + s.high + s.matmul) + s.raw_bytes
    assert ours * _BATCH == pytest.approx(truth, rel=0.01)


@pytest.mark.parametrize("case", ["modernbert", "modernbert classes", "modernbert mean"])
def test_launches_are_those_of_the_dispatcher(case: str, tmp_path: Path) -> None:
    """In fp32, where casts are none. A gradient of half a head is zeros and a copy on a GPU."""
    workload, model, inputs = _pair(case, tmp_path, "sdpa")
    held: list[Tensor] = []
    forward, backward = measure.dispatched(model, lambda: _step(model, inputs, held))
    ours = measure.built_launches(workload)
    assert ours[0] == pytest.approx(forward.total(), abs=3)
    assert ours[1] == pytest.approx(backward.total() + backward["slice_backward"], abs=3)


def test_flash_attention_skips_what_a_local_layer_does_not_see() -> None:
    """By hand: of 64 tokens each sees 4 to either side, fewer at both ends, in 2 of 3 layers."""
    size: dict[str, Any] = {
        "name": "x", "layers": 3, "hidden": 32, "heads": 2, "ffn": 48, "vocab": 50, "seq_len": 64,
        "window": 8,
    }  # fmt: skip
    whole, skipped = modernbert(**size), modernbert(**size, attention="flash")
    seen = sum(min(i + 4, 63) - max(i - 4, 0) + 1 for i in range(64))
    assert whole.forward_flop - skipped.forward_flop == 2 * 4 * 32 * (64**2 - seen)
    # nor is there a mask
    assert whole.saved.low - skipped.saved.low == 2 * 64**2
