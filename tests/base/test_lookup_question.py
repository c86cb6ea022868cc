"""What is looked up once while one question is answered, and what is computed when asked for."""

from __future__ import annotations

import copy
import pickle
from contextvars import ContextVar

import pytest

from simcore.base.lookup import Later, once_a_question, one_question

NUMBER: ContextVar[int] = ContextVar("NUMBER", default=0)
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


def test_it_is_made_once_and_not_before_it_is_asked_for() -> None:
    made: list[int] = []
    later = Later(lambda: made.append(1) or len(made))
    assert not made
    assert (later.value, later.value) == (1, 1) and made == [1]


def test_it_is_made_in_the_context_in_which_it_was_promised() -> None:
    token = NUMBER.set(7)
    later = Later(NUMBER.get)
    NUMBER.reset(token)
    assert (NUMBER.get(), later.value) == (0, 7)


def test_a_copy_and_a_pickle_hold_the_value() -> None:
    later = Later(lambda: [1, 2])  # a lambda itself cannot be pickled
    assert pickle.loads(pickle.dumps(later)).value == copy.deepcopy(later).value == [1, 2]


def test_what_goes_wrong_is_raised_where_it_is_asked_for() -> None:
    later: Later[float] = Later(lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        later.value  # noqa: B018
