"""What every result has: the call that made it, so that it can be repeated, and how it is shown.

The results of the engine are plain values. ``Result`` adds the call and the methods for notebooks:
text, plots and tables, which come from ``report`` and are imported when they are used.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, fields
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar

from simcore.base.errors import UnknownName, UsageError
from simcore.base.record import dataclass
from simcore.strategy.options import OPTIONS

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame

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
        return self._call("it cannot be changed").changed(changes)

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
