"""Results of one prediction, with the call that made them; those of many are in ``api.many``.

The results of the engine are plain values. ``Result`` adds the call and the methods for notebooks:
text, plots and tables, which come from ``report`` and are imported when they are used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar

from simcore.answer import result as engine
from simcore.base.errors import UnknownName, UsageError
from simcore.base.record import dataclass
from simcore.memory import result as memory_result
from simcore.strategy.options import OPTIONS
from simcore.timing import timeline as engine_timeline

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame

    from simcore.api.many import Comparison, MemoryTimeline
    from simcore.request.emit import LaunchFile

T = TypeVar("T")


def plain_as(cls: type[T], plain: Any, **more: Any) -> T:
    """A copy of ``plain`` as an object of its subclass ``cls``; ``more``: the further fields."""
    return cls(**{f.name: getattr(plain, f.name) for f in fields(plain)}, **more)


#: Arguments, to the ones that are dropped when they are changed, since both cannot be given.
_EITHER = {
    "global_batch": ("grad_accum",),
    "grad_accum": ("global_batch",),
    "steps": ("epochs", "samples", "tokens"),
    "epochs": ("steps", "samples", "tokens"),
    "samples": ("steps", "epochs", "tokens"),
    "tokens": ("steps", "epochs", "samples"),
    "gpus": ("nnodes", "nproc_per_node", "clusters", "wait_s"),
    "wait_s": ("gpus",),
}
#: Arguments of ``predict`` that do not describe the job.
_OF_RUN = (*OPTIONS.of_run(), "keep_timeline")


@dataclass(frozen=True, eq=False)
class Call:
    """A call of ``simcore.api``: the name of the function and its arguments."""

    function: str
    words: Mapping[str, Any]

    def changed(self, changes: Mapping[str, Any]) -> Any:
        """The result of the same call with some arguments changed; None restores a default.

        Raises UnknownName for an argument that the call does not have.
        """
        from simcore import api

        words = dict(self.words)
        of_run = OPTIONS.of_run() if self.function == "predict" else ()
        known = {*words, *OPTIONS.keywords(), *of_run}
        for word, value in changes.items():
            if word not in known:
                raise UnknownName("setting", word, known)
            for other in _EITHER.get(word, ()):
                words.pop(other, None)
            words[word] = value
        return getattr(api, self.function)(**words)

    @property
    def job(self) -> dict[str, Any]:
        """The arguments that describe the job, without the length of the run."""
        return {k: v for k, v in self.words.items() if k not in _OF_RUN}


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Result:
    """What every result has: the call that made it, None where that is not known, and its methods.

    ``plots``: the kinds of plot, the first one the default.
    """

    plots: ClassVar[tuple[str, ...]] = ()
    call: Call | None = field(default=None, repr=False, compare=False)

    @classmethod
    def of(cls, plain: Any, call: Call | None = None) -> Self:
        """A result of the engine as an object of this class, with the call that made it."""
        return plain_as(cls, plain, call=call)

    def replace(self, **changes: Any) -> Self:
        """The result of the same call with ``model``, ``gpus`` or any other argument changed.

        All other arguments stay the same; None restores a default. Raises UsageError as the call
        does, for an unknown argument, and where the call is not known.
        """
        changed: Self = self._call("it cannot be changed").changed(changes)
        return changed

    def plot(self, kind: str | None = None) -> Figure:
        """A matplotlib Figure, which notebooks display and ``savefig`` writes to a file.

        ``kind``: one of ``plots``. Raises UsageError where matplotlib is missing, UnknownName for
        an unknown kind.
        """
        from simcore.report.plots import draw

        if not self.plots:
            raise UsageError(f"there is no plot of a {type(self).__name__.lower()}")
        wanted = kind or self.plots[0]
        if wanted not in self.plots:
            raise UnknownName("plot", wanted, self.plots)
        return draw(wanted, self._plotted(wanted))

    def to_pandas(self) -> DataFrame:
        """A pandas DataFrame with units in the column names. Raises UsageError without pandas."""
        from simcore.report.frames import frame

        return frame(self)

    def _call(self, otherwise: str) -> Call:
        """The call. Raises UsageError where it is not known; ``otherwise``: what follows then."""
        if self.call is None:
            raise UsageError(f"this result does not know the call that made it: {otherwise}")
        return self.call

    def _plotted(self, kind: str) -> Any:
        """The data from which the plot of ``kind`` is drawn."""
        del kind
        return self

    def _repr_html_(self) -> str:
        from simcore.report.html import fragment

        return fragment(self)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text("..." if cycle else str(self).rstrip())

    def __repr__(self) -> str:
        """One line, since the fields hold thousands of figures; ``print`` shows the summary."""
        first = next((line for line in str(self).splitlines() if line.strip()), "")
        return f"<{type(self).__name__}: {' '.join(first.split())}>"

    def __str__(self) -> str:
        from simcore.report.text_of import text_of

        return text_of(self)


def _memory_over_step(call: Call) -> MemoryTimeline:
    from simcore import api

    return api.memory_timeline(**call.job)


@dataclass(frozen=True, kw_only=True, repr=False)
class Memory(Result, memory_result.MemoryResult):
    """Memory of the fullest GPU at its peak. ``replace`` repeats the prediction with changes."""

    plots: ClassVar[tuple[str, ...]] = ("memory", "memory-over-step")

    def replace(self, **changes: Any) -> Memory:
        """The memory of the same job with some options changed."""
        memory: Memory = self._call("it cannot be changed").changed(changes).memory
        return memory

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
class Timeline(Result, engine_timeline.Timeline):
    """Start and finish of every task of one step [s]."""

    plots: ClassVar[tuple[str, ...]] = ("timeline",)

    def replace(self, **changes: Any) -> Timeline:
        """The timeline of the same job with some options changed."""
        call = self._call("it cannot be changed")
        timeline: Timeline = call.changed({**changes, "keep_timeline": True}).timeline
        return timeline


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

        found: Explanation = api.explain(**self._call("nothing to explain").job, term=term)
        return found

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
