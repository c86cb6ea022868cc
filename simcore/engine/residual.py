"""How far a whole step lies from the model when every single figure is right, by kind of job.

Errors of independent origin add in squares, each as much as the job gives it occasion. What a job
is decides, never whose measurement it is held against. The widths are in
``hardware_db/calibrations/runtime.yaml``; ``python -m validate.residuals`` fits them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from simcore.engine.rates import peak_for
from simcore.engine.resolved import Request
from simcore.hardware.estimates import Estimate


def _unlayered(request: Request) -> float:
    """Work outside equal layers: kernels that no op table times, each met once."""
    return 1.0 - request.workload.layered_frac


def _unnamed(request: Request) -> float:
    """Nothing is said of the program's kernels: fused or not; loop and logging are assumed."""
    strategy = request.strategy
    return float(strategy.program.layers.plain_pytorch_modules and strategy.issuer == "torch")


def _assumed(request: Request) -> float:
    """The library that a layout needs was not named: another may write the model's kernels."""
    return float(request.software_assumed)


def _foreign(request: Request) -> float:
    """A device whose family no op table of these products has."""
    profile, precision = request.profile, request.strategy.precision
    gpus = {g.gpu.name: g.gpu for g in request.cluster.groups}.values()
    figures = [profile.product_figures(peak_for(g, precision)[0], g) for g in gpus]
    return float(not all(f.level != "pooled" and f.by_shape for f in figures))


def _old_libraries(request: Request) -> float:
    """Libraries from before CUDA 11.7: the op tables are of newer kernels."""
    return float(request.eager_kernels)


def _routed(request: Request) -> float:
    """Routed experts: loads differ and token shuffles are kernels of each program's own."""
    return float(request.workload.expert_numel > 0)


#: What adds to the residual, and the weight of its variance in a job (0 to 1).
PARTS: dict[str, Callable[[Request], float]] = {
    "any": lambda _: 1.0,
    "unlayered": _unlayered,
    "unnamed": _unnamed,
    "assumed": _assumed,
    "foreign": _foreign,
    "old_libraries": _old_libraries,
    "routed": _routed,
}


@dataclass(frozen=True, slots=True)
class Residual:
    """Standard deviation of ln(measured / predicted), its parts (each one's own), its source."""

    sd_log: float
    parts: tuple[tuple[str, float], ...]
    estimate: Estimate


def part_weights(request: Request) -> tuple[float, ...]:
    """Weights of the variances of ``PARTS`` in a job, in their order."""
    return tuple(weight(request) for weight in PARTS.values())


def untold(request: Request) -> tuple[str, ...]:
    """GPUs of a job that its calibration has no rows of."""
    gpus = {g.gpu.name: g.gpu for g in request.cluster.groups}
    return tuple(name for name, gpu in gpus.items() if not request.profile.tells_of(gpu))


def step_residual(request: Request) -> Residual:
    """The residual of a job: that of a calibration with rows of its GPUs, else of its kind."""
    profile = request.profile
    if profile.residual is not None and not untold(request):
        return Residual(profile.residual.value, (), profile.residual)
    widths = profile.step_residual
    weighed = [
        (name, widths[name], weight)
        for name, weight in zip(PARTS, part_weights(request), strict=True)
    ]
    sd_log = math.sqrt(sum(weight * width.value**2 for _, width, weight in weighed))
    parts = tuple((n, math.sqrt(w) * width.value) for n, width, w in weighed if w > 0)
    return Residual(sd_log, parts, Estimate(sd_log, 0.0, widths["any"].source))
