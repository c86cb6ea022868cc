"""A prediction made by hand, with every optional part, to be changed by the tests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from simcore.answer.result import MeasuredRow, Prediction, RankClass, Run, Single, WhatIf
from simcore.base.figures import Interval
from simcore.base.lookup import Later
from simcore.base.units import GIB
from simcore.memory.result import MemoryResult
from simcore.report.terms import MEMORY, TIME


def _memory() -> MemoryResult:
    apart = ("gradient_copies", "gradient_stubs", "allocator_holes")  # holes are no term of its own
    shown = [key for key in MEMORY if key not in apart]
    terms = {key: float(i + 1) * GIB for i, key in enumerate(shown)}
    terms |= {"replicas": terms["replicas"] - 2 * GIB}
    terms |= {"gradient_copies": 1.0 * GIB, "gradient_stubs": 1.0 * GIB}
    device = sum(terms.values())  # 120 GiB
    return MemoryResult(
        terms=terms,
        allocated_bytes=device - 3 * GIB,
        reserved_bytes=device - 2 * GIB,
        cached_bytes=device - 2 * GIB,
        device_bytes=device,
        capacity_bytes=160.0 * GIB,
        host_bytes=7e9,
        nvme_bytes=0.0,
        moment="backward",
        low_bytes=0.95 * device,
        high_bytes=1.05 * device,
    )


def _times() -> dict[str, float]:
    times = dict.fromkeys(TIME, 0.1)
    times["compute"] = 0.4
    return times


def _fake() -> Prediction:
    return Prediction(
        model="m", model_full_name="A model", n_params=673_681_568, sample_unit="clip",
        cluster="1x2xA100+1x3xT4", n_gpus=5, n_nodes=2, strategy="ddp", precision="tf32",
        optimizer="adamw", recompute="none", offload="optimizer:cpu",
        layout="", data_ranks=5, micro_batch=2, grad_accum=3,
        global_batch=30, step_time_s=Interval(1.1, 0.9, 1.4, "made by hand"), samples_per_s=27.3,
        iter_per_s=0.909, later_single=Later(
            lambda: Single(gpu="A100", speedup=3.2, efficiency_frac=0.8)),
        mfu_frac=0.31, time_s=_times(), memory=_memory(), bound_by="data loading",
        what_if=(WhatIf(resource="data loading", step_time_s=1.0, gain_frac=0.0909),
                 WhatIf(resource="memory bandwidth", step_time_s=1.09, gain_frac=0.009),
                 WhatIf(resource="host", step_time_s=1.1, gain_frac=0.0)),
        rank_classes=(RankClass(gpu="A100", n_gpus=2, compute_s=0.2),
                      RankClass(gpu="T4", n_gpus=3, compute_s=0.6)),
        uneven_split_gain_frac=0.22, defaults=("strategy ddp", "micro-batch 2"),
        assumptions=("a note that matters little", "network: 1 x something", "node: a preset"),
        later_measured=Later(lambda: (MeasuredRow(
            source="table 3", quantity="step_time_s", measured=1.0, predicted=1.1),)),
        run_time_s=3600.0, run_steps=3273.0,
        run=Run(steps=3273.0, tokens=None, time_s=Interval(3600.0, 3000.0, 4500.0, "fake"),
                cost_usd=None, energy_kwh=None),
    )  # fmt: skip


@pytest.fixture
def fake() -> Callable[..., Prediction]:
    """``fake(micro_batch=4)``: the prediction with some fields changed."""
    return lambda **changes: replace(_fake(), **changes)


@pytest.fixture
def with_memory() -> Callable[..., Prediction]:
    """The prediction with some fields of its memory changed."""

    def make(**changes: Any) -> Prediction:
        return replace(_fake(), memory=replace(_memory(), **changes))

    return make
