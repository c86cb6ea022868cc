"""Results of many predictions, and of one step's every allocation; a prediction loads none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from simcore.api.shown import Asked, Shown, plain_as
from simcore.base.errors import UsageError
from simcore.engine import memory_timeline as engine_memory
from simcore.engine import result as engine
from simcore.engine import scaling as engine_scaling
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
        """The memory of the same job over a step with something changed."""
        changed: MemoryTimeline = self._again(changes)
        return changed


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Sweep(Shown, plan_sweep.SweepResult):
    """Every combination of a space, ranked; its points where they were kept."""

    plots: ClassVar[tuple[str, ...]] = ("pareto",)
    asked: Asked | None = field(default=None, repr=False, compare=False)

    def replace(self, **changes: Any) -> Sweep:
        """The same sweep with something changed."""
        changed: Sweep = self._again(changes)
        return changed


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Scaling(Shown, engine_scaling.Scaling):
    """One job on more and more GPUs."""

    plots: ClassVar[tuple[str, ...]] = ("scaling", "time", "memory")
    asked: Asked | None = field(default=None, repr=False, compare=False)

    def replace(self, **changes: Any) -> Scaling:
        """The same curve with something changed."""
        changed: Scaling = self._again(changes)
        return changed

    def _plotted(self, kind: str) -> Any:
        return list(self.predictions) if kind in ("time", "memory") else self


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Comparison(Shown, plan_compare.Comparison):
    """Options for one job side by side, with cost and energy of a million samples."""

    plots: ClassVar[tuple[str, ...]] = ("time", "memory")
    asked: Asked | None = field(default=None, repr=False, compare=False)

    def replace(self, **changes: Any) -> Comparison:
        """Every option again with something changed."""
        if self.asked is not None:
            changed: Comparison = self._again(changes)
            return changed
        made = []
        for p in self.predictions:
            if not isinstance(p, Shown):
                raise UsageError("this comparison does not know how it was asked")
            made.append(p.replace(**changes))
        return side_by_side(made)

    def _plotted(self, kind: str) -> Any:
        del kind
        return list(self.predictions)


def side_by_side(predictions: Sequence[engine.Prediction]) -> Comparison:
    """Predictions of any jobs as a comparison, named by what tells them apart."""
    from simcore.hardware.prices import price_book
    from simcore.report.names import told_apart

    words = [" ".join(told[1:]) for told in told_apart(predictions)]
    return plain_as(Comparison, plan_compare.side_by_side(predictions, words, price_book()))


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Plan(Shown, planner.Plan):
    """The best ways to do a training run under limits."""

    plots: ClassVar[tuple[str, ...]] = ("trade-off",)
    asked: Asked | None = field(default=None, repr=False, compare=False)

    def replace(self, **changes: Any) -> Plan:
        """The same run planned again with something changed."""
        changed: Plan = self._again(changes)
        return changed


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Goodput(Shown, plan_goodput.Goodput):
    """What failures, checkpoints and restarts leave of a job's time."""

    plots: ClassVar[tuple[str, ...]] = ("goodput",)
    asked: Asked | None = field(default=None, repr=False, compare=False)

    def replace(self, **changes: Any) -> Goodput:
        """The same job's time with something changed."""
        changed: Goodput = self._again(changes)
        return changed


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Fleet(Shown, plan_fleet.Fleet):
    """Many jobs on one cluster: their waiting, and how much of it they use."""

    plots: ClassVar[tuple[str, ...]] = ()
    asked: Asked | None = field(default=None, repr=False, compare=False)

    def replace(self, **changes: Any) -> Fleet:
        """The same jobs with something changed."""
        changed: Fleet = self._again(changes)
        return changed
