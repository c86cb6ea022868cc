"""Cheap frozen dataclasses beside those of Python's library, which they must not differ from."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
from functools import cached_property
from typing import Any, ClassVar

import pytest

from simcore.base.record import dataclass, replace


@dataclass(frozen=True)
class Point:
    x: int
    y: int = 2
    tags: dict[str, int] = dataclasses.field(default_factory=dict, hash=False)
    note: str = dataclasses.field(default="", compare=False, repr=False)
    unit: ClassVar[str] = "m"


@dataclasses.dataclass(frozen=True)
class LibraryPoint:
    x: int
    y: int = 2
    tags: dict[str, int] = dataclasses.field(default_factory=dict, hash=False)
    note: str = dataclasses.field(default="", compare=False, repr=False)
    unit: ClassVar[str] = "m"


@dataclass(frozen=True, kw_only=True)
class Named(Point):
    name: str
    size: int = 0

    def __post_init__(self) -> None:
        if self.size < 0:
            raise ValueError("size")


@dataclasses.dataclass(frozen=True, kw_only=True)
class LibraryNamed(LibraryPoint):
    name: str
    size: int = 0

    def __post_init__(self) -> None:
        if self.size < 0:
            raise ValueError("size")


@dataclass(frozen=True, eq=False)
class Alone:
    it: int = 1


@pytest.mark.parametrize(
    "ask",
    [
        lambda point, named: (point(1).x, point(1).y, point(1, y=5).y, point(x=3).x, point.y),
        lambda point, named: hasattr(point, "x") or hasattr(point, "tags"),
        lambda point, named: point(1).unit,
        lambda point, named: repr(named(1, name="a")).partition("(")[2],
        lambda point, named: dataclasses.asdict(named(1, 3, {"k": 1}, name="a", size=4)),
        lambda point, named: [(f.name, f.type, f.kw_only) for f in dataclasses.fields(named)],
        lambda point, named: dataclasses.replace(named(1, name="a"), y=7).y,
        lambda point, named: (point(1) == point(1), point(1) == point(2), point(1) == 1),
        lambda point, named: point(1, note="a") == point(1, note="b"),
        lambda point, named: hash(point(1, 2, {"k": 1})) == hash(point(1)),
        lambda point, named: point(1) == named(1, name="a"),
        lambda point, named: point(1).tags is point(1).tags,
        lambda point, named: [(p.name, p.kind, p.default is p.empty, p.annotation)
                              for p in inspect.signature(named).parameters.values()],
        lambda point, named: pickle.loads(pickle.dumps(point(1, 4))).y,
        lambda point, named: copy.copy(point(1, 4)).y,
        lambda point, named: dataclasses.is_dataclass(point),
    ],
)  # fmt: skip
def test_they_behave_as_those_of_the_library(ask: Any) -> None:
    assert ask(Point, Named) == ask(LibraryPoint, LibraryNamed)


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda point, named: point(), "needs 'x'"),
        (lambda point, named: point(1, 2, {}, "", 5), "at most 4"),
        (lambda point, named: point(1, x=2), "'x' is unknown or given twice"),
        (lambda point, named: point(1, z=2), "'z' is unknown or given twice"),
        (lambda point, named: point(z=2), "'z' is unknown or given twice"),
        (lambda point, named: point(1, unit="km"), "'unit' is unknown"),
        (lambda point, named: named(1, 2, {}, "", "a"), "at most 4"),
        (lambda point, named: named(1), "needs 'name'"),
        (lambda point, named: hash(named(1, name={})), "unhashable"),
    ],
)
def test_what_does_not_fit_is_refused(make: Any, told: str) -> None:
    with pytest.raises(TypeError, match=told):
        make(Point, Named)
    with pytest.raises(TypeError):
        make(LibraryPoint, LibraryNamed)


def test_a_record_does_not_change() -> None:
    point = Point(1)
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot be changed"):
        point.x = 2  # type: ignore[misc]
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot be changed"):
        del point.x
    assert point.x == 1


def test_checks_after_the_start_run_and_identity_is_kept_where_asked() -> None:
    with pytest.raises(ValueError, match="size"):
        Named(1, name="a", size=-1)
    with pytest.raises(ValueError, match="size"):
        dataclasses.replace(Named(1, name="a"), size=-1)
    assert Alone() != Alone() and len({Alone(), Alone()}) == 2


def test_a_dataclass_that_changes_is_not_declared_this_way() -> None:
    with pytest.raises(TypeError, match="Python's library"):
        dataclass(frozen=False)(type("Changing", (), {}))


@dataclass(frozen=True)
class Counted:
    it: int
    seen: dict[str, int] = dataclasses.field(default_factory=dict, init=False)

    @cached_property
    def twice(self) -> int:
        return 2 * self.it


@dataclass(frozen=True)
class Square:
    side: int

    @cached_property
    def area(self) -> int:
        return self.side**2


def test_a_copy_has_the_changes_and_nothing_that_was_computed_before() -> None:
    named = Named(1, 3, {"k": 1}, name="a")
    assert replace(named, y=7, size=2) == Named(1, 7, {"k": 1}, name="a", size=2)
    assert replace(named).tags is named.tags
    square = Square(3)
    assert square.area == 9
    assert replace(square, side=4).area == 16
    counted = Counted(3)
    counted.seen["a"] = counted.twice
    assert (replace(counted, it=5).twice, replace(counted).seen) == (10, {})
    assert replace(LibraryPoint(1), y=7) == LibraryPoint(1, 7)


def test_a_copy_is_checked_as_a_new_one_is() -> None:
    with pytest.raises(ValueError, match="size"):
        replace(Named(1, name="a"), size=-1)
    with pytest.raises(TypeError, match="'z' is unknown"):
        replace(Named(1, name="a"), z=1)
