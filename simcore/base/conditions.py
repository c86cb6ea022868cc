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
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, cast

#: Facts by name: texts, blank if they are not known.
Facts = Mapping[str, str]

#: Name of the fact that ``says`` searches, in lower case.
TEXT = "text"
UNKNOWN, GIVEN = "unknown", "given"
_EXPRESSION = re.compile(r"/(.+)/", re.DOTALL)
_COMPARED = re.compile(r"(<=|>=|<|>)\s*(\d+(?:\.\d+)*)")
_VERSION = re.compile(r"\d+(?:\.\d+)+")
_SIGNS = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}


def holds(when: Mapping[str, Any], facts: Facts) -> bool:
    """Whether all conditions hold. Raises KeyError for a fact that is not among ``facts``."""
    return all(_one_holds(name, condition, facts) for name, condition in when.items())


def _one_holds(name: str, condition: Any, facts: Facts) -> bool:
    if name == "not":
        return not holds(condition, facts)
    if name == "says":
        words = [condition] if isinstance(condition, str) else cast("Sequence[str]", condition)
        return all(word.lower() in facts[TEXT] for word in words)
    conditions = condition if isinstance(condition, list | tuple) else [condition]
    return any(_matches(one, facts[name]) for one in conditions)


def _matches(condition: Any, fact: str) -> bool:
    if condition in (UNKNOWN, GIVEN):
        return (fact == "") is (condition == UNKNOWN)
    if not isinstance(condition, str):
        return not isinstance(condition, bool) and _number_of(fact) == condition
    if found := _COMPARED.fullmatch(condition):
        return _compares(fact, found[1], found[2])
    if found := _EXPRESSION.fullmatch(condition):
        return re.search(found[1], fact) is not None
    return fnmatchcase(fact, condition)


def _number_of(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _compares(fact: str, sign: str, bound: str) -> bool:
    """Whether a number or a version is less or more than a bound; no for other text."""
    compare: Callable[[Any, Any], bool] = _SIGNS[sign]
    if (number := _number_of(fact)) is not None:
        return compare(number, float(bound))
    if not _VERSION.fullmatch(fact):
        return False
    versions = [tuple(map(int, text.split("."))) for text in (fact, bound)]
    length = max(map(len, versions))
    return compare(*(v + (0,) * (length - len(v)) for v in versions))
