"""How the plan changes with another network, memory, price or deadline, each solved exactly."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from simcore.base.record import dataclass
from simcore.base.units import DAY, HOUR
from simcore.planning.candidates import MORE_MEMORY_BYTES, Candidates
from simcore.planning.constraints import judge
from simcore.planning.goal import Goal


@dataclass(frozen=True, kw_only=True)
class Sensitivity:
    """The best value of the objective after a change; None where no option meets the limits.

    ``same``: whether the best cluster stays the same.
    """

    change: str
    best: float | None
    cluster: str
    same: bool

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {"change": self.change, "best": self.best, "cluster": self.cluster}


def sensitivities(
    c: Candidates, goal: Goal, samples: float | None, best: str, deadline_s: float | None
) -> Iterator[Sensitivity]:
    """The best value of the objective after each change of network, memory, price or deadline.

    ``goal``: with the limits that central estimates have to meet; ``deadline_s``: as it was asked
    for. ``best``: the best cluster of the plan.
    """

    def ask(change: str, other: Candidates, wish: Goal) -> Sensitivity:
        found = judge(other, wish, samples)
        if not found.meets.any():
            return Sensitivity(change=change, best=None, cluster="", same=False)
        at = found.ranked()[0]
        name = str(other.space.clusters[int(other.cluster[at])])
        value = float(found.objective[at])
        return Sensitivity(change=change, best=value, cluster=name, same=name == best)

    yield ask("2x network between nodes", c.with_faster(), goal)
    more = c.capacity_bytes + MORE_MEMORY_BYTES
    yield ask("+16 GB per GPU", replace(c, capacity_bytes=more), goal)
    if np.isfinite(c.usd_per_h).any():
        types = list(dict.fromkeys(g.gpu.name for k in c.space.clusters for g in k.groups))
        for name in types if len(types) > 1 else []:
            halved = _with_price(c, goal, name)
            if halved is not None:
                yield ask(f"{name} at half price", halved, goal)
        if len(types) == 1:
            yield ask("half price", replace(c, usd_per_h=c.usd_per_h / 2.0), goal)
    if goal.deadline_s is not None and deadline_s is not None:
        until_s = 1.5 * deadline_s
        size, unit = (DAY, "d") if until_s >= 2 * DAY else (HOUR, "h")
        later = replace(goal, deadline_s=1.5 * goal.deadline_s, ends=None)
        yield ask(f"deadline {until_s / size:.3g} {unit}", c, later)


def _with_price(c: Candidates, goal: Goal, gpu: str) -> Candidates | None:
    price = goal.prices.of(gpu)
    if price is None:
        return None
    saved = [
        price.usd_per_gpu_h / 2.0 * sum(g.n_gpus for g in k.groups if g.gpu.name == gpu)
        for k in c.space.clusters
    ]
    return replace(c, usd_per_h=c.usd_per_h - np.array(saved)[c.cluster])
