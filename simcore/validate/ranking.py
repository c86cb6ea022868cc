"""Whether configurations of one job come out in the measured order."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import asdict, dataclass

import numpy as np

from simcore.base.arrays import NDArray

Array = NDArray[np.float64]

#: Rows that a family has at least.
FAMILY_ROWS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class FamilyRank:
    """Spearman's correlation of predicted and measured step times within one family."""

    model: str
    cluster: str
    rows: int
    correlation: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RankScore:
    """All families of at least ``FAMILY_ROWS`` rows of one model on one cluster, worst first."""

    families: tuple[FamilyRank, ...]

    @property
    def rows(self) -> int:
        """Rows in families."""
        return sum(f.rows for f in self.families)

    @property
    def weighted_mean(self) -> float | None:
        """Mean over families, each weighing its rows."""
        if not self.families:
            return None
        return sum(f.rows * f.correlation for f in self.families) / self.rows

    @property
    def median(self) -> float | None:
        """Median over families."""
        return float(np.median([f.correlation for f in self.families])) if self.families else None

    def to_dict(self) -> dict[str, object]:
        """As the JSON has it."""
        return {
            "families": len(self.families),
            "rows": self.rows,
            "weighted_mean": self.weighted_mean,
            "median": self.median,
            "per_family": [asdict(f) for f in self.families],
        }


def ranks(values: Array) -> Array:
    """Ranks from 1 [n]; equal values share the mean of theirs."""
    _, group, size = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(size)
    mean: Array = last - (size - 1) / 2.0
    return mean[group]


def spearman(a: Array, b: Array) -> float | None:
    """Correlation of the ranks of two series [n]; None where one of them does not vary."""
    first, second = ranks(a), ranks(b)
    if np.ptp(first) == 0.0 or np.ptp(second) == 0.0:
        return None
    return float(np.corrcoef(first, second)[0, 1])


def rank_score(times: Iterable[tuple[str, str, float, float]]) -> RankScore:
    """Score of (model, cluster, predicted, measured) rows.

    Families of which one side does not vary have no order and are left out.
    """
    found: dict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
    for model, cluster, predicted, measured in times:
        found[model, cluster].append((predicted, measured))
    families = []
    for (model, cluster), pairs in found.items():
        if len(pairs) < FAMILY_ROWS:
            continue
        predicted, measured = np.array(pairs).T
        correlation = spearman(predicted, measured)
        if correlation is not None:
            families.append(
                FamilyRank(model=model, cluster=cluster, rows=len(pairs), correlation=correlation)
            )
    return RankScore(families=tuple(sorted(families, key=lambda f: (f.correlation, f.model))))
