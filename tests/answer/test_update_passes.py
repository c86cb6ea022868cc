"""What a library's update moves of all that a rank holds."""

from dataclasses import replace

import pytest

from simcore.answer.predict import predict
from simcore.answer.request import make_request
from simcore.request.make import Request
from simcore.strategy.programs.mechanisms import OptimizerState
from simcore.timing.rates import class_rates


def optimizer_s(request: Request) -> float:
    return predict(request).time_s["optimizer"]


def test_scaling_moves_its_gradients_several_times_whatever_its_shard() -> None:
    """A100's memory serves 34 bytes a parameter at its rate of plain streams; alone none move."""

    def added_s(gpus: str) -> tuple[float, float]:
        asked = make_request("gpt2-xl", gpus, strategy="zero1", software="scaling")
        plain = replace(asked.strategy.program, optimizer_state=OptimizerState())
        still = replace(asked, strategy=replace(asked.strategy, program=plain))
        parameters = float(asked.workload.trainable_numel)
        return optimizer_s(asked) - optimizer_s(still), 34.0 * parameters

    few, n_bytes = added_s("1x2xA100-SXM-80GB")
    many, _ = added_s("1x8xA100-SXM-80GB")
    assert few == pytest.approx(many)
    assert 0.75 * 2.039e12 < n_bytes / few < 2.039e12
    assert added_s("1x1xA100-SXM-80GB")[0] == 0.0


@pytest.mark.parametrize(("ep", "shards"), [(8, 1), (4, 2), (2, 4)])
def test_experts_are_updated_by_those_that_hold_the_same(ep: int, shards: int) -> None:
    """A distributed optimizer deals experts out among the ranks of an expert data-parallel group.

    Megatron-LM, core/optimizer/__init__.py: expert_dp_group for buffers of expert parameters. A
    fused Adam in mixed precision reads master weight, two moments and gradient in fp32, writes the
    first three and the weight in 16 bit: 7 · 4 bytes, and 2 · 2 of the weight. The norm by which
    Megatron-LM clips (clip_grad 1.0 unless told) reads the gradients that a rank holds, 4 bytes.
    """
    asked = make_request(
        "qwen3-30b-a3b", "1x8xB200", strategy="zero1", precision="bf16", main_grads="fp32", ep=ep,
        optimizer="adamw", optimizer_impl="fused",
    )  # fmt: skip
    experts = 48 * 128 * 3 * 2048 * 768 / ep
    group = class_rates(asked.cluster.groups[0], asked.strategy.precision, asked.profile)
    alike = replace(asked, strategy=replace(asked.strategy, expert_ranks=1.0))
    more = optimizer_s(asked) - optimizer_s(alike)
    n_bytes = experts * (1 / shards - 1 / 8) * (7 * 4 + 2 * 2 + 4)
    assert more == pytest.approx(n_bytes / group.update_bytes_per_s, rel=1e-6)
