"""What functions of a job and their results share: options in signatures, the call, how it shows.

``inspect.signature`` and ``help`` show every option with its type and default, from the option
table. ``make_request`` refuses unknown keywords and suggests the nearest.

The results of the engine are plain values. ``Result`` adds the call and the methods for notebooks:
text, plots and tables, which come from ``report`` and are imported when they are used.
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, fields
from functools import lru_cache, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, ParamSpec, Self, TypeVar

from simcore.base.errors import UnknownName, UsageError
from simcore.base.record import dataclass
from simcore.strategy.options import OPTIONS, Option, shown, written_out
from simcore.strategy.options.option import HEADINGS
from simcore.workload.settings import trusts_call

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame


P = ParamSpec("P")
R = TypeVar("R")
Function = TypeVar("Function", bound=Callable[..., Any])

_WIDTH, _COLUMN = 92, 22
_ONE = "None means the default of the model, the training program or the cluster."
_MANY = "each takes a value, a sequence of values or a grid as text; those marked (one) one value."


def takes_options(*, several: bool = False) -> Callable[[Function], Function]:
    """A decorator that adds the table's options to the signature and docstring of a function.

    The function ends in ``**options``. ``several``: whether it accepts several values per option.
    """

    def decorate(function: Function) -> Function:
        own = inspect.signature(function)
        first = [p for p in own.parameters.values() if p.kind is not p.VAR_KEYWORD]
        text = inspect.cleandoc(function.__doc__ or "")
        taken = frozenset(p.name for p in first)

        def sign() -> None:
            parameters = [p for p in _parameters(OPTIONS.version, several) if p.name not in taken]
            function.__signature__ = own.replace(parameters=[*first, *parameters])  # type: ignore[attr-defined]
            function.__doc__ = f"{text}\n\n{_help(OPTIONS.version, several)}"

        OPTIONS.when_changed(sign)
        return function

    return decorate


def takes_job(at: int = 0) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """A decorator of a function whose ``at``-th argument is a model, which a person typed.

    The model may also be an object, a module or a config, and ``inputs`` tensors (``objects``).
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        trusted = trusts_call(at)(function)

        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            kwargs = written_out(kwargs)  # type: ignore[assignment]
            model = args[at] if len(args) > at else kwargs.get("model")
            if isinstance(model, str | Path) and kwargs.get("inputs") is None:
                return trusted(*args, **kwargs)
            from simcore.api.objects import with_objects

            values, words = with_objects(args, kwargs, at)
            return trusted(*values, **words)

        return call

    return decorate


@lru_cache(maxsize=4)
def _parameters(_version: int, several: bool) -> tuple[inspect.Parameter, ...]:
    return tuple(
        inspect.Parameter(
            option.name, inspect.Parameter.KEYWORD_ONLY, default=None,
            annotation=_type(option, several),
        )
        for option in OPTIONS.keywords().values()
    )  # fmt: skip


def _type(option: Option, several: bool) -> Any:
    one = option.kind.python
    return one | Sequence[Any] if several and option.axis is not None else one


@lru_cache(maxsize=4)
def _help(_version: int, several: bool) -> str:
    """The help text of all options: one paragraph per heading, in two columns."""
    found = [f"Options: {_MANY if several else _ONE}"]
    for heading in HEADINGS:
        options = [o for o in OPTIONS.keywords().values() if o.heading == heading]
        lines = [line for o in options for line in _lines(o, several)]
        if lines:
            found.append("\n".join([f"{heading}:", "", *lines]))
    return "\n\n".join(found) + "\n"


def _lines(option: Option, several: bool) -> list[str]:
    unit = f" [{option.unit}]" if option.unit else ""
    one = " (one)" if several and option.axis is None else ""
    text = f"{option.help_text.rstrip('.')}.{unit}{one}"
    if option.unsaid is not None and "default" not in f"{option.help_text} {option.more}".lower():
        text += f" Default: {shown(option.unsaid)}."
    if option.more:
        text += f" {option.more}"
    wrapped = textwrap.wrap(
        text, _WIDTH - _COLUMN, break_long_words=False, break_on_hyphens=False
    )  # fmt: skip
    first = f"{option.name:<{_COLUMN - 4}}    {wrapped[0]}"
    return [first, *(f"{'':<{_COLUMN}}{line}" for line in wrapped[1:])]


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
