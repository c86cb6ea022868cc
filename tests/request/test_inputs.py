"""Everything that is wrong is told at once, each once."""

from __future__ import annotations

import pytest

from simcore.base.errors import InvalidConfig, UsageError
from simcore.request.inputs import Attempts


def _refuse(error: Exception) -> object:
    raise error


def test_what_can_be_made_is_kept_and_what_cannot_is_told() -> None:
    tries = Attempts(["before"])
    tries.make("one", lambda: 1)
    tries.make("none", lambda: None)
    tries.make("two", lambda: _refuse(UsageError("no two")))
    tries.make("three", lambda: _refuse(InvalidConfig(["no three", "nor this"])))
    assert tries["one"] == 1 and "none" in tries and "two" not in tries
    assert tries.get("two", "other") == "other" and tries.get("none", "other") is None
    with pytest.raises(InvalidConfig) as told:
        tries.stop()
    assert list(told.value.violations) == ["before", "no two", "no three", "nor this"]


def test_a_problem_is_told_once() -> None:
    tries = Attempts(["same", "same"])
    with pytest.raises(InvalidConfig) as told:
        tries.stop()
    assert list(told.value.violations) == ["same"]


def test_a_defect_is_no_problem_of_the_question() -> None:
    with pytest.raises(KeyError):
        Attempts().make("one", lambda: {}["missing"])


def test_defaults_are_told_in_the_order_of_asking() -> None:
    tries = Attempts()
    assert tries.chosen("strategy", None, "ddp") == "ddp"
    assert tries.chosen("precision", "bf16", "fp32") == "bf16"
    assert tries.chosen("grad-accum", 0, 1) == 0
    assert tries.defaults == ["strategy ddp"]
    tries.stop()
