"""Results of many predictions, and of a step's allocations; a plain prediction does not load this.

Each class is a result of the engine or of ``planning`` with the call that made it and the methods
of ``Shown``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from simcore.answer import result as engine
from simcore.answer import scaling as engine_scaling
from simcore.api.shown import Asked, Shown, plain_as
from simcore.base.errors import UsageError
from simcore.memory import over_time as engine_memory
from simcore.planning import compare as plan_compare
from simcore.planning import fleet as plan_fleet
from simcore.planning import goodput as plan_goodput
from simcore.planning import planner
from simcore.planning import sweep as plan_sweep


@dataclass(frozen=True, eq=False, repr=False)
class MemoryTimeline(Shown, engine_memory.MemoryTimeline):
    """Memory of the fullest GPU over one step."""

    plots: ClassVar[tuple[str, ...]] = ("memory-over-step",)
    asked: Asked | None = field(default=None, repr=False, compare=False)

    def replace(self, **changes: Any) -> MemoryTimeline:
        """The memory over a step of the same job with some options changed."""
        changed: MemoryTimeline = self._again(changes)
        return changed


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Sweep(Shown, plan_sweep.SweepResult):
    """Every combination of a space, ranked, with all of its points where ``keep`` was set."""

    plots: ClassVar[tuple[str, ...]] = ("pareto",)
    asked: Asked | None = field(default=None, repr=False, compare=False)

    def replace(self, **changes: Any) -> Sweep:
        """The same sweep with some arguments changed."""
        changed: Sweep = self._again(changes)
        return changed


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Scaling(Shown, engine_scaling.Scaling):
    """One job on clusters of increasing size."""

    plots: ClassVar[tuple[str, ...]] = ("scaling", "time", "memory")
    asked: Asked | None = field(default=None, repr=False, compare=False)

    def replace(self, **changes: Any) -> Scaling:
        """The same scaling curve with some arguments changed."""
        changed: Scaling = self._again(changes)
        return changed

    def _plotted(self, kind: str) -> Any:
        return list(self.predictions) if kind in ("time", "memory") else self


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Comparison(Shown, plan_compare.Comparison):
    """Several options for one job side by side, with cost and energy of a million samples."""

    plots: ClassVar[tuple[str, ...]] = ("time", "memory")
    asked: Asked | None = field(default=None, repr=False, compare=False)

    def replace(self, **changes: Any) -> Comparison:
        """The same comparison with some arguments of every prediction changed."""
        if self.asked is not None:
            changed: Comparison = self._again(changes)
            return changed
        made = []
        for p in self.predictions:
            if not isinstance(p, Shown):
                raise UsageError("this comparison does not know the calls that made it")
            made.append(p.replace(**changes))
        return side_by_side(made)

    def _plotted(self, kind: str) -> Any:
        del kind
        return list(self.predictions)


def side_by_side(predictions: Sequence[engine.Prediction]) -> Comparison:
    """A comparison of predictions of any jobs, each named by the options in which they differ."""
    from simcore.hardware.prices import price_book
    from simcore.report.names import told_apart

    words = [" ".join(names[1:]) for names in told_apart(predictions)]
    return plain_as(Comparison, plan_compare.side_by_side(predictions, words, price_book()))


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Plan(Shown, planner.Plan):
    """The best ways to do a training run under limits."""

    plots: ClassVar[tuple[str, ...]] = ("trade-off",)
    asked: Asked | None = field(default=None, repr=False, compare=False)

    def replace(self, **changes: Any) -> Plan:
        """The plan of the same run with some arguments changed."""
        changed: Plan = self._again(changes)
        return changed


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Goodput(Shown, plan_goodput.Goodput):
    """The share of a job's time that remains useful with failures, checkpoints and restarts."""

    plots: ClassVar[tuple[str, ...]] = ("goodput",)
    asked: Asked | None = field(default=None, repr=False, compare=False)

    def replace(self, **changes: Any) -> Goodput:
        """The goodput of the same job with some arguments changed."""
        changed: Goodput = self._again(changes)
        return changed


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Fleet(Shown, plan_fleet.Fleet):
    """Many jobs in the queue of one cluster: their waiting times and the cluster's utilisation."""

    plots: ClassVar[tuple[str, ...]] = ()
    asked: Asked | None = field(default=None, repr=False, compare=False)

    def replace(self, **changes: Any) -> Fleet:
        """The same jobs with some arguments changed."""
        changed: Fleet = self._again(changes)
        return changed
