"""Error measures of a set of predictions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, fields
from statistics import median
from typing import Any, Literal

import numpy as np

from simcore.base.arrays import NDArray
from simcore.base.record import dataclass

Quantity = Literal["step_time", "speedup", "peak_memory", "resident_memory"]
_MEASURES = ("mape_frac", "median_abs_frac", "median_bias_frac", "p90_abs_frac")
QUANTITIES: tuple[Quantity, ...] = ("step_time", "speedup", "peak_memory", "resident_memory")


@dataclass(frozen=True, kw_only=True)
class Scored:
    """One prediction and its measurement (SI); ``low`` and ``high`` bound the 80 % interval.

    ``counts``: what a peak of memory counts (allocated, reserved, device ...).
    """

    id: str
    quantity: Quantity
    predicted: float
    low: float
    high: float
    measured: float
    flag: str = ""
    counts: str = ""

    @property
    def error_frac(self) -> float:
        """(predicted - measured) / measured."""
        return self.predicted / self.measured - 1.0

    @property
    def covered(self) -> bool:
        """Whether the measurement lies inside the interval."""
        return self.low <= self.measured <= self.high

    def to_dict(self) -> dict[str, object]:
        """The dictionary for JSON."""
        own = {f.name: getattr(self, f.name) for f in fields(self)}  # asdict would copy each value
        return {**own, "error_frac": self.error_frac, "covered": self.covered}


@dataclass(frozen=True, kw_only=True)
class Score:
    """Summary of errors: mean and median of |error|, median signed error, 90th percentile.

    ``width80_ratio``: median of the 80 % interval's upper bound over its lower one.
    """

    n: int
    mape_frac: float | None
    median_abs_frac: float | None
    median_bias_frac: float | None
    p90_abs_frac: float | None
    coverage80_frac: float | None
    width80_ratio: float | None

    def to_dict(self) -> dict[str, float | int | None]:
        """The dictionary for JSON."""
        return asdict(self)


def summary(errors: NDArray[np.float64]) -> dict[str, Any]:
    """Measures of errors (predicted / measured - 1) by name; None where there are no errors."""
    if not len(errors):
        return {"n": 0, **dict.fromkeys(_MEASURES)}
    size = np.abs(errors)
    # np.median and np.quantile would import masked arrays
    most = np.interp(0.9 * (len(size) - 1), np.arange(len(size)), np.sort(size))
    values = size.mean(), median(size), median(errors), most
    return {"n": len(errors), **dict(zip(_MEASURES, map(float, values), strict=True))}


def score(rows: Sequence[Scored]) -> Score:
    """The summary of comparisons; every figure is None where there are no rows."""
    inside = float(np.mean([r.covered for r in rows])) if rows else None
    ratios = [r.high / r.low for r in rows if r.low > 0.0]
    width = median(ratios) if ratios else None
    errors = summary(np.array([r.error_frac for r in rows]))
    return Score(**errors, coverage80_frac=inside, width80_ratio=width)


def scores_by(
    rows: Iterable[tuple[str, Scored]], quantities: Sequence[Quantity] = QUANTITIES
) -> dict[str, dict[str, Score]]:
    """The scores of each quantity by group, in the order of the groups' names."""
    found: dict[str, list[Scored]] = defaultdict(list)
    for group, row in rows:
        found[group].append(row)
    return {
        group or "(blank)": {q: score([r for r in mine if r.quantity == q]) for q in quantities}
        for group, mine in sorted(found.items())
    }
