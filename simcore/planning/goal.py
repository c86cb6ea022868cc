"""The goal of a plan: the length of the run, its limits and the objective."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field
from datetime import datetime

from simcore.base.errors import InvalidConfig, UnknownName
from simcore.base.record import dataclass
from simcore.hardware.prices import PriceBook
from simcore.planning.goodput import Reliability

#: What a plan can minimise: name -> description.
OBJECTIVES: dict[str, str] = {
    "cost": "US dollars for the run",
    "time": "time to train",
    "energy": "GPU energy of the run",
    "gpus": "number of GPUs",
    "step": "step time",
}


#: Probability of meeting deadline and budget that an option should have where none is given.
CONFIDENCE = 0.9


@dataclass(frozen=True, kw_only=True)
class Goal:
    """Length of a run, its limits (None: no limit) and the objective. Raises InvalidConfig.

    samples, tokens, steps   length of the run, in training data or optimizer steps; one of them
    begins, ends  start and deadline as dates, where they were given so
    power_w       rated power of the GPUs
    margin_frac   share of each GPU's memory that must stay free
    available     GPUs that are available, by type
    confidence    least probability of meeting deadline and budget, given the interval of the step
                  time; None: ``CONFIDENCE``, where an option has it
    objective     one of ``OBJECTIVES``, which is minimised
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
            problems.append("give the length of the run: --tokens, --samples, --epochs or --steps")
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
            problems.append("--confidence needs a --deadline or a --budget: give one")
        if self.objective not in OBJECTIVES:
            problems.append(str(UnknownName("objective", self.objective, OBJECTIVES)))
        if problems:
            raise InvalidConfig(problems)

    @property
    def limits_time_or_cost(self) -> bool:
        """Whether there is a limit that an option meets only with some probability."""
        return self.deadline_s is not None or self.budget_usd is not None

    @property
    def needs_prices(self) -> bool:
        """Whether an option without a known cost cannot be taken."""
        return self.budget_usd is not None or self.objective == "cost"

    def unpriced(self, gpus: Iterable[str]) -> tuple[str, ...]:
        """The GPU types that cannot be taken, since no price is known."""
        return tuple(n for n in dict.fromkeys(gpus) if self.needs_prices and not self.prices.of(n))


def available_gpus(texts: tuple[str, ...]) -> tuple[tuple[str, int], ...]:
    """Numbers of available GPUs by type, from texts such as ``H100=512``. Raises InvalidConfig."""
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
