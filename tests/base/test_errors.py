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
