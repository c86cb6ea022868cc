"""What is declared of one option: its kind, its help, and where it shows."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal

from simcore.base.record import Record
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
#: Headings of ``simcore predict --help``, in its order.
HEADINGS = ("Job", "Model", "Parallelism", "Memory", "Cluster and software", "Expert")
#: Groups of the page's controls, in its order, and whether each is folded away at first.
GROUPS: Mapping[str, bool] = {
    "Job": False, "Cluster": False, "Strategy": False,
    "Layout: tensor, pipeline, context, expert": True, "More": True,
}  # fmt: skip
LAYOUT_GROUP = "Layout: tensor, pipeline, context, expert"


class Axis(Record, kw_only=True):
    """How the values of an option vary over a sweep, a comparison or a plan.

    What a value may be follows from the option's kind: whole numbers are a grid (``1..8``), names a
    list (or ``all``), everything else a list of texts.

    of         batch: along which one step graph is evaluated at once; form: another graph;
               workload: another model, which turns slowest; cluster: other hardware
    separator  between two values of a text that has a grammar of its own
    metavar    what stands for several values in help texts, where it does not follow from the kind
    """

    of: Literal["batch", "form", "workload", "cluster"] = "form"
    separator: str = ","
    metavar: str = ""


class Control(Record, kw_only=True):
    """The option's control on the page.

    label      what stands before it
    group      of ``GROUPS``
    kind       select, number, text or slider, where it does not follow from the option's kind
    place      earlier and later in its group; options of one place stand as in the table
    hint       an example, shown while it is empty
    unsaid     what holds where nothing is said and no answer tells
    most       greatest number that the page takes (a slip of the keyboard lies beyond)
    most_letters    longest text that the page takes
    fine       whether a number may have a fraction
    wide       over both columns
    example    a value, for the description of the API
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


class Option(Record, kw_only=True):
    """One option of a job, as the command line, Python, a sweep, the page and JSON have it.

    name       the Python keyword; the command line has it with dashes
    kind       what values it takes, and what is said of a wrong one
    help       the sentence of ``--help``
    heading    of ``HEADINGS``
    more       what Python's ``help`` says beyond that
    unit       of the value
    unsaid     the value that holds where nobody gives one and neither model nor program has its own
    flag       where the command line has another word for it
    part       what of a question it is: an option of the job; its subject (model, GPUs); the length
               of the run; or a shorthand, that the command line alone has, for another option
    axis       how it varies over a sweep; None: one value for all points
    control    its control on the page; None: the page has none (it would name a file of the server)
    called     value (empty: any) to what other programs call it, parted by blanks
    told_by    regular expressions of sentences about it that do not begin with its name (a name of
               several words is found anywhere)
    in_launch  whether another program's launch file may state it
    launch_keys     dialect to the key that means the same, where it needs no code
    setting    of a setting of the model's architecture under the same name: what is said of a model
               that has none
    resolved   where its value stands in a resolved job, as a path of attributes
    """

    name: str
    kind: Kind
    help: str
    heading: str
    more: str = ""
    unit: str = ""
    unsaid: Any = None
    flag: str = ""
    part: Literal["option", "subject", "length", "shorthand"] = "option"
    axis: Axis | None = None
    control: Control | None = None
    called: Mapping[str, str] = _NONE
    told_by: tuple[str, ...] = ()
    in_launch: bool = False
    launch_keys: Mapping[str, str] = _NONE
    setting: str = ""
    resolved: str = ""

    @property
    def word(self) -> str:
        """The name with dashes, as sentences and other programs' words have it."""
        return self.name.replace("_", "-")

    @property
    def typed(self) -> str:
        """The flag of the command line."""
        return self.flag or f"--{self.word}"

    @property
    def expert(self) -> bool:
        """Whether few jobs need it."""
        return self.heading == HEADINGS[-1]

    @property
    def on_command_line(self) -> bool:
        """Whether it can be typed."""
        return not isinstance(self.kind, Made)

    @property
    def repeated(self) -> bool:
        """Whether the command line takes it more than once, each time a further value."""
        return isinstance(self.kind, Texts | Pairs)

    @property
    def several(self) -> str:
        """What stands for its value in the help of commands over many jobs."""
        if self.axis is None:
            return self.kind.metavar
        if self.axis.metavar:
            return self.axis.metavar
        return {Whole: "GRID", Name: "NAMES"}.get(type(self.kind), "LIST")

    def names(self) -> tuple[str, ...]:
        """The names that it takes or suggests; none of numbers and free texts."""
        names: Names = getattr(self.kind, "names", ())
        return names_of(names) if names else ()

    def read(self, value: object) -> Any:
        """The value as the engine takes it. Raises UsageError with what is wrong."""
        return self.kind.read(
            self.typed if isinstance(self.kind, Pairs) else f"--{self.word}", value
        )


__all__ = [
    "GROUPS", "HEADINGS", "LAYOUT_GROUP", "Axis", "Control", "File", "Kind", "Made", "Name",
    "NameList", "Number", "Option", "Pairs", "Switch", "Text", "Texts", "Whole",
]  # fmt: skip
