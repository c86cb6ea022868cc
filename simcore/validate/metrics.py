"""Error measures of a set of predictions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Literal

import numpy as np

Quantity = Literal["step_time", "speedup", "peak_memory", "resident_memory"]
QUANTITIES: tuple[Quantity, ...] = ("step_time", "speedup", "peak_memory", "resident_memory")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """One prediction and its measurement (SI); ``low`` and ``high`` bound the 80 % interval."""

    id: str
    quantity: Quantity
    predicted: float
    low: float
    high: float
    measured: float
    flag: str = ""

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
        return {**asdict(self), "error_frac": self.error_frac, "covered": self.covered}


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """Summary of errors: mean and median of |error|, median signed error, 90th percentile."""

    n: int
    mape_frac: float | None
    median_abs_frac: float | None
    median_bias_frac: float | None
    p90_abs_frac: float | None
    coverage80_frac: float | None

    def to_dict(self) -> dict[str, float | int | None]:
        """The dictionary for JSON."""
        return asdict(self)


def score(rows: Sequence[Scored]) -> Score:
    """The summary of errors; every figure is None where there are no rows."""
    if not rows:
        return Score(
            n=0, mape_frac=None, median_abs_frac=None, median_bias_frac=None, p90_abs_frac=None,
            coverage80_frac=None,
        )  # fmt: skip
    errors = np.array([r.error_frac for r in rows])
    size = np.abs(errors)
    return Score(
        n=len(rows),
        mape_frac=float(size.mean()),
        median_abs_frac=float(np.median(size)),
        median_bias_frac=float(np.median(errors)),
        p90_abs_frac=float(np.quantile(size, 0.9)),
        coverage80_frac=float(np.mean([r.covered for r in rows])),
    )
