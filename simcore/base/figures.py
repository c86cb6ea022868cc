"""Figures with a unit and a source, as the YAML databases write them."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from simcore.base.database import Record
from simcore.base.units import Dimension, parse_quantity


class Part(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")


class Figure(Part):
    """A number (SI), the source it is from, and a note where the source needs one."""

    value: float
    source: str
    note: str = ""


def _figure(dimension: Dimension | None) -> Any:
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
                value = float(value)
                if not 0 <= value < float("inf"):
                    raise ValueError(f"value {value!r} must be finite and not negative")
            else:
                value = parse_quantity(value, dimension)
            raw = {**raw, "value": value}
        return raw

    return BeforeValidator(parse)


Count = Annotated[Figure, _figure(None)]
Bytes = Annotated[Figure, _figure("bytes")]
Bandwidth = Annotated[Figure, _figure("bytes_per_s")]
FlopRate = Annotated[Figure, _figure("flop_per_s")]
Seconds = Annotated[Figure, _figure("seconds")]
Hertz = Annotated[Figure, _figure("hertz")]
Watts = Annotated[Figure, _figure("watts")]


class Sourced(Record):
    """A record whose figures cite the ``sources`` map of the same file."""

    sources: dict[str, str] = Field(min_length=1)

    @model_validator(mode="after")
    def _every_source_is_known(self) -> Sourced:
        for key, figure in self.figures().items():
            if figure.source not in self.sources:
                raise ValueError(f"{key}: source {figure.source!r} is not in 'sources'")
        return self

    def figures(self) -> dict[str, Figure]:
        """Every figure of the record by its dotted key."""
        found: dict[str, Figure] = {}

        def walk(prefix: str, value: object) -> None:
            if isinstance(value, Figure):
                found[prefix] = value
            elif isinstance(value, dict):
                for key, item in value.items():
                    walk(f"{prefix}.{key}", item)
            elif isinstance(value, tuple):
                for i, item in enumerate(value):
                    walk(f"{prefix}[{i}]", item)
            elif isinstance(value, BaseModel):
                for key in type(value).model_fields:
                    walk(f"{prefix}.{key}".lstrip("."), getattr(value, key))

        walk("", self)
        return found
