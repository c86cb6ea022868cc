"""What is looked up once while one question is answered."""

from __future__ import annotations

import pytest

from simcore.base.question import once_a_question, one_question

CALLS: list[int] = []


@once_a_question
def looked_up(n: int) -> int:
    CALLS.append(n)
    if n < 0:
        raise ValueError(n)
    return len(CALLS)


@pytest.fixture(autouse=True)
def no_calls() -> None:
    CALLS.clear()


def test_within_a_question_equal_arguments_are_looked_up_once() -> None:
    with one_question():
        assert looked_up(1) == looked_up(1)
        with one_question():  # part of the same question
            looked_up(1)
        looked_up(2)
    assert CALLS == [1, 2]


def test_between_questions_and_outside_of_any_it_is_looked_up_anew() -> None:
    for _ in range(2):
        with one_question():
            looked_up(1)
    looked_up(1)
    looked_up(1)
    assert CALLS == [1, 1, 1, 1]


def test_an_error_is_not_kept() -> None:
    with one_question():
        for _ in range(2):
            with pytest.raises(ValueError, match="-1"):
                looked_up(-1)
    assert CALLS == [-1, -1]
