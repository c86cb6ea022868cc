"""The page's form as data: groups of controls, made from the table of options.

``static/controls.js`` draws the controls. Besides the options, the page has controls for the parts
of the cluster's text, and two for files to upload.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, Field

from simcore.serve.query import SetUp
from simcore.strategy.options import OPTIONS, Number, Option
from simcore.strategy.options.job import BATCHES, QLORA
from simcore.strategy.options.option import GROUPS

#: Positions of the slider for nodes.
NODES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 2 * 512)


class ControlOf(BaseModel):
    """One control of the form."""

    name: str = Field(description="the parameter that it sets, or else its own name")
    label: str
    kind: Literal["select", "name", "number", "text", "slider", "file", "error"]
    help: str = Field(
        default="", description="what it means, in the words of --help, with the unit"
    )
    needed: bool = Field(default=False, description="whether a value is required")
    part: bool = Field(default=False, description="whether it sets a part of the cluster's text")
    of: str = Field(default="", description="file: the parameter that it sets")
    accept: str = Field(default="", description="file: accepted endings")
    hint: str = Field(default="", description="example that is shown while it is empty")
    unsaid: str = Field(default="", description="default to show until an answer states the value")
    steps: list[int] = Field(default=[], description="slider: its positions")
    fine: bool = Field(default=False, description="number: whether it may have a fraction")
    least: float = Field(default=1, description="number: least value")
    most: bool = Field(default=False, description="whether `max` is accepted too")
    wide: bool = Field(default=False, description="whether it spans both columns")
    sets: dict[str, dict[str, str]] = Field(
        default={}, description="select: what each of its entries sets, instead of a value"
    )
    values: str = Field(default="", description="values that the map proposes; empty: no axis")


class Group(BaseModel):
    """Controls under one heading."""

    title: str
    closed: bool = Field(description="whether it stands among the other options")
    controls: list[ControlOf]


#: What the kinds of training set.
_TRAINING = {
    "all weights": dict.fromkeys(QLORA, ""),
    "LoRA adapters": {**dict.fromkeys(QLORA, ""), "lora_rank": QLORA["lora_rank"]},
    "QLoRA (4-bit base)": QLORA,
}
#: The controls that are not options, each with its group and its place in the group.
_OWN: tuple[tuple[str, int, ControlOf], ...] = (
    ("Job", -8, ControlOf(name="training", label="What is trained", kind="select", needed=True,
                          sets=_TRAINING, help="Train all weights, or adapters on a frozen base.")),
    ("Cluster", -3, ControlOf(name="gpu", label="GPU", kind="name", part=True, wide=True,
                              help="Type of the GPUs, by any of its names: h100, A100 40GB.")),
    ("Cluster", -2, ControlOf(name="nodes", label="Nodes", kind="slider", steps=list(NODES),
                              part=True, wide=True, values="1,2,4,8",
                              help="Number of nodes: machines with one or more GPUs each.")),
    ("Cluster", -1, ControlOf(name="perNode", label="GPUs per node", kind="number", part=True,
                              help="Number of GPUs in each node.")),
    ("More", -2, ControlOf(name="model_file", label="Model from your config.json", kind="file",
                           of="model", accept=".json", wide=True,
                           help="A Hugging Face config.json; it is read, never run.")),
    ("More", -1, ControlOf(name="gpus_text", label="Cluster as text (mixed GPU types)", kind="text",
                           hint="1x2xA100+1x3xT4", wide=True,
                           help=OPTIONS["gpus"].help)),
    ("More", 10, ControlOf(name="calibration_file", label="Calibration from your .yaml",
                           kind="file", of="calibration", accept=".yaml,.yml", wide=True,
                           help="A calibration that `simcore calibrate` wrote.")),
)  # fmt: skip


def controls() -> list[Group]:
    """The groups of the form, in order."""
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
    if getattr(option.kind, "counts", False):
        kind = "text"  # 300B
    least = getattr(option.kind, "least", None)
    return ControlOf(
        name=option.name, label=control.label, kind=kind, needed=option.part == "subject",
        hint=control.hint, unsaid=control.unsaid, wide=control.wide,
        steps=list(BATCHES) if kind == "slider" else [], fine=control.fine,
        help=meaning(option), values=control.values,
        least=1 if isinstance(option.kind, Number) and least is None else least or 0,
        most=kind == "slider" and getattr(option.kind, "or_max", False),
    )  # fmt: skip


def meaning(option: Option) -> str:
    """What an option means, in the words of ``--help``, with its unit and its flag."""
    own = SetUp.model_fields.get(option.name)  # files and code are not for the page
    text = option.help_text if own is None else f"{own.description}."
    return f"{text}{f' [{option.unit}]' if option.unit else ''} ({option.typed})"
