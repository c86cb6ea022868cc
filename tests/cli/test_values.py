"""Numbers of the command line, as people write them."""

from __future__ import annotations

import pytest

from simcore.cli.values import count


@pytest.mark.parametrize(
    ("text", "value"),
    [("15T", 15e12), ("300B", 300e9), ("300 g", 300e9), ("2.5M", 2.5e6), ("8k", 8e3),
     ("1e12", 1e12)],
)  # fmt: skip
def test_counts_may_end_in_a_letter(text: str, value: float) -> None:
    problems: list[str] = []
    assert count("tokens", text, problems) == pytest.approx(value)
    assert not problems


@pytest.mark.parametrize("text", ["T", "xT", "1.5.2B", "1e12x", "", "infT"])
def test_what_is_no_count_is_one_sentence(text: str) -> None:
    problems: list[str] = []
    assert count("tokens", text, problems) is None
    assert len(problems) == 1 and "--tokens" in problems[0]
