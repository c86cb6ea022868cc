"""Measured steps as rows of a fit by program and GPU type.

A program (one source on one GPU type) has its own multipliers in addition to those of the GPU type,
seconds that it adds to each step and micro-step, and errors that its steps have in common.

The rows that a calibration is fitted to are chosen here too; the choice never
depends on measured values.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence, Set

import numpy as np

from simcore.base.arrays import Array
from simcore.base.record import dataclass
from simcore.base.units import MILLI
from simcore.calibrate.steps.model import (
    MICRO_STEP,
    STEP,
    FitRow,
    Parameter,
    axis_of,
    features_of,
    line_of,
    row_of,
    shifts_of,
)
from simcore.calibrate.steps.residual import PARTS, Traits, part_covariances
from simcore.calibrate.steps.solver import ROW_SD_LOG
from simcore.hardware.paths import unstated_network
from simcore.hardware.profile import Profile
from simcore.request.resolved import Request
from simcore.timing.points import KNOBS
from simcore.validate.case import Case
from simcore.validate.fit_rows import fit_row, requests_of, spread_of
from simcore.validate.judge import measured_time_s

#: Prior standard deviations, in seconds, of what a program spends around a step (data, logging,
#: clipping's host synchronisation) and around a micro-step; the fit learns new ones.
STEP_SD_S, MICRO_STEP_SD_S = 10.0 * MILLI, 2.0 * MILLI
#: Prior spread (ln) of a program's time to issue a kernel. Eager programs take 5 to 50 us (notes on
#: op models and tracing) and the profile 10: two standard deviations are a factor of five.
PROGRAM_HOST_SD_LOG = 0.8
#: Parameter of a program whose network nobody stated: bandwidth between nodes over the usual
#: node's.
NETWORK = "network"


@dataclass(frozen=True)
class Programs:
    """Cases of tables that can be fitted, their rows, and the parameters of all rows."""

    cases: tuple[Case, ...]
    rows: tuple[FitRow, ...]
    parameters: tuple[Parameter, ...]
    devices: dict[str, int]

    def program(self, row: FitRow) -> str:
        """The program of a row."""
        assert row.traits is not None
        return row.traits.program

    def of_rows(self, rows: Sequence[FitRow]) -> list[Parameter]:
        """The parameters that the rows use."""
        used = {name for row in rows for name in row.uses}
        return [p for p in self.parameters if p.name in used]


def programs_of(cases: Sequence[Case], profile: Profile, *, ranks: bool = True) -> Programs:
    """The timed cases with a single GPU type as rows of a fit, in order.

    ``ranks``: whether errors of runs become less alike the more their numbers of data ranks differ.
    Rows of one device cannot show that; the error of a device's work then counts as equal on any
    number of them.
    """
    timed = [c for c in cases if measured_time_s(c) is not None and c.work_known]
    requests = {
        key: r
        for key, r in requests_of(timed, profile).items()
        if len({g.gpu.name for g in r.cluster.groups}) == 1
    }
    kept = [c for c in timed if c.id in requests]
    parameters: dict[str, Parameter] = {}
    rows = [_row(c, requests[c.id], parameters, ranks=ranks) for c in kept]
    devices = {c.id: requests[c.id].cluster.n_gpus for c in kept}
    return Programs(tuple(kept), tuple(rows), tuple(parameters.values()), devices)


def _row(case: Case, request: Request, parameters: dict[str, Parameter], *, ranks: bool) -> FitRow:
    gpu = request.cluster.groups[0].gpu.name
    program = f"{case.columns.get('source') or case.table} on {gpu}"
    spread = spread_of(request)
    uses = {}
    for knob in KNOBS:
        sd = spread.get(knob, 0.0)
        if not sd:
            continue
        for of, level in ((gpu, "GPU"), (program, "program")):
            name = f"{knob}: {of}"
            uses[name] = (axis_of(knob),)
            binds = knob == "host" and level == "program"
            width = PROGRAM_HOST_SD_LOG if binds else sd
            parameters.setdefault(
                name, Parameter(name, knob, width, gpu=gpu, level=level, may_bind=binds)
            )
    if (unknown := unstated_network(request.cluster, request.profile)) is not None:
        name = f"{NETWORK}: {program}"
        uses[name] = (axis_of("inter"),)
        parameters.setdefault(
            name, Parameter(name, "inter", unknown.sd_log, gpu=gpu,
                            prior_mean_log=unknown.mean_log)
        )  # fmt: skip
    for what, axis, sd in (("step", STEP, STEP_SD_S), ("micro-step", MICRO_STEP, MICRO_STEP_SD_S)):
        name = f"{what}: {program}"
        uses[name] = (axis,)
        parameters.setdefault(
            name, Parameter(name, None, sd, gpu=gpu, level=f"seconds a {what}", seconds=True)
        )
    return fit_row(
        case, request, uses, traits=_traits(case, request, program, ranks=ranks), block=gpu
    )


def _traits(case: Case, request: Request, program: str, *, ranks: bool) -> Traits:
    layout = request.placed.layout if request.placed is not None else None
    tp, pp, cp, ep = (
        (layout.tp, layout.pp, layout.cp, layout.ep) if layout is not None else (1, 1, 1, 1)
    )
    sizes = (request.micro_batch, request.data_ranks if ranks else 1, tp, pp, cp, ep,
             request.grad_accum, request.workload.trainable_numel)  # fmt: skip
    # The same model in two frameworks counts as two models.
    model = f"{case.label or request.workload.name} {case.columns.get('framework', '')}"
    precision, recompute = request.strategy.precision.name, request.strategy.recompute
    length, cut = case.options.get("seq_len"), f"{tp} {pp} {cp} {ep}"
    version = case.columns.get("version", "")
    return Traits(
        program=program,
        model=model,
        precision=precision,
        work=f"{model} {precision} {recompute} {length} {request.micro_batch} {cut} {version}",
        sizes=tuple(math.log2(max(1.0, float(s))) for s in sizes),
    )


def by_program(programs: Programs) -> dict[str, list[FitRow]]:
    """The rows of each program, in order."""
    found: dict[str, list[FitRow]] = defaultdict(list)
    for row in programs.rows:
        found[programs.program(row)].append(row)
    return dict(found)


def random_rows(programs: Programs, k: int, seed: int, doubted: Set[str]) -> set[str]:
    """Keys of ``k`` random rows of each program; ``doubted`` rows are never chosen."""
    rng = np.random.default_rng(seed)
    chosen: set[str] = set()
    for rows in by_program(programs).values():
        sound = [r.key for r in rows if r.key not in doubted]
        chosen.update(str(key) for key in rng.permutation(sound)[:k])
    return chosen


def telling_rows(programs: Programs, k: int, doubted: Set[str]) -> set[str]:
    """Keys of the ``k`` most informative rows of each program for a calibration.

    Rows are chosen greedily: each time the one whose measurement would most reduce the summed
    variance of the predicted times of the program's rows, by the sensitivities of the predictions
    to the fitted parameters and the parameters' prior variances. These are the jobs that one would
    measure first. Measured times are not used, and ``doubted`` rows are never chosen.
    """
    chosen: set[str] = set()
    for rows in by_program(programs).values():
        chosen.update(_telling(programs, rows, k, doubted))
    return chosen


def _telling(programs: Programs, rows: Sequence[FitRow], k: int, doubted: Set[str]) -> list[str]:
    parameters = programs.of_rows(rows)
    index = {p.name: i for i, p in enumerate(parameters)}
    expected = {p.name: p.prior_mean_log for p in parameters}
    lines = [line_of(r, shifts_of(r, expected)) for r in rows]
    along = np.array([row_of(r, x.slopes, index) for r, x in zip(rows, lines, strict=True)])
    prior = np.array([p.prior_sd_log**2 for p in parameters])
    features = features_of(rows, [x.slopes for x in lines])
    assert features is not None
    parts = part_covariances(features, features)
    covariance: Array = (along * prior) @ along.T + sum(
        (PARTS[name] ** 2 * c for name, c in parts.items()), np.zeros(())
    )
    sound = np.array([r.key not in doubted for r in rows])
    found: list[int] = []
    for _ in range(min(k, int(sound.sum()))):
        left = np.diag(covariance) + ROW_SD_LOG**2
        gain = np.square(covariance).sum(axis=0) / left
        gain[~sound] = gain[found] = -np.inf
        best = int(np.argmax(gain))
        found.append(best)
        covariance = covariance - np.outer(covariance[:, best], covariance[best]) / left[best]
    return [rows[i].key for i in found]
