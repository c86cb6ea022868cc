"""Builders that take their settings in dataclasses, and users who name the settings alone."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, field

import pytest

from simcore.workload.archs import ARCHS, lm_settings, load, settings_by_part
from simcore.workload.graph import Block, Workload
from simcore.workload.models import MODELS, setting_defaults, setting_kinds


@dataclass(frozen=True, kw_only=True)
class Inner:
    depth: int
    scale: float = 0.5


@dataclass(frozen=True, kw_only=True)
class Outer:
    inner: Inner
    wide: bool = False


@dataclass(frozen=True, kw_only=True)
class Other:
    depth_of_other: int | None = None
    names: str = field(default="a")


@settings_by_part
def built(*, name: str, sample_unit: str = "sequence", first: Outer, other: Other) -> Workload:
    """A workload that notes what it was built with."""
    return Workload(
        name=name, sample_unit=sample_unit, blocks=(Block(name="b", ops=()),), order=(0,),
        notes=(repr((first, other)),),
    )  # fmt: skip


def test_settings_are_handed_to_the_part_that_has_them() -> None:
    found = built(name="n", depth=3, wide=True, names="z")
    assert found.notes == (repr((Outer(inner=Inner(depth=3), wide=True), Other(names="z"))),)
    assert (found.name, found.sample_unit) == ("n", "sequence")


def test_the_signature_lists_every_setting_with_its_type_and_default() -> None:
    parameters = inspect.signature(built).parameters
    assert list(parameters) == [
        "name", "sample_unit", "depth", "scale", "wide", "depth_of_other", "names",
    ]  # fmt: skip
    assert parameters["depth"].default is inspect.Parameter.empty
    assert (parameters["depth"].annotation, parameters["scale"].default) == ("int", 0.5)
    assert built.__doc__ == "A workload that notes what it was built with."


@pytest.mark.parametrize(
    "settings", [{"depth": 1, "deep": 2}, {"depth": 1, "inner": Inner(depth=2)}]
)
def test_another_setting_is_refused(settings: dict[str, object]) -> None:
    with pytest.raises(TypeError, match=r"built\(\) has no settings (deep|inner)"):
        built(name="n", **settings)


def test_a_missing_setting_is_refused() -> None:
    with pytest.raises(TypeError, match="depth"):
        built(name="n")


def test_no_part_of_a_language_model_has_more_than_25_settings() -> None:
    parts = [c for c in vars(lm_settings).values() if inspect.isclass(c)]
    sizes = [len(c.__dataclass_fields__) for c in parts if hasattr(c, "__dataclass_fields__")]
    assert len(sizes) == 15 and max(sizes) <= 25


def test_no_setting_of_a_language_model_belongs_to_two_parts() -> None:
    load("transformer")
    names = list(inspect.signature(ARCHS["transformer"]).parameters)
    assert len(names) == len(set(names)) > 100
    assert setting_kinds("transformer").keys() >= MODELS["llama3.1-8b"].config.keys()
    assert setting_defaults("transformer")["attention"] == "flash"
