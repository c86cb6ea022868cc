"""Fits a ring's link to measured collectives: bus rate, time per hop and ramp.

The formula is the engine's:

    t = L + x + ramp·sqrt(L·x),  L = base + r(n-1)·hop,  x = r(n-1)/n · S / bus

with r = 2 for all-reduce and 1 for reduce-scatter and all-gather (``physics/collectives/nccl.py``).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Final

import numpy as np

from simcore.base.arrays import Array, NDArray
from simcore.base.record import dataclass
from simcore.base.units import format_si
from simcore.calibrate.curve_fits import Rows, left_out_mape, robust_sd, solve
from simcore.hardware.calibrations import Fitted, FittedTime, MeasuredLink

#: The standard deviation of a logarithm from which on a figure counts as unknown.
UNKNOWN_SD: Final = 1.0
#: The least standard deviation of a logarithm: clocks and caches differ from run to run.
LEAST_SD: Final = 0.02
#: Share of the scatter between shapes or sizes that remains in a step, which mixes many of them (as
#: in the shipped profile).
SHAPE_SHARE: Final = 0.5
#: r of the formula: how often the vector passes round the ring.
ROUNDS: Final = {"all_reduce": 2.0, "reduce_scatter": 1.0, "all_gather": 1.0}
#: The least number of sizes from which a ramp is fitted besides the rate and the hop.
ENOUGH_FOR_RAMP: Final = 6
_RAMP: Final = (0.3, 1e-3, 10.0)  # start, lower and upper bound


@dataclass(frozen=True)
class LinkFit:
    """Bus rate of one direction, seconds per hop and ramp (0: not fitted), with their spreads.

    ``rounds`` is r of the formula and ``base_s`` its base. The ``_sd_log`` are standard deviations
    of logarithms; ``scatter`` is the robust standard deviation of ln(measured / fitted).
    """

    ranks: int
    rounds: float
    base_s: float
    bus_bytes_per_s: float
    hop_s: float
    ramp: float = 0.0
    bus_sd_log: float = 0.0
    hop_sd_log: float = 0.0
    ramp_sd_log: float = 0.0
    scatter: float = 0.0

    def time_s(self, n_bytes: Array) -> Array:
        """Seconds of the collective for messages of ``n_bytes`` bytes, an array."""
        hops = self.rounds * (self.ranks - 1)
        latency = self.base_s + hops * self.hop_s
        transfer = hops / self.ranks * n_bytes / self.bus_bytes_per_s
        return np.asarray(latency + transfer + self.ramp * np.sqrt(latency * transfer))

    @property
    def latency_s(self) -> float:
        """Seconds of the collective for an empty message."""
        return self.base_s + self.rounds * (self.ranks - 1) * self.hop_s


def small_sample(n: int, parameters: int) -> float:
    """The factor by which a fit to few rows understates the spread of its parameters.

    The residuals of ``n`` rows have only n - ``parameters`` degrees of freedom, and their standard
    deviation is itself uncertain (Student's t at 95 % over the normal's quantile).
    """
    from scipy.stats import norm, t

    free = n - parameters
    if free < 1:
        return UNKNOWN_SD / LEAST_SD
    two_sided = 0.975
    return float(math.sqrt(n / free) * t.ppf(two_sided, free) / norm.ppf(two_sided))


def fit_link(
    n_bytes: Array, seconds: Array, ranks: int, base_s: float, *,
    rounds: float = 2.0, ramped: bool = False,
) -> LinkFit:  # fmt: skip
    """The link fitted to one collective on one group of ``ranks``; arrays [sizes].

    ``ramped``: fit the ramp too; otherwise it is 0.
    """
    hops = rounds * (ranks - 1)
    passes = hops / ranks
    latency_s = max(float(seconds.min()) - base_s, 0.05 * float(seconds.min()))
    start = [math.log(float((passes * n_bytes / seconds).max())), math.log(latency_s / hops)]
    low, high = [start[0] - 3.0, start[1] - 3.0], [start[0] + 1.0, start[1] + 1.0]
    if ramped:
        # The bus rate stays near the best measured one; a much larger one would offset the ramp.
        high[0] = start[0] + math.log(1.25)
        start, low, high = (
            [*p, math.log(r)] for p, r in zip((start, low, high), _RAMP, strict=True)
        )

    def residual(p: Array) -> Array:
        link = LinkFit(ranks, rounds, base_s, *map(math.exp, p))
        return np.asarray(np.log(link.time_s(n_bytes) / seconds))

    x, sd = solve(residual, np.array(start), np.array(low), np.array(high))
    off = -residual(x)
    scatter = robust_sd(off)
    slopes = _slopes(residual, x)
    # The sandwich estimator of ``solve`` gets each parameter's spread from the residuals of the few
    # sizes that determine it (the rate, from three large messages). If these happen to be small,
    # it is too narrow. The scatter of all sizes gives a second estimate. The larger of the two
    # counts, each widened for few rows.
    most = 3.0 * max(scatter, LEAST_SD / 3.0)
    free = max(len(off) - len(x), 1)
    pooled = math.sqrt(float(np.square(np.clip(off, -most, most)).sum()) / free)
    pooled_sd = pooled * np.sqrt(np.diag(np.linalg.pinv(slopes.T @ slopes)))
    few_rows = small_sample(len(seconds), len(x))
    # ``pooled`` is already divided by the degrees of freedom.
    student = few_rows / math.sqrt(len(seconds) / free)
    sds = [*np.maximum(few_rows * sd, student * pooled_sd), 0.0]
    found = LinkFit(ranks, rounds, base_s, *map(math.exp, x))
    return replace(
        found, bus_sd_log=float(sds[0]), hop_sd_log=float(sds[1]), ramp_sd_log=float(sds[2]),
        scatter=scatter,
    )  # fmt: skip


def _slopes(residual: Callable[[Array], Array], x: Array) -> NDArray[np.float64]:
    """The derivatives of ``residual`` at ``x`` by central differences, [rows, parameters]."""
    step = 1e-4
    columns = []
    for i in range(len(x)):
        shift = np.zeros_like(x)
        shift[i] = step
        columns.append((residual(x + shift) - residual(x - shift)) / (2.0 * step))
    return np.stack(columns, axis=1)


def left_out_link_mape(
    n_bytes: Array, seconds: Array, fit: Callable[[Array, Array], LinkFit], least: int
) -> float | None:
    """``left_out_mape`` of a link; None if a fit would have fewer than ``least`` sizes [sizes]."""

    def predict(seen: Rows, unseen: Rows) -> Array:
        return fit(n_bytes[seen], seconds[seen]).time_s(n_bytes[unseen])

    return left_out_mape(n_bytes, seconds, least, predict)


def fitted(
    value: float, sd_log: float, of: Array, unit: str, *,
    scatter: float = 0.0, error: float | None = None, note: str = "",
) -> Fitted:  # fmt: skip
    """A fitted figure, with the range of the sizes or amounts of work ``of`` [rows] in its unit.

    ``scatter``: that of single rows (ln), a share of which remains in a step of many shapes.
    """
    return Fitted(
        value=value, sd_log=max(LEAST_SD, math.hypot(sd_log, SHAPE_SHARE * scatter)), rows=len(of),
        valid=f"{format_si(of.min(), unit)} to {format_si(of.max(), unit)}",
        leave_one_out_mape_frac=error, note=note,
    )  # fmt: skip


def measured_link(
    fit: LinkFit, n_bytes: Array, error: float | None, *, node: str, link_bytes_per_s: float,
    note: str,
) -> MeasuredLink:  # fmt: skip
    """The link of a node for its profile; ``error``: of sizes left out of the fit."""
    hop = fitted(fit.hop_s, fit.hop_sd_log, n_bytes, "B")
    return MeasuredLink(
        node=node,
        ranks=fit.ranks,
        efficiency=fitted(
            fit.bus_bytes_per_s / link_bytes_per_s, fit.bus_sd_log, n_bytes, "B",
            scatter=fit.scatter, error=error, note=note,
        ),
        hop=FittedTime(**hop.model_dump()),
        ramp=fitted(fit.ramp, fit.ramp_sd_log, n_bytes, "B") if fit.ramp else None,
    )  # fmt: skip
