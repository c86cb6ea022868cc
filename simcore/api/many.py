"""Results of many predictions, and of one step's every allocation; a prediction loads none."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

from simcore.api.results import Asked, Prediction, Shown
from simcore.base.errors import UsageError
from simcore.engine import memory_timeline as engine_memory
from simcore.engine import result
from simcore.engine import scaling as engine_scaling
from simcore.engine import sweep as engine_sweep


@dataclass(frozen=True, eq=False)
class MemoryTimeline(Shown, engine_memory.MemoryTimeline):
    """Memory of the fullest GPU over one step."""

    plots: ClassVar[tuple[str, ...]] = ("memory-over-step",)
    asked: Asked | None = field(default=None, repr=False, compare=False)

    def replace(self, **changes: Any) -> MemoryTimeline:
        """The memory of the same job over a step with something changed."""
        changed: MemoryTimeline = self._again(changes)
        return changed


@dataclass(frozen=True, eq=False)
class Sweep(Shown, engine_sweep.Sweep):
    """Many configurations of one model."""

    plots: ClassVar[tuple[str, ...]] = ("pareto",)
    asked: Asked | None = field(default=None, repr=False, compare=False)

    def replace(self, **changes: Any) -> Sweep:
        """The same sweep with something changed."""
        changed: Sweep = self._again(changes)
        return changed


@dataclass(frozen=True, kw_only=True, eq=False)
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


@dataclass(frozen=True)
class Comparison(Shown, result.Comparison):
    """Predictions side by side."""

    plots: ClassVar[tuple[str, ...]] = ("time", "memory")
    asked: Asked | None = field(default=None, repr=False, compare=False)

    def replace(self, **changes: Any) -> Comparison:
        """Every prediction again with something changed."""
        made = []
        for p in self.predictions:
            if not isinstance(p, Prediction):
                raise UsageError("this comparison does not know how it was asked")
            made.append(p.replace(**changes))
        return Comparison(tuple(made))

    def _plotted(self, kind: str) -> Any:
        del kind
        return list(self.predictions)
