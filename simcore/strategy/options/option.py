"""The record that declares one option: its kind of value, its help text, and where it appears."""

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
#: Headings of ``simcore predict --help``, in the order in which it prints them.
HEADINGS = ("Job", "Model", "Parallelism", "Memory", "Cluster and software", "Expert")
#: Groups of controls on the web page, in order of appearance, and whether each starts collapsed.
GROUPS: Mapping[str, bool] = {
    "Job": False, "Cluster": False, "Strategy": False,
    "Layout: tensor, pipeline, context, expert": True, "More": True,
}  # fmt: skip
LAYOUT_GROUP = "Layout: tensor, pipeline, context, expert"


class Axis(Record, kw_only=True):
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


class Control(Record, kw_only=True):
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
    part       role of the value in a request: an option of the job; its subject (model, GPUs); the
               length of the run; or a shorthand of the command line for another option
    axis       how it takes several values in a sweep; None: one value for all points
    control    its control on the web page; None: it has none (its value would be a file on the
               server)
    called     maps a value (empty: any value) to the names that other programs use for the option
               with that value, separated by blanks
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
    part: Literal["option", "subject", "length", "shorthand"] = "option"
    axis: Axis | None = None
    control: Control | None = None
    called: Mapping[str, str] = _NONE
    messages: tuple[str, ...] = ()
    in_launch: bool = False
    launch_keys: Mapping[str, str] = _NONE
    setting: str = ""
    resolved: str = ""

    @property
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
