"""Numbers of the command line, as people write them."""

from __future__ import annotations

import pytest

from simcore.base.errors import Problems
from simcore.cli.options import count, whole


@pytest.mark.parametrize(
    ("text", "value"),
    [("15T", 15e12), ("300B", 300e9), ("300 g", 300e9), ("2.5M", 2.5e6), ("8k", 8e3),
     ("1e12", 1e12)],
)  # fmt: skip
def test_counts_may_end_in_a_letter(text: str, value: float) -> None:
    problems = Problems()
    assert count("tokens", text, problems) == pytest.approx(value)
    assert not problems


@pytest.mark.parametrize("text", ["T", "xT", "1.5.2B", "1e12x", "", "infT"])
def test_what_is_no_count_is_one_sentence(text: str) -> None:
    problems = Problems()
    assert count("tokens", text, problems) is None
    assert len(problems) == 1 and "--tokens" in problems[0]


@pytest.mark.parametrize(
    ("flag", "text", "meant"),
    [
        ("seq-len", "128k", 131072), ("seq-len", "1M", 2**20), ("steps", "10k", 10_000),
        ("global-batch", "1e3", 1000), ("micro-batch", "4,096", 4096), ("tp", "2.0", 2),
    ],
)  # fmt: skip
def test_a_whole_number_otherwise_written_is_proposed(flag: str, text: str, meant: int) -> None:
    problems = Problems()
    assert whole(flag, text, problems) is None
    assert problems == [f"--{flag} {text!r} is not a whole number: did you mean {meant}?"]


@pytest.mark.parametrize("text", ["two", "2.5", "k", "", "nan", "1.2345k!"])
def test_what_is_no_number_proposes_none(text: str) -> None:
    problems = Problems()
    assert whole("seq-len", text, problems) is None
    assert problems == [f"--seq-len {text!r} is not a whole number"]
