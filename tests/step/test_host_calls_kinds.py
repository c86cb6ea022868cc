"""Host work of whole layers, from that of single kinds of kernels, against transformers' layers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from simcore.step.host_calls import managed
from simcore.step.kernels import kernel_table, table_of
from simcore.strategy.precision import PRECISIONS
from simcore.strategy.programs import program_named
from simcore.strategy.strategy import OPTIMIZERS, Strategy
from simcore.workload.archs.body_layers import BodyList
from simcore.workload.archs.transformer import build as transformer
from simcore.workload.graph import Workload

bert = BodyList("bert")

FP32, AMP = PRECISIONS["fp32"], PRECISIONS["amp-bf16"]
PLAIN = Strategy(precision=FP32, optimizer=OPTIMIZERS["adamw"])
_SHAPE: dict[str, Any] = {
    "name": "x", "layers": 2, "hidden": 8, "heads": 2, "vocab": 16, "seq_len": 2, "ffn": 8,
    "dropout": 0.1,
}  # fmt: skip
_LLAMA: dict[str, Any] = {
    **_SHAPE, "mlp": "swiglu", "positions": "rope", "norm": "rmsnorm_eager", "bias": False,
    "fused_qkv": False, "tied": False, "dropout": 0.0,
}  # fmt: skip
MODELS = {
    "gpt2": lambda: transformer(**_SHAPE),
    "bert": lambda: bert(**{k: v for k, v in _SHAPE.items() if k not in ("ffn", "dropout")}),
    "llama": lambda: transformer(**_LLAMA),
}
ISSUE_US = 5.72 / 1.28


def layer_of(workload: Workload, strategy: Strategy) -> tuple[float, float, float, float]:
    """Issues forward and backward, launches forward and backward of a layer."""
    table = table_of(workload, strategy)
    at = next(i for i, b in enumerate(workload.blocks) if b.recomputable)
    back = len(workload.blocks) + at
    issues, calls = table.issues_per_phase, table.calls_per_phase
    return float(issues[at]), float(issues[back]), float(calls[at]), float(calls[back])


@pytest.mark.parametrize(
    ("model", "forward_us", "backward_us"),
    [("gpt2", 155.4, 172.3), ("bert", 154.7, 185.1), ("llama", 154.7, 222.5)],
)
def test_a_layer_of_transformers(model: str, forward_us: float, backward_us: float) -> None:
    """Layers whose backward fed no figure (benchmarks.host_costs: transformers 5.24, torch 2.14).

    Forward has the modules' own Python, which is a mean over these layers.
    """
    workload = MODELS[model]().replace(modules_of="config")
    forward, backward, *_ = layer_of(workload, PLAIN)
    assert forward * ISSUE_US == pytest.approx(forward_us, rel=0.25)
    assert backward * ISSUE_US == pytest.approx(backward_us, rel=0.3)


def test_modules_of_a_library_run_where_the_program_has_none_of_its_own() -> None:
    workload = MODELS["gpt2"]()
    by_hand, own = (layer_of(workload.replace(modules_of=m), PLAIN) for m in ("", "config"))
    assert own[0] == by_hand[0] + 17.5
    assert own[1:] == by_hand[1:]
    for other in (replace(PLAIN, issuer="graph"), replace(PLAIN, compiled=True)):
        assert managed(other, "config") is None
    megatron = replace(PLAIN, program=program_named("megatron-lm"))
    assert managed(megatron, "config") is None


def test_what_is_not_issued_by_pytorch_costs_the_same_for_all_kinds() -> None:
    workload = MODELS["gpt2"]()
    for strategy in (replace(PLAIN, issuer="megatron"), replace(PLAIN, compiled=True)):
        table = table_of(workload, strategy)
        # but for the passes of the sorts behind a look-up's gradient, which no operator issues
        passes = [sum(k.launches for o in b.ops for k in o.bwd if k.kind == "auxiliary")
                  for b in workload.blocks]  # fmt: skip
        assert any(passes)
        issued = table.launches_per_phase - np.array([0.0] * len(passes) + passes)
        assert table.issues_per_phase.tolist() == issued.tolist()
        assert not table.calls_per_phase.any()


def test_autocast_casts_matrices_and_biases() -> None:
    """Four matrices with a bias each in a layer of GPT-2: eight casts forward, and in backward four
    of biases; those of the matrices' gradients are kernels of the table."""
    workload = MODELS["gpt2"]()
    plain, cast = (kernel_table(workload, p) for p in (FP32, AMP))
    at = next(i for i, b in enumerate(workload.blocks) if b.recomputable)
    for phase, more in ((at, 8.0), (len(workload.blocks) + at, 4.0)):
        kernels = cast.launches_per_phase[phase]
        assert cast.issues_per_phase[phase] == kernels + more
        assert plain.issues_per_phase[phase] == plain.launches_per_phase[phase]
