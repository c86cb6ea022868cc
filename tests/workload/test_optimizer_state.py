"""Adafactor and Muon against torch: bytes of their state, and work of Newton-Schulz steps."""

from __future__ import annotations

import pytest
import torch
from reference.transformer import Gpt2, Llama
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from simcore.answer.request import make_request
from simcore.strategy.optimizers import OPTIMIZERS, fitted
from simcore.strategy.precision import PRECISIONS
from simcore.workload.archs.transformer import build
from simcore.workload.graph import Workload

FP32 = PRECISIONS["fp32"]


def gpt() -> tuple[nn.Module, Workload]:
    built = build(name="g", layers=3, hidden=64, heads=4, vocab=50257, seq_len=1024)
    return Gpt2(3, 64, 4), built


def llama() -> tuple[nn.Module, Workload]:
    built = build(
        name="l", layers=2, hidden=64, heads=4, kv_heads=2, ffn=160, vocab=999, seq_len=32,
        mlp="swiglu", positions="rope", norm="rmsnorm", bias=False, fused_qkv=False, tied=False,
    )  # fmt: skip
    return Llama(layers=2, dim=64, heads=4, kv_heads=2, ffn=160, vocab=999), built


def state_bytes(*optimizers: torch.optim.Optimizer) -> int:
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            for p in group["params"]:
                p.grad = torch.ones_like(p)
        optimizer.step()
    tensors = [
        t for o in optimizers for s in o.state.values() for k, t in s.items()
        if torch.is_tensor(t) and k != "step"
    ]  # fmt: skip
    return sum(t.numel() * t.element_size() for t in tensors)


def split(model: nn.Module) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
    """Matrices of repeated layers, and all else."""
    layers = next(m for m in model.children() if isinstance(m, nn.ModuleList))
    inside = {id(p) for p in layers.parameters() if p.ndim == 2}
    params = list(model.parameters())
    return [p for p in params if id(p) in inside], [p for p in params if id(p) not in inside]


@pytest.mark.parametrize("name", ["fp32", "bf16-true"])
@pytest.mark.parametrize("pair", [gpt, llama], ids=["gpt2", "llama"])
def test_state_is_what_torch_keeps(pair, name: str) -> None:  # type: ignore[no-untyped-def]
    model, built = pair()
    numel, precision = built.trainable_numel, PRECISIONS[name]
    model = model.bfloat16() if name == "bf16-true" else model
    adafactor = fitted(OPTIMIZERS["adafactor"], built, precision).state_bytes * numel
    assert adafactor == pytest.approx(state_bytes(torch.optim.Adafactor(model.parameters())))
    matrices, rest = split(model)
    real = state_bytes(torch.optim.Muon(matrices), torch.optim.AdamW(rest))
    assert fitted(OPTIMIZERS["muon"], built, precision).state_bytes * numel == pytest.approx(real)
    adamw = fitted(OPTIMIZERS["adamw"], built, precision).state_bytes * numel
    assert adamw == state_bytes(torch.optim.AdamW(model.parameters()))


def test_muons_products_are_what_torch_runs() -> None:
    model, built = gpt()
    matrices, _ = split(model)
    for p in matrices:
        p.grad = torch.ones_like(p)
    with FlopCounterMode(display=False) as counted:
        torch.optim.Muon(matrices).step()
    flop = fitted(OPTIMIZERS["muon"], built, FP32).flop * built.trainable_numel
    assert flop == pytest.approx(counted.get_total_flops())


def test_others_are_as_they_were() -> None:
    _, built = gpt()
    for name in OPTIMIZERS:
        if name not in ("adafactor", "muon"):
            assert fitted(OPTIMIZERS[name], built, FP32) is OPTIMIZERS[name]


def test_a_job_uses_them() -> None:
    from simcore.answer.predict import predict

    adamw, muon, adafactor = (
        predict(make_request("gpt2", "8xA100", optimizer=o)) for o in ("adamw", "muon", "adafactor")
    )
    memory = [p.memory.terms["optimizer_state"] for p in (adamw, muon, adafactor)]
    assert memory[0] > memory[1] > memory[2]
    assert muon.step_time_s.value > adamw.step_time_s.value
