"""Autocast's casts beside torch: how often weights are copied, and which casts are kernels."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

from simcore.hardware.class_figures import host_work
from simcore.step.kernels import KernelTable, kernel_table
from simcore.strategy.precision import PRECISIONS
from simcore.workload import ops
from simcore.workload.graph import Block, Op, Param, Workload

LAYERS, ROWS, WIDTH = 3, 8, 16


class _Casts(TorchDispatchMode):
    """Counts copies of matrices of parameters to 16 bit."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.weights, self.seen = {id(p) for p in model.parameters()}, 0

    def __torch_dispatch__(self, func: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten._to_copy.default and id(args[0]) in self.weights:
            self.seen += 1
        return func(*args, **(kwargs or {}))


def weight_casts(recompute: bool) -> tuple[int, int]:
    """How often torch copies weights in forward and in backward of a step."""
    model = nn.Sequential(*(nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(LAYERS)))
    with _Casts(model) as casts:
        with torch.autocast("cpu", torch.bfloat16):
            x = torch.randn(ROWS, WIDTH, requires_grad=True)
            for layer in model:
                x = checkpoint(layer, x, use_reentrant=False) if recompute else layer(x)
        forward = casts.seen
        x.float().sum().backward()
    return forward, casts.seen - forward


def table(op: Op, precision: str, *, recompute: bool = False, n: int = 1) -> KernelTable:
    block = Block(name="b", ops=(op,), params=(Param("w", WIDTH * WIDTH),), recomputable=recompute)
    alone = Workload(name="one", sample_unit="sample", blocks=(block,), order=(0,) * n)
    return kernel_table(alone, PRECISIONS[precision], recompute)


@pytest.mark.parametrize("recompute", [False, True])
def test_checkpoints_copy_weights_again(recompute: bool) -> None:
    """The copies of forward are gone when its autocast is left; a step begins with one of each."""
    forward, backward = weight_casts(recompute)
    assert forward == LAYERS
    linear = ops.linear("linear", ROWS, WIDTH, WIDTH)
    plain, ours = (table(linear, "amp-bf16", recompute=on) for on in (False, recompute))
    more = ours.launches_per_phase[1] - plain.launches_per_phase[1]
    assert LAYERS * more == backward
    whole, fp32 = (table(linear, "fp32", recompute=on) for on in (True, False))
    assert whole.launches_per_phase[1] == fp32.launches_per_phase[1]


@pytest.mark.parametrize(
    ("precision", "launches"), [("fp32", 0.0), ("amp-bf16", 1.0), ("bf16-true", 0.0)]
)
def test_hosts_issue_casts_where_there_are_two_widths(precision: str, launches: float) -> None:
    cast = Op(name="cast", fwd=(ops.autocast_cast(64.0),))
    assert table(cast, precision).launches_per_phase[0] == launches
    only_16_bit = Op(name="cast", fwd=(ops.cast(64.0),))
    expected = float(precision == "bf16-true")
    assert table(only_16_bit, precision).launches_per_phase[0] == expected


def test_a_cast_of_a_weight_is_one_elementwise_kernel_to_the_host() -> None:
    """In forward, beside the same op without casts of weights; without operators: one issue."""
    amp, linear = PRECISIONS["amp-bf16"], ops.linear("linear", ROWS, WIDTH, WIDTH)
    block = Block(name="b", ops=(linear,), params=(Param("w", WIDTH * WIDTH),))
    alone = Workload(name="one", sample_unit="sample", blocks=(block,), order=(0,))
    for eager, (issues, calls) in (
        (True, host_work("elementwise", backward=False)), (False, (1.0, 0.0)),
    ):  # fmt: skip
        cast, kept = (
            kernel_table(alone, precision, eager=eager)
            for precision in (amp, replace(amp, cast_bytes=0))
        )
        assert cast.issues_per_phase[0] - kept.issues_per_phase[0] == pytest.approx(issues)
        assert cast.calls_per_phase[0] - kept.calls_per_phase[0] == pytest.approx(calls)
