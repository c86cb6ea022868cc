"""The base class of all results: the call that made them, and their text, plots and tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from simcore.base.errors import UnknownName, UsageError
from simcore.strategy.options import OPTIONS

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame

T = TypeVar("T")


@dataclass(frozen=True, slots=True, eq=False)
class Asked:
    """A call of ``simcore.api``: the name of the function and its arguments."""

    function: str
    words: Mapping[str, Any]

    def again(self, changes: Mapping[str, Any]) -> Any:
        """The result of the same call with some arguments changed; None restores a default.

        Raises UnknownName for an argument that the call does not have.
        """
        from simcore import api

        words = dict(self.words)
        known = {*words, *OPTIONS.options()}
        for word, value in changes.items():
            if word not in known:
                raise UnknownName("setting", word, known)
            for other in _EITHER.get(word, ()):
                words.pop(other, None)
            words[word] = value
        return getattr(api, self.function)(**words)


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


class Shown:
    """Methods that every result has. ``plots``: the kinds of plot, the first one the default."""

    __slots__ = ()
    plots: ClassVar[tuple[str, ...]] = ()
    asked: Asked | None

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

    def replace(self, **changes: Any) -> Any:
        """The result of the same call with some arguments changed.

        Raises UsageError where the result does not know the call that made it.
        """
        return self._again(changes)

    def to_pandas(self) -> DataFrame:
        """A pandas DataFrame with units in the column names. Raises UsageError without pandas."""
        from simcore.report.frames import frame

        return frame(self)

    def _plotted(self, kind: str) -> Any:
        """The data from which the plot of ``kind`` is drawn."""
        del kind
        return self

    def _again(self, changes: Mapping[str, Any]) -> Any:
        if self.asked is None:
            raise UsageError(
                "this result does not know the call that made it: it cannot be changed"
            )
        return self.asked.again(changes)

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


def plain_as(cls: type[T], plain: Any, **more: Any) -> T:
    """A copy of ``plain`` as an object of its subclass ``cls``; ``more``: the further fields."""
    return cls(**{f.name: getattr(plain, f.name) for f in fields(plain)}, **more)


def remembered(cls: type[T], plain: Any, function: str, words: Mapping[str, Any]) -> T:
    """A result of the engine as ``cls``, which also holds the call of ``simcore.api``.

    ``function``, ``words``: name and arguments of that call.
    """
    return plain_as(cls, plain, asked=Asked(function, dict(words)))
