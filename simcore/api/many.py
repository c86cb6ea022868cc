"""Results of many predictions, and of a step's allocations; a plain prediction does not load this.

Each class is a result of the engine or of ``planning`` with the call that made it and the methods
of ``Result``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from simcore.answer import result as engine
from simcore.answer import scaling as engine_scaling
from simcore.api.result import Result
from simcore.base.errors import UsageError
from simcore.base.record import dataclass
from simcore.hardware.prices import price_book
from simcore.memory import over_time as engine_memory
from simcore.planning import compare as plan_compare
from simcore.planning import fleet as plan_fleet
from simcore.planning import goodput as plan_goodput
from simcore.planning import planner
from simcore.planning import sweep as plan_sweep


@dataclass(frozen=True, eq=False, repr=False)
class MemoryTimeline(Result, engine_memory.MemoryTimeline):
    """Memory of the fullest GPU over one step."""

    plots: ClassVar[tuple[str, ...]] = ("memory-over-step",)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Sweep(Result, plan_sweep.SweepResult):
    """Every combination of a space, ranked, with all of its points where ``keep`` was set."""

    plots: ClassVar[tuple[str, ...]] = ("pareto",)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Scaling(Result, engine_scaling.Scaling):
    """One job on clusters of increasing size."""

    plots: ClassVar[tuple[str, ...]] = ("scaling", "time", "memory")

    def _plotted(self, kind: str) -> Any:
        return list(self.predictions) if kind in ("time", "memory") else self


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Comparison(Result, plan_compare.Comparison):
    """Several options for one job side by side, with cost and energy of a million samples."""

    plots: ClassVar[tuple[str, ...]] = ("time", "memory")

    def replace(self, **changes: Any) -> Comparison:
        """The same comparison with some arguments of every prediction changed."""
        if self.call is not None:
            return self.call.changed(changes)
        if not all(isinstance(p, Result) for p in self.predictions):
            raise UsageError("this comparison does not know the calls that made it")
        return side_by_side([p.replace(**changes) for p in self.predictions])  # type: ignore[attr-defined]

    def _plotted(self, kind: str) -> Any:
        del kind
        return list(self.predictions)


def side_by_side(predictions: Sequence[engine.Prediction]) -> Comparison:
    """A comparison of predictions of any jobs, each named by the options in which they differ."""
    from simcore.report.formatting import told_apart

    words = [" ".join(names[1:]) for names in told_apart(predictions)]
    return Comparison.of(plan_compare.side_by_side(predictions, words, price_book()))


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Plan(Result, planner.Plan):
    """The best ways to do a training run under limits."""

    plots: ClassVar[tuple[str, ...]] = ("trade-off",)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Goodput(Result, plan_goodput.Goodput):
    """The share of a job's time that remains useful with failures, checkpoints and restarts."""

    plots: ClassVar[tuple[str, ...]] = ("goodput",)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Fleet(Result, plan_fleet.Fleet):
    """Many jobs in the queue of one cluster: their waiting times and the cluster's utilisation."""
