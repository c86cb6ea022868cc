"""The page's form as data: groups of controls, made from the table of options.

How a kind of control is drawn stands in ``static/controls.js``; what controls there are stands
here. Besides the options the page has the parts of a cluster's text and the two files to upload.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, Field

from simcore.strategy.options import OPTIONS, Number, Option
from simcore.strategy.options.job import BATCHES
from simcore.strategy.options.option import GROUPS

#: Stops of the slider of nodes.
NODES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 2 * 512)


class ControlOf(BaseModel):
    """One control of the form."""

    name: str = Field(description="the parameter that it sets, or a name of its own")
    label: str
    kind: Literal["select", "number", "text", "slider", "file", "error"]
    needed: bool = Field(default=False, description="whether it has no empty choice")
    part: bool = Field(default=False, description="whether it is a part of the cluster's text")
    of: str = Field(default="", description="of a file: the parameter that it is for")
    accept: str = Field(default="", description="of a file: its endings")
    hint: str = Field(default="", description="an example, shown while it is empty")
    unsaid: str = Field(default="", description="what holds where no answer tells")
    steps: list[int] = Field(default=[], description="of a slider: its stops")
    fine: bool = Field(default=False, description="of a number: whether it may have a fraction")
    least: float = Field(default=1, description="of a number")
    most: bool = Field(default=False, description="whether `max` may be said instead")
    wide: bool = Field(default=False, description="over both columns")


class Group(BaseModel):
    """Controls under one heading."""

    title: str
    closed: bool = Field(description="whether it is folded away at first")
    controls: list[ControlOf]


#: (group, place) of the controls that are no options, and the controls.
_OWN: tuple[tuple[str, int, ControlOf], ...] = (
    ("Job", -8, ControlOf(name="model_file", label="or your own config.json", kind="file",
                          of="model", accept=".json", wide=True)),
    ("Cluster", -3, ControlOf(name="nodes", label="Nodes", kind="slider", steps=list(NODES),
                              part=True, wide=True)),
    ("Cluster", -2, ControlOf(name="gpu", label="GPU", kind="select", needed=True, part=True,
                              wide=True)),
    ("Cluster", -1, ControlOf(name="perNode", label="GPUs a node", kind="number", part=True)),
    ("More", -1, ControlOf(name="gpus_text", label="Cluster as text, for mixed ones", kind="text",
                           hint="1x2xA100+1x3xT4", wide=True)),
    ("More", 10, ControlOf(name="calibration_file", label="or your own .yaml", kind="file",
                           of="calibration", accept=".yaml,.yml", wide=True)),
)  # fmt: skip


def controls() -> list[Group]:
    """The form, group by group."""
    placed = [*_OWN, *((c.group, c.place, _control(o)) for o in OPTIONS if (c := o.control))]
    return [
        Group(
            title=title,
            closed=closed,
            controls=[c for group, _, c in sorted(placed, key=lambda p: p[1]) if group == title],
        )
        for title, closed in GROUPS.items()
    ]


def _control(option: Option) -> ControlOf:
    """The control of an option."""
    control = option.control
    assert control is not None
    kind: Any = control.kind or option.kind.control
    least = getattr(option.kind, "least", None)
    return ControlOf(
        name=option.name, label=control.label, kind=kind, needed=option.part == "subject",
        hint=control.hint, unsaid=control.unsaid, wide=control.wide,
        steps=list(BATCHES) if kind == "slider" else [], fine=control.fine,
        least=1 if isinstance(option.kind, Number) and least is None else least or 0,
        most=getattr(option.kind, "or_max", False),
    )  # fmt: skip
