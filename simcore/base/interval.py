"""A value with its 80 % interval and the origin of that interval."""

from __future__ import annotations

from dataclasses import dataclass

#: Two-sided 80 % interval: the 10th and the 90th percentile.
LOW_QUANTILE = 0.10
HIGH_QUANTILE = 0.90
#: Standard normal quantile of HIGH_QUANTILE.
Z80 = 1.2815515655446004


@dataclass(frozen=True, slots=True)
class Interval:
    """A value and the bounds of 80 % of the probability around it, all in one unit.

    ``origin`` says in words where the bounds are from.
    """

    value: float
    low: float
    high: float
    origin: str

    def __post_init__(self) -> None:
        if not self.low <= self.value <= self.high:
            raise ValueError(f"interval out of order: {self.low}, {self.value}, {self.high}")

    def __float__(self) -> float:
        return self.value

    def __format__(self, spec: str) -> str:
        return format(self.value, spec) if spec else str(self)
