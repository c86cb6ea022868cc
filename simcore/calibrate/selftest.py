"""The selftest: calibrate, predict networks that were not in the calibration, then train them."""

from __future__ import annotations

import math
import random
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from simcore.answer.predict import predict
from simcore.base.errors import UsageError
from simcore.base.record import dataclass
from simcore.calibrate.bench.case import Case, Device, Run, World
from simcore.calibrate.bench.harness import Progress
from simcore.calibrate.bench.queue import measure
from simcore.calibrate.bench.timing import DOUBTED_FRAC, OTHERS_FRAC, Typical
from simcore.calibrate.machine import CalibrationOptions, calibrate_rank, open_device
from simcore.calibrate.machine_steps import request_for
from simcore.calibrate.training import NETS, SELFTEST, step_of

#: Minutes of the calibration, of some two and a half for the whole selftest.
CALIBRATE_MINUTES: Final = 1.4
#: Seconds after the start from which on no second round begins.
SECOND_UNTIL_S: Final = 125.0
#: Each step is measured in two rounds, minutes apart, and the less disturbed one counts.
ROUNDS: Final = 2
#: Seconds of a round, by mode.
ROUND_S: Final = {"alone": 1.2, "lockstep": 2.5}
#: The selftest passes if the median error of the steps on one rank and on all ranks (DDP) is at
#: most this, and at least this share of them (7 of 8) is inside its 80 % interval. Steps with
#: sharding are shown but do not count.
MEDIAN_ERROR_FRAC: Final = 0.08
INSIDE_OF_EIGHT: Final = 0.875
#: Networks that are also trained with ZeRO-1 and FSDP.
SHARDED: Final = ("transformer",)
SEED: Final = 8


@dataclass(frozen=True)
class Step:
    """One training step to predict and to run; ``kind`` is a ``training.Kind``."""

    net: str
    batch: int
    ranks: int
    kind: str

    @property
    def counted(self) -> bool:
        """Whether the step counts for the verdict."""
        return self.kind in ("single", "ddp")


def steps_to_run(device: str, ranks: int) -> list[Step]:
    """Every network on one rank and on all ranks with DDP; those in ``SHARDED`` sharded too."""
    steps = []
    for name in SELFTEST:
        batch = NETS[name].batches[device][0]
        steps.append(Step(name, batch, 1, "single"))
        if ranks > 1:
            steps.append(Step(name, batch, ranks, "ddp"))
            if name in SHARDED:
                steps += [Step(name, batch, ranks, "zero1"), Step(name, batch, ranks, "zero3")]
    return steps


def selftest_rank(
    options: CalibrationOptions, calibration: Path | None, world: World, progress: Progress
) -> dict[str, Any] | None:
    """Run one rank of the selftest; rank 0 returns the rows and the verdict, the others None.

    Raises UsageError if a calibration is given, since the selftest makes one.
    """
    if calibration is not None:
        raise UsageError("the selftest makes a calibration: it takes no --calibration")
    begin = time.perf_counter()
    made = calibrate_rank(replace(options, minutes=CALIBRATE_MINUTES), world, progress)
    calibrated_s = time.perf_counter() - begin
    device = open_device(options.device, options.name, world)
    steps = steps_to_run(options.device, world.size)
    predicted: dict[Step, dict[str, float]] = {}
    if made is not None:
        for s in steps:
            request = request_for(NETS[s.net], s.batch, s.kind, made.found, s.ranks, made.profile)
            t = predict(request).step_time_s
            predicted[s] = {"predicted_s": t.value, "low_s": t.low, "high_s": t.high}
    world.barrier()
    predicted_s = time.perf_counter() - begin - calibrated_s
    measured = run_steps(steps, device, world, begin + SECOND_UNTIL_S)
    if made is None:
        return None
    rows = [_row(s, predicted[s], measured[s]) for s in steps]
    verdict = judged(rows)
    return {
        **verdict,
        "busy": busy(rows, made.outcome.disturbed_frac),
        "rows": rows,
        "conditions": made.record.conditions,
        "residual_sd_log": made.record.residual_sd_log,
        "calibration_notes": list(made.notes),
        "seconds": {
            "calibrate": calibrated_s, "predict": predicted_s,
            "all": time.perf_counter() - begin,
        },
        "written": [str(f) for f in made.files],
    }  # fmt: skip


def run_steps(
    steps: list[Step], device: Device, world: World, second_until: float
) -> dict[Step, Typical | str]:
    """The measured time of each step, or why it could not run; two rounds in random order.

    After ``second_until`` (a time of ``time.perf_counter``) no step begins its second round.
    """
    rng = random.Random(SEED)
    measured: dict[Step, Typical | str] = {}
    for _ in range(ROUNDS):
        for s in rng.sample(steps, len(steps)):
            late = world.share(s in measured and time.perf_counter() > second_until)
            if isinstance(measured.get(s), str) or late:
                continue
            call = _measured(s, device, world)
            before = measured.get(s)
            if isinstance(before, Typical) and isinstance(call, Typical):
                # The less disturbed round counts; of two equally disturbed ones the faster.
                call = min((before, call), key=lambda t: (t.disturbed_frac, t.seconds))
            measured[s] = call
    return measured


def _measured(s: Step, device: Device, world: World) -> Typical | str:
    mode = "alone" if s.ranks == 1 else "lockstep"
    if mode == "alone" and world.rank != 0:
        world.barrier()
        return Typical(math.nan, 0.0, 0, 0.0)
    problem = ""
    run: Run | None = None
    try:
        run = step_of(NETS[s.net], s.batch, s.kind, device.kind)
        run()
    except (RuntimeError, NotImplementedError, ImportError, ValueError, TypeError) as err:
        problem = (str(err).splitlines() or [type(err).__name__])[0][:120]
    if mode == "lockstep":
        problem = next((p for p in world.gather(problem) if p), "")
    if problem or run is None:
        if mode == "alone":
            world.barrier()
        return f"not run: {problem}"
    prepare: Callable[[Device], Run] = lambda _, run=run: run  # type: ignore[misc]  # noqa: E731
    case = Case("selftest", "steps", {}, prepare, mode=mode, calls=5)  # type: ignore[arg-type]
    call = measure(case, device, world, ROUND_S[mode])
    if mode == "alone":
        world.barrier()
    return call


def _row(s: Step, predicted: dict[str, float], call: Typical | str) -> dict[str, Any]:
    row: dict[str, Any] = {
        "net": s.net, "batch": s.batch, "ranks": s.ranks, "kind": s.kind, "counted": s.counted,
        **predicted,
    }  # fmt: skip
    if isinstance(call, str):
        return {**row, "counted": False, "note": call}
    return {
        **row,
        "measured_s": call.seconds,
        "measured_sd_log": call.sd_log,
        "disturbed_frac": call.disturbed_frac,
        "error_frac": predicted["predicted_s"] / call.seconds - 1.0,
        "inside": predicted["low_s"] <= call.seconds <= predicted["high_s"],
    }


def busy(rows: list[dict[str, Any]], calibration_frac: float) -> str:
    """A sentence that says that other programs used the machine; "" if they did not.

    ``calibration_frac``: share of the calibration's calls that others disturbed.
    """
    counted = [r for r in rows if "disturbed_frac" in r and r["counted"]]
    disturbed = sum(r["disturbed_frac"] > DOUBTED_FRAC for r in counted)
    if disturbed <= len(counted) // 4 and calibration_frac <= 2 * OTHERS_FRAC:
        return ""
    return (
        f"The machine was busy: other programs disturbed {calibration_frac:.0%} of the "
        f"calibration and {disturbed} of {len(counted)} steps, so that this says little; run it "
        "again when the machine is quiet."
    )


def judged(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The median error and the coverage of the rows that count, and whether the selftest passes."""
    counted = [r for r in rows if r["counted"]]
    if not counted:
        return {"holds": False, "median_error_frac": None, "inside": 0, "steps": 0}
    median = statistics.median(abs(r["error_frac"]) for r in counted)
    inside = sum(bool(r["inside"]) for r in counted)
    return {
        "holds": median <= MEDIAN_ERROR_FRAC and inside >= INSIDE_OF_EIGHT * len(counted),
        "median_error_frac": median,
        "inside": inside,
        "steps": len(counted),
    }
