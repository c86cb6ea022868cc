"""Ranks on the cores of one host: what they share, what they do not wait for."""

from __future__ import annotations

import numpy as np
import pytest

from simcore.answer.predict import predict
from simcore.calibrate.machine.record import Facts, Machine, record_of
from simcore.hardware.calibrations import (
    Calibration,
    Contention,
    Fitted,
    FittedTime,
    MeasuredDevice,
)
from simcore.hardware.profile import Profile, profile_of
from simcore.request.resolved import Request
from simcore.step.kernels import KINDS
from simcore.step.transients import COMPUTE_KINDS
from simcore.strategy.optimizers import OPTIMIZERS
from simcore.strategy.precision import PRECISIONS
from simcore.strategy.strategy import Strategy
from simcore.timing.rates import class_rates
from simcore.timing.steps import central_step_s
from simcore.workload.graph import FLASH_KINDS
from simcore.workload.models import MODELS


def fitted(value: float) -> Fitted:
    return Fitted(value=value, sd_log=0.05)


@pytest.fixture(scope="module")
def found() -> Machine:
    return record_of(
        Facts(
            name="box", kind="cpu", device="A processor", source="a test", ranks=4, cores=4,
            memory_bytes=8e9, host_bytes=32e9, flop_per_s={"fp32": 100e9}, bytes_per_s=20e9,
            host_bytes_per_s=40e9, bus_bytes_per_s=1e9, disk_read_bytes_per_s=1e9,
            disk_write_bytes_per_s=1e9,
        )
    )  # fmt: skip


@pytest.fixture(scope="module")
def profile() -> Profile:
    kinds = [k for k in KINDS if k not in COMPUTE_KINDS]
    return profile_of(
        Calibration(
            name="box", origin="a test", rows=1, residual_sd_log=0.05, knobs=(),
            measured=MeasuredDevice(
                gpu="box",
                compute_efficiency={f"{k}_simt32": fitted(0.8) for k in COMPUTE_KINDS},
                memory_efficiency={k: fitted(0.5) for k in (*kinds, *COMPUTE_KINDS, "update")},
                kernel_start=FittedTime(value=5e-6, sd_log=0.1),
                host_issue=FittedTime(value=0.0, sd_log=0.0),
                contention=(Contention(ranks=2, compute=fitted(0.9), memory=fitted(0.5)),),
            ),
        )
    )  # fmt: skip


def request(found: Machine, profile: Profile, ranks: int) -> Request:
    model = MODELS["mnist-cnn"]
    strategy = Strategy(precision=PRECISIONS["fp32"], optimizer=OPTIMIZERS["adamw"])
    return Request(
        workload=model.build(), full_name=model.full_name, cluster=found.cluster(ranks),
        strategy=strategy, micro_batch=64, grad_accum=1, profile=profile,
    )  # fmt: skip


def test_two_ranks_keep_the_measured_share_of_their_rates(found: Machine, profile: Profile) -> None:
    one, two = (
        class_rates(found.cluster(n).groups[0], PRECISIONS["fp32"], profile) for n in (1, 2)
    )
    compute = [KINDS.index(k) for k in COMPUTE_KINDS if k not in FLASH_KINDS[1:]]
    others = [i for i, k in enumerate(KINDS) if k not in FLASH_KINDS[1:]]
    assert one.kernels.kinds["flop_per_s"][compute] == pytest.approx(0.8 * 100e9)
    assert two.kernels.kinds["flop_per_s"][compute] == pytest.approx(0.9 * 0.8 * 100e9)
    assert one.kernels.kinds["bytes_per_s"][others] == pytest.approx(0.5 * 20e9)
    assert two.kernels.kinds["bytes_per_s"][others] == pytest.approx(0.5 * 0.5 * 20e9)
    assert two.update_bytes_per_s == pytest.approx(0.5 * one.update_bytes_per_s)


def test_a_processor_issues_for_nothing_and_copies_nothing(
    found: Machine, profile: Profile
) -> None:
    rates = class_rates(found.cluster(1).groups[0], PRECISIONS["fp32"], profile)
    assert rates.host_issue_s == 0.0
    assert rates.kernels.start_s == 5e-6
    assert np.isinf(rates.h2d_bytes_per_s)


def test_speed_up_is_against_a_rank_that_is_alone(found: Machine, profile: Profile) -> None:
    """Two ranks that hinder each other gain less than two that do not."""
    alone = central_step_s(request(found, profile, 1))
    both = predict(request(found, profile, 2))
    assert both.step_time_s.value > alone
    assert both.speedup_vs_1gpu == pytest.approx(2 * alone / both.step_time_s.value)
    assert both.speedup_vs_1gpu < 1.9
