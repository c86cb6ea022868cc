"""What issues a job's kernels, and what that costs its host."""

from __future__ import annotations

import numpy as np
import pytest

from simcore.answer.predict import predict
from simcore.answer.request import make_request
from simcore.base.errors import InvalidConfig
from simcore.hardware.cluster import parse_cluster
from simcore.hardware.profile import load_profile
from simcore.step.kernels import kernel_table, table_of
from simcore.strategy.precision import PRECISIONS
from simcore.strategy.programs.mechanisms import ISSUERS
from simcore.timing.rates import class_rates
from simcore.workload import ops
from simcore.workload.graph import Block, Workload


def step_s(issuer: str | None, **options: object) -> float:
    words = {"seq_len": 128, "micro_batch": 1} | options
    request = make_request("gpt2", "1x1xH100", issuer=issuer, **words)  # type: ignore[arg-type]
    return predict(request).step_time_s.value


def test_a_job_that_its_host_binds_takes_as_long_as_issuing_does() -> None:
    """124 M parameters on 128 tokens: the host needs longer than the device."""
    times = {issuer: step_s(issuer) for issuer in ISSUERS}
    bare = times["graph"]  # the host hides: device time alone
    assert bare < 0.8 * times["torch"]
    assert 1.2 < times["megatron_2022"] / times["torch"] <= 3.0
    assert times["torch"] < times["megatron_2022"] < times["megatron_graphs"] < times["megatron"]
    assert step_s(None) == times["torch"]


def test_a_job_that_its_device_binds_does_not_care() -> None:
    busy = {"seq_len": 1024, "micro_batch": 64}
    assert step_s("megatron", **busy) == pytest.approx(step_s("graph", **busy), rel=0.03)


def test_processor_and_precision_count() -> None:
    def issue_s(gpus: str, precision: str, issuer: str) -> float:
        rates = class_rates(parse_cluster(gpus).groups[0], PRECISIONS[precision], load_profile())
        return rates.issue_s(issuer)  # type: ignore[arg-type]

    x86, grace = "1x4xB200", "1x4xGB200"
    assert issue_s(grace, "bf16", "torch") / issue_s(x86, "bf16", "torch") == pytest.approx(1.43)
    assert issue_s(grace, "bf16", "graph") == issue_s(x86, "bf16", "graph")
    assert issue_s(x86, "fp8", "torch") == issue_s(x86, "bf16", "torch")
    for issuer in ("megatron", "megatron_2022"):
        assert issue_s(x86, "fp8", issuer) == pytest.approx(1.5 * issue_s(x86, "bf16", issuer))


def test_each_expert_held_is_a_launch() -> None:
    op = ops.grouped_linear("up", 64.0, 8, 16, experts=4)
    assert [k.launches for k in (*op.fwd, *op.bwd)] == [4.0, 4.0, 4.0]


def test_what_a_loop_of_c_issues_costs_the_host_little() -> None:
    """GroupedLinear: a module's issue, and 8.6 us an expert where that takes Grace 114."""
    op = ops.grouped_linear("up", 64.0, 8, 16, experts=4, looped=True)
    each = 1 + 4 * 8.6 / 114
    assert [k.launches for k in (*op.fwd, *op.bwd)] == [4.0, 4.0, 4.0]
    block = Block(name="experts", ops=(op,))
    table = kernel_table(
        Workload(name="x", sample_unit="row", blocks=(block,), order=(0,)), PRECISIONS["bf16"]
    )
    assert table.launches_per_phase.tolist() == [4.0, 8.0]
    assert table.issues_per_phase == pytest.approx([each, 2 * each], rel=0.01)


def test_an_unknown_issuer_is_refused() -> None:
    with pytest.raises(InvalidConfig, match="megatron"):
        make_request("gpt2", "1x1xH100", issuer="megatrom")


def test_a_host_that_waits_for_each_kernel_adds_its_time_to_the_devices() -> None:
    plain, waiting = (
        predict(
            make_request("gpt2", "1x1xH100", micro_batch=16, grad_accum=4, launch_blocking=wait)
        ).step_time_s.value
        for wait in ("off", True)
    )
    hidden = make_request("gpt2", "1x1xH100", micro_batch=16)
    table = table_of(hidden.workload, hidden.strategy)
    counts = [hidden.workload.count(i) for i in range(len(hidden.workload.blocks))]
    phases = np.array(counts * 2)
    issues, calls = (
        float(phases @ each[: 2 * len(counts)])
        for each in (table.issues_per_phase, table.calls_per_phase)
    )
    assert waiting - plain == pytest.approx(4 * (issues * 10e-6 + calls * 4.5e-6), rel=0.1)


def test_launches_that_wait_are_on_or_off() -> None:
    assert make_request("gpt2", "1x1xH100", launch_blocking="on").strategy.launch_blocking
    with pytest.raises(InvalidConfig, match="unknown launch-blocking '1'"):
        make_request("gpt2", "1x1xH100", launch_blocking="1")


def test_clipping_and_the_updates_kernels_are_said_as_words() -> None:
    """On or off, else as the model's loop has it; kernels of the update by their names."""
    plain = make_request("gpt2", "1x1xH100").strategy
    assert make_request("gpt2", "1x1xH100", grad_clip="on").strategy.grad_clip
    assert not make_request("gpt2", "1x1xH100", grad_clip="off").strategy.grad_clip
    assert make_request("gpt2", "1x1xH100", grad_clip=None).strategy.grad_clip == plain.grad_clip
    with pytest.raises(InvalidConfig, match="unknown grad-clip 'yes'"):
        make_request("gpt2", "1x1xH100", grad_clip="yes")
    with pytest.raises(InvalidConfig, match="did you mean 'for-loop'"):
        make_request("gpt2", "1x1xH100", optimizer_impl="forloop")
