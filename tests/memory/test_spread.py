"""Spread of the device memory, worked out from widths of a profile of round numbers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from simcore.answer.request import make_request
from simcore.memory.spread import (
    holes_sd_bytes,
    is_foreign,
    memory_sd_bytes,
    program_kind,
    tensors_sd_bytes,
    whole_sd_log,
)

WIDTHS = {
    "memory_assumed": 0.5, "memory_foreign": 0.04, "segments_residual": 0.3, False: 0.1, True: 0.2,
}  # fmt: skip
#: 30 bytes come and go within the step, of 100 allocated.
MEMORY: Any = SimpleNamespace(
    terms={
        "activations": np.array([20.0]), "working_set": np.array([10.0]),
        "parameters": np.array([70.0]), "nccl_buffers": np.array([8.0]),
    },
    allocated=np.array([100.0]),
)  # fmt: skip


class Profile:
    """Widths (ln) of each kind, and a CUDA context for each GPU type: (bytes, spread)."""

    def __init__(self) -> None:
        self.runtime = {"memory_kinds": {"megatron@a": 0, "megatron@b, experts": 0.3}}
        self.nccl_sd_log = SimpleNamespace(value=0.5)

    def memory_sd_log(self, kind: str | None = None, *, eager: bool = False) -> Any:
        return SimpleNamespace(value=WIDTHS[eager if kind is None else kind])

    def cuda_context_bytes(self, gpu: str, *, eager: bool) -> Any:
        value, sd_log = {"small": (10.0, 0.9), "large": (20.0, 0.1)}[gpu]
        return SimpleNamespace(value=value * (2 if eager else 1), sd_log=sd_log)


def request(program: str = "megatron@a", experts: float = 0.0, **more: Any) -> Any:
    layers = SimpleNamespace(plain_pytorch_modules=program == "plain")
    strategy = SimpleNamespace(program=SimpleNamespace(name=program, layers=layers), issuer="torch")
    groups = [SimpleNamespace(gpu="small"), SimpleNamespace(gpu="large")]
    values = {"eager_kernels": False, "software_assumed": False, **more}
    return SimpleNamespace(
        strategy=strategy, profile=Profile(), cluster=SimpleNamespace(groups=groups, n_gpus=2),
        workload=SimpleNamespace(expert_numel=experts), **values,
    )  # fmt: skip


def test_steps_of_the_project_s_cards_have_widths_of_their_own() -> None:
    """0.0056 of what is allocated, and 0.065 of it reserved beside, whatever comes and goes."""
    timed, other = (make_request("gpt2", gpu, micro_batch=8) for gpu in ("H200", "H100"))
    assert tensors_sd_bytes(timed, MEMORY) == pytest.approx(0.56)
    assert holes_sd_bytes(timed, MEMORY) == pytest.approx(6.5)
    assert tensors_sd_bytes(other, MEMORY) > 5.0
    assert tensors_sd_bytes(make_request("gpt2", "8xH200"), MEMORY) > 5.0


def test_the_kind_is_a_release_of_the_program_and_mixtures_are_apart() -> None:
    assert program_kind(request("fsdp@2022")) == "fsdp@2022"
    assert program_kind(request("fsdp@2022", experts=1e9)) == "fsdp@2022, experts"


def test_kinds_without_rows_are_foreign() -> None:
    """Also another release of a program with rows, and experts where its rows are dense."""
    assert not is_foreign(request()) and not is_foreign(request("megatron@b", experts=1e9))
    assert is_foreign(request("megatron")) and is_foreign(request("megatron@b"))
    assert is_foreign(request(experts=1e9))


def test_spread_of_everything_allocated() -> None:
    """What its own rows need, or what programs do that are left out; an assumed one has its own."""
    assert whole_sd_log(request()) == 0.0
    assert whole_sd_log(request("megatron@b", experts=1e9)) == 0.3
    assert whole_sd_log(request("fsdp")) == 0.04
    assert whole_sd_log(request(software_assumed=True)) == 0.5
    assert whole_sd_log(request("fsdp", software_assumed=True)) == 0.5


def test_spread_of_tensors() -> None:
    """0.1 x 30 bytes; of a foreign program sqrt(3^2 + (0.04 x 100)^2) = 5; old kernels 0.2 x 30."""
    assert tensors_sd_bytes(request(), MEMORY) == pytest.approx(3.0)
    assert tensors_sd_bytes(request("fsdp"), MEMORY) == pytest.approx(5.0)
    old = request(eager_kernels=True)
    assert tensors_sd_bytes(old, MEMORY) == pytest.approx(6.0)
    assert holes_sd_bytes(request(), MEMORY) == pytest.approx(9.0)


def test_spread_of_the_device() -> None:
    """Tensors 3, the largest context 0.1 x 20 = 2, NCCL 0.5 x 8 = 4: sqrt(9 + 4 + 16)."""
    assert memory_sd_bytes(request(), MEMORY) == pytest.approx(29.0**0.5)
    old = request(eager_kernels=True)  # 6, 0.1 x 40 and 4
    assert memory_sd_bytes(old, MEMORY) == pytest.approx(68.0**0.5)
