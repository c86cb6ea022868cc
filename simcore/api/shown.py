"""What every result has: the question it answers, its text, its pictures, its table."""

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
    """The words of a call: the name of the function of ``simcore.api`` and its arguments."""

    function: str
    words: Mapping[str, Any]

    def again(self, changes: Mapping[str, Any]) -> Any:
        """The same call with some words changed; None takes the model's default again.

        Raises UnknownName for a word that the call does not have.
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


#: Words of which a new one makes the other void.
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
    """What every result can do. ``kind`` of a plot is one of ``plots``, the first by default."""

    __slots__ = ()
    plots: ClassVar[tuple[str, ...]] = ()
    asked: Asked | None

    def plot(self, kind: str | None = None) -> Figure:
        """A matplotlib Figure that shows itself in a notebook; ``savefig`` writes it.

        Raises UsageError without matplotlib, UnknownName for a kind that this result has not.
        """
        from simcore.report.plots import draw

        if not self.plots:
            raise UsageError(f"there is no picture of a {type(self).__name__.lower()}")
        wanted = kind or self.plots[0]
        if wanted not in self.plots:
            raise UnknownName("plot", wanted, self.plots)
        return draw(wanted, self._plotted(wanted))

    def replace(self, **changes: Any) -> Any:
        """The same call with some words changed. Raises UsageError where it is not known."""
        return self._again(changes)

    def to_pandas(self) -> DataFrame:
        """As a DataFrame with the unit in each column's name. Raises UsageError without pandas."""
        from simcore.report.frames import frame

        return frame(self)

    def _plotted(self, kind: str) -> Any:
        """What the plot of ``kind`` is drawn from."""
        del kind
        return self

    def _again(self, changes: Mapping[str, Any]) -> Any:
        if self.asked is None:
            raise UsageError("this result does not know how it was asked: it cannot be changed")
        return self.asked.again(changes)

    def _repr_html_(self) -> str:
        from simcore.report.html import fragment

        return fragment(self)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text("..." if cycle else str(self).rstrip())

    def __repr__(self) -> str:
        """A line: fields hold thousands of figures, and ``print`` has what matters of them."""
        first = next((line for line in str(self).splitlines() if line.strip()), "")
        return f"<{type(self).__name__}: {' '.join(first.split())}>"

    def __str__(self) -> str:
        from simcore.report.text_of import text_of

        return text_of(self)


def plain_as(cls: type[T], plain: Any, **more: Any) -> T:
    """``plain`` as the subclass ``cls``, with its further fields."""
    return cls(**{f.name: getattr(plain, f.name) for f in fields(plain)}, **more)


def remembered(cls: type[T], plain: Any, function: str, words: Mapping[str, Any]) -> T:
    """A result of the engine as ``cls``, with the call of ``simcore.api`` that made it."""
    return plain_as(cls, plain, asked=Asked(function, dict(words)))
