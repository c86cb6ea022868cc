"""Errors are values too: they travel between processes."""

from __future__ import annotations

import pickle

import pytest

from simcore.base.errors import (
    BadQuantity,
    DataError,
    InvalidConfig,
    SimcoreError,
    UnknownName,
    UsageError,
)


def test_the_nearest_name_may_be_an_alias_and_each_thing_is_proposed_once() -> None:
    aliases = {"H100": "H100-SXM-80GB", "H100-SXM": "H100-SXM-80GB", "V100": "V100-SXM-16GB"}
    text = str(UnknownName("gpu", "H1000", ["H100-SXM-80GB", "V100-SXM-16GB"], "", aliases))
    assert "did you mean 'H100'? (also near: V100)" in text
    assert "H100-SXM" not in text


@pytest.mark.parametrize(
    "error",
    [
        UsageError("no"),
        UnknownName("GPU", "H10", ["H100", "A100"], "see `simcore list gpus`"),
        BadQuantity("3 is no length"),
        InvalidConfig(["one", "two"]),
        DataError("wrong", file="a.csv", line=3, key="x"),
    ],
)
def test_errors_survive_pickling(error: SimcoreError) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error) and str(again) == str(error)
    assert again.__dict__ == error.__dict__
