"""The closed loop: calibrate, predict networks that calibration has not seen, then train them."""

from __future__ import annotations

import math
import random
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from simcore.base.errors import UsageError
from simcore.calibrate.bench.case import Case, Device, Run, World
from simcore.calibrate.bench.harness import Progress
from simcore.calibrate.bench.timing import Typical, measure
from simcore.calibrate.machine import Asked, calibrate_rank, open_device
from simcore.calibrate.machine_steps import request_for
from simcore.calibrate.selftest_nets import SELFTEST
from simcore.calibrate.training import NETS, step_of
from simcore.engine.predict import predict

#: Calibration's share of the five minutes that all of it may take.
CALIBRATE_MINUTES: Final = 1.8
#: No second round is begun after this.
SECOND_UNTIL_S: Final = 230.0
#: Each step is measured in two rounds, minutes apart, and the less disturbed one counts.
ROUNDS: Final = 2
ROUND_S: Final = {"alone": 2.0, "lockstep": 4.0}
#: What must hold of the steps on one and on all ranks (DDP); sharded ones are shown beside them.
MEDIAN_ERROR_FRAC: Final = 0.15
INSIDE_OF_EIGHT: Final = 0.75
#: Networks that are also trained with ZeRO-1 and FSDP.
SHARDED: Final = ("transformer",)
SEED: Final = 8


@dataclass(frozen=True, slots=True)
class Step:
    """One step to predict and to run."""

    net: str
    batch: int
    ranks: int
    kind: str

    @property
    def counted(self) -> bool:
        """Whether it is one of those that must hold."""
        return self.kind in ("single", "ddp")


def steps_to_run(device: str, ranks: int) -> list[Step]:
    """Every network on one rank and on all of them; some sharded too."""
    found = []
    for name in SELFTEST:
        batch = NETS[name].batches[device][0]
        found.append(Step(name, batch, 1, "single"))
        if ranks > 1:
            found.append(Step(name, batch, ranks, "ddp"))
            if name in SHARDED:
                found += [Step(name, batch, ranks, "zero1"), Step(name, batch, ranks, "zero3")]
    return found


def selftest_rank(
    asked: Asked, calibration: Path | None, world: World, progress: Progress
) -> dict[str, Any] | None:
    """One rank of the loop; rank 0 returns the table."""
    if calibration is not None:
        raise UsageError("the selftest calibrates: it takes no --calibration")
    begin = time.perf_counter()
    made = calibrate_rank(replace(asked, minutes=CALIBRATE_MINUTES), world, progress)
    calibrated_s = time.perf_counter() - begin
    device = open_device(asked.device, asked.name, world)
    steps = steps_to_run(asked.device, world.size)
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
    """Train each for real, in random order, twice; a kind that a backend lacks says why.

    What is not begun by ``second_until`` (of ``time.perf_counter``) has its first round only.
    """
    rng = random.Random(SEED)
    found: dict[Step, Typical | str] = {}
    for _ in range(ROUNDS):
        for s in rng.sample(steps, len(steps)):
            late = world.share(s in found and time.perf_counter() > second_until)
            if isinstance(found.get(s), str) or late:
                continue
            got = _measured(s, device, world)
            before = found.get(s)
            if isinstance(before, Typical) and isinstance(got, Typical):
                # both rounds, where both were quiet; else the quieter
                quiet = sorted((before, got), key=lambda t: (t.disturbed_frac, t.seconds))
                got = quiet[0]
            found[s] = got
    return found


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
    got = measure(case, device, world, ROUND_S[mode])
    if mode == "alone":
        world.barrier()
    return got


def _row(s: Step, predicted: dict[str, float], got: Typical | str) -> dict[str, Any]:
    row: dict[str, Any] = {
        "net": s.net, "batch": s.batch, "ranks": s.ranks, "kind": s.kind, "counted": s.counted,
        **predicted,
    }  # fmt: skip
    if isinstance(got, str):
        return {**row, "counted": False, "note": got}
    return {
        **row,
        "measured_s": got.seconds,
        "measured_sd_log": got.sd_log,
        "disturbed_frac": got.disturbed_frac,
        "error_frac": predicted["predicted_s"] / got.seconds - 1.0,
        "inside": predicted["low_s"] <= got.seconds <= predicted["high_s"],
    }


def judged(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Median error and coverage of the rows that count, and whether they are good enough."""
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
