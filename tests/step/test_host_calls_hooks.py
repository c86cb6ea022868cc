"""What hooks in Python take of the host, against DeepSpeed's and torch's own.

Times are CPU time of a layer over that of the same layer alone, in us, of DeepSpeed 0.19.8, torch
2.13 and transformers 5.23 on one core of Zen 4 with 8 hidden elements, 10 us being one kernel's.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from simcore import api
from simcore.answer.explain import explain
from simcore.answer.predict import predict
from simcore.answer.request import make_request
from simcore.step.host_calls import driver_issues, managed
from simcore.step.kernels import kernel_table
from simcore.strategy.precision import PRECISIONS
from simcore.strategy.programs import program_named
from simcore.strategy.strategy import OPTIMIZERS, Buckets, Strategy
from simcore.workload.archs.body_layers import BodyList
from simcore.workload.archs.transformer import build as transformer
from simcore.workload.graph import Workload

bert = BodyList("bert")

PRECISION = PRECISIONS["bf16"]
KERNEL_US = 10.0
_SHAPE: dict[str, Any] = {
    "name": "x", "layers": 2, "hidden": 8, "heads": 2, "vocab": 16, "seq_len": 2, "ffn": 8,
}  # fmt: skip
_LLAMA: dict[str, Any] = {
    **_SHAPE, "mlp": "swiglu", "positions": "rope", "norm": "rmsnorm_eager", "bias": False,
    "fused_qkv": False, "tied": False,
}  # fmt: skip
MODELS = {
    "llama": lambda: transformer(**_LLAMA),
    "qwen2": lambda: transformer(**_LLAMA, qkv_bias=True),
    "gpt2": lambda: transformer(**_SHAPE),
    "bert": lambda: bert(**{k: v for k, v in _SHAPE.items() if k != "ffn"}),
}
ONE_MATRIX, ALL = 64, 10**8  # elements of a bucket


def strategy(zero: str = "zero3", software: str = "deepspeed", numel: int = ALL) -> Strategy:
    return Strategy(
        parallelism=zero, precision=PRECISION, optimizer=OPTIMIZERS["adamw"],
        program=program_named(software), buckets=Buckets(zero_numel=numel),
    )  # fmt: skip


def layer_us(workload: Workload, **how: Any) -> tuple[float, float]:
    """What the host takes for a layer beside its kernels, forward and backward."""
    table = kernel_table(workload, PRECISION, **how)
    beside = table.issues_per_phase - table.launches_per_phase
    at = next(i for i, b in enumerate(workload.blocks) if b.name == "layer")
    return beside[at] * KERNEL_US, beside[len(workload.blocks) + at] * KERNEL_US


@pytest.mark.parametrize(
    ("model", "numel", "forward", "backward"),
    [
        ("llama", ALL, 2440, 1518), ("llama", ONE_MATRIX, 2440, 5600),
        ("gpt2", ALL, 1890, 1406), ("gpt2", ONE_MATRIX, 2030, 3953),
        ("qwen2", ALL, 2320, 1556), ("qwen2", ONE_MATRIX, 2415, 5462),
        ("bert", ALL, 2653, 1908), ("bert", ONE_MATRIX, 2764, 6075),
    ],
)  # fmt: skip
def test_a_layer_under_zero_3(model: str, numel: int, forward: float, backward: float) -> None:
    """DeepSpeed itself; Qwen 2's and BERT's layers fed no figure but a reduction's."""
    found = layer_us(MODELS[model](), by=managed(strategy(numel=numel)))
    assert found == pytest.approx((forward, backward), rel=0.2)


@pytest.mark.parametrize(
    ("model", "forward", "backward"), [("gpt2", 138, 342), ("llama", 199, 476)]
)
def test_a_checkpoint_that_stops_early(model: str, forward: float, backward: float) -> None:
    """torch.utils.checkpoint without reentrance: hooks around each tensor that autograd keeps."""
    found = layer_us(MODELS[model](), recompute=True, stops_early=True)
    assert found == pytest.approx((forward, backward), rel=0.25)


def test_only_zero_3_of_deepspeed_has_them() -> None:
    assert managed(strategy()) is not None
    assert managed(strategy("zero2")) is None
    assert (found := managed(strategy(software="fsdp"))) is not None
    assert found.hooks is None
    assert managed(strategy("zero2", software="fsdp")) is None
    assert managed(replace(strategy(), program=program_named("plain"))) is None


def units_us(workload: Workload, software: str) -> tuple[float, float]:
    """What FSDP adds to a layer, forward and backward."""
    table = kernel_table(workload, PRECISION, by=managed(strategy(software=software)))
    at = next(i for i, b in enumerate(workload.blocks) if b.name == "layer")
    units = table.unit_issues_per_phase
    return units[at] * KERNEL_US, units[len(workload.blocks) + at] * KERNEL_US


@pytest.mark.parametrize(
    ("software", "model", "forward", "backward"),
    [
        ("fsdp", "llama", 1074, 1348), ("fsdp", "qwen2", 1006, 1350),
        ("transformers", "llama", 941, 1196), ("transformers", "qwen2", 1008, 1414),
        ("transformers", "adapted", 7954, 9661),
    ],
)  # fmt: skip
def test_a_layer_that_fsdp_shards(
    software: str, model: str, forward: float, backward: float
) -> None:
    """FSDP2 and FSDP1 themselves, around layers that fed no figure but FSDP2's unit.

    The last as PEFT 0.21 wraps it (fsdp_auto_wrap_policy): a unit for each matrix of an adapter.
    """
    adapted = transformer(**_LLAMA, lora_rank=4)
    found = units_us(adapted if model == "adapted" else MODELS[model](), software)
    assert found == pytest.approx((forward, backward), rel=0.26)


def test_one_rank_alone_has_nothing_to_gather() -> None:
    def host_bound_s(software: str, gpus: str) -> float:
        found = api.predict(
            "gpt2", gpus, strategy="zero3", precision="bf16-true", micro_batch=1, seq_len=64,
            software=software,
        )  # fmt: skip
        return float(found.step_time_s.value)

    alone = [host_bound_s(s, "1xA100-SXM-80GB") for s in ("plain", "fsdp")]
    assert alone[0] == pytest.approx(alone[1], rel=1e-3)
    two = [host_bound_s(s, "2xA100-SXM-80GB") for s in ("plain", "fsdp")]
    assert two[1] - two[0] > 12 * 1e-3  # twelve layers


@pytest.mark.parametrize(
    ("model", "adapters", "walked_us"),
    [("llama", 0, 80), ("qwen2", 0, 93), ("llama", 7, 523), ("qwen2", 7, 514)],
)
def test_a_trainer_walks_through_all_modules(model: str, adapters: int, walked_us: float) -> None:
    """transformers' model.train() and floating_point_ops, a layer and micro-step."""
    bias = {"qkv_bias": True} if model == "qwen2" else {}
    few, more = (
        transformer(**{**_LLAMA, "layers": n}, **bias, lora_rank=4 * bool(adapters)) for n in (2, 3)
    )
    driver = program_named("transformers").host.trainer_loop
    assert driver is not None
    walked = driver_issues(more, driver) - driver_issues(few, driver)
    assert walked * KERNEL_US == pytest.approx(walked_us, rel=0.1)


@pytest.mark.parametrize(("phase", "layer", "measured"), [(0, 17.5, 23.6), (1, 0.0, 4.9)])
def test_adapters_of_peft_take_longer_than_their_products(
    phase: int, layer: float, measured: float
) -> None:
    """PEFT's lora.Linear on a Llama layer's seven products, over those written by hand."""
    workload = transformer(**_LLAMA, lora_rank=4)
    by = managed(strategy("ddp", software="transformers"))
    table = kernel_table(workload, PRECISION, by=by)
    at = next(i for i, b in enumerate(workload.blocks) if b.name == "layer")
    at += phase * len(workload.blocks)
    beside = table.issues_per_phase[at] - table.launches_per_phase[at] - layer
    assert beside == pytest.approx(measured, abs=3.0)


@pytest.mark.parametrize("seq_len", [64, 4096])
def test_each_micro_step_waits_for_the_trainer(seq_len: int) -> None:
    """Its Python comes on top of what bounds the micro-step, since it looks at each loss first."""

    def seconds(accum: int, *, driven: bool) -> float:
        request = make_request(
            "llama3-8b", "1x1xH100-SXM-80GB", strategy="manual", precision="bf16-true",
            micro_batch=2, seq_len=seq_len, grad_accum=accum, software="transformers", lora_rank=8,
        )  # fmt: skip
        if not driven:
            library = request.strategy.program
            library = replace(library, host=replace(library.host, trainer_loop=None))
            request = replace(request, strategy=replace(request.strategy, program=library))
        return float(predict(request).step_time_s.value)

    driver = program_named("transformers").host.trainer_loop
    assert driver is not None
    each_us = (driver.micro_step + 32 * (driver.layer + 7 * driver.adapter)) * KERNEL_US
    for accum in (1, 4):
        more = seconds(accum, driven=True) - seconds(accum, driven=False)
        assert more * 1e6 == pytest.approx(accum * each_us, rel=0.02)


def test_a_tensor_larger_than_a_bucket_is_reduced_once() -> None:
    """As often as buckets of one matrix each, however small they are."""
    wide = {**_LLAMA, "hidden": 64, "ffn": 64}
    found = [layer_us(transformer(**wide), by=managed(strategy(numel=n)))[1] for n in (64 * 64, 64)]
    assert found[0] == found[1]


def test_a_small_job_waits_for_them_and_a_large_one_does_not() -> None:
    job = {
        "model": "gpt2", "gpus": "1xA100-SXM-80GB", "strategy": "zero3", "precision": "bf16",
    }  # fmt: skip

    def seconds(micro_batch: int, seq_len: int, software: str) -> float:
        found = api.predict(**job, micro_batch=micro_batch, seq_len=seq_len, software=software)
        return float(found.step_time_s.value)

    few = [seconds(1, 128, name) for name in ("plain", "deepspeed")]
    assert few[1] - few[0] > 12 * 2e-3  # twelve layers
    assert seconds(2, 128, "deepspeed") == pytest.approx(few[1], rel=1e-3)  # the host's time
    many = [seconds(64, 1024, name) for name in ("plain", "deepspeed")]
    assert many[1] == pytest.approx(many[0], rel=0.02)


def test_an_explanation_counts_them() -> None:
    found = []
    for software in ("plain", "deepspeed"):
        request = make_request(
            "gpt2", "1x1xA100-SXM-80GB", strategy="zero3", precision="bf16", micro_batch=1,
            seq_len=128, software=software,
        )  # fmt: skip
        told = explain(request, predict(request), "host")
        found.append(dict(told.inputs))
    assert found[0]["kernels"] == found[1]["kernels"]
    assert found[0]["launches"] == found[1]["launches"]
    plain, hooked = (float(told["issues"].split()[0].replace(",", "")) for told in found)
    assert hooked > plain + 12 * 100  # twelve layers
