"""Rows of measured tables as rows of a fit: which parameters affect them, and how."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from simcore.answer.residual import step_residual
from simcore.base.arrays import Array
from simcore.base.errors import SimcoreError
from simcore.calibrate.steps.model import WORK, FitRow, Parameter, axes_of, response, shares_of
from simcore.calibrate.steps.residual import Traits
from simcore.hardware.calibrations import CalibratedKnob
from simcore.hardware.paths import Unstated, places, unstated_network
from simcore.hardware.profile import Profile
from simcore.request.resolved import Request
from simcore.timing.points import Points
from simcore.timing.rates import knob_spread_of
from simcore.validate.case import Case
from simcore.validate.judge import measured_time_s, request_of, run_times_s

#: Prior width (ln) of an unknown amount of work: a factor of 20 either way.
WORK_SD_LOG = 3.0
#: Standard deviation (ln) of the part of the profile's spread that all devices have in common
#: (libraries, traffic counts); the rest is each device's own.
COMMON_SD_LOG = 0.15


def requests_of(cases: Sequence[Case], profile: Profile) -> dict[str, Request]:
    """Requests by id, of the cases that have one."""
    found = {}
    for case in cases:
        try:
            found[case.id] = request_of(case, profile)
        except SimcoreError:
            continue
    return found


def spread_of(request: Request) -> Mapping[CalibratedKnob, float]:
    """Standard deviation of the logarithm of each knob of a request."""
    cluster, workload = request.cluster, request.workload
    return knob_spread_of(request.profile, cluster, request.strategy.precision, workload)


def parameters_of(requests: Mapping[str, Request]) -> list[Parameter]:
    """The parameters that affect the rows of a table, named by the hardware that rows share."""
    made: dict[str, Parameter] = {}

    def add(parameter: Parameter) -> None:
        made.setdefault(parameter.name, parameter)

    add(Parameter("compute", "compute", COMMON_SD_LOG))
    add(Parameter("memory", "memory", COMMON_SD_LOG))
    unstated = _unstated(requests)
    for request in requests.values():
        cluster, workload = request.cluster, request.workload
        spread = spread_of(request)
        for group in cluster.groups:
            add(Parameter(f"compute:{group.gpu.name}", "compute", spread["compute"],
                          gpu=group.gpu.name))  # fmt: skip
            add(Parameter(f"host:{group.gpu.name}", "host", spread["host"], gpu=group.gpu.name,
                          may_bind=True))  # fmt: skip
        node, link = places(cluster)
        if cluster.n_gpus > cluster.n_nodes:
            add(Parameter(f"intra:{node}", "intra", spread["intra"], node=node))
        if cluster.n_nodes > 1:
            add(_between_nodes(link, spread["inter"], unstated.get(link)))
        if request.loading is not None:
            add(Parameter(f"loader:{workload.name}", "loader", spread["loader"],
                          workload=workload.name, may_bind=True))  # fmt: skip
    return list(made.values())


def _unstated(requests: Mapping[str, Request]) -> dict[str, Unstated]:
    """By link, what is unknown about the network; a link stated in one row is known for all."""
    found: dict[str, Unstated | None] = {}
    for request in requests.values():
        if request.cluster.n_nodes == 1:
            continue
        link = places(request.cluster)[1]
        here = unstated_network(request.cluster, request.profile)
        found[link] = here if found.get(link, here) else None
    return {link: here for link, here in found.items() if here}


def _between_nodes(link: str, sd_log: float, unstated: Unstated | None) -> Parameter:
    """A link's bandwidth relative to the profile's, or to the preset's where nobody stated it."""
    if unstated is None:
        return Parameter(f"inter:{link}", "inter", sd_log, link=link)
    return Parameter(f"inter:{link}", "inter", math.hypot(sd_log, unstated.sd_log), link=link,
                     prior_mean_log=unstated.mean_log)  # fmt: skip


def work_parameters(cases: Sequence[Case]) -> list[Parameter]:
    """The amount of work of runs whose source does not give it, as parameters."""
    models = dict.fromkeys(c.model for c in cases if not c.work_known)
    return [Parameter(f"work:{m}", None, WORK_SD_LOG, workload=m) for m in models]


def fit_row(
    case: Case,
    request: Request,
    uses: Mapping[str, tuple[int, ...]],
    *,
    traits: Traits | None = None,
    block: str = "",
) -> FitRow:
    """A measured case as a row of a fit; ``uses``: axes of ``step_model`` by parameter."""
    measured = measured_time_s(case)
    assert measured is not None
    run: Callable[[Points, Array, Array], Array] | None = None
    if "run_time_s" in case.measured:

        def run(points: Points, step_s: Array, work: Array) -> Array:
            return run_times_s(case, request, points, step_s, work)

    return FitRow(
        key=case.id,
        group=case.job,
        measured_s=measured,
        uses=uses,
        n_axes=len(shares_of(request)),
        log_s=response(request, run),
        block=block,
        shares=shares_of(request),
        traits=traits,
        residual_sd_log=step_residual(request).sd_log,
    )


def hardware_row(case: Case, request: Request, parameters: Sequence[Parameter]) -> FitRow:
    """A measured case with those ``parameters`` that its hardware has."""
    node, link = places(request.cluster)
    gpus = {g.gpu.name for g in request.cluster.groups}
    mine = [
        p
        for p in parameters
        if (not p.gpu or p.gpu in gpus)
        and (not p.node or p.node == node)
        and (not p.link or (p.link == link and request.cluster.n_nodes > 1))
        and p.workload in ("", request.workload.name, case.model if p.knob is None else "")
    ]
    uses = {p.name: (WORK,) if p.knob is None else axes_of(p.knob, request, p.gpu) for p in mine}
    return fit_row(case, request, uses)
