"""The record that declares one option, and the table of all options."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from types import MappingProxyType
from typing import Any, Literal

from simcore.base.errors import UnknownName
from simcore.base.record import dataclass
from simcore.strategy.options.kinds import (
    File,
    Kind,
    Made,
    Name,
    NameList,
    Names,
    Number,
    Pairs,
    Switch,
    Text,
    Texts,
    Whole,
    names_of,
)

_NONE: Mapping[str, str] = MappingProxyType({})
#: Headings of ``simcore predict --help``, in the order in which it prints them.
HEADINGS = ("Job", "Model", "Parallelism", "Memory", "Cluster and software", "Expert")
LAYOUT_GROUP = "Layout: tensor, pipeline, context, expert"
#: Groups of controls on the web page, in order of appearance, and whether each stands among the
#: other options, which most jobs do not need.
GROUPS: Mapping[str, bool] = {
    "Job": False,
    "Cluster": False,
    "Strategy": True,
    LAYOUT_GROUP: True,
    "Run": True,
    "More": True,
}


@dataclass(frozen=True, kw_only=True, eq=False)
class Axis:
    """How an option takes several values in a sweep, a comparison or a plan.

    The option's kind determines how the values are written: whole numbers as a grid (``1..8``),
    names as a list (or ``all``), everything else as a list of texts.

    of         what another value changes. batch: only the batch, so that one step graph is
               evaluated for all values at once; form: the step graph; workload: the model, which
               is the outermost loop; cluster: the hardware
    separator  character between two values (another one than a comma where values contain commas)
    metavar    placeholder for several values in help texts, where the kind does not determine it
    """

    of: Literal["batch", "form", "workload", "cluster"] = "form"
    separator: str = ","
    metavar: str = ""


@dataclass(frozen=True, kw_only=True, eq=False)
class Control:
    """The option's control on the web page.

    label      text in front of the control
    group      name of its group, one of ``GROUPS``
    kind       select, number, text or slider, where the option's kind does not determine it
    place      sort key within the group; options with the same one keep the order of the table
    hint       example that an empty text field shows
    unsaid     default to display while the field is empty and no answer has stated the value used
    most       largest number that the page accepts; larger ones are taken to be typing mistakes
    most_letters    most characters that the page accepts
    fine       whether a number may have a fraction
    wide       whether the control spans both columns
    example    example value for the description of the API
    values     values that the map over two options proposes for it; empty: it is no axis there
    """

    label: str
    group: str = "More"
    kind: str = ""
    place: int = 0
    hint: str = ""
    unsaid: str = ""
    most: int = 1_000_000
    most_letters: int = 100
    fine: bool = False
    wide: bool = False
    example: Any = None
    values: str = ""


@dataclass(frozen=True, kw_only=True, eq=False)
class Option:
    """One option of a job, for the command line, Python, sweeps, the web page and JSON alike.

    name       Python keyword; the flag of the command line is the same with dashes
    kind       which values the option takes, and the error message for a wrong one
    help       sentence that ``--help`` prints; ``{names}`` in it stands for the names it accepts
    heading    heading of its help text, one of ``HEADINGS``
    more       further text that Python's ``help`` prints after ``help``
    unit       unit of the value
    unsaid     default value, used where the user gives none and neither the model nor the training
               program sets one
    flag       flag of the command line, where it is not the name with dashes
    common     whether the short help of a command lists it: most jobs need it
    part       role of the value in a request: an option of the job; its subject (model, GPUs); the
               length of the run; a limit or price of the run; or a shorthand of the command line
               for another option
    axis       how it takes several values in a sweep; None: one value for all points
    control    its control on the web page; None: it has none (its value would be a file on the
               server)
    called     maps a value (empty: any value) to the names that other programs use for the option
               with that value, separated by blanks
    stands_for  for a shorthand that Python has too: the options and values that it stands for
    messages   regular expressions that recognise error messages about the option which do not
               begin with its name (a name of several words is recognised anywhere in a message)
    in_launch  whether a launch file of another program may set it
    launch_keys     maps a dialect of launch files to the keys that set this option directly,
               without code for the translation
    setting    only for an option that overrides the model setting of the same name: end of the
               error message about a model without that setting
    resolved   path of attributes that leads to its value in a resolved job
    """

    name: str
    kind: Kind
    help: str
    heading: str
    more: str = ""
    unit: str = ""
    unsaid: Any = None
    flag: str = ""
    common: bool = False
    part: Literal["option", "subject", "length", "run", "shorthand"] = "option"
    axis: Axis | None = None
    control: Control | None = None
    called: Mapping[str, str] = _NONE
    stands_for: Mapping[str, Any] = _NONE
    messages: tuple[str, ...] = ()
    in_launch: bool = False
    launch_keys: Mapping[str, str] = _NONE
    setting: str = ""
    resolved: str = ""

    @cached_property
    def word(self) -> str:
        """The name with dashes, as messages and the flags of other programs write it."""
        return self.name.replace("_", "-")

    @property
    def typed(self) -> str:
        """The flag on the command line."""
        return self.flag or f"--{self.word}"

    @property
    def expert(self) -> bool:
        """Whether it stands under the heading "Expert": few jobs need it."""
        return self.heading == HEADINGS[-1]

    @property
    def on_command_line(self) -> bool:
        """Whether the command line has it: its value can be typed, not only made in Python."""
        return not isinstance(self.kind, Made)

    @property
    def repeated(self) -> bool:
        """Whether the flag may be repeated, where each occurrence adds a value."""
        return isinstance(self.kind, Texts | Pairs)

    @property
    def several(self) -> str:
        """Placeholder for its value in the help of commands that take several (sweep, plan)."""
        if self.axis is None:
            return self.kind.metavar
        if self.axis.metavar:
            return self.axis.metavar
        return {Whole: "GRID", Name: "NAMES"}.get(type(self.kind), "LIST")

    def names(self) -> tuple[str, ...]:
        """The names that it accepts or suggests; empty for numbers and free text."""
        names: Names = getattr(self.kind, "names", ())
        return names_of(names) if names else ()

    @property
    def help_text(self) -> str:
        """``help`` with the names that it accepts written out."""
        if "{names}" not in self.help:
            return self.help
        return self.help.replace("{names}", ", ".join(self.names()))

    def read(self, value: object) -> Any:
        """The value converted for the engine. Raises UsageError that says what is wrong."""
        return self.kind.read(
            self.typed if isinstance(self.kind, Pairs) else f"--{self.word}", value
        )


__all__ = [
    "GROUPS", "HEADINGS", "LAYOUT_GROUP", "Axis", "Control", "File", "Kind", "Made", "Name",
    "NameList", "Number", "Option", "Pairs", "Switch", "Text", "Texts", "Whole",
]  # fmt: skip


class OptionTable:
    """Options by name, iterated heading by heading and in order of registration.

    ``version`` counts the changes of the table: use it as the key of caches of derived values.
    ``settings``: names of the options that are settings of a model.
    ``when_changed`` registers a callback, for derived values that cannot check the version
    whenever they are read (signatures of functions).
    """

    def __init__(self) -> None:
        self.version = 0
        self._options: dict[str, Option] = {}
        self._by_heading: tuple[Option, ...] = ()
        self.settings: tuple[str, ...] = ()
        self._callbacks: list[Callable[[], None]] = []

    def register(self, *options: Option) -> None:
        """Add options. Raises ValueError for a name that is taken, an unknown heading or group."""
        for option in options:
            if option.name in self._options:
                raise ValueError(f"option {option.name!r} is registered twice")
            if option.heading not in HEADINGS:
                raise ValueError(f"option {option.name!r}: no heading {option.heading!r}")
            if option.control is not None and option.control.group not in GROUPS:
                raise ValueError(f"option {option.name!r}: no group {option.control.group!r}")
            self._options[option.name] = option
        self._change()

    @contextmanager
    def registered(self, *options: Option) -> Iterator[None]:
        """Add options for the duration of a ``with`` block."""
        self.register(*options)
        try:
            yield
        finally:
            for option in options:
                del self._options[option.name]
            self._change()

    def when_changed(self, callback: Callable[[], None]) -> None:
        """Call ``callback`` now and after every change of the table."""
        self._callbacks.append(callback)
        callback()

    def _change(self) -> None:
        self.version += 1
        by_heading = sorted(self._options.values(), key=lambda o: HEADINGS.index(o.heading))
        self._by_heading = tuple(by_heading)
        self.settings = tuple(o.name for o in self if o.setting)
        for callback in self._callbacks:
            callback()

    def __getitem__(self, name: str) -> Option:
        """The option of that name. Raises UnknownName."""
        try:
            return self._options[name]
        except KeyError:
            raise UnknownName("option", name, self._options) from None

    def get(self, name: str) -> Option | None:
        """The option of that name, or None."""
        return self._options.get(name)

    def __contains__(self, name: object) -> bool:
        return name in self._options

    def __iter__(self) -> Iterator[Option]:
        """All entries of the table, heading by heading."""
        return iter(self._by_heading)

    def __len__(self) -> int:
        return len(self._options)

    def options(self) -> dict[str, Option]:
        """The options of a job by their Python keywords, heading by heading."""
        return {o.name: o for o in self if o.part == "option"}

    def keywords(self) -> dict[str, Option]:
        """The keywords of Python: ``options`` and the shorthands that stand for several of them."""
        return {o.name: o for o in self if o.part == "option" or o.stands_for}

    def typed(self) -> dict[str, Option]:
        """The command line's options of a job, except its model, its GPUs and its length."""
        return {o.name: o for o in self if o.part in ("option", "shorthand") and o.on_command_line}

    def of_run(self) -> dict[str, Option]:
        """The options that describe a whole run of the job: its length, limits and prices."""
        return {o.name: o for o in self if o.part in ("length", "run")}

    def in_launch(self) -> tuple[str, ...]:
        """Names of the options that a launch file of another program may set."""
        return tuple(o.name for o in self if o.in_launch)

    def launch_keys(self, dialect: str) -> dict[str, str]:
        """Keys of a dialect of launch files that set an option directly, to that option's name."""
        found: dict[str, str] = {}
        for option in self:
            for key in option.launch_keys.get(dialect, "").split():
                found[key] = option.name
        return found


OPTIONS = OptionTable()
