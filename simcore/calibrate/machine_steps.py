"""Reference steps: two multipliers, and the error that a network not measured must expect."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from simcore.base.interval import HIGH_QUANTILE
from simcore.calibrate.bench.store import RawRow
from simcore.calibrate.machine_fit import DOUBTED_FRAC, disturbed
from simcore.calibrate.machine_record import Found
from simcore.calibrate.step_fit import fit_steps, leave_one_out
from simcore.calibrate.step_model import FitRow, Parameter
from simcore.calibrate.step_response import N_AXES, axis_of, response
from simcore.calibrate.step_solver import ROW_SD_LOG
from simcore.calibrate.training import NETS, STRATEGY, Net
from simcore.engine.resolved import Request
from simcore.hardware.calibrations import Knob
from simcore.hardware.profile import HOST_CPU, Profile
from simcore.strategy.optimizers import OPTIMIZERS
from simcore.strategy.precision import PRECISIONS
from simcore.strategy.strategy import Strategy, parallelism_named
from simcore.workload.permission import TrustedName
from simcore.workload.resolve import resolve_model

#: Where steps of fewer than two networks were measured, what one scatters around a sum of its ops:
#: the reference networks' own, on two cores before any multiplier is fitted (docs/calibration.md).
UNMEASURED_SD = 0.15


@dataclass(frozen=True)
class Summed:
    """Multipliers fitted to steps, the scatter that is left, and each step left out."""

    knobs: tuple[Knob, ...]
    residual_sd_log: float
    left_out_mape_frac: float | None
    steps: int
    left_out: tuple[str, ...] = ()


def request_for(
    net: Net, batch: int, kind: str, found: Found, ranks: int, profile: Profile
) -> Request:
    """What the engine is asked about a step of ``training.step_of``: the same step."""
    record = resolve_model(TrustedName(net.model))
    on_host = found.gpu.architecture == HOST_CPU
    strategy = Strategy(
        parallelism=parallelism_named(STRATEGY[kind]),
        precision=PRECISIONS["fp32-ieee"],
        optimizer=OPTIMIZERS["adamw"],
        step_impl="for-loop" if on_host else "foreach",
    )
    return Request(
        workload=record.build(),
        full_name=record.full_name,
        cluster=found.cluster(ranks),
        strategy=strategy,
        micro_batch=batch,
        grad_accum=1,
        profile=profile,
    )


def fit_reference_steps(rows: Sequence[RawRow], found: Found, profile: Profile) -> Summed:
    """Fit compute, memory and link multipliers to the measured steps of the reference networks.

    Priors are the spreads of the op fits. The scatter is that of steps of a network that took no
    part in the fit.
    """
    steps = [r for r in rows if r.table == "steps" and r.cells["net"] in NETS]
    # What others took part in says nothing of this machine; it stays in the raw table.
    mine = [r for r in steps if r.cells["mode"] == "alone" or _quiet(r)]
    told = tuple(f"{r.where}: left out, others used the machine" for r in steps if r not in mine)
    if not mine:
        return Summed((), UNMEASURED_SD, None, 0, told)
    requests = {
        r.where: request_for(
            NETS[r.cells["net"]], int(r.number("batch")), r.cells["strategy"], found,
            int(r.number("ranks")), profile,
        )
        for r in mine
    }  # fmt: skip
    several = any(int(r.number("ranks")) > 1 for r in mine)
    parameters = _parameters(requests, found, profile, several)
    fit_rows = [_row(r, requests[r.where], parameters) for r in mine]
    fit = fit_steps(fit_rows, parameters)
    left = leave_one_out(fit_rows, parameters) if len({r.group for r in fit_rows}) > 1 else {}
    errors = [math.log(left[r.key][0] / r.measured_s) for r in fit_rows if r.key in left]
    networks = len({r.group for r in fit_rows})
    residual = predictive_sd(errors, networks) if errors else UNMEASURED_SD
    mape = float(np.mean([abs(math.exp(e) - 1.0) for e in errors])) if left else None
    return Summed(fit.knobs(), residual, mape, len(mine), told)


def predictive_sd(errors: Sequence[float], networks: int) -> float:
    """Standard deviation that gives the next network's step an honest 80 % interval.

    Root mean square of the left-out ``errors`` (of the logarithm), widened for what ``networks``
    independent ones can tell: another one's own scatter, and Student's t for a spread known from
    so few. Never below the scatter that a step has around a model whose parameters are known.
    """
    from scipy.stats import norm, t

    rms = math.sqrt(float(np.mean(np.square(errors))))
    few = float(t.ppf(HIGH_QUANTILE, networks) / norm.ppf(HIGH_QUANTILE))
    return max(ROW_SD_LOG, rms * math.sqrt(1.0 + 1.0 / networks) * few)


def _quiet(row: RawRow) -> bool:
    return disturbed(row) <= DOUBTED_FRAC


def _parameters(
    requests: Mapping[str, Request], found: Found, profile: Profile, several: bool
) -> list[Parameter]:
    first = next(iter(requests.values()))
    name = found.gpu.name
    compute = max(
        profile.compute_efficiency(kind, "fp32", found.gpu).sd_log for kind in ("gemm", "conv")
    )
    spread = profile.knob_spread(first.cluster, "fp32", first.workload.name, 0.0)
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
        measured_s=row.seconds,
        uses={
            p.name: (axis_of(p.knob),)
            for p in parameters
            if p.knob is not None and (p.name != "intra" or row.cells["ranks"] != "1")
        },
        n_axes=N_AXES,
        log_s=response(request),
    )
