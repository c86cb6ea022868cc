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
    nearest,
)


def test_the_nearest_name_may_be_an_alias_and_each_thing_is_proposed_once() -> None:
    aliases = {"H100": "H100-SXM-80GB", "H100-SXM": "H100-SXM-80GB", "V100": "V100-SXM-16GB"}
    text = str(UnknownName("gpu", "H1000", ["H100-SXM-80GB", "V100-SXM-16GB"], "", aliases))
    assert "did you mean 'H100'? (also near: V100)" in text
    assert "H100-SXM" not in text


def test_a_family_is_named_whole_and_no_list_is_arbitrary() -> None:
    known = [f"llama-{n}b" for n in range(20)] + ["kimi-k2"]
    hint = "(`simcore list models`)"
    assert "did you mean 'kimi-k2'? (" in str(UnknownName("model", "kimi", known, hint))
    named = str(UnknownName("model", "llama", known, hint))
    assert "did you mean one of llama-0b, llama-1b, " in named and "llama-11b …?" in named
    assert str(UnknownName("model", "xyz", known, hint)) == (
        "unknown model 'xyz': none of 21 is near (`simcore list models`)"
    )
    # without a place to look them up, or of few, they are listed
    assert "known are kimi-k2, llama-0b" in str(UnknownName("model", "xyz", known))
    assert "known are kimi-k2 (" in str(UnknownName("model", "xyz", ["kimi-k2"], hint))


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


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("sequence-len", "seq-len"),  # as many letters in common as with sequence-parallel
        ("sequence-paralel", "sequence-parallel"),
    ],
)
def test_words_count_beside_letters(typed: str, meant: str) -> None:
    known = ["sequence-parallel", "seq-len", "sequences"]
    assert nearest(typed, known, 1) == [meant]
