"""``calibrate --model`` on the processor: kernels in the real step of a tiny network."""

from __future__ import annotations

import json
import math
import re
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from simcore.answer.predict import predict
from simcore.answer.request import make_request
from simcore.answer.result import Prediction
from simcore.base.figures import Z80
from simcore.calibrate.job import op_timer
from simcore.calibrate.job.op_timer import OpTimer, timed_ops, typical_steps
from simcore.calibrate.job.profile import (
    ModelCalibrated,
    ModelOptions,
    _scatter,
    calibrate_model,
    merged,
    plain_data,
)
from simcore.calibrate.job.real_step import built_step
from simcore.calibrate.job.timing import TimedJob
from simcore.calibrate.machine.record import Facts, record_of, write_record
from simcore.cli.calibrate_model import render_model
from simcore.cli.main import run
from simcore.hardware.calibrations import (
    Calibration,
    Fitted,
    FittedTime,
    MeasuredDevice,
    TimedKernel,
)
from simcore.hardware.profile import profile_of
from simcore.request.resolved import Request
from simcore.strategy.optimizers import OPTIMIZERS
from simcore.strategy.precision import PRECISIONS
from simcore.strategy.strategy import Strategy, parallelism_named
from simcore.workload.settings import TrustedName
from simcore.workload.trace.flop import kernels_of
from simcore.workload.trace.record import Piece

HERE = TrustedName(f"{__name__}:tiny")
JOB = Strategy(parallelism=parallelism_named("ddp"), precision=PRECISIONS["fp32-ieee"],
               optimizer=OPTIMIZERS["adamw"])  # fmt: skip


def tiny() -> tuple[Any, Any]:
    net = nn.Sequential(nn.Linear(64, 96), nn.LayerNorm(96), nn.GELU(), nn.Linear(96, 8))
    return net, torch.randn(3, 64)


def base(folder: Path) -> Calibration:
    """A profile of a made-up processor, with its record."""
    facts = Facts(
        name="tiny-box", kind="cpu", device="made up", source="a test", ranks=1, cores=1,
        memory_bytes=1e10, host_bytes=1e10, flop_per_s={"fp32": 1e11}, bytes_per_s=1e10,
        host_bytes_per_s=1e10, bus_bytes_per_s=0.0, disk_read_bytes_per_s=0.0,
        disk_write_bytes_per_s=0.0,
    )  # fmt: skip
    write_record(record_of(facts), folder)
    share = {k: Fitted(value=0.5, sd_log=0.3) for k in ("gemm_simt32", "conv_simt32")}
    kinds = ("elementwise", "norm", "softmax", "reduction", "gather", "copy", "gemm", "attention",
             "conv", "update")  # fmt: skip
    return Calibration(
        name="tiny-box", origin="a test", rows=0, residual_sd_log=0.3, knobs=(),
        conditions={"threads": "1"},
        measured=MeasuredDevice(
            gpu="tiny-box", compute_efficiency=share,
            memory_efficiency={k: Fitted(value=0.5, sd_log=0.3) for k in kinds},
            kernel_start=FittedTime(value=1e-6, sd_log=0.1),
            host_issue=FittedTime(value=0.0, sd_log=0.0),
        ),
    )  # fmt: skip


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> ModelCalibrated:
    folder = tmp_path_factory.mktemp("box")
    words = {"micro_batch": 32, "precision": "fp32-ieee"}
    return calibrate_model(
        ModelOptions(HERE, folder / "box.yaml", "cpu", words, base(folder), seconds=0.6)
    )


def test_every_kernel_of_the_step_is_timed(made: ModelCalibrated) -> None:
    assert made.timed_frac == pytest.approx(1.0)
    assert made.timed.in_real_step == len(made.timed.kernels)
    assert made.timed.step_s is not None
    words = " ".join(k.kernel for k in made.timed.kernels)
    assert "forward gemm" in words and "backward gemm" in words and "backward norm" in words
    # 2 x 64 x 96 FLOP a sample in forward, and the same in the weight's gradient
    assert re.search(r"forward gemm flop=12288 ", words)
    assert re.search(r"backward gemm(_across)? flop=12288 ", words)


def under(request: Request, record: Calibration, **changes: object) -> Prediction:
    """The prediction with a profile whose measured figures are changed."""
    assert record.measured is not None
    measured = record.measured.model_copy(update=changes)
    record = record.model_copy(update={"measured": measured})
    return predict(replace(request, profile=profile_of(record)))


def test_the_prediction_is_the_sum_of_its_kernels(made: ModelCalibrated) -> None:
    """Each kernel of this network runs once or more, so that compute is at least their sum."""
    file, before = made.files[0], base(made.files[0].parent)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SIMCORE_DB", str(file.parent))
        request = make_request(HERE, "1x1xtiny-box", micro_batch=32, precision="fp32-ieee",
                               calibration=str(file))  # fmt: skip
    kernels = request.profile.measured.kernels  # type: ignore[union-attr]
    twice = tuple(k.model_copy(update={"seconds": 2.0 * k.seconds}) for k in kernels)
    found = predict(request)
    double = under(request, made.record, kernels=twice)
    assert found.time_s["compute"] >= 0.99 * sum(k.seconds for k in kernels)
    assert double.time_s["compute"] == pytest.approx(2.0 * found.time_s["compute"], rel=1e-3)
    assert any("100 % of the device's kernel time" in text for text in found.assumptions)
    # timed kernels leave the scatter of whole steps alone: figures and their residual count no more
    sure = under(request, made.record, step_over_kernels=Fitted(value=1.0, sd_log=0.05))
    assert sure.step_time_s.high / sure.step_time_s.value == pytest.approx(
        math.exp(Z80 * 0.05), rel=0.01
    )
    assert under(request, before).step_time_s.high / under(request, before).step_time_s.value > 1.4


def test_operators_are_timed_in_the_order_of_the_step() -> None:
    step = built_step(HERE, (), 16, JOB, "cpu")
    start = time.perf_counter()
    ops = timed_ops(step, JOB.precision, on_gpu=False, budget_s=0.05)
    wall = time.perf_counter() - start
    names = [op.name for op in ops]
    assert names[:4] == ["addmm", "native_layer_norm", "gelu", "addmm"]
    first_back = next(i for i, op in enumerate(ops) if op.backward)
    assert not any(op.backward for op in ops[:first_back])
    assert {"native_layer_norm_backward", "gelu_backward", "mm", "sum"} <= set(names[first_back:])
    assert 0.0 < sum(op.seconds for op in ops) < wall


def test_time_between_operators_is_part_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forward and backward as a whole take 2 s: more than all operators, which take equal parts."""
    monkeypatch.setattr(op_timer, "_whole_s", lambda step: 2.0)
    step = built_step(HERE, (), 4, JOB, "cpu")
    ops = timed_ops(step, JOB.precision, on_gpu=False, budget_s=0.01)
    assert sum(op.seconds for op in ops) == pytest.approx(2.0)
    assert min(op.seconds for op in ops) > 1.8 / len(ops)


def test_layers_of_cudnn_lstm_are_kernels_of_their_own() -> None:
    """Two layers over 5 steps of 3 samples, 8 units, 6 or 8 inputs: 2 x 15 x 32 x inputs FLOP."""
    x = torch.randn(5, 3, 6)
    weights = [torch.randn(*s) for s in ((32, 6), (32, 8), (32,), (32,), (32, 8), (32, 8), (32,),
               (32,))]  # fmt: skip

    def of(tensor: torch.Tensor) -> Piece:
        return Piece(tensor.numel(), 4, "high", "activation")

    found = kernels_of("_cudnn_rnn", (x, weights, 4), (), (), (), of)
    back = kernels_of("_cudnn_rnn_backward", (x, weights, 4), (), (), (), of)
    products = [(k.flop, k.dims, k.launches) for k in found if k.flop]
    step = (2 * 15 * 32 * 8, (3, 32, 8, 1), 5)
    assert products == [
        (2 * 15 * 32 * 6, (15, 32, 6, 1), 1), step, (2 * 15 * 32 * 8, (15, 32, 8, 1), 1), step
    ]  # fmt: skip
    assert sum(k.flop for k in back) == 2 * sum(k.flop for k in found)


def test_the_batch_of_a_sample_is_repeated_and_a_frozen_step_still_trains() -> None:
    step = built_step(HERE, (), 7, JOB, "cpu")
    assert step.inputs[0].shape == (7, 64)
    assert torch.equal(step.inputs[0][0], step.inputs[0][3])
    before = step.module[0].weight.detach().clone()
    step()
    assert not torch.equal(before, step.module[0].weight)


def test_the_timer_takes_nothing_for_views_of_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a GPU a view runs no kernel: no event is recorded for it."""
    recorded: list[str] = []

    class Event:
        def __init__(self, enable_timing: bool) -> None: ...
        def record(self) -> None:
            recorded.append("event")

        def elapsed_time(self, other: Any) -> float:
            return 2.0

    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "_sleep", lambda clocks: recorded.append("sleep"))
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: recorded.append("wait"))
    timer = OpTimer(on_gpu=True)
    x = torch.randn(4, 4)
    with timer:
        (x.t() + 1.0).relu()
    assert recorded == ["sleep", "event", "event"] * 2
    assert timer.seconds() == [0.002, 0.002]


def test_a_typical_step_is_the_mean_of_the_middle_half() -> None:
    steps = np.array([[1.0, 1.0], [2.0, 2.0], [9.0, 1.0], [3.0, 3.0]])
    assert typical_steps(steps, np.zeros(4)).tolist() == [[2.0, 2.0], [3.0, 3.0]]


def test_on_a_busy_machine_the_shortest_quarter_counts() -> None:
    steps = np.array([[5.0], [2.0], [4.0], [3.0], [8.0], [9.0], [6.0], [7.0]])
    assert typical_steps(steps, np.full(8, 0.5)).tolist() == [[2.0], [3.0]]


def test_a_kernel_timed_again_replaces_the_old_figure() -> None:
    def timed(text: str, batch: float, seconds: float) -> TimedKernel:
        return TimedKernel(kernel=text, precision="fp32", batch=batch, seconds=seconds)

    old = [timed("a", 1, 1.0), timed("b", 1, 2.0)]
    found = merged(old, [timed("a", 1, 5.0), timed("a", 2, 6.0)])
    assert [(k.kernel, k.batch, k.seconds) for k in found] == [
        ("a", 1.0, 5.0), ("b", 1.0, 2.0), ("a", 2.0, 6.0),
    ]  # fmt: skip


def test_the_scatter_of_steps_is_that_of_all_of_them() -> None:
    """Errors of 10 and 2 %: root mean square sqrt((0.1^2 + 0.02^2) / 2)."""
    first = _scatter(None, 1.0, math.exp(0.10))
    both = _scatter(first, 1.0, math.exp(0.02))
    assert both.rows == 2
    assert both.leave_one_out_mape_frac == pytest.approx(math.sqrt((0.01 + 0.0004) / 2))
    assert both.sd_log < first.sd_log
    assert _scatter(None, None, 1.0).sd_log == 0.15


def test_a_profile_that_is_worse_says_so_first(made: ModelCalibrated) -> None:
    timed = TimedJob((), None, 1.0, "", 0, 0.0, ())
    worse = replace(made, timed=timed, before_s=1.05, step_s=(0.8, 0.7, 0.9))
    assert render_model(plain_data(worse)).startswith("WORSE than without the timed kernels")
    better = replace(worse, step_s=(0.99, 0.9, 1.1))
    assert "WORSE" not in render_model(plain_data(better))
    text = render_model(plain_data(better))
    assert (
        "predicted by the benchmarks of the profile" in text
        and "+5.0 %" in text
        and "-1.0 %" in text
    )


def test_the_command_extends_a_profile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from simcore.calibrate.yaml_text import write_profile

    write_profile(tmp_path / "box.yaml", base(tmp_path))
    monkeypatch.chdir(tmp_path)
    job = ["--model", str(HERE), "--micro-batch", "8", "--precision", "fp32-ieee"]
    words = ["calibrate", *job, "--device", "cpu", "--minutes", "0.005", "-o", "box.yaml",
             "--resume", "--json"]  # fmt: skip
    assert run(words) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["kernels"] == found["kernels_of_profile"] > 5
    again = [w if w != "8" else "16" for w in words]
    assert run(again) == 0
    more = json.loads(capsys.readouterr().out)
    assert more["kernels_of_profile"] > found["kernels_of_profile"]
    where = ["--gpus", "1x1xtiny-box", "--calibration", "box.yaml"]
    assert run(["predict", *job, *where]) == 0
    assert "100 % of the device's kernel time" in " ".join(capsys.readouterr().out.split())
    assert run([*words, "--from", "x.csv"]) == 2
