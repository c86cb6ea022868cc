"""Results of one prediction that can repeat their call with changes, print, plot and tabulate.

The results of the engine are plain values. The classes here add the call that made them and the
methods for notebooks. Text and plots come from ``report``, which is imported when it is used.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, ClassVar

from simcore.answer import result as engine
from simcore.api.shown import Asked, Shown, plain_as
from simcore.base.errors import UsageError
from simcore.memory import result as memory_result
from simcore.timing import timeline as engine_timeline

if TYPE_CHECKING:
    from simcore.api.many import Comparison, MemoryTimeline


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Memory(Shown, memory_result.MemoryResult):
    """Memory of the fullest GPU at its peak. ``replace`` repeats the prediction with changes."""

    plots: ClassVar[tuple[str, ...]] = ("memory", "memory-over-step")
    asked: Asked | None = field(default=None, repr=False, compare=False)

    def replace(self, **changes: Any) -> Memory:
        """The memory of the same job with some options changed."""
        memory: Memory = self._again(changes).memory
        return memory

    def over_step(self) -> MemoryTimeline:
        """The memory after every allocation of a step."""
        return _memory_over_step(self.asked)

    def _plotted(self, kind: str) -> Any:
        return self.over_step() if kind == "memory-over-step" else self

    __repr__ = Shown.__repr__
    __str__ = Shown.__str__


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Explanation(engine.Explanation):
    """Formula, inputs and source of one term; ``print`` shows it as ``--explain`` does."""

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text("..." if cycle else str(self).rstrip())

    def __repr__(self) -> str:
        return f"<Explanation: {self.term} = {self.value}>"

    def __str__(self) -> str:
        from simcore.report.text import render_explanation

        return render_explanation(self)


@dataclass(frozen=True, eq=False, repr=False)
class Timeline(Shown, engine_timeline.Timeline):
    """Start and finish of every task of one step [s]."""

    plots: ClassVar[tuple[str, ...]] = ("timeline",)
    asked: Asked | None = field(default=None, repr=False, compare=False)

    def replace(self, **changes: Any) -> Timeline:
        """The timeline of the same job with some options changed."""
        timeline: Timeline = self._again({**changes, "keep_timeline": True}).timeline
        return timeline


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction(Shown, engine.Prediction):
    """Whether a job fits, how fast it is and what limits it, with the call that made it.

    ``p.replace(gpus="8x8xH100", micro_batch=2)`` predicts the same job with these changes;
    ``p.plot("scaling")`` draws a plot; in a notebook, ``p`` displays the whole answer.
    """

    plots: ClassVar[tuple[str, ...]] = (
        "overview", "time", "memory", "memory-over-step", "scaling", "roofline", "timeline",
        "sensitivity",
    )  # fmt: skip
    asked: Asked | None = field(default=None, repr=False, compare=False)

    @classmethod
    def of(cls, plain: engine.Prediction, asked: Asked) -> Prediction:
        """The engine's prediction, with the call that made it."""
        words = {f.name: getattr(plain, f.name) for f in fields(plain)}
        words["memory"] = plain_as(Memory, plain.memory, asked=asked)
        if plain.timeline is not None:
            words["timeline"] = plain_as(Timeline, plain.timeline, asked=asked)
        return cls(**words, asked=asked)

    def replace(self, **changes: Any) -> Prediction:
        """The prediction with ``model``, ``gpus``, ``steps`` or any option changed.

        All other arguments stay the same; None restores a default. Raises UsageError as
        ``predict`` does, and for an unknown argument.
        """
        changed: Prediction = self._again(changes)
        return changed

    def compare(self, *others: Prediction) -> Comparison:
        """This prediction and others side by side."""
        from simcore.api.many import side_by_side

        for other in others:
            if not isinstance(other, engine.Prediction):
                raise UsageError(f"compare takes predictions, not {other!r:.60}: predict first")
        return side_by_side((self, *others))

    def explain(self, term: str) -> Explanation:
        """Formula, inputs and source of ``step_time``, ``memory``, ``comm``, ``mfu`` or another
        term. Raises UsageError for an unknown term.
        """
        from simcore import api

        if self.asked is None:
            raise UsageError("this result does not know the call that made it: nothing to explain")
        found: Explanation = api.explain(**_request_words(self.asked), term=term)
        return found

    def to_dict(self) -> dict[str, Any]:
        """Plain data, as ``simcore predict --json`` writes it (docs/prediction.schema.json)."""
        from simcore.report.jsonout import to_dict

        return to_dict(self)

    def to_html(self) -> str:
        """The report as one self-contained HTML page, as ``simcore report`` writes it."""
        from simcore import api

        if self.asked is None:
            raise UsageError("this result does not know the call that made it: no report of it")
        return api.report(**_request_words(self.asked))

    def _plotted(self, kind: str) -> Any:
        from simcore import api

        if kind in ("overview", "time", "memory"):
            return [self]
        if kind == "memory-over-step":
            return _memory_over_step(self.asked)
        if kind == "timeline":
            return self if self.timeline is not None else self._again({"keep_timeline": True})
        if self.asked is None:
            raise UsageError(f"this result does not know the call that made it: no plot {kind!r}")
        words = _request_words(self.asked)
        return getattr(api, kind)(**words)

    def __repr__(self) -> str:
        fits = "fits" if self.fits else "does not fit"
        return f"<{self.model} on {self.cluster}: {fits}, {self.step_time_s.value:.3g} s a step>"

    __str__ = Shown.__str__


def _request_words(asked: Asked) -> dict[str, Any]:
    run = ("steps", "epochs", "keep_timeline")
    return {k: v for k, v in asked.words.items() if k not in run}


def _memory_over_step(asked: Asked | None) -> MemoryTimeline:
    from simcore import api

    if asked is None:
        raise UsageError("this result does not know the call that made it")
    return api.memory_timeline(**_request_words(asked))
