"""Calibrate on the rows of tables and judge each by a fit that has not seen it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from simcore.base.errors import SimcoreError
from simcore.calibrate.step_fit import FitRow, Parameter, StepFit, fit_steps, leave_one_out
from simcore.engine.predict import Request
from simcore.engine.rates import peak_for
from simcore.hardware.calibrations import Knob
from simcore.hardware.profile import Profile, load_profile, places
from simcore.validate.case import Case
from simcore.validate.formats import Table
from simcore.validate.judge import (
    Verdict,
    central_time_s,
    contradictions,
    judge,
    measured_time_s,
    request_of,
)

#: Prior width of an unknown amount of work: a factor of 20 either way.
WORK_SD_LOG = 3.0
#: Share of the profile's spread that all devices have in common (libraries, traffic counts),
#: as a standard deviation; what is left is each device's own.
COMMON_SD_LOG = 0.15


@dataclass(frozen=True)
class Calibrated:
    """The fit on all rows, and the verdict in which every row was left out of its own fit."""

    fit: StepFit
    verdict: Verdict
    suspects: dict[str, str]
    profiles: dict[str, Profile]

    def profile_for(self, case: Case) -> Profile:
        """The profile fitted on all rows of the table that a case is from."""
        return self.profiles.get(case.table) or load_profile()


def calibrate_and_judge(tables: Sequence[Table]) -> Calibrated:
    """Fit table by table, then predict each row from the other configurations' fit."""
    blind = load_profile()
    fits: list[StepFit] = []
    profiles: dict[str, Profile] = {}
    fitted: dict[str, Profile] = {}
    works: dict[str, float] = {}
    suspects: dict[str, str] = {}
    for table in tables:
        suspects |= contradictions(table.cases)
        cases = [c for c in table.cases if measured_time_s(c) is not None]
        requests = _requests(cases, blind)
        kept = [c for c in cases if c.id in requests]
        if not kept:
            continue
        parameters = [*parameters_of(requests, blind), *work_parameters(kept)]
        rows = [_row(c, requests[c.id], parameters, blind) for c in kept]
        # A row that contradicts others teaches nothing; it is still predicted and reported.
        doubted = {c.id for c in kept if c.flag or c.id in suspects}
        sound = [r for r in rows if r.key not in doubted]
        whole = fit_steps(sound, parameters)
        fits.append(whole)
        fitted[kept[0].table] = blind.with_knobs(
            whole.knobs(),
            f"fit of {table.path.stem}",
            f"calibrated on {len(sound)} rows of {table.path.name}",
            whole.residual_sd_log,
        )
        left_out = leave_one_out(rows, parameters, never={r.key for r in rows} & doubted)
        for case in kept:
            _, fit = left_out[case.id]
            origin = (
                f"calibrated on {len(fit.predicted_s)} other rows of {table.path.name}, "
                f"rms residual {fit.residual_sd_log:.0%}"
            )
            profiles[case.id] = blind.with_knobs(
                fit.knobs(), "leave-one-out fit", origin, fit.residual_sd_log
            )
            if f"work:{case.model}" in fit.values:
                works[case.id] = fit.values[f"work:{case.model}"]
    verdict = judge(
        tables,
        mode="calibrated, leave-one-out",
        profile_for=lambda c: profiles.get(c.id, blind),
        work_for=lambda c: works.get(c.id),
    )
    return Calibrated(_merge(fits), verdict, suspects, fitted)


def _requests(cases: Sequence[Case], profile: Profile) -> dict[str, Request]:
    found = {}
    for case in cases:
        try:
            found[case.id] = request_of(case, profile)
        except SimcoreError:
            continue
    return found


def parameters_of(requests: Mapping[str, Request], profile: Profile) -> list[Parameter]:
    """What the rows of a table can move: named by the hardware they share."""
    made: dict[str, Parameter] = {}

    def add(parameter: Parameter) -> None:
        made.setdefault(parameter.name, parameter)

    add(Parameter("compute", "compute", COMMON_SD_LOG))
    add(Parameter("memory", "memory", COMMON_SD_LOG))
    for request in requests.values():
        cluster, workload = request.cluster, request.workload
        gpu = cluster.groups[0].gpu
        peak, _, _ = peak_for(gpu, request.strategy.precision)
        spread = profile.knob_spread(cluster, peak, workload.name, workload.conv_frac)
        for group in cluster.groups:
            add(Parameter(f"compute:{group.gpu.name}", "compute", spread["compute"],
                          gpu=group.gpu.name))  # fmt: skip
            add(Parameter(f"host:{group.gpu.name}", "host", spread["host"], gpu=group.gpu.name))
        node, link = places(cluster)
        if cluster.n_gpus > cluster.n_nodes:
            add(Parameter(f"intra:{node}", "intra", spread["intra"], node=node))
        if cluster.n_nodes > 1:
            add(Parameter(f"inter:{link}", "inter", spread["inter"], link=link))
        if request.loading is not None:
            add(Parameter(f"loader:{workload.name}", "loader", spread["loader"],
                          workload=workload.name))  # fmt: skip
    return list(made.values())


def work_parameters(cases: Sequence[Case]) -> list[Parameter]:
    """The amount of work of runs whose source does not give it."""
    models = dict.fromkeys(c.model for c in cases if not c.work_known)
    return [Parameter(f"work:{m}", None, WORK_SD_LOG, workload=m) for m in models]


def _row(case: Case, request: Request, parameters: Sequence[Parameter], blind: Profile) -> FitRow:
    node, link = places(request.cluster)
    gpus = {g.gpu.name for g in request.cluster.groups}
    uses = [
        p
        for p in parameters
        if (not p.gpu or p.gpu in gpus)
        and (not p.node or p.node == node)
        and (not p.link or (p.link == link and request.cluster.n_nodes > 1))
        and p.workload in ("", request.workload.name)
    ]

    def predict_s(values: Mapping[str, float]) -> float:
        knobs = [p.as_knob(values[p.name], p.prior_sd_log) for p in uses if p.name in values]
        profile = blind.with_knobs(
            tuple(k for k in knobs if isinstance(k, Knob)), "candidate", "candidate", 0.0
        )
        work = values.get(f"work:{case.model}", 1.0)
        return central_time_s(case, replace(request, profile=profile), work)

    measured = measured_time_s(case)
    assert measured is not None
    return FitRow(
        key=case.id,
        group=(case.model, case.gpus, str(sorted(case.options.items(), key=str))),
        measured_s=measured,
        uses=tuple(p.name for p in uses),
        predict_s=predict_s,
    )


def _merge(fits: Sequence[StepFit]) -> StepFit:
    if not fits:
        return fit_steps([], [])
    merged = fits[0]
    for fit in fits[1:]:
        merged = replace(
            merged,
            parameters=(*merged.parameters, *fit.parameters),
            values={**fit.values, **merged.values},
            sd_log={**fit.sd_log, **merged.sd_log},
            predicted_s={**merged.predicted_s, **fit.predicted_s},
            residual_sd_log=max(merged.residual_sd_log, fit.residual_sd_log),
        )
    return merged
