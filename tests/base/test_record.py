"""Records: fields by order and name, defaults, and no change afterwards."""

from __future__ import annotations

from typing import ClassVar

import pytest

from simcore.base.record import Record


class Point(Record):
    x: int
    y: int = 2
    unit: ClassVar[str] = "m"


class Named(Record, kw_only=True):
    name: str
    size: int = 0


def test_fields_by_order_and_by_name() -> None:
    assert (Point(1).x, Point(1).y, Point(1, y=5).y, Point(x=3).x) == (1, 2, 5, 3)
    assert Point(1).unit == "m" and repr(Point(1)) == "Point(x=1, y=2)"
    assert Named(name="a").size == 0


@pytest.mark.parametrize(
    "make",
    [
        lambda: Point(),  # type: ignore[call-arg]
        lambda: Point(1, 2, 3),  # type: ignore[call-arg]
        lambda: Point(1, x=2),  # type: ignore[misc]
        lambda: Point(1, z=2),  # type: ignore[call-arg]
        lambda: Point(1, unit="km"),  # type: ignore[call-arg]
        lambda: Named("a"),  # type: ignore[misc]
    ],
)
def test_what_does_not_fit_is_refused(make: object) -> None:
    with pytest.raises(TypeError):
        make()  # type: ignore[operator]


def test_a_record_does_not_change() -> None:
    point = Point(1)
    with pytest.raises(AttributeError, match="cannot be changed"):
        point.x = 2  # type: ignore[misc]
    assert point.x == 1
