"""Conditions on named facts, in data: which of a list of rules or facts apply to a job or a row.

``when`` maps names of facts to conditions. All must hold:

    text      the fact equals the text; ``*``, ``?`` and ``[]`` are wildcards, as in file names
    "<1.11"   comparison of a number or version with <, <=, > or >=; false for any other text. A
              text of digits with one point is a number, so that versions need two: 1.10.0
    /text/    the regular expression matches somewhere in the fact
    unknown   the fact is blank
    given     the fact is not blank
    [a, b]    at least one of these conditions holds

Two keys of ``when`` are not facts: ``says`` lists words that must all occur in the fact ``text``,
and ``not`` has another ``when`` that must not hold.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from fnmatch import translate
from functools import lru_cache, partial
from typing import Any, cast

#: Facts by name: texts, blank if they are not known.
Facts = Mapping[str, str]

#: Whether a condition holds for some facts.
Test = Callable[[Facts], bool]

#: Name of the fact that ``says`` searches, in lower case.
TEXT = "text"
UNKNOWN, GIVEN = "unknown", "given"
_EXPRESSION = re.compile(r"/(.+)/", re.DOTALL)
_COMPARED = re.compile(r"(<=|>=|<|>)\s*(\d+(?:\.\d+)*)")
_WILDCARDS = frozenset("*?[")
_VERSION = re.compile(r"\d+(?:\.\d+)+")
_SIGNS = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}


def holds(when: Mapping[str, Any], facts: Facts) -> bool:
    """Whether all conditions hold. Raises KeyError for a fact that is not among ``facts``."""
    return all_hold(tests_of(when), facts)


def tests_of(when: Mapping[str, Any]) -> list[Test]:
    """The tests that conditions are, for ``all_hold`` of many rows."""
    return [_test_named(name, condition) for name, condition in when.items()]


def all_hold(tests: Iterable[Test], facts: Facts) -> bool:
    """Whether all tests hold. Raises KeyError for a fact that is not among ``facts``."""
    for test in tests:  # noqa: SIM110  all() takes twice as long
        if not test(facts):
            return False
    return True


def _test_named(name: str, condition: Any) -> Test:
    if name == "not":
        inner = tests_of(condition)
        return lambda facts: not all_hold(inner, facts)
    if name == "says":
        said = [condition] if isinstance(condition, str) else cast("Sequence[str]", condition)
        words = [word.lower() for word in said]
        return lambda facts: all(word in facts[TEXT] for word in words)
    if isinstance(condition, list | tuple):
        tests = [_test_of(one) for one in condition]
        return lambda facts: any(test(facts[name]) for test in tests)
    test = _test_of(condition)
    return lambda facts: test(facts[name])


@lru_cache(maxsize=4096, typed=True)  # typed: True is not 1
def _test_of(condition: Any) -> Callable[[str], bool]:
    """The test that a condition is for one fact."""
    if condition in (UNKNOWN, GIVEN):
        return lambda fact: (fact == "") is (condition == UNKNOWN)
    if not isinstance(condition, str):
        return lambda fact: not isinstance(condition, bool) and _number_of(fact) == condition
    if compared := _COMPARED.fullmatch(condition):
        return partial(_compares, compared[1], compared[2])
    if found := _EXPRESSION.fullmatch(condition):
        search = re.compile(found[1]).search
        return lru_cache(maxsize=1000)(lambda fact: search(fact) is not None)
    if _WILDCARDS.isdisjoint(condition):
        return condition.__eq__
    matches = re.compile(translate(condition)).match
    return lru_cache(maxsize=1000)(lambda fact: matches(fact) is not None)


def _number_of(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _compares(sign: str, bound: str, fact: str) -> bool:
    """Whether a number or a version is less or more than a bound; no for other text."""
    compare: Callable[[Any, Any], bool] = _SIGNS[sign]
    if (number := _number_of(fact)) is not None:
        return compare(number, float(bound))
    if not _VERSION.fullmatch(fact):
        return False
    versions = [tuple(map(int, text.split("."))) for text in (fact, bound)]
    length = max(map(len, versions))
    return compare(*(v + (0,) * (length - len(v)) for v in versions))
