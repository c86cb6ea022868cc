"""Figures with a unit and a source, as the YAML databases write them, and values with intervals."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import Annotated, Any

from simcore.base.part import KeyedError, Part, Reads, Record, entry, fields_of
from simcore.base.record import dataclass
from simcore.base.units import Dimension, parse_quantity

_Keys = tuple[int | str, ...]


class Figure(Part):
    """A number in SI units, its source, and a note where the source needs one."""

    value: float
    source: str
    note: str = ""


def _figure(dimension: Dimension | None) -> Any:
    """Reads a figure's value; ``dimension`` None: a plain number without unit."""

    def parse(raw: object) -> object:
        if isinstance(raw, Figure):
            return raw
        if not isinstance(raw, dict):
            raise ValueError("write a figure as {value: …, source: …}")
        if "value" in raw:
            value = raw["value"]
            if dimension is None:
                if isinstance(value, bool) or not isinstance(value, (int, float)):
                    raise ValueError(f"value {value!r} must be a plain number")
                if not 0 < value <= sys.float_info.max:
                    raise ValueError(f"value {value!r:.40} must be finite and above zero")
                value = float(value)
            else:
                value = parse_quantity(value, dimension)
            raw = {**raw, "value": value}
        return raw

    return Reads(parse)


Count = Annotated[Figure, _figure(None)]
Bytes = Annotated[Figure, _figure("bytes")]
Bandwidth = Annotated[Figure, _figure("bytes_per_s")]
FlopRate = Annotated[Figure, _figure("flop_per_s")]
Seconds = Annotated[Figure, _figure("seconds")]
Hertz = Annotated[Figure, _figure("hertz")]
Watts = Annotated[Figure, _figure("watts")]


class Sourced(Record):
    """A record whose figures cite the ``sources`` map of the same file."""

    sources: dict[str, str] = entry(min_length=1)

    def check(self) -> None:
        """Raises KeyedError where a figure's source is none of ``sources``."""
        for keys, part in _parts(self):
            source = getattr(part, "source", None) if getattr(part, "cites", False) else None
            if isinstance(source, str) and source not in self.sources:
                raise KeyedError((*keys, "source"), f"{source!r} is not in 'sources'")

    def figures(self) -> dict[str, Figure]:
        """Dotted key -> figure, for every figure of the record."""
        return {_dotted(keys): part for keys, part in _parts(self) if isinstance(part, Figure)}


def _parts(value: object, keys: _Keys = ()) -> Iterator[tuple[_Keys, Part]]:
    """Every part in ``value``, outermost first, with the path of keys to it."""
    inside: Iterable[tuple[int | str, object]] = ()
    if isinstance(value, Part):
        yield keys, value
        inside = ((f.name, getattr(value, f.name)) for f in fields_of(type(value)))
    elif isinstance(value, dict):
        inside = value.items()
    elif isinstance(value, tuple):
        inside = enumerate(value)
    for at, item in inside:
        yield from _parts(item, (*keys, at))


def _dotted(keys: _Keys) -> str:
    return "".join(f"[{k}]" if isinstance(k, int) else f".{k}" for k in keys).lstrip(".")


#: Two-sided 80 % interval: the 10th and the 90th percentile.
LOW_QUANTILE = 0.10
HIGH_QUANTILE = 0.90
#: Standard normal quantile of HIGH_QUANTILE.
Z80 = 1.2815515655446004


@dataclass(frozen=True)
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
