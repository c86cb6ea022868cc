"""Calibrate, predict and measure real training steps: ``python -m validate.on_gpu``.

    --minutes N      time for all of it (default: 8); what is left is done by the next call
    --device NAME    cuda or cpu (default: cuda)
    --small          small networks in fp32, as a processor can train them
    --only ID        only this job (may be repeated)
    --part NAME      only this part (may be repeated): calibrate, predict, measure, largest, judge,
                     or, if asked for, kernels: those of a step by name, in ``kernels.jsonl``
    --folder PATH    where tables, models and raw data are written (default: on-gpu)

The parts are: the profile of this machine; predictions of every job, blind and with that profile;
measured steps and memory; the largest batch of two jobs; errors. Each finished row is written at
once, so that a run that was interrupted, or had too little time, goes on where it stopped. Networks
whose library is missing are skipped, with the reason in ``skipped.csv``. Nothing is downloaded.
What the GPU is not needed for, ``--part predict --part judge`` does anywhere with the folder.
``simcore validate FOLDER/steps.csv`` judges the table anywhere. Exit code 2: no such device.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from simcore.base.errors import SimcoreError, UsageError
from simcore.base.units import GIGA, MICRO, MILLI
from simcore.calibrate.machine.one_speed import NOTABLE_FRAC
from validate.on_gpu.folder import Folder
from validate.on_gpu.jobs import JOBS, LARGEST, Job, small

#: Share of the time, and minutes at most, for the calibration.
CALIBRATE_FRAC, CALIBRATE_MINUTES = 0.3, 2.0
#: Slow steps over fast ones (90th over 10th percentile) from which on the machine counts as busy.
BUSY_RATIO: Final = 1.5
PARTS: Final = ("calibrate", "predict", "measure", "largest", "judge")
#: A part that only runs if it is named; it slows the host of its process down, and so comes last.
KERNELS: Final = "kernels"
#: Seconds before the deadline from which on no further job begins.
LAST_S: Final = 10.0


class Run:
    """One call of the command; ``gpu`` is the device's name in hardware_db."""

    def __init__(
        self,
        folder: Folder,
        device: str,
        jobs: Sequence[Job],
        *,
        is_small: bool,
    ) -> None:
        self.folder, self.device, self.jobs, self.is_small = folder, device, jobs, is_small
        self.deadline = float("inf")
        self.gpu = ""

    def profiles(self) -> dict[str, str | None]:
        """What predictions are called -> the profile's file; only blind ones without a profile."""
        made = self.folder.calibration
        return {"blind": None} | ({"calibrated": str(made)} if made.is_file() else {})

    def late(self) -> bool:
        """Whether no further job may begin."""
        return time.perf_counter() > self.deadline - LAST_S

    def say(self, text: str) -> None:
        """Print a line of progress."""
        sys.stdout.write(text + "\n")
        sys.stdout.flush()

    def find_gpu(self, *, here: bool) -> None:
        """The device: of this machine, or without one (not ``here``) that of an earlier run.

        Raises UsageError if there is none.
        """
        conditions = self.folder.path / "conditions.json"
        if not here:
            if not conditions.is_file():
                raise UsageError(f"{self.folder.path} has no conditions.json of a run on a GPU")
            self.gpu = json.loads(conditions.read_text(encoding="utf-8"))["gpu"]
            return
        from simcore.calibrate.bench.case import World
        from simcore.calibrate.machine.run import THIS_MACHINE, open_device

        opened = open_device(self.device, THIS_MACHINE, World())  # type: ignore[arg-type]
        self.gpu = opened.name
        self.folder.path.mkdir(parents=True, exist_ok=True)
        if not conditions.is_file():
            said = {"date": time.strftime("%F", time.gmtime()), "gpu": self.gpu}
            conditions.write_text(json.dumps({**said, **opened.conditions()}, indent=1) + "\n")

    def calibrate(self, minutes: float) -> None:
        """Make the profile of this machine, unless an earlier call did."""
        from simcore.calibrate.machine.rank import summary
        from simcore.calibrate.machine.run import CalibrationOptions, calibrate_rank
        from simcore.calibrate.summaries import render_summary

        if self.folder.calibration.is_file():
            return
        options = CalibrationOptions(
            self.folder.calibration,
            self.device,
            minutes=minutes,
            resume=True,  # type: ignore[arg-type]
        )
        made = calibrate_rank(options)
        assert made is not None  # of one rank
        self.say(render_summary(summary(made)))

    def predict(self) -> None:
        """Predict every job blind and with the profile; a job that cannot be built is skipped."""
        from simcore import api
        from simcore.strategy.options import options_typed
        from validate.on_gpu.build import model_file

        done = self.folder.ids("predictions", "skipped")
        for job in (j for j in self.jobs if j.id not in done):
            try:
                file = model_file(job, self.folder.models, is_small=self.is_small)
            except SimcoreError as err:
                self._skip(job, str(err))
                continue
            options = options_typed(_words(job, self.gpu, file))
            if not job.by_name:
                options["model"] = str(self.folder.models / file)
            for called, profile in self.profiles().items():
                try:
                    found = api.predict(**options, calibration=profile or "blind")
                except SimcoreError as err:
                    self.folder.add("predictions", id=job.id, profile=called, note=str(err))
                    continue
                step, memory = found.step_time_s, found.memory
                self.folder.add(
                    "predictions", id=job.id, profile=called, step_ms=_ms(step.value),
                    low_ms=_ms(step.low), high_ms=_ms(step.high),
                    alloc_gb=_gb(memory.allocated_bytes), reserved_gb=_gb(memory.segments_bytes),
                    device_gb=_gb(memory.shown_bytes),
                )  # fmt: skip

    def measure(self) -> None:
        """Train every job that was not measured yet, until the time is over."""
        from validate.on_gpu import train

        self._each(self.jobs, ("steps", "skipped"), lambda job: self._measured(job, train))

    def _measured(self, job: Job, train: Any) -> None:
        from validate.on_gpu.build import model_file

        result = train.measure(job, self.device, is_small=self.is_small)
        steps_s = sorted(result.steps_s)
        n = len(steps_s)
        file = model_file(job, self.folder.models, is_small=self.is_small)
        memory: dict[str, str] = {}
        if result.memory_bytes is not None:
            columns = ("alloc_gb", "reserved_gb", "device_gb")
            memory = dict(zip(columns, map(_gb, result.memory_bytes), strict=True))
        slower = self._slower()
        self.folder.add_raw(
            "raw", id=job.id, steps_s=list(result.steps_s), host_s=result.host_s, slower=slower
        )
        self.folder.add(
            "steps", id=job.id, build=job.net, batch=job.batch, seq=job.seq, prec=job.precision,
            opt=job.optimizer, step_ms=_ms(steps_s[n // 2]), p10_ms=_ms(steps_s[n // 10]),
            p90_ms=_ms(steps_s[9 * n // 10]), host_ms=_ms(result.host_s),
            issue_us=f"{result.issue_s / MICRO:.2f}", bound=result.bound, n=n,
            n_params=result.parameters, simcore_arguments=job.words(self.gpu, file), **memory,
            **_clocks(self.device),
        )  # fmt: skip
        self.say(f"{job.id:26} {_ms(steps_s[n // 2])} ms, host {_ms(result.host_s)} ms")
        if steps_s[9 * n // 10] > BUSY_RATIO * steps_s[n // 10]:
            self.say(f"  its steps vary {steps_s[9 * n // 10] / steps_s[n // 10]:.1f} times: "
                     "the machine was busy with other work")  # fmt: skip
        for kind, factor in slower.items():
            if abs(factor - 1.0) > NOTABLE_FRAC:
                self.say(f"  the device's speed drifted: its {kind} pulse took {factor:.2f} times "
                         "the calibration's right after the step")  # fmt: skip

    def _slower(self) -> dict[str, float]:
        """Kind of pulse -> how many times longer it takes now than in the calibration, if known."""
        from simcore.calibrate.bench.case import World
        from simcore.calibrate.bench.pulse import Pulses
        from simcore.calibrate.machine.one_speed import slower_than
        from simcore.calibrate.machine.run import THIS_MACHINE, needed_torch, open_device
        from simcore.hardware.calibrations import calibration_named

        profile = self.profiles().get("calibrated")
        then = calibration_named(profile).pulses_s.get("alone") if profile else None
        if then is None:
            return {}
        device = open_device(self.device, THIS_MACHINE, World())  # type: ignore[arg-type]
        slower = slower_than(Pulses(device, World()).beside("alone"), then)
        if self.device == "cuda":  # the next job's memory is measured
            needed_torch().cuda.empty_cache()
        return slower

    def largest(self) -> None:
        """Search the largest batch that trains, from the predicted one on (GPUs only)."""
        if self.device != "cuda":
            return
        from validate.on_gpu import train

        jobs = [j for j in self.jobs if j.id in LARGEST]
        self._each(jobs, ("largest",), lambda job: self._largest(job, train))

    def _largest(self, job: Job, train: Any) -> None:
        from simcore import api
        from simcore.strategy.options import options_typed
        from validate.on_gpu.build import model_file

        file = model_file(job, self.folder.models, is_small=self.is_small)
        options = options_typed(_words(job, self.gpu, file))
        options |= {"model": str(self.folder.models / file), "micro_batch": "max"}
        guess = api.predict(**options).micro_batch
        tried = {
            int(r["batch"]): r["fits"] == "yes"
            for r in self.folder.rows("batches") if r["id"] == job.id
        }  # fmt: skip
        while (batch := train.largest(tried, guess)) is not None and not self.late():
            tried[batch] = train.fits(job, batch, self.device, is_small=self.is_small)
            self.folder.add("batches", id=job.id, batch=batch, fits="yes" if tried[batch] else "no")
        if batch is None:
            fit = max((b for b, good in tried.items() if good), default=0)
            failed = min(b for b, good in tried.items() if not good)
            self.folder.add("largest", id=job.id, predicted=guess, trained=fit, failed=failed)
            self.say(f"{job.id:26} largest batch {fit}, predicted {guess}")

    def kernels(self) -> None:
        """Profile a step of every job (GPUs only)."""
        from validate.on_gpu import train

        done = self.folder.path / "kernels.jsonl"
        known = done.read_text(encoding="utf-8").splitlines() if done.is_file() else []
        seen = {json.loads(line)["id"] for line in known}

        def one(job: Job) -> None:
            found = train.kernels(job, is_small=self.is_small)
            self.folder.add_raw("kernels", id=job.id, kernels=found)

        if self.device == "cuda":
            self._each([j for j in self.jobs if j.id not in seen], ("skipped",), one)

    def _each(self, jobs: Sequence[Job], done: tuple[str, ...], do: Callable[[Job], None]) -> None:
        """Do each job that is not done; one that fails is skipped with its reason."""
        left = [j for j in jobs if j.id not in self.folder.ids(*done)]
        for i, job in enumerate(left):
            if self.late():
                self.say(f"out of time: {len(left) - i} left, which another call does")
                return
            self.folder.begin(job.id)
            try:
                do(job)
            except Exception as err:  # a library raises anything; the other jobs still run
                self._skip(job, f"{type(err).__name__}: {err}".splitlines()[0])
            self.folder.begin("")

    def _skip(self, job: Job, reason: str) -> None:
        self.folder.add("skipped", id=job.id, reason=reason[:200])
        self.say(f"{job.id:26} skipped: {reason[:200]}")

    def judge(self) -> None:
        """Print the errors of the measured rows, blind and with the profile."""
        from simcore import api
        from simcore.report.verdict import render_verdict

        table = self.folder.table("steps")
        if not table.is_file():
            self.say("nothing was measured")
            return
        for called, profile in self.profiles().items():
            found = api.validate(table, calibration=profile)
            text = render_verdict(found)
            (self.folder.path / f"errors-{called}.txt").write_text(text, encoding="utf-8")
            self.say(text)


def _words(job: Job, gpu: str, file: str) -> list[str]:
    import shlex

    return shlex.split(job.words(gpu, file))[1:]


def _ms(seconds: float) -> str:
    return f"{seconds / MILLI:.4f}"


def _gb(n_bytes: float) -> str:
    return f"{n_bytes / GIGA:.4f}"


def _clocks(device: str) -> dict[str, str]:
    """The clock and power of a GPU as NVML reports them now, if its bindings are installed."""
    if device != "cuda":
        return {}
    import torch

    try:
        mhz, milliwatts = torch.cuda.clock_rate(), torch.cuda.power_draw()
    except Exception:  # optional
        return {}
    return {"sm_mhz": str(mhz), "watts": f"{milliwatts * MILLI:.0f}"}


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(
        prog="python -m validate.on_gpu", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    made.add_argument("--minutes", type=float, default=8.0)
    made.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    made.add_argument("--small", action="store_true")
    made.add_argument("--only", action="append", choices=[j.id for j in JOBS], metavar="ID")
    made.add_argument("--part", action="append", choices=(*PARTS, KERNELS))
    made.add_argument("--folder", type=Path, default=Path("on-gpu"))
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    begin = time.perf_counter()
    asked = parser().parse_args(arguments)
    jobs = [j for j in JOBS if not asked.only or j.id in asked.only]
    if asked.small:
        jobs = list(map(small, jobs))
    run = Run(Folder(asked.folder), asked.device, jobs, is_small=asked.small)
    run.deadline = begin + 60.0 * asked.minutes
    os.environ["SIMCORE_DB"] = str(asked.folder.resolve())  # where a record of this machine goes
    parts = asked.part or PARTS
    try:
        run.find_gpu(here=not {"predict", "judge"}.issuperset(parts))
        if "calibrate" in parts:
            run.calibrate(min(CALIBRATE_MINUTES, CALIBRATE_FRAC * asked.minutes))
    except SimcoreError as err:
        sys.stderr.write(f"error: {err}\n")
        return 2
    if (stopped := run.folder.interrupted()) and stopped not in run.folder.ids("steps"):
        run.folder.add("skipped", id=stopped, reason="the process ended while it ran")
        run.folder.begin("")
    for part in (*PARTS[1:], KERNELS):
        if part in parts:
            getattr(run, part)()
    return 0


if __name__ == "__main__":
    sys.exit(main())
