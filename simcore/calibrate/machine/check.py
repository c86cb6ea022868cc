"""Checks a GPU's fitted figures on training steps that the fit has not seen, beside blind ones.

The figures of kernels come from benchmarks alone, so every measured step is unseen by them. What
the host takes is fitted to launches and to steps that it limits; each step is then predicted by a
fit without its network.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from simcore.answer.predict import predict
from simcore.base.arrays import Array
from simcore.base.figures import Z80
from simcore.base.record import dataclass
from simcore.calibrate.bench.launch import DEPTH
from simcore.calibrate.bench.store import RawRow
from simcore.calibrate.machine.fit import own_rows
from simcore.calibrate.machine.host import DRIFT_SD
from simcore.calibrate.machine.one_speed import stated_s
from simcore.calibrate.machine.record import Machine
from simcore.calibrate.machine.steps import measured_steps, request_for
from simcore.calibrate.steps.fit import fit_steps, leave_one_out
from simcore.calibrate.steps.model import N_AXES, FitRow, Parameter, axis_of, line_of, response
from simcore.calibrate.steps.residual import scatter_over
from simcore.calibrate.training import NETS
from simcore.hardware.calibrations import CheckedStep, Knob
from simcore.hardware.profile import Profile, load_profile
from simcore.request.resolved import Request
from simcore.strategy.optimizers import OPTIMIZERS
from simcore.strategy.precision import PRECISIONS
from simcore.strategy.strategy import Strategy, parallelism_named
from simcore.workload.graph import Block, Kernel, Op, Workload
from simcore.workload.ops.pointwise import activation
from simcore.workload.ops.products import linear

#: Elasticity of a step's time on the host's speed from which on the host limits the step.
HOST_BOUND: Final = 0.25
#: Standard deviation of ln(speed of a host) between tiny networks and other programs: launches in a
#: whole step take 2.24 times those in a loop (``host_launch`` in blind.yaml), which is taken as the
#: end of an 80 % interval.
CARRIED_SD: Final = math.log(2.24) / Z80
#: Number of steps that the shipped scatter counts as, beside those checked: an assumption.
SHIPPED_STEPS: Final = 12.0
#: Key and group of the row of launches in the fit.
LAUNCHES: Final = "launches"


@dataclass(frozen=True)
class Checked:
    """The host's multiplier, the checked steps, the scatter of steps over that of blind ones."""

    knobs: tuple[Knob, ...] = ()
    steps: tuple[CheckedStep, ...] = ()
    residual_over_blind: float = 1.0
    notes: tuple[str, ...] = ()


def launches_net() -> Workload:
    """The network of tiny layers of the benchmark ``eager``, with one call of it as a sample.

    Gradients are added to those of earlier calls: two more kernels a layer, and one for the input.
    """
    layer = linear("", 4, 4, 4, bias=True)
    sums = Kernel(kind="elementwise", launches=2.0)
    ops = (replace(layer, bwd=(*layer.bwd, sums)), activation("", 16))
    added = Op(name="", fwd=(), bwd=(Kernel(kind="elementwise"),))
    blocks = (Block(name="input", ops=(added,)), Block(name="layer", ops=ops))
    return Workload(name="launches", sample_unit="call", blocks=blocks, order=(0, *[1] * DEPTH))


def check_steps(
    rows: Sequence[RawRow], machine: Machine, profile: Profile, *, traced: bool = True
) -> Checked:
    """The host's multiplier and the check of ``profile`` on the measured steps.

    ``traced``: networks can be traced (PyTorch is installed); without it only launches count.
    """
    steps, notes = measured_steps(rows) if traced else ([], ())
    requests = {
        r.where: request_for(
            NETS[r.cells["net"]], int(r.number("batch")), r.cells["strategy"], machine,
            int(r.number("ranks")), profile,
        )
        for r in steps
    }  # fmt: skip
    # Where benchmarks of single operators gave the host's figures, it differs from them by as much
    # as it drifts; what networks of tiny tensors take longer is then mostly their own.
    host_known = profile.measured is not None and profile.measured.host_launch is not None
    spread = DRIFT_SD if host_known else profile.host_issue_s(machine.gpu).sd_log
    parameters = [
        Parameter("host", "host", spread, gpu=machine.gpu.name, may_bind=True),
        Parameter("tiny networks", None, CARRIED_SD, may_bind=True),
    ]
    seconds = {r.where: stated_s(r, requests[r.where]) for r in steps}
    fit_rows = [_row(r.where, r.cells["net"], seconds[r.where], requests[r.where]) for r in steps]
    for launches in (r for r in own_rows(rows, "host") if r.cells["op"] == "eager"):
        request = _launches(machine, profile)
        fit_rows.append(_row(LAUNCHES, LAUNCHES, launches.seconds, request))
    if not fit_rows:
        return Checked(notes=notes)
    fit = fit_steps(fit_rows, parameters)
    speed = fit.values["host"] * fit.values["tiny networks"]
    slopes = {r.key: -float(line_of(r, _at(r, speed)).slopes[axis_of("host")]) for r in fit_rows}
    limited = [r for r in fit_rows if slopes[r.key] > HOST_BOUND]
    off = [math.log(fit.predicted_s[r.key] / r.measured_s) for r in limited]
    knobs: tuple[Knob, ...] = ()
    if limited:
        # Of the host's speed: each error over its row's elasticity, weighted by its square.
        scatter = math.sqrt(sum(e * e for e in off) / sum(slopes[r.key] ** 2 for r in limited))
        sd = min(math.hypot(fit.sd_log["host"], scatter), spread)
        (knob,) = fit.knobs()
        knobs = (knob.model_copy(update={"sd_log": sd, "prior_sd_log": spread}),)
    unseen = leave_one_out(fit_rows, parameters)
    by_key = {r.key: r for r in fit_rows}
    checked: list[CheckedStep] = []
    calibrated_off: list[float] = []
    blind_off: list[float] = []
    for r in steps:
        on_host = slopes[r.where] > HOST_BOUND
        seen, (_, without) = by_key[r.where], unseen[r.where]
        at = _at(seen, without.values["host"])  # as in the profile, without that of tiny networks
        calibrated_s = math.exp(float(seen.log_s(at[:, None])[0]))
        blind = predict(replace(requests[r.where], profile=load_profile())).step_time_s
        checked.append(CheckedStep(
            net=r.cells["net"], batch=int(r.number("batch")), ranks=int(r.number("ranks")),
            strategy=r.cells["strategy"], bound="host" if on_host else "device",
            measured_s=seconds[r.where], blind_s=blind.value, calibrated_s=calibrated_s,
        ))  # fmt: skip
        if not on_host:
            sd = math.log(blind.high / blind.low) / (2.0 * Z80)
            calibrated_off.append(math.log(seconds[r.where] / calibrated_s) / sd)
            blind_off.append(math.log(seconds[r.where] / blind.value) / sd)
    factor = scatter_over(calibrated_off, blind_off, SHIPPED_STEPS)
    return Checked(knobs, tuple(checked), factor, notes)


def _at(row: FitRow, host: float) -> Array:
    shifts = np.zeros(row.n_axes)
    shifts[axis_of("host")] = math.log(host)
    return shifts


def _launches(machine: Machine, profile: Profile) -> Request:
    strategy = Strategy(
        parallelism=parallelism_named("ddp"), precision=PRECISIONS["fp32-ieee"],
        optimizer=OPTIMIZERS["sgd"],
    )  # fmt: skip
    return Request(
        workload=launches_net(), full_name=LAUNCHES, cluster=machine.cluster(1), strategy=strategy,
        micro_batch=1, grad_accum=1, profile=profile,
    )  # fmt: skip


def _row(key: str, group: str, measured_s: float, request: Request) -> FitRow:
    host = (axis_of("host"),)
    uses: Mapping[str, tuple[int, ...]] = {"host": host, "tiny networks": host}
    return FitRow(key=key, group=group, measured_s=measured_s, uses=uses, n_axes=N_AXES,
                  log_s=response(request))  # fmt: skip
