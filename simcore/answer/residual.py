"""The error of whole steps that remains when every single figure is right, by kind of job.

Independent errors are added in quadrature, each weighted by how much it applies to the job. Only
the job decides, never the measurement that it is compared with. The widths are in
``hardware_db/calibrations/runtime.yaml``; ``python -m validate.residuals`` fits them.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from simcore.base.record import dataclass
from simcore.hardware.calibrations import timed_by_shape
from simcore.hardware.estimates import Estimate, leaf
from simcore.hardware.profile import Profile
from simcore.hardware.spec import GpuSpec
from simcore.memory.spread import plain_and_timed, program_kind, program_unnamed
from simcore.request.resolved import Request
from simcore.timing.peaks import peak_for


def _gpus(request: Request) -> tuple[GpuSpec, ...]:
    return tuple({g.gpu.name: g.gpu for g in request.cluster.groups}.values())


def _timed(request: Request) -> float:
    """1 where the job is what ``simcore calibrate`` timed: plain PyTorch on one GPU, every kind.

    Then neither the kernels nor the loop around them are in doubt; what is left is what steps of
    such machines showed.
    """
    return float(plain_and_timed(request))


def _any(request: Request) -> float:
    """1 where not all of a job was timed."""
    return 1.0 - _timed(request)


def _unlayered(request: Request) -> float:
    """Share of the work outside equal layers: kernels that no op table has, each run once.

    0 where the benchmarks of ``simcore calibrate`` timed kernels of every kind on the job's GPUs.
    """
    timed = all(request.profile.kinds_timed(gpu) for gpu in _gpus(request))
    return (1.0 - request.workload.layered_frac) * (not timed)


def _unnamed(request: Request) -> float:
    """1 where the program is not known, so that fused kernels, loop and logging are assumed."""
    return float(program_unnamed(request)) * _any(request)


def _assumed(request: Request) -> float:
    """1 where the layout needs a training library that was not named, and one is assumed."""
    return float(request.software_assumed)


def _foreign(request: Request) -> float:
    """1 where no op table of matrix products covers the GPU's family, or its figures are announced.

    Figures of a device that nobody has measured are as uncertain as those of an unknown family.
    """
    profile, precision = request.profile, request.strategy.precision
    gpus = _gpus(request)
    if any(g.preliminary for g in gpus):
        return 1.0
    figures = [profile.product_figures(peak_for(g, precision)[0], g) for g in gpus]
    return float(not all(f.level != "pooled" and f.by_shape for f in figures))


def _old_libraries(request: Request) -> float:
    """1 with libraries before CUDA 11.7: the op tables are of newer kernels."""
    return float(request.eager_kernels)


def _routed(request: Request) -> float:
    """1 with routed experts: loads differ, and each program has its own token-shuffle kernels."""
    return float(request.workload.expert_numel > 0)


def untimed_slowdown(profile: Profile, gpu: GpuSpec) -> float:
    """Times that a step may be longer if no op table times any device of the vendor; else 1.

    Its libraries, its driver and its collectives are not known at all. They may be behind those
    that the tables time, which leave little to gain: the interval widens to one side.
    """
    known = any(k.gpu == gpu.name for k in profile.knob_values) or profile.own(gpu) is not None
    table = profile.runtime["untimed_vendor"]
    return 1.0 if known or gpu.vendor in table["timed"] else leaf(table["slower"]).value


#: Parts of the residual, and the weight of each part's variance in a job (0 to 1).
PARTS: dict[str, Callable[[Request], float]] = {
    "any": _any,
    "timed": _timed,
    "unlayered": _unlayered,
    "unnamed": _unnamed,
    "assumed": _assumed,
    "foreign": _foreign,
    "old_libraries": _old_libraries,
    "routed": _routed,
}


@dataclass(frozen=True)
class Residual:
    """Standard deviation of ln(measured / predicted), that of each part, and its source."""

    sd_log: float
    parts: tuple[tuple[str, float], ...]
    estimate: Estimate


def part_weights(request: Request) -> tuple[float, ...]:
    """Weights of the variances of ``PARTS`` in a job, in their order."""
    return tuple(weight(request) for weight in PARTS.values())


def untold(request: Request) -> tuple[str, ...]:
    """GPU types of a job that its calibration has no measurements of."""
    return tuple(g.name for g in _gpus(request) if not request.profile.tells_of(g))


def unvalidated(request: Request) -> tuple[str, ...]:
    """GPU types of a job of which no measured step was compared with a prediction."""
    profile = request.profile
    if profile.measured is not None:
        return ()
    compared = profile.runtime["steps_measured_on"]
    return tuple(
        f"{g.name} (preliminary figures)" if g.preliminary else g.name
        for g in _gpus(request) if g.name not in compared
    )  # fmt: skip


def kind_factor(request: Request) -> float:
    """Residual of a program's steps over that of like jobs; 1 for programs without enough steps.

    Programs differ in how closely their records describe them.
    """
    if request.software_assumed:
        return 1.0
    factor = request.profile.runtime["step_kinds"].get(program_kind(request))
    return 1.0 if factor is None else float(factor)


def step_residual(request: Request) -> Residual:
    """The residual of a job: from a calibration that measured its GPUs, else from its kind.

    Where the calibration timed kernels of the job by shape, the variance of such steps counts by
    their share of the device's time, the other residual by the rest.
    """
    found, measured = _untimed_residual(request), request.profile.measured
    whole = measured.step_over_kernels if measured is not None else None
    if whole is None or not timed_by_shape(measured):
        return found
    from simcore.answer.timed import timed_frac

    share = timed_frac(request) or 0.0
    sd_log = math.sqrt(share * whole.sd_log**2 + (1.0 - share) * found.sd_log**2)
    source = f"whole steps of kernels timed by shape ({request.profile.name})"
    return Residual(sd_log, (), Estimate(sd_log, 0.0, source))


def _untimed_residual(request: Request) -> Residual:
    """The residual of a job whose kernels were not timed."""
    profile = request.profile
    if profile.residual is not None and not untold(request):
        return Residual(profile.residual.value, (), profile.residual)
    widths = profile.step_residual
    weighed = [
        (name, widths[name], weight)
        for name, weight in zip(PARTS, part_weights(request), strict=True)
    ]
    own = kind_factor(request)
    sd_log = own * math.sqrt(sum(weight * width.value**2 for _, width, weight in weighed))
    parts = tuple((n, own * math.sqrt(w) * width.value) for n, width, w in weighed if w > 0)
    return Residual(sd_log, parts, Estimate(sd_log, 0.0, widths["any"].source))
