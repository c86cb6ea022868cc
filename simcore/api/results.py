"""Results of one prediction, with the call that made them; those of many are in ``api.many``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from simcore.answer import result as engine
from simcore.api.result import Call, Result
from simcore.base.errors import UsageError
from simcore.base.record import dataclass
from simcore.memory import result as memory_result
from simcore.step import graph as step_graph

if TYPE_CHECKING:
    from simcore.api.many import Comparison, MemoryTimeline
    from simcore.request.emit import LaunchFile


def _memory_over_step(call: Call) -> MemoryTimeline:
    from simcore import api

    return api.memory_timeline(**call.job)


@dataclass(frozen=True, kw_only=True, repr=False)
class Memory(Result, memory_result.MemoryResult):
    """Memory of the fullest GPU at its peak. ``replace`` repeats the prediction with changes."""

    plots: ClassVar[tuple[str, ...]] = ("memory", "memory-over-step")

    def replace(self, **changes: Any) -> Memory:
        """The memory of the same job with some options changed."""
        return self._call("it cannot be changed").changed(changes).memory

    def over_step(self) -> MemoryTimeline:
        """The memory after every allocation of a step."""
        return _memory_over_step(self._call("its job is not known"))

    def _plotted(self, kind: str) -> Any:
        return self.over_step() if kind == "memory-over-step" else self


@dataclass(frozen=True, kw_only=True, repr=False)
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
class Timeline(Result, step_graph.Timeline):
    """Start and finish of every task of one step [s]."""

    plots: ClassVar[tuple[str, ...]] = ("timeline",)

    def replace(self, **changes: Any) -> Timeline:
        """The timeline of the same job with some options changed."""
        call = self._call("it cannot be changed")
        return call.changed({**changes, "keep_timeline": True}).timeline


@dataclass(frozen=True, kw_only=True, repr=False)
class Prediction(Result, engine.Prediction):
    """Whether a job fits, how fast it is and what limits it, with the call that made it.

    ``p.replace(gpus="8x8xH100", micro_batch=2)`` predicts the same job with these changes;
    ``p.plot("scaling")`` draws a plot; in a notebook, ``p`` displays the whole answer.
    """

    plots: ClassVar[tuple[str, ...]] = (
        "overview", "time", "memory", "memory-over-step", "scaling", "roofline", "timeline",
        "sensitivity",
    )  # fmt: skip

    @classmethod
    def of(cls, plain: Any, call: Call | None = None) -> Prediction:
        """The engine's prediction, with the call that made it."""
        words = {f.name: getattr(plain, f.name) for f in fields(plain)}
        words["memory"] = Memory.of(plain.memory, call)
        if plain.timeline is not None:
            words["timeline"] = Timeline.of(plain.timeline, call)
        return cls(**words, call=call)

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

        return api.explain(**self._call("nothing to explain").job, term=term)

    def to_dict(self) -> dict[str, Any]:
        """Plain data, as ``simcore predict --json`` writes it (docs/prediction.schema.json)."""
        from simcore.report.jsonout import to_dict

        return to_dict(self)

    def emit(self, dialect: str) -> LaunchFile:
        """The job as a launch file (``text``, ``files``) of another program: ``megatron``, ``hf``
        ... Raises UsageError with everything that the format cannot express.
        """
        from simcore import api

        return api.launch_file(dialect, **self._call("no launch file of it").job)

    def trace(self, path: str | Path) -> None:
        """Write the step's timeline for ui.perfetto.dev, ``.json`` or ``.json.gz``."""
        from simcore.report.trace import write_trace

        timed = self if self.timeline is not None else self.replace(keep_timeline=True)
        write_trace(timed, Path(path))

    def save(self, path: str | Path) -> None:
        """Write the answer to a file: ``.json`` (to_dict), ``.html`` (the report) or ``.txt``.

        Raises UsageError for another ending.
        """
        from simcore.base.atomic import write_text
        from simcore.report.jsonout import dumps

        path = Path(path)
        makers: dict[str, Callable[[], str]] = {
            ".json": lambda: dumps(self.to_dict()), ".html": self.to_html, ".txt": self.__str__
        }  # fmt: skip
        if path.suffix not in makers:
            raise UsageError(f"{str(path)!r} must end in {', '.join(makers)}")
        write_text(path, makers[path.suffix]())

    def to_html(self) -> str:
        """The report as one self-contained HTML page, as ``simcore report`` writes it."""
        from simcore import api

        return api.report(**self._call("no report of it").job)

    def _plotted(self, kind: str) -> Any:
        from simcore import api

        if kind in ("overview", "time", "memory"):
            return [self]
        if kind == "timeline" and self.timeline is not None:
            return self
        call = self._call(f"no plot {kind!r}")
        if kind == "timeline":
            return call.changed({"keep_timeline": True})
        if kind == "memory-over-step":
            return _memory_over_step(call)
        return getattr(api, kind)(**call.job)

    def __repr__(self) -> str:
        fits = "fits" if self.fits else "does not fit"
        return f"<{self.model} on {self.cluster}: {fits}, {self.step_time_s.value:.3g} s a step>"
