"""What a plan is for: how much training, by when, for how much, on what."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from simcore.base.errors import InvalidConfig, UnknownName
from simcore.hardware.prices import PriceBook
from simcore.planning.goodput import Reliability

#: What a plan can make small: name -> (what it is called, unit of its figures).
OBJECTIVES: dict[str, str] = {
    "cost": "US dollars for the run",
    "time": "time to train",
    "energy": "GPU energy of the run",
    "gpus": "number of GPUs",
    "step": "step time",
}


@dataclass(frozen=True, kw_only=True)
class Goal:
    """Length of the run (one of them), limits (None: no limit), and what to make small.

    ``samples`` or ``tokens`` of training data, or optimizer ``steps``. ``margin_frac``: share of
    the GPU's memory to leave free. ``begins``, ``ends``: the moments between which ``deadline_s``
    lies, where they were asked for. ``available``: GPUs of a type that can be had, by name.
    ``confidence``: how probable it must be that deadline and budget are met, given the interval
    of the step time; None asks of the central estimate only.
    """

    samples: float | None = None
    tokens: float | None = None
    steps: float | None = None
    deadline_s: float | None = None
    begins: datetime | None = None
    ends: datetime | None = None
    budget_usd: float | None = None
    power_w: float | None = None
    margin_frac: float = 0.0
    max_gpus: int | None = None
    available: tuple[tuple[str, int], ...] = ()
    confidence: float | None = None
    objective: str = "cost"
    prices: PriceBook
    reliability: Reliability = field(default_factory=Reliability)

    def __post_init__(self) -> None:
        problems = []
        lengths = [n for n in ("samples", "tokens", "steps") if getattr(self, n) is not None]
        if len(lengths) != 1:
            problems.append("say how long to train: one of --tokens, --samples, --epochs, --steps")
        for name in ("samples", "tokens", "steps", "deadline_s", "budget_usd", "power_w"):
            value = getattr(self, name)
            if value is not None and not 0 < value < float("inf"):
                word = name.removesuffix("_s").removesuffix("_usd").removesuffix("_w")
                problems.append(f"{word} must be above zero, not {value:g}")
        if not 0 <= self.margin_frac < 1:
            problems.append(f"memory margin must be 0 to 1, not {self.margin_frac:g}")
        if self.confidence is not None and not 0 < self.confidence < 1:
            problems.append(f"confidence must be between 0 and 1, not {self.confidence:g}")
        if self.confidence is not None and self.deadline_s is None and self.budget_usd is None:
            problems.append("--confidence is about --deadline or --budget: give one")
        if self.objective not in OBJECTIVES:
            problems.append(str(UnknownName("objective", self.objective, OBJECTIVES)))
        if problems:
            raise InvalidConfig(problems)


def available_gpus(texts: tuple[str, ...]) -> tuple[tuple[str, int], ...]:
    """``H100=512`` texts as counts by canonical name. Raises InvalidConfig."""
    from simcore.hardware.spec import GPUS

    problems, found = [], {}
    for text in (t for part in texts for t in part.split(",")):
        name, equals, count = text.partition("=")
        if not equals or not count.strip().isdigit():
            problems.append(f"--available {text.strip()!r} is not GPU=COUNT, such as H100=512")
            continue
        try:
            found[GPUS[name.strip()].name] = int(count)
        except UnknownName as err:
            problems.append(str(err))
    if problems:
        raise InvalidConfig(problems)
    return tuple(found.items())
