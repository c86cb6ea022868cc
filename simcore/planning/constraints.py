"""Limits of a plan as arrays: what passes, and which limit to relax by how much if nothing does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from simcore.base.arrays import NDArray
from simcore.planning.candidates import Candidates, Runs
from simcore.planning.goal import Goal

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Constraint:
    """``value`` [C] must not exceed ``limit``; NaN (nobody knows) does not pass.

    ``kind`` says how figures are written: time, money, power, share, count.
    """

    name: str
    kind: str
    limit: float
    value: Array

    @property
    def passes(self) -> NDArray[np.bool_]:
        """Which candidates meet it."""
        with np.errstate(invalid="ignore"):
            return self.value <= self.limit


@dataclass(frozen=True, slots=True, kw_only=True)
class Relaxation:
    """Limits that, moved to ``needed``, let something through, all others kept."""

    changes: tuple[tuple[str, str, float, float], ...]  # name, kind, limit, needed

    def to_dict(self) -> list[dict[str, Any]]:
        """Plain values."""
        return [
            {"constraint": n, "limit": limit, "needed": needed}
            for n, _, limit, needed in self.changes
        ]


def constraints_of(c: Candidates, runs: Runs, goal: Goal) -> list[Constraint]:
    """Every limit of a goal over the candidates; memory always is one."""
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
    """Which of ``n`` candidates meet all limits."""
    mask = np.ones(n, dtype=bool)
    for one in constraints:
        mask &= one.passes
    return mask


def ranked(c: Candidates, runs: Runs, objective: Array, meets: NDArray[np.bool_]) -> list[int]:
    """Feasible candidates, best first; ties by cost, time, GPUs, memory, then as enumerated."""
    index = np.flatnonzero(meets)
    cost = np.nan_to_num(runs.cost_usd, nan=np.inf)
    keys = (c.memory_bytes, c.n_gpus, runs.time_s, cost, objective)
    ranked: list[int] = index[np.lexsort([k[index] for k in keys])].tolist()
    return ranked


def relaxations(constraints: Sequence[Constraint], n: int) -> list[Relaxation]:
    """The least change of one limit that lets something through; of two where one is not enough.

    Of two, the change with the smallest sum of relative excesses. Empty where not even that helps.
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
        # What needs a GPU that cannot hold the model is no relaxation worth a word.
        useful = [r for _, r in sorted(found, key=lambda p: p[0]) if not _more_memory(r)]
        if useful:
            return useful[:4]
    return [r for _, r in sorted(found, key=lambda p: p[0])][:1] if found else []


def _more_memory(r: Relaxation) -> bool:
    """Whether it asks for more than the whole memory of a GPU."""
    return any(kind == "share" and needed > 1.0 for _, kind, _, needed in r.changes)
