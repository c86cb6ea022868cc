"""The best division of layers into pipeline stages: cost of each layer, and what stages can hold.

# L layers
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, cached_property
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np

from simcore.base.arrays import Array
from simcore.base.record import dataclass
from simcore.hardware.cluster import ClusterSpec
from simcore.memory.stages import StageLimits
from simcore.request.placed import Placed
from simcore.strategy.balanced_cut import balanced_cut
from simcore.strategy.cuts import least_layers, written
from simcore.strategy.layout import Layout
from simcore.timing.evaluate import evaluate
from simcore.timing.exchanges import TRANSFER, data_points, exchanges_s, exposed
from simcore.timing.points import Points
from simcore.timing.stage_steps import awaited_s, products_fracs, stage_paces
from simcore.timing.steps import central_step_s, job_of, point_values
from simcore.workload.graph import Workload
from simcore.workload.sharding import (
    even_cut,
    layer_counts,
    pipeline_stages,
    stretch,
)

if TYPE_CHECKING:
    from simcore.answer.sweep import Axis
    from simcore.request.resolved import Request

#: Speed-up that makes the device's time vanish, so that the host's time remains.
_FREE = 1e10


@dataclass(frozen=True)
class LayerCosts:
    """Seconds of one micro-batch on the device and on its host, for [L] layers in order.

    ``first``: (device, host) seconds of what precedes the first layer. What follows the last layer
    is included in that layer.
    """

    device_s: tuple[float, ...]
    host_s: tuple[float, ...]
    first: tuple[float, float]

    def stage_s(self, a: int, b: int) -> float:
        """A micro-batch on a stage of layers a to b - 1: the longer of device and host time."""
        device, host = self._sums
        found = (device[b] - device[a], host[b] - host[a])
        if a == 0:
            found = (found[0] + self.first[0], found[1] + self.first[1])
        return max(found)

    @cached_property
    def _sums(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        return (0.0, *accumulate(self.device_s)), (0.0, *accumulate(self.host_s))


def layer_costs(request: Request) -> LayerCosts:
    """``layer_costs_over`` the request's own cluster and micro-batch."""
    return layer_costs_over(request, [(request.cluster, float(request.micro_batch))])[0]


def layer_costs_over(
    request: Request, over: Sequence[tuple[ClusterSpec, float]]
) -> list[LayerCosts]:
    """The time that every layer adds to a micro-step of its stage, as the engine prices it.

    For each of R pairs (cluster, micro-batch); the clusters are of one kind, the request on any of
    them. Each piece of the model is evaluated as a job of its own: its third micro-step less its
    second.
    """
    placed = request.placed
    assert placed is not None
    name = request.workload.name
    each_of = [point_values(c, request.profile, name, batch, 1.0) for c, batch in over]
    base: dict[str, Any] = {
        key: np.array([values[key] for values in each_of]) for key in each_of[0] if key != "library"
    }
    library = {"library": each_of[0]["library"]}
    job = job_of(request)
    counts = (1,) * placed.layout.pp  # average stages: which one has the slowest device is random
    axis = Points.of({**base, **library}, len(over))
    typical = stage_paces(axis, placed.layout, counts, job.classes[0].device_sd_frac).typical
    base = {key: np.repeat(values, 4) for key, values in base.items()}

    def tiled(*four: float) -> Array:
        return np.tile(np.array(four), len(over))

    # Device time (with the collectives of every micro-step) and host time, each with two and three
    # micro-steps.
    points = Points.of(
        {
            **base,
            **library,
            "grad_accum": tiled(2.0, 3.0, 2.0, 3.0),
            "compute": tiled(1.0, 1.0, _FREE, _FREE) * base["compute"] * np.repeat(typical, 4),
            "memory": tiled(1.0, 1.0, _FREE, _FREE),
            "use_host": tiled(0.0, 0.0, 1.0, 1.0),
            "use_comm": tiled(1.0, 1.0, 0.0, 0.0),
            "use_loader": 0.0,
        },
        4 * len(over),
    )
    local = data_points(points, placed)
    of_layer = exchanges_s(points, placed, 1)
    of_layer.pop(TRANSFER, None)  # a stage sends the same whatever layers it has

    @cache
    def piece(part: Workload, layers: int) -> tuple[Array, Array]:
        """Seconds on the device and on its host [R]."""
        stretched = replace(job, workload=part)
        steps = evaluate(stretched, local).step_s
        busy = np.repeat(steps[1::4] - steps[::4], 4)
        products = products_fracs([stretched], placed, local)
        products_s = busy if products is None else busy * products[0]
        exchange = {k: layers * v for k, v in of_layer.items()}
        slowdown = job.classes[0].overlap_slowdown_frac / points.overlap
        seen_s = exposed(exchange, placed, busy, slowdown, 0.0, products_s)
        seen = sum(seen_s.values(), np.zeros(len(points)))
        idle = awaited_s([stretched], local)[0]  # 0 in the columns without host time
        return (busy + seen)[::4] + idle[2::4], steps[3::4] - steps[2::4]

    whole = placed.part
    starts = whole.layer_starts
    ends = (*starts[1:], len(whole.order))
    # A layer at the very begin would include the frozen networks, which belong to ``first``.
    bare = whole.replace(frozen=(), input_bytes=0.0)
    each = [
        piece(stretch(whole if a else bare, a, b), 1) for a, b in zip(starts, ends, strict=True)
    ]
    none = np.zeros(len(over))
    before = piece(stretch(whole, 0, starts[0]), 0) if starts[0] else (none, none)
    device, host = (np.array(seconds).T.tolist() for seconds in zip(before, *each, strict=True))
    return [
        LayerCosts(tuple(d[1:]), tuple(h[1:]), (d[0], h[0]))
        for d, h in zip(device, host, strict=True)
    ]


def fastest_stages(costs: LayerCosts, layout: Layout) -> tuple[int, ...] | None:
    """Layers of each stage that minimise the slowest stage's time, whatever fits in memory."""
    return balanced_cut(costs.stage_s, len(costs.device_s), _least(costs, layout))


def _least(costs: LayerCosts, layout: Layout) -> tuple[int, ...]:
    least = least_layers(layout.pp, layout.vpp)
    # With more chunks than layers, some chunks are empty.
    return least if sum(least) <= len(costs.device_s) else least_layers(layout.pp, 1)


def balanced_stages(
    request: Request, costs: LayerCosts, free: tuple[int, ...] | None
) -> tuple[int, ...] | None:
    """Layers of each stage that minimise the slowest stage's time, with every stage fitting.

    ``free``: the result without the memory limit. None where no division fits.
    """
    placed = request.placed
    assert placed is not None
    n_layers, least = len(costs.device_s), _least(costs, placed.layout)
    fits = StageLimits.of_job(request).of_point(0)
    if free is None or _all_fit(free, fits):
        return free
    return balanced_cut(costs.stage_s, n_layers, least, fits)


def _all_fit(sizes: tuple[int, ...], fits: Callable[[int, int, int], bool]) -> bool:
    """Whether every stage of a division fits in memory."""
    ends = accumulate(sizes)
    return all(fits(s, b - n, b) for s, (n, b) in enumerate(zip(sizes, ends, strict=True)))


def balanced_axis(request: Request, axis: Axis) -> list[str]:
    """The best division at every point of an axis, as text (see ``with_balanced_stages``)."""
    rows: dict[int, tuple[LayerCosts, tuple[int, ...] | None]] = {}
    found = []
    for row, point in axis.requests(request):
        assert point.placed is not None
        if row not in rows:
            costs = layer_costs(point)
            rows[row] = costs, fastest_stages(costs, point.placed.layout)
        cut = with_balanced_stages(point, rows[row]).placed
        assert cut is not None
        found.append(cut.layout.stages)
    return found


def with_stages(request: Request, sizes: tuple[int, ...]) -> Request:
    """The same job with ``sizes`` layers in its pipeline stages."""
    placed = request.placed
    assert placed is not None
    layout = replace(placed.layout, stages=written(sizes))
    cut: Placed = replace(
        placed, layout=layout, stages=pipeline_stages(placed.part, layout.pp, sizes)
    )
    return replace(request, placed=cut)


def with_balanced_stages(
    request: Request, known: tuple[LayerCosts, tuple[int, ...] | None] | None = None
) -> Request:
    """The same job with the best division into stages.

    It is even where that is no slower, and where none fits, which a note says. ``known``: the costs
    of its layers and ``fastest_stages``, if already computed.
    """
    placed = request.placed
    assert placed is not None
    even = even_cut(layer_counts(placed.part), placed.layout.pp)
    if known is None:
        costs = layer_costs(request)
        known = costs, fastest_stages(costs, placed.layout)
    found = balanced_stages(request, *known)
    as_even = with_stages(request, even)
    if found is None:
        note = "no division of the layers into stages fits: the even one is shown"
        return replace(as_even, assumptions=(*request.assumptions, note))
    best = with_stages(request, found)
    gain = central_step_s(as_even) / central_step_s(best) - 1.0
    if gain <= 0.0 and _all_fit(even, StageLimits.of_job(request).of_point(0)):
        best, gain = as_even, 0.0
    assert best.placed is not None
    note = f"stages {best.placed.layout.stages} balanced: {gain:+.1%} steps/s over an even division"
    return replace(best, assumptions=(*best.assumptions, note))
