"""Recompute that stops once backward has what it needs, against torch's own checkpoint."""

from __future__ import annotations

import pytest

from simcore import api
from simcore.answer.request import make_request
from simcore.step.kernels import kernel_table
from simcore.strategy.precision import PRECISIONS
from simcore.workload.archs import ARCHS, load
from simcore.workload.graph import Workload
from simcore.workload.recompute import left_out, recomputed

load("transformer")
SEQ, HIDDEN, FFN = 32, 64, 160
JOB = {"model": "llama3-8b", "gpus": "1x8xH100", "strategy": "zero3", "micro_batch": 1,
       "precision": "bf16"}  # fmt: skip


def model(**changes: object) -> Workload:
    shape = {
        "layers": 2, "hidden": HIDDEN, "heads": 4, "ffn": FFN, "vocab": 128, "seq_len": SEQ,
        "norm": "rmsnorm", "mlp": "swiglu", "positions": "rope", "bias": False, "tied": False,
    }  # fmt: skip
    return ARCHS["transformer"](name="x", **{**shape, **changes})


def backward_flop(workload: Workload, *, again: bool, early: bool) -> float:
    table = kernel_table(workload, PRECISIONS["bf16"], again, early)
    layer = next(i for i, b in enumerate(workload.blocks) if b.recomputable)
    at = len(workload.blocks) + layer
    stop = table.phase_start[at + 1] if at + 1 < table.n_phases else None
    part = slice(table.phase_start[at], stop)
    return float((table["flop"][part] * table["count"][part]).sum())


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, ["down", "mlp.residual", "mlp.fork"]),
        ({"mlp": "gelu"}, ["down", "mlp.residual", "mlp.fork"]),
        # the mask of a dropout is made by the dropout itself
        ({"dropout": 0.1}, ["mlp.residual", "mlp.fork"]),
    ],
)
def test_what_nothing_keeps_does_not_run_again(changes: dict, expected: list[str]) -> None:
    layer = next(b for b in model(**changes).blocks if b.recomputable)
    assert [op.name for op in left_out(layer)] == expected


def test_as_much_runs_again_as_torch_runs() -> None:
    """FLOP of products of a gated layer under torch.utils.checkpoint without reentrance."""
    torch = pytest.importorskip("torch")
    from torch.utils.checkpoint import checkpoint
    from torch.utils.flop_counter import FlopCounterMode

    gate, up, down = (
        torch.nn.Linear(*sides, bias=False)
        for sides in ((HIDDEN, FFN), (HIDDEN, FFN), (FFN, HIDDEN))
    )

    def mlp(x: torch.Tensor) -> torch.Tensor:
        return x + down(torch.nn.functional.silu(gate(x)) * up(x))

    def counted(reentrant: bool) -> float:
        x = torch.randn(SEQ, HIDDEN, requires_grad=True)
        with FlopCounterMode(display=False) as counter:
            checkpoint(mlp, x, use_reentrant=reentrant).sum().backward()
        return float(counter.get_total_flops())

    whole, early = counted(reentrant=True), counted(reentrant=False)
    found = model()
    saved = backward_flop(found, again=True, early=False)  # a whole forward stands beside it
    layer = next(b for b in found.blocks if b.recomputable)
    saved += sum(k.flop for op in layer.ops for k in op.fwd)
    assert saved - backward_flop(found, again=True, early=True) == whole - early


def test_it_is_an_option_of_whole_layers_alone() -> None:
    def step_s(software: str, **words: object) -> float:
        return api.predict(**JOB, software=software, **words).step_time_s.value

    assert step_s("fsdp", recompute="full") < step_s("fsdp-2022", recompute="full")
    part = {"recompute": "full", "recompute_layers": 16}
    assert step_s("fsdp", **part) < step_s("fsdp-2022", **part)
    for words in ({"recompute": "none"}, {"recompute": "selective"}):
        assert step_s("fsdp", **words) == step_s("fsdp-2022", **words)


def test_some_layers_and_all_stop_alike() -> None:
    """As many layers as there are, by name, are what full recompute is: time and work."""
    found = model()
    some = recomputed(found, ("layer",), 0, True)
    assert backward_flop(some, again=False, early=False) == backward_flop(
        found, again=True, early=True
    )


@pytest.mark.parametrize(("sequence", "again"), [(False, 1.0), (True, 1.5)])
def test_the_last_sum_over_tensor_ranks_is_not_repeated(sequence: bool, again: float) -> None:
    """Of two a layer; with sequence parallelism the gather before the last products is."""
    found = {
        software: make_request(
            "llama3-8b", "1x8xH100", tp=8, strategy="zero1", recompute="full", software=software,
            sequence_parallel=sequence,
        ).placed
        for software in ("fsdp", "fsdp-2022")
    }  # fmt: skip
    early, whole = (p.tensor.passes for p in found.values())
    assert whole[1] - early[1] == pytest.approx(2 - again)
