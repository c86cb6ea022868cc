"""``simcore calibrate --model``: times the kernels of one job's step on this machine.

The kernels join a profile by shape (``timing.timed``), which makes the same job, and jobs like it,
as exact as their measurements. ``timing`` measures; here is what is made of it. The profile is
the one to extend, or the shipped one, or on a processor, which has none, a short benchmark's.
"""

from __future__ import annotations

import datetime
import math
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field, replace
from pathlib import Path
from time import perf_counter
from typing import Any, Final

from simcore.answer.predict import predict
from simcore.answer.request import make_request
from simcore.answer.timed import timed_frac
from simcore.base.database import load_record
from simcore.base.errors import UsageError
from simcore.base.record import dataclass
from simcore.calibrate.bench.case import World
from simcore.calibrate.job.timing import TimedJob, time_job
from simcore.calibrate.machine.launch import run_ranks
from simcore.calibrate.machine.run import open_device
from simcore.calibrate.machine.steps import UNMEASURED_SD, predictive_sd
from simcore.calibrate.yaml_text import write_profile
from simcore.hardware.calibrations import (
    Calibration,
    Fitted,
    MeasuredDevice,
    TimedKernel,
    TimedUpdate,
)
from simcore.hardware.profile import profile_of
from simcore.request.resolved import Request

#: Benchmarks that a processor without a profile needs first, and minutes for them.
BASE_FAMILIES: Final = ("launch", "gemm", "conv", "attention", "memory-bound", "optimizer")
BASE_MINUTES: Final = 0.4
#: Least share of the time for the job itself, whatever was spent before.
LEAST_FRAC: Final = 0.3


@dataclass(frozen=True)
class ModelOptions:
    """A job to time, and how: model and options of ``predict``, the file to write, the time.

    ``base``: a profile to extend. ``gpus``: the cluster, where the job's layout needs one.
    ``seconds``: to spend in all; a short benchmark of a machine without a profile is part of them.
    ``quiet``: show no progress.
    """

    model: str
    output: Path
    device: str
    words: Mapping[str, Any] = field(default_factory=dict)
    base: Calibration | None = None
    gpus: str | None = None
    seconds: float = 60.0
    quiet: bool = False


@dataclass(frozen=True)
class ModelCalibrated:
    """The profile with the job's kernels, and the job's step on one device.

    ``before_s``: its prediction without the timed kernels; ``step``: with them, the interval's
    middle, low and high end [s]. ``timed_frac``: share of device time in timed kernels.
    """

    record: Calibration
    timed: TimedJob
    before_s: float
    step_s: tuple[float, float, float]
    timed_frac: float
    gpu: str
    files: tuple[Path, ...]
    notes: tuple[str, ...]

    @property
    def blind(self) -> bool:
        """Whether the profile has nothing of this machine but timed kernels."""
        return self.record.measured is None or not self.record.measured.timed_kernels

    @property
    def worse(self) -> bool:
        """Whether the prediction without the timed kernels was nearer to the measured step."""
        before, now = (self.error_frac(s) for s in (self.before_s, self.step_s[0]))
        return before is not None and now is not None and abs(now) > abs(before)

    def error_frac(self, predicted_s: float) -> float | None:
        """Error of a predicted step; None where the step was not measured."""
        measured_s = self.timed.step_s
        return None if measured_s is None else predicted_s / measured_s - 1.0


@contextmanager
def _records_beside(output: Path) -> Iterator[None]:
    """A context in which hardware records beside the profile are found."""
    before = os.environ.get("SIMCORE_DB")
    os.environ.setdefault("SIMCORE_DB", str(output.parent.resolve()))
    try:
        yield
    finally:
        if before is None:
            os.environ.pop("SIMCORE_DB", None)


def calibrate_model(options: ModelOptions) -> ModelCalibrated:
    """Time the kernels of the job's step, write the profile and return what was found.

    Raises UsageError where torch or the device is missing, and what the job's words raise.
    """
    begin = perf_counter()
    with _records_beside(options.output):
        base, device, files = _base(options)
        assert base.measured is not None
        request = _request(options, base)
        left_s = max(LEAST_FRAC * options.seconds, options.seconds - (perf_counter() - begin))
        found = time_job(options.model, options.words, request, device, left_s)
        measured = base.measured.model_copy(
            update={
                "kernels": merged(base.measured.kernels, found.kernels),
                "updates": with_update(base.measured.updates, found.update),
            }
        )
        record = base.model_copy(update={"name": options.output.stem, "measured": measured})
        before_s = predict(request).step_time_s.value
        predicted_s = predict(_under(request, record)).step_time_s.value
        scatter = _scatter(base.measured.step_over_kernels, found.step_s, predicted_s)
        measured = measured.model_copy(update={"step_over_kernels": scatter})
        record = record.model_copy(update={"measured": measured})
        request = _under(request, record)
        step = predict(request).step_time_s
        write_profile(options.output, record)
        return ModelCalibrated(
            record=record, timed=found, before_s=before_s,
            step_s=(step.value, step.low, step.high), timed_frac=timed_frac(request) or 0.0,
            gpu=measured.gpu, files=(options.output, *files), notes=found.notes,
        )  # fmt: skip


def _under(request: Request, record: Calibration) -> Request:
    return replace(request, profile=profile_of(record))


def _base(options: ModelOptions) -> tuple[Calibration, Any, tuple[Path, ...]]:
    """The profile to extend, this device, and files that were written for it."""
    name = options.output.stem
    extended = options.base.measured if options.base is not None else None
    if options.base is not None and extended is None:
        raise UsageError(f"{options.base.name} was not measured on one machine: it has no kernels")
    device = open_device(options.device, extended.gpu if extended else name, World())  # type: ignore[arg-type]
    if options.base is not None:
        if device.kind == "cpu":
            _compute_on(device, int(options.base.conditions.get("threads", device.threads)))
        return options.base, device, ()
    if device.kind == "cuda" and device.name != name:
        conditions = {"date": datetime.date.today().isoformat(), **device.conditions()}
        blind = Calibration(
            name=name, origin=f"kernels of steps on this machine, {conditions['date']}", rows=0,
            knobs=(), conditions=conditions, measured=MeasuredDevice(gpu=device.name),
        )  # fmt: skip
        return blind, device, ()
    # In a process of its own: what it allocates would change how this one's memory behaves.
    words = ["--families", ",".join(BASE_FAMILIES), "--minutes", str(BASE_MINUTES), "--name", name]
    quiet = ["--quiet"] * options.quiet
    answer = run_ranks([*words, *quiet, "-o", str(options.output)], device.kind, most=1)
    made = load_record(options.output, Calibration)
    return made, device, tuple(map(Path, answer["written"][1:]))


def _compute_on(device: Any, threads: int) -> None:
    """Let a processor compute on as many threads as when its profile was measured."""
    import torch

    device.threads = threads
    torch.set_num_threads(threads)


def _request(options: ModelOptions, base: Calibration) -> Request:
    """The job on one device, or with the cluster that its layout needs, under the profile."""
    assert base.measured is not None
    gpu = base.measured.gpu
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / f"{base.name}.yaml"
        write_profile(file, base)
        words = {**options.words, "calibration": str(file)}
        request = make_request(options.model, options.gpus or f"1x1x{gpu}", **words)
    if request.placed is None and options.gpus is not None:
        request = replace(request, cluster=request.cluster.alone(0))
    if request.cluster.groups[0].gpu.name != gpu:
        raise UsageError(f"this machine's device is {gpu}: --gpus names another one")
    return request


def merged(old: Sequence[TimedKernel], new: Sequence[TimedKernel]) -> tuple[TimedKernel, ...]:
    """Timed kernels of a profile and further ones; a kernel that was timed again is replaced."""
    by_key = {(k.kernel, k.precision, k.batch): k for k in (*old, *new)}
    return tuple(by_key.values())


def with_update(old: Sequence[TimedUpdate], new: TimedUpdate | None) -> tuple[TimedUpdate, ...]:
    """Timed updates of a profile and a further one, which replaces that of the same model size."""
    kept = [u for u in old if new is None or (u.optimizer, u.numel) != (new.optimizer, new.numel)]
    return (*kept, new) if new is not None else tuple(kept)


def _scatter(old: Fitted | None, measured_s: float | None, predicted_s: float) -> Fitted:
    """Measured over predicted seconds of whole steps, and the spread to expect of further ones.

    ``old``: that of steps before. Their root mean square error is ``leave_one_out_mape_frac``.
    """
    if measured_s is None:
        return old or Fitted(value=1.0, sd_log=UNMEASURED_SD, note="no whole step was measured")
    rows = old.rows if old is not None else 0
    before = (old.leave_one_out_mape_frac or 0.0) if old is not None else 0.0
    error = math.log(predicted_s / measured_s)
    rms = math.sqrt((rows * before**2 + error**2) / (rows + 1))
    return Fitted(
        value=measured_s / predicted_s, sd_log=predictive_sd([rms], rows + 1), rows=rows + 1,
        leave_one_out_mape_frac=rms,
    )  # fmt: skip


def plain_data(made: ModelCalibrated) -> dict[str, Any]:
    """The result as plain data."""
    value_s, low_s, high_s = made.step_s
    found, measured = made.timed, made.record.measured
    assert measured is not None
    return {
        "name": made.record.name,
        "gpu": made.gpu,
        "conditions": dict(made.record.conditions),
        "kernels": len(found.kernels),
        "kernels_of_profile": len(measured.kernels),
        "in_real_step": found.in_real_step,
        "timed_frac": made.timed_frac,
        "before": "blind" if made.blind else "by the benchmarks of the profile",
        "before_s": made.before_s,
        "predicted_s": value_s,
        "low_s": low_s,
        "high_s": high_s,
        "measured_s": found.step_s,
        "before_error_frac": made.error_frac(made.before_s),
        "error_frac": made.error_frac(value_s),
        "worse": made.worse,
        "why_not_measured": found.why,
        "disturbed_frac": found.disturbed_frac,
        "notes": list(made.notes),
        "written": [str(f) for f in made.files],
    }
