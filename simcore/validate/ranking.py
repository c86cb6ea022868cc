"""Whether configurations of one job are predicted in the measured order.

Repeats of one configuration have no order to predict, since they differ only by the scatter of
measurements. So the order is scored for rows, and for configurations with repeats joined. For
comparison there are the score that an exact prediction would reach with the sources' scatter, the
score without doubted rows, and that of pairs whose times differ by more than scatter.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import asdict
from functools import cached_property
from statistics import median

import numpy as np

from simcore.base.arrays import NDArray
from simcore.base.record import dataclass
from simcore.validate.case import Case
from simcore.validate.metrics import Scored

Array = NDArray[np.float64]

#: Smallest number of rows of a family.
FAMILY_ROWS = 5
#: Tables whose column ``family`` groups configurations of one job; in others it is a kind of model.
_OWN_FAMILIES = ("llm",)
#: Number of draws for what an exact prediction would reach, and their seed.
_DRAWS, _SEED = 40, 20261121
#: Smallest relative difference of a pair's measured times: repeats of one configuration scatter by
#: some 3 to 5 %.
APART_FRACS = (0.0, 0.03, 0.05)


@dataclass(frozen=True, kw_only=True)
class Timed:
    """A predicted and measured step; rows of equal ``configuration`` are repeats.

    ``family``: the table's name for configurations that belong together, if it has one.
    ``doubted``: the row is flagged.
    """

    model: str
    cluster: str
    configuration: Hashable
    predicted: float
    measured: float
    family: str = ""
    doubted: bool = False


@dataclass(frozen=True, kw_only=True)
class FamilyRank:
    """Spearman's correlation of predicted and measured step times within one family."""

    model: str
    cluster: str
    rows: int
    correlation: float


@dataclass(frozen=True, kw_only=True)
class RankScore:
    """All families (one model on one cluster) of at least ``FAMILY_ROWS`` rows, worst first."""

    families: tuple[FamilyRank, ...]

    @property
    def rows(self) -> int:
        """Number of rows in families."""
        return sum(f.rows for f in self.families)

    @property
    def weighted_mean(self) -> float | None:
        """Mean over families, weighted by their rows."""
        if not self.families:
            return None
        return sum(f.rows * f.correlation for f in self.families) / self.rows

    @property
    def median(self) -> float | None:
        """Median over families."""
        return median(f.correlation for f in self.families) if self.families else None

    def to_dict(self) -> dict[str, object]:
        """The dictionary for JSON."""
        return {
            "families": len(self.families),
            "rows": self.rows,
            "weighted_mean": self.weighted_mean,
            "median": self.median,
            "per_family": [asdict(f) for f in self.families],
        }


def ranks(values: Array) -> Array:
    """Ranks from 1 along the last axis [..., n]; equal values share their mean rank."""
    order, places = np.argsort(values, axis=-1), np.arange(values.shape[-1])
    risen = np.diff(np.take_along_axis(values, order, axis=-1)) > 0.0
    some = np.ones((*values.shape[:-1], 1), dtype=bool)  # the least and the largest value
    first = np.maximum.accumulate(np.where(np.append(some, risen, axis=-1), places, 0), axis=-1)
    ends = np.where(np.append(risen, some, axis=-1), places, len(places))[..., ::-1]
    last = np.minimum.accumulate(ends, axis=-1)[..., ::-1]
    found = np.empty(values.shape)
    np.put_along_axis(found, order, (first + last) / 2.0 + 1.0, axis=-1)
    return found


def spearman(a: Array, b: Array) -> Array:
    """Correlation of the ranks of series [..., n] each; NaN where one of them is constant."""
    first, second = ranks(np.stack(np.broadcast_arrays(a, b))) - (a.shape[-1] + 1) / 2.0
    squares = np.square(first).sum(axis=-1) * np.square(second).sum(axis=-1)
    return (first * second).sum(axis=-1) / np.sqrt(np.where(squares, squares, np.nan))


def rank_score(times: Iterable[tuple[str, str, float, float]]) -> RankScore:
    """Score of (model, cluster, predicted, measured) rows.

    Families with constant predicted or measured times have no order and are left out.
    """
    found: dict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
    for model, cluster, predicted, measured in times:
        found[model, cluster].append((predicted, measured))
    families = []
    for (model, cluster), pairs in found.items():
        if len(pairs) < FAMILY_ROWS:
            continue
        correlation = float(spearman(*np.array(pairs).T))
        if not math.isnan(correlation):
            families.append(
                FamilyRank(model=model, cluster=cluster, rows=len(pairs), correlation=correlation)
            )
    return RankScore(families=tuple(sorted(families, key=lambda f: (f.correlation, f.model))))


@dataclass(frozen=True, kw_only=True)
class Repeatable:
    """The score that an exact prediction of configurations would reach, averaged over draws.

    ``rows``: rows that repeat another one; ``scatter_sd_log``: of ln(seconds) of one measurement.
    """

    rows: int
    scatter_sd_log: float
    weighted_mean: float
    median: float


@dataclass(frozen=True, kw_only=True)
class Pairs:
    """Pairs of one model and cluster whose measured times differ by at least ``apart_frac``.

    ``right_frac``: share predicted in the measured order; equal predictions count half.
    """

    apart_frac: float
    n: int
    right_frac: float | None


@dataclass(frozen=True)
class Order:
    """How well the measured order of rows is predicted."""

    times: tuple[Timed, ...]

    @cached_property
    def of_rows(self) -> RankScore:
        """Score with every row on its own."""
        return rank_score((t.model, t.cluster, t.predicted, t.measured) for t in self.times)

    @cached_property
    def of_configurations(self) -> RankScore:
        """Score with the median of each configuration's rows."""
        return rank_score(
            (of[0].model, of[0].cluster, median([t.predicted for t in of]),
             median([t.measured for t in of]))
            for of in self._repeats
        )  # fmt: skip

    @cached_property
    def of_table_families(self) -> RankScore:
        """Score within families as the table names them, which may span cluster sizes."""
        return rank_score((t.family, "", t.predicted, t.measured) for t in self.times if t.family)

    @cached_property
    def undoubted(self) -> RankScore:
        """Score of the rows that are not flagged."""
        return Order(tuple(t for t in self.times if not t.doubted)).of_rows

    @cached_property
    def of_pairs(self) -> tuple[Pairs, ...]:
        """Pairs of rows within families, for each of ``APART_FRACS``."""
        found: dict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
        for t in self.times:
            found[t.model, t.cluster].append((t.predicted, t.measured))
        families = [np.array(rows) for rows in found.values() if len(rows) >= FAMILY_ROWS]
        both = [_by_twos(family) for family in families]
        if not both:
            return tuple(Pairs(apart_frac=a, n=0, right_frac=None) for a in APART_FRACS)
        apart, right = np.concatenate(both, axis=1)
        return tuple(_pairs(apart, right, least) for least in APART_FRACS)

    @cached_property
    def repeatable(self) -> Repeatable | None:
        """The best score with this scatter; None without repeats, or without an order."""
        off = np.concatenate([_scatter(of) for of in self._repeats] or [np.zeros(0)])
        if not len(off) or not self.of_configurations.families:
            return None
        rows, correlations = self._as_measured_again(off)
        return Repeatable(
            rows=len(off),
            scatter_sd_log=float(np.sqrt(np.mean(np.square(off)))),
            weighted_mean=float(np.mean(rows @ correlations) / rows.sum()),
            median=float(np.mean([median(of_draw) for of_draw in correlations.T.tolist()])),
        )

    @cached_property
    def _repeats(self) -> list[list[Timed]]:
        found: dict[Hashable, list[Timed]] = defaultdict(list)
        for t in self.times:
            found[t.model, t.cluster, t.configuration].append(t)
        return list(found.values())

    def _as_measured_again(self, off: Array) -> tuple[Array, Array]:
        """Rows of each family [F], and the rank correlation of its measured medians with themselves
        under additional scatter [F, draws].
        """
        sizes = np.array([len(of) for of in self._repeats])
        drawn = np.random.default_rng(_SEED).choice(off, (_DRAWS, sizes.sum()))
        means = np.add.reduceat(drawn, np.cumsum(sizes) - sizes, axis=1) / sizes  # [draw, repeats]
        medians = np.array([median([t.measured for t in of]) for of in self._repeats])
        again = medians * np.exp(means)
        members: dict[tuple[str, str], list[int]] = defaultdict(list)
        for place, of in enumerate(self._repeats):
            members[of[0].model, of[0].cluster].append(place)
        families = [of for of in members.values() if len(of) >= FAMILY_ROWS]
        found = np.array([spearman(again[:, of], medians[of]) for of in families])
        ordered = ~np.isnan(found).any(axis=1)
        return np.array([len(of) for of in families])[ordered], found[ordered]

    def to_dict(self) -> dict[str, object]:
        """The dictionary for JSON."""
        return {
            **self.of_rows.to_dict(),
            "configurations": self.of_configurations.to_dict(),
            "table_families": self.of_table_families.to_dict(),
            "without_flagged": self.undoubted.to_dict(),
            "pairs": [asdict(p) for p in self.of_pairs],
            "repeatable": None if self.repeatable is None else asdict(self.repeatable),
        }


def order_of(scored: Iterable[tuple[Case, Scored]]) -> Order:
    """The step times among the scored rows, for comparing their predicted and measured order."""
    return Order(
        tuple(
            Timed(model=case.model_name, cluster=_cluster(case), configuration=case.configuration,
                  predicted=s.predicted, measured=s.measured,
                  family=case.cell("family") if case.table in _OWN_FAMILIES else "",
                  doubted=bool(s.flag))
            for case, s in scored
            if s.quantity == "step_time"
        )
    )  # fmt: skip


def _by_twos(family: Array) -> Array:
    """Pairs of rows [2, p]: relative difference of measurements, and whether the order is right.

    ``family`` [n, 2]: (predicted, measured).
    """
    predicted, measured = family.T
    first, second = np.triu_indices(len(family), 1)
    less, more = (f(measured[first], measured[second]) for f in (np.minimum, np.maximum))
    signs = np.sign(predicted[first] - predicted[second])
    right = (1.0 + signs * np.sign(measured[first] - measured[second])) / 2.0
    return np.stack([more / less - 1.0, right])


def _pairs(apart: Array, right: Array, least: float) -> Pairs:
    """The pairs that differ by at least ``least``; equal measurements have no order."""
    counted = (apart > 0.0) & (apart >= least)
    n = int(counted.sum())
    share = float(right[counted].mean()) if n else None
    return Pairs(apart_frac=least, n=n, right_frac=share)


def _cluster(case: Case) -> str:
    """The row's GPUs, and the state of the cluster if the table gives one."""
    return f"{case.gpus} {case.cell('cluster_state')}".rstrip()


def _scatter(of: Sequence[Timed]) -> Array:
    """ln(measured) of repeats minus their mean, scaled to the width of one measurement.

    Empty for a single row.
    """
    n = len(of)
    if n < 2:
        return np.zeros(0)
    logs = np.log([t.measured for t in of])
    return (logs - logs.mean()) * math.sqrt(n / (n - 1.0))
