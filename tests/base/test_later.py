"""A value that is computed when it is first asked for, once."""

from __future__ import annotations

import copy
import pickle
from contextvars import ContextVar

import pytest

from simcore.base.later import Later

NUMBER: ContextVar[int] = ContextVar("NUMBER", default=0)


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
