"""Fits a GPU's figures to its benchmarks, from the shipped figures as prior.

Each parameter is the logarithm of a measured rate over the blind profile's, with the spread of that
figure as prior (``bench_model``). Rows move only the figures that they determine; the others stay
as shipped.

# R rows, P parameters
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from simcore.base.arrays import Array, NDArray
from simcore.base.record import dataclass
from simcore.calibrate.bench.memory_bound import OPS
from simcore.calibrate.bench.store import RawRow
from simcore.calibrate.curve_fits import robust_sd
from simcore.calibrate.link_fit import LEAST_SD
from simcore.calibrate.machine.bench_model import CLOCKS, OF_BENCHMARKS, BenchModel, sections
from simcore.calibrate.machine.row_kernels import Call, call_of, host_limits
from simcore.calibrate.ops.model import SMALL_WEIGHT
from simcore.hardware.calibrations import Fitted
from simcore.hardware.cluster import NodeGroup
from simcore.hardware.profile import Profile

#: Assumed scatter of ln(time) between shapes before any row is seen, and the number of rows that
#: this assumption counts as.
SCATTER_SD: Final = 0.15
SCATTER_ROWS: Final = 4.0
#: Errors beyond so many median deviations count as that many in the scatter.
MOST_DEVIATIONS: Final = 3.0
#: Rounds of the fit; each uses the scatter of the one before.
_ROUNDS: Final = 3
#: Standard deviation of a figure over its prior's from which on the rows did not determine it,
#: unless they moved it by more than the prior's.
UNDETERMINED: Final = 0.9
#: Elasticity of a row's time on a figure from which on the row counts as one of the figure's.
_TOUCHED: Final = 0.25
#: Step of derivatives, change that ends the iteration, and the most iterations.
_MOVE, _DONE, _MOST = 1e-3, 1e-4, 20


@dataclass(frozen=True)
class PriorFit:
    """The result of a fit.

    ``figures``: key -> measured rate over blind (of the start: time), for what the rows determine.
    ``kept``: keys that stayed as shipped. ``host_s``: kind of call -> seconds of the host.
    ``limited``: (table or kind of kernel, call) -> rows that the host may have limited. ``turned``:
    further rows with conversions of layouts. Both only bound the device's time from above. ``off``:
    row -> ln(measured / fitted).
    """

    figures: Mapping[str, Fitted]
    kept: tuple[str, ...]
    host_s: Mapping[Call, float]
    limited: Mapping[tuple[str, Call], int]
    turned: int
    off: Mapping[str, float]

    def sections(self) -> dict[str, Any]:
        """The figures as fields of ``MeasuredDevice``."""
        return sections({k: f for k, f in self.figures.items() if k not in OF_BENCHMARKS})


@dataclass(frozen=True, eq=False)
class _Data:
    """Rows as arrays [R]: ln(measured seconds), its timing noise, weight, whether only a bound.

    ``shapes``: the rows whose scatter between shapes is taken as one have the same name.
    """

    log_s: Array
    timing_sd: Array
    weight: Array
    bounds: NDArray[np.bool_]
    shapes: tuple[tuple[str, ...], ...]


def fit_from_prior(rows: Sequence[RawRow], group: NodeGroup, blind: Profile) -> PriorFit:
    """The figures of a group's device, fitted to rows of benchmarks.

    Minimises the soft-L1 loss of ln(fitted / measured), over timing noise and scatter between
    shapes, and of the parameters over their priors.
    """
    model = BenchModel(rows, group, blind)
    host_s, of_host = host_limits(rows, model.at_peak_s())
    turned = model.turned()
    bounds = of_host | turned
    data = _Data(
        log_s=np.log([r.seconds for r in rows]), timing_sd=np.array([r.sd_log for r in rows]),
        weight=np.where(model.large(), 1.0, SMALL_WEIGHT), bounds=bounds,
        shapes=tuple(map(_shapes_of, rows)),
    )  # fmt: skip
    keys = tuple(model.prior)
    assumed = _prior(model, keys)
    prior = _deviations(assumed)
    theta = np.zeros(len(keys))
    scatter = dict.fromkeys(data.shapes, SCATTER_SD)
    off = _Errors(model, keys, data)
    for _ in range(_ROUNDS):
        between = np.array([scatter[s] for s in data.shapes])
        noise = np.hypot(data.timing_sd, between) / data.weight
        theta = _solved(off, noise, assumed, theta)
        here = off(theta)
        scatter = _scatter(data, here)
    slopes = off.slopes(theta)
    # A row far off counts as little as in the loss.
    scaled = slopes / (noise * np.sqrt(np.sqrt(1.0 + np.square(here / noise))))[:, None]
    sd = _deviations(np.concatenate([scaled, assumed]))
    figures, kept = {}, []
    for i, key in enumerate(keys):
        if sd[i] > UNDETERMINED * prior[i] and abs(theta[i]) < prior[i]:
            kept.append(key)
            continue
        figures[key] = Fitted(
            value=math.exp(theta[i]), sd_log=max(LEAST_SD, min(float(sd[i]), float(prior[i]))),
            rows=int(((np.abs(slopes[:, i]) > _TOUCHED) & ~bounds).sum()),
        )  # fmt: skip
    what = [(s[0], call_of(r)) for s, r, x in zip(data.shapes, rows, of_host, strict=True) if x]
    return PriorFit(
        figures, tuple(k for k in kept if k not in OF_BENCHMARKS), host_s, Counter(what),
        int((turned & ~of_host).sum()),
        {r.where: -float(x) for r, x in zip(rows, here, strict=True)},
    )  # fmt: skip


def _shapes_of(row: RawRow) -> tuple[str, ...]:
    """Table, dtype and call of a row; of memory-bound kernels their kind and call."""
    if row.table == "memory_bound":
        return OPS[row.cells["op"]].kind, call_of(row)
    return row.table, row.cells.get("dtype", ""), call_of(row)


def _scatter(data: _Data, off: Array) -> dict[tuple[str, ...], float]:
    """Scatter of ln(time) between shapes: of the rows' errors, with an assumption before."""
    found = {}
    for name in dict.fromkeys(data.shapes):
        mine = np.array([s == name for s in data.shapes]) & ~data.bounds
        errors = np.abs(off[mine]) * data.weight[mine]
        median = robust_sd(np.concatenate([errors, -errors])) if len(errors) else 0.0
        capped = np.minimum(errors, max(MOST_DEVIATIONS * median, LEAST_SD))
        squares = SCATTER_ROWS * SCATTER_SD**2 + float(capped @ capped)
        found[name] = math.sqrt(squares / (SCATTER_ROWS + len(errors)))
    return found


@dataclass(frozen=True, eq=False)
class _Errors:
    """ln(fitted / measured) of the rows as a function of the parameters [P] -> [R].

    A row that only bounds the device's time counts where it is fitted too slow: 0 elsewhere.
    """

    model: BenchModel
    keys: tuple[str, ...]
    data: _Data

    def __call__(self, theta: Array) -> Array:
        seconds = self.model.seconds(dict(zip(self.keys, map(float, theta), strict=True)))
        off = np.log(seconds) - self.data.log_s
        return np.where(self.data.bounds, np.maximum(off, 0.0), off)

    def slopes(self, theta: Array) -> Array:
        """Derivatives along the parameters [R, P]."""
        moves = _MOVE * np.eye(len(theta))
        return np.array([(self(theta + m) - self(theta - m)) / (2.0 * _MOVE) for m in moves]).T


def _prior(model: BenchModel, keys: tuple[str, ...]) -> Array:
    """The prior [P, P]: its product with the parameters is independent, each of deviation one.

    A figure known in bursts is less certain at the clocks of long training, at which its parameter
    is, by as much as the ratio of both clocks is.
    """
    sd = np.maximum(np.array(list(model.prior.values())), LEAST_SD)
    rows = np.eye(len(keys))
    if CLOCKS in keys:
        rows[:, keys.index(CLOCKS)] += [model.burst_log.get(k, 0.0) for k in keys]
    return rows / sd[:, None]


def _deviations(rows: Array) -> Array:
    """Standard deviations of the parameters [P] that rows of deviation one [R, P] tell of."""
    return np.sqrt(np.diag(np.linalg.inv(rows.T @ rows)))


def _solved(off: _Errors, noise: Array, prior: Array, start: Array) -> Array:
    """The parameters [P] with the least loss; ``prior`` [P, P] as in ``_prior``."""
    from scipy.optimize import least_squares

    got = least_squares(
        lambda theta: np.concatenate([off(theta) / noise, prior @ theta]), start, loss="soft_l1",
        diff_step=_MOVE, x_scale=_deviations(prior), xtol=_DONE, ftol=_DONE, max_nfev=_MOST,
    )  # fmt: skip
    return np.asarray(got.x)
