"""Limits of a plan as arrays: which candidates meet them, and which to relax if none does."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np

from simcore.base.arrays import Array, NDArray
from simcore.base.record import dataclass
from simcore.planning.candidates import Candidates, Runs, runs_of
from simcore.planning.goal import Goal
from simcore.planning.ranking import front


@dataclass(frozen=True)
class Constraint:
    """A limit: ``value`` [C] must not exceed ``limit``; an unknown value (NaN) does not pass.

    ``kind``: how to print its figures: time, money, power, share or count.
    """

    name: str
    kind: str
    limit: float
    value: Array

    @property
    def passes(self) -> NDArray[np.bool_]:
        """Which candidates meet the limit [C]."""
        with np.errstate(invalid="ignore"):
            return self.value <= self.limit


@dataclass(frozen=True, kw_only=True)
class Relaxation:
    """Changes of limits with which a candidate passes, all other limits unchanged.

    ``changes``: (name, kind, present limit, limit needed) of each.
    """

    changes: tuple[tuple[str, str, float, float], ...]

    def to_dict(self) -> list[dict[str, Any]]:
        """Plain data."""
        return [
            {"constraint": n, "limit": limit, "needed": needed}
            for n, _, limit, needed in self.changes
        ]


def constraints_of(c: Candidates, runs: Runs, goal: Goal) -> list[Constraint]:
    """Every limit of a goal for the candidates; memory is always the first."""
    found = [
        Constraint(
            "memory of a GPU", "share", 1.0 - goal.margin_frac, c.needed_bytes / c.capacity_bytes
        )
    ]
    if goal.deadline_s is not None:
        found.append(Constraint("deadline", "time", goal.deadline_s, runs.time_s))
    if goal.budget_usd is not None:
        found.append(Constraint("budget", "money", goal.budget_usd, runs.cost_usd))
    if goal.power_w is not None:
        found.append(Constraint("power", "power", goal.power_w, c.tdp_w))
    if goal.max_gpus is not None:
        found.append(Constraint("max-gpus", "count", float(goal.max_gpus), c.n_gpus))
    for name, count in goal.available:
        used = [
            float(sum(g.n_gpus for g in cluster.groups if g.gpu.name == name))
            for cluster in c.space.clusters
        ]
        found.append(
            Constraint(f"available {name}", "count", float(count), np.array(used)[c.cluster])
        )
    return found


def passing(constraints: Sequence[Constraint], n: int) -> NDArray[np.bool_]:
    """Which of ``n`` candidates meet all limits [n]."""
    mask = np.ones(n, dtype=bool)
    for one in constraints:
        mask &= one.passes
    return mask


@dataclass(frozen=True)
class Judged:
    """Candidates with the run on each, the limits and the objective.

    objective  its value, arrays [C]; infinite or NaN where it is unknown
    meets      which candidates meet all limits and have a value [C]
    """

    c: Candidates
    runs: Runs
    limits: list[Constraint]
    objective: Array
    meets: NDArray[np.bool_]

    @property
    def value(self) -> Array:
        """The objective [C]; infinite where a limit is violated."""
        return np.where(self.meets, self.objective, np.inf)

    def ranked(self) -> list[int]:
        """Indices of the candidates that meet all limits, best first.

        Ties are ordered by cost, time, GPUs, memory, then by index.
        """
        index = np.flatnonzero(self.meets)
        cost = np.nan_to_num(self.runs.cost_usd, nan=np.inf)
        keys = (self.c.memory_bytes, self.c.n_gpus, self.runs.time_s, cost, self.objective)
        return index[np.lexsort([k[index] for k in keys])].tolist()

    def front(self) -> list[int]:
        """Indices of the Pareto front of time and cost (of time and GPUs without prices), fastest
        first.
        """
        index = np.flatnonzero(self.meets)
        cost, time = self.runs.cost_usd[index], self.runs.time_s[index]
        other = cost if np.isfinite(cost).all() else self.c.n_gpus[index]
        kept = np.flatnonzero(front(time, -other, index, least=-np.inf))
        return index[kept[np.argsort(time[kept])]].tolist()


def judge(c: Candidates, goal: Goal, samples: float | None) -> Judged:
    """The candidates judged by a goal; ``samples``: length of the run, unless it is in steps."""
    runs = runs_of(c, goal, samples)
    limits = constraints_of(c, runs, goal)
    objective = runs.of(goal.objective, c)
    return Judged(c, runs, limits, objective, passing(limits, len(c)) & np.isfinite(objective))


def relaxations(constraints: Sequence[Constraint], n: int) -> list[Relaxation]:
    """The smallest changes of single limits with which a candidate passes, best first.

    Where no change of one limit suffices, changes of two, then of three; of several limits together
    the change has the smallest sum of relative excesses. At most four results. Changes that exceed
    the whole memory of a GPU are only returned, one of them, where nothing else helps.
    """
    for together in (1, 2, 3):
        found = []
        for chosen in combinations(constraints, together):
            others = passing([o for o in constraints if o not in chosen], n)
            known = others.copy()
            for one in chosen:
                known &= np.isfinite(one.value)
            if not known.any():
                continue
            excess = np.zeros(n)
            for one in chosen:
                excess += np.maximum(one.value / one.limit - 1.0, 0.0)
            at = int(np.where(known, excess, np.inf).argmin())
            found.append((
                float(excess[at]),
                Relaxation(changes=tuple(
                    (o.name, o.kind, o.limit, float(o.value[at])) for o in chosen
                    if o.value[at] > o.limit
                )),
            ))  # fmt: skip
        # Memory is no limit that a caller can relax beyond the GPU's capacity.
        useful = [r for _, r in sorted(found, key=lambda p: p[0]) if not _more_memory(r)]
        if useful:
            return useful[:4]
    return [r for _, r in sorted(found, key=lambda p: p[0])][:1] if found else []


def _more_memory(r: Relaxation) -> bool:
    """Whether it needs more than the whole memory of a GPU."""
    return any(kind == "share" and needed > 1.0 for _, kind, _, needed in r.changes)
