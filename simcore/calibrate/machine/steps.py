"""Fits multipliers to measured reference steps, and estimates the error for other networks."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from simcore.base.figures import HIGH_QUANTILE
from simcore.base.record import dataclass
from simcore.calibrate.bench.store import RawRow
from simcore.calibrate.bench.timing import DOUBTED_FRAC
from simcore.calibrate.machine.fit import disturbed
from simcore.calibrate.machine.one_speed import stated_s
from simcore.calibrate.machine.record import Machine
from simcore.calibrate.steps.fit import fit_steps, leave_one_out
from simcore.calibrate.steps.model import N_AXES, FitRow, Parameter, axis_of, response
from simcore.calibrate.steps.solver import ROW_SD_LOG
from simcore.calibrate.training import NETS, STRATEGY, Net
from simcore.hardware.calibrations import Knob
from simcore.hardware.profile import HOST_CPU, Profile
from simcore.request.resolved import Request
from simcore.strategy.optimizers import OPTIMIZERS
from simcore.strategy.precision import PRECISIONS
from simcore.strategy.strategy import Strategy, parallelism_named
from simcore.workload.resolve import resolve_model
from simcore.workload.settings import TrustedName

#: Standard deviation of ln(step time) around the sum of the ops, if steps of fewer than two
#: networks were measured. It is that of the reference networks on two cores before any multiplier
#: is fitted (docs/calibration.md).
UNMEASURED_SD = 0.15


@dataclass(frozen=True)
class Summed:
    """Multipliers fitted to steps, and the error of steps of networks left out of the fit.

    ``residual_sd_log`` is the standard deviation of ln(step time) to expect for another network,
    ``steps`` the number of steps in the fit. ``left_out`` names disturbed steps, which do not
    count.
    """

    knobs: tuple[Knob, ...]
    residual_sd_log: float
    left_out_mape_frac: float | None
    steps: int
    left_out: tuple[str, ...] = ()


def request_for(
    net: Net, batch: int, kind: str, machine: Machine, ranks: int, profile: Profile
) -> Request:
    """The engine's request for the step that ``training.step_of`` runs."""
    record = resolve_model(TrustedName(net.model))
    on_host = machine.gpu.architecture == HOST_CPU
    strategy = Strategy(
        parallelism=parallelism_named(STRATEGY[kind]),
        precision=PRECISIONS["fp32-ieee"],
        optimizer=OPTIMIZERS["adamw"],
        step_impl="for-loop" if on_host else "foreach",
    )
    return Request(
        workload=record.build(),
        full_name=record.full_name,
        cluster=machine.cluster(ranks),
        strategy=strategy,
        micro_batch=batch,
        grad_accum=1,
        profile=profile,
    )


def measured_steps(rows: Sequence[RawRow]) -> tuple[list[RawRow], tuple[str, ...]]:
    """The rows of training steps, and a note on each that other processes disturbed too much.

    Disturbed steps do not count; they stay in the raw table.
    """
    steps = [r for r in rows if r.table == "steps" and r.cells["net"] in NETS]
    mine = [r for r in steps if r.cells["mode"] == "alone" or _quiet(r)]
    notes = tuple(f"{r.where}: left out, others used the machine" for r in steps if r not in mine)
    return mine, notes


def fit_reference_steps(rows: Sequence[RawRow], machine: Machine, profile: Profile) -> Summed:
    """Compute, memory and link multipliers, fitted to the measured steps of the reference networks.

    The priors are the spreads of the op fits. The residual is that of steps of a network that was
    left out of the fit.
    """
    mine, notes = measured_steps(rows)
    if not mine:
        return Summed((), UNMEASURED_SD, None, 0, notes)
    requests = {
        r.where: request_for(
            NETS[r.cells["net"]], int(r.number("batch")), r.cells["strategy"], machine,
            int(r.number("ranks")), profile,
        )
        for r in mine
    }  # fmt: skip
    several = any(int(r.number("ranks")) > 1 for r in mine)
    parameters = _parameters(requests, machine, profile, several)
    fit_rows = [_row(r, requests[r.where], parameters) for r in mine]
    fit = fit_steps(fit_rows, parameters)
    unseen = leave_one_out(fit_rows, parameters) if len({r.group for r in fit_rows}) > 1 else {}
    errors = [math.log(unseen[r.key][0] / r.measured_s) for r in fit_rows if r.key in unseen]
    networks = len({r.group for r in fit_rows})
    residual = predictive_sd(errors, networks) if errors else UNMEASURED_SD
    mape = float(np.mean([abs(math.exp(e) - 1.0) for e in errors])) if unseen else None
    return Summed(fit.knobs(), residual, mape, len(mine), notes)


def predictive_sd(errors: Sequence[float], networks: int) -> float:
    """The standard deviation of ln(step time) whose 80 % interval holds for the next network.

    It is the root mean square of the left-out ``errors`` (of the logarithm), widened because only
    ``networks`` independent networks were measured: by the next network's own scatter, and by
    Student's t for a spread known from so few. It is at least ``ROW_SD_LOG``, the scatter of a
    step around a model whose parameters are known.
    """
    from scipy.stats import norm, t

    rms = math.sqrt(float(np.mean(np.square(errors))))
    few = float(t.ppf(HIGH_QUANTILE, networks) / norm.ppf(HIGH_QUANTILE))
    return max(ROW_SD_LOG, rms * math.sqrt(1.0 + 1.0 / networks) * few)


def _quiet(row: RawRow) -> bool:
    return disturbed(row) <= DOUBTED_FRAC


def _parameters(
    requests: Mapping[str, Request], machine: Machine, profile: Profile, several: bool
) -> list[Parameter]:
    first = next(iter(requests.values()))
    name = machine.gpu.name
    compute = max(
        profile.compute_efficiency(kind, "fp32", machine.gpu).sd_log for kind in ("gemm", "conv")
    )
    spread = profile.knob_spread(first.cluster, (("fp32", "fp32"),), first.workload.name, 0.0)
    made = [
        Parameter("compute", "compute", compute, gpu=name),
        Parameter("memory", "memory", spread["memory"], gpu=name),
    ]
    link = profile.measured.link if profile.measured else None
    if several and link is not None:
        made.append(Parameter("intra", "intra", link.efficiency.sd_log, node=link.node))
    return made


def _row(row: RawRow, request: Request, parameters: Sequence[Parameter]) -> FitRow:
    return FitRow(
        key=row.where,
        group=row.cells["net"],
        measured_s=stated_s(row, request),
        uses={
            p.name: (axis_of(p.knob),)
            for p in parameters
            if p.knob is not None and (p.name != "intra" or row.cells["ranks"] != "1")
        },
        n_axes=N_AXES,
        log_s=response(request),
    )
