"""The selftest: calibrate, predict networks that were not in the calibration, then train them.

A pulse before and after each round of a step tells how fast the device was then. Beside what was
measured, each step is stated at the speed that the device had in the calibration (``one_speed``).
"""

from __future__ import annotations

import math
import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from simcore.answer.predict import predict
from simcore.base.errors import UsageError
from simcore.base.record import dataclass
from simcore.calibrate.bench.case import Case, Device, Mode, Run, World
from simcore.calibrate.bench.harness import Progress
from simcore.calibrate.bench.pulse import Pulse, Pulses, between
from simcore.calibrate.bench.queue import measure
from simcore.calibrate.bench.timing import (
    DOUBTED_FRAC,
    OTHERS_FRAC,
    Typical,
    weighted_mean,
    weights,
)
from simcore.calibrate.machine.one_speed import (
    NOTABLE_FRAC,
    Reference,
    ranks_of,
    shares_of_step,
    slowdown,
    slower_than,
)
from simcore.calibrate.machine.run import CalibrationOptions, calibrate_rank, open_device
from simcore.calibrate.machine.steps import request_for
from simcore.calibrate.training import NETS, SELFTEST, step_of

#: Minutes of the calibration, of some two and a half for the whole selftest.
CALIBRATE_MINUTES: Final = 1.4
#: Seconds after the start from which on no second round begins.
SECOND_UNTIL_S: Final = 130.0
#: Each step is measured in two rounds; in a third one if the device's speed changed in both.
ROUNDS, MOST_ROUNDS = 2, 3
#: Seconds of a round, by mode.
ROUND_S: Final = {"alone": 1.2, "lockstep": 1.8}
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
    shares: dict[Step, Mapping[str, float]] = {}
    if made is not None:
        for s in steps:
            request = request_for(NETS[s.net], s.batch, s.kind, made.machine, s.ranks, made.profile)
            t = predict(request).step_time_s
            predicted[s] = {"predicted_s": t.value, "low_s": t.low, "high_s": t.high}
            shares[s] = shares_of_step(request)
    world.barrier()
    predicted_s = time.perf_counter() - begin - calibrated_s
    measured = run_steps(steps, device, world, Pulses(device, world), begin + SECOND_UNTIL_S)
    if made is None:
        return None
    reference = made.record.pulses_s
    rows = [row_of(s, predicted[s], measured[s], shares[s], reference) for s in steps]
    verdict = judged(rows)
    return {
        **verdict,
        "busy": busy(rows, made.outcome.disturbed_frac),
        "drift": drift(rows),
        "pulses_s": reference,
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


@dataclass(frozen=True)
class Round:
    """One round of a step: its typical call, and the pulses right before and after it."""

    call: Typical
    before: Pulse
    after: Pulse

    @property
    def moved_frac(self) -> float:
        """By how much the device's speed changed from one pulse to the other; the larger kind."""
        logs = (abs(math.log(self.after[k] / s)) for k, s in self.before.items())
        return math.expm1(max(logs, default=0.0))


def run_steps(
    steps: list[Step], device: Device, world: World, pulses: Pulses, until: float
) -> dict[Step, list[Round] | str]:
    """The rounds of each step, or why it could not run; every round in a random order.

    A step has a third round if the device's speed changed by more than ``NOTABLE_FRAC`` in both.
    After ``until`` (a time of ``time.perf_counter``) no step begins a further round.
    """
    rng = random.Random(SEED)
    measured: dict[Step, list[Round] | str] = {}
    for n in range(MOST_ROUNDS):
        for s in rng.sample(steps, len(steps)):
            before = measured.get(s, [])
            enough = isinstance(before, str) or (
                n >= ROUNDS and any(r.moved_frac <= NOTABLE_FRAC for r in before)
            )
            late = bool(before) and time.perf_counter() > until
            if world.share(enough or late):
                continue
            found = _measured(s, device, world, pulses)
            measured[s] = found if isinstance(found, str) else [*before, found]
    return measured


def _measured(s: Step, device: Device, world: World, pulses: Pulses) -> Round | str:
    mode: Mode = "alone" if s.ranks == 1 else "lockstep"
    if mode == "alone" and world.rank != 0:
        world.barrier()
        return Round(Typical(math.nan, 0.0, 0, 0.0), {}, {})
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
    case = Case("selftest", "steps", {}, prepare, mode=mode, calls=5)
    before = pulses.beside(mode, age_s=0.0)
    call = measure(case, device, world, ROUND_S[mode])
    after = pulses.beside(mode, age_s=0.0)
    if mode == "alone":
        world.barrier()
    return Round(call, before, after)


def row_of(
    s: Step, predicted: dict[str, float], found: Sequence[Round] | str,
    shares: Mapping[str, float], reference: Reference,
) -> dict[str, Any]:  # fmt: skip
    """A step's row: what was predicted, measured, and that at the speed of ``reference``.

    Its time is the geometric mean of its rounds, which weigh by how steady they were
    (``bench.timing.weights``).
    """
    row: dict[str, Any] = {
        "net": s.net, "batch": s.batch, "ranks": s.ranks, "kind": s.kind, "counted": s.counted,
        **predicted,
    }  # fmt: skip
    if isinstance(found, str):
        return {**row, "counted": False, "note": found}
    pulse_s = reference.get(ranks_of("alone" if s.ranks == 1 else "lockstep"), {})
    slower = [slower_than(between(r.before, r.after), pulse_s) for r in found]
    stated = [r.call.seconds / slowdown(x, shares) for r, x in zip(found, slower, strict=True)]
    moved = [math.log1p(r.moved_frac) for r in found]
    by = weights([r.call for r in found], moved, alone=s.ranks == 1)
    counted = [r.call for r, w in zip(found, by, strict=True) if w]
    measured_s = weighted_mean([r.call.seconds for r in found], by)
    stated_s = weighted_mean(stated, by)
    return {
        **row,
        "measured_s": measured_s,
        "measured_sd_log": max(c.sd_log for c in counted),
        "disturbed_frac": max(c.disturbed_frac for c in counted),
        "slower_frac": measured_s / stated_s - 1.0,
        "stated_s": stated_s,
        "shares": dict(shares),
        "rounds": [
            {
                "measured_s": r.call.seconds,
                "slower": x,
                "stated_s": t,
                "disturbed_frac": r.call.disturbed_frac,
                "moved_frac": r.moved_frac,
            }
            for r, x, t in zip(found, slower, stated, strict=True)
        ],
        "measured_error_frac": predicted["predicted_s"] / measured_s - 1.0,
        "error_frac": predicted["predicted_s"] / stated_s - 1.0,
        "inside": predicted["low_s"] <= stated_s <= predicted["high_s"],
    }


def drift(rows: Sequence[Mapping[str, Any]]) -> str:
    """A sentence that says how the device's speed had drifted beside the steps; "" if it had not.

    It is reported from ``NOTABLE_FRAC`` on.
    """
    slower = [r["slower_frac"] for r in rows if "slower_frac" in r and r["counted"]]
    if not slower or max(map(abs, slower)) <= NOTABLE_FRAC:
        return ""
    low, high = (
        f"{abs(x):.0%} {'slower' if x > 0.0 else 'faster'}" for x in (min(slower), max(slower))
    )
    return (
        f"The device's speed drifted: beside the steps it was between {low} and {high} than in the "
        "calibration, at whose speed the steps are stated."
    )


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
    """The median error and the coverage of the rows that count, and whether the selftest passes.

    Beside them the median error of the times as measured, where the rows have it.
    """
    counted = [r for r in rows if r["counted"]]
    if not counted:
        return {"holds": False, "median_error_frac": None, "inside": 0, "steps": 0}
    median = statistics.median(abs(r["error_frac"]) for r in counted)
    raw = [abs(r["measured_error_frac"]) for r in counted if "measured_error_frac" in r]
    inside = sum(bool(r["inside"]) for r in counted)
    return {
        "holds": median <= MEDIAN_ERROR_FRAC and inside >= INSIDE_OF_EIGHT * len(counted),
        "median_error_frac": median,
        "inside": inside,
        "steps": len(counted),
        **({"median_measured_error_frac": statistics.median(raw)} if raw else {}),
    }
