"""Formats of optimizer state: Megatron-Core's precision-aware optimizer, read and written."""

from __future__ import annotations

import pytest

from simcore.strategy.dialects import read_launch

_ZERO1 = "--use-distributed-optimizer --bf16"
_AWARE = f"{_ZERO1} --use-precision-aware-optimizer"
_BF16 = "--exp-avg-dtype bf16 --exp-avg-sq-dtype bf16"


@pytest.mark.parametrize(
    ("flags", "optimizer", "software", "main_grads"),
    [
        (_ZERO1, "adamw", "megatron", "fp32"),
        (_AWARE, "adamw", "megatron@precision-aware", "fp32"),
        (f"{_AWARE} {_BF16}", "adamw-bf16", "megatron@precision-aware", "fp32"),
        (f"{_AWARE} {_BF16} --main-grads-dtype bf16", "adamw-bf16", "megatron@precision-aware",
         None),
        # Transformer Engine holds the masters of fp8 with delayed scaling, its default, alone
        (f"{_AWARE} --fp8-format hybrid", "adamw", "megatron@precision-aware", "fp32"),
        (f"{_AWARE} --fp8-format e4m3 --fp8-recipe mxfp8", "adamw", "megatron", "fp32"),
        (f"{_AWARE} {_BF16} --fp8-format e4m3 --fp8-recipe tensorwise", "adamw-bf16", "megatron",
         "fp32"),
        # the optimizer on the host is another one
        (f"{_AWARE} --optimizer-cpu-offload", "adamw", "megatron", "fp32"),
    ],
)  # fmt: skip
def test_state_is_read(
    flags: str, optimizer: str, software: str | None, main_grads: str | None
) -> None:
    launch = read_launch(f"--micro-batch-size 1 --train-iters 9 {flags}")
    assert (launch.optimizer, launch.software) == (optimizer, software)
    assert launch.main_grads == main_grads
    assert not launch.violations() and not launch.unknown and not launch.approximated


def test_moments_of_two_formats_are_not_followed() -> None:
    launch = read_launch(f"--micro-batch-size 1 {_AWARE} --exp-avg-dtype bf16")
    assert launch.optimizer == "adamw"
    assert any("--exp-avg-dtype is not followed" in a for a in launch.approximated)


def test_narrow_state_needs_the_flag() -> None:
    (first, second) = read_launch(f"--micro-batch-size 1 {_ZERO1} {_BF16}").violations()
    assert "--exp-avg-dtype bf16 needs --use-precision-aware-optimizer" in first
    assert "--exp-avg-sq-dtype bf16" in second
