"""Rules that translate the cells of a published table to options of ``simcore predict``.

A corpus is a YAML file of ``validate/corpora`` whose sections are lists of rules:

    models:
      - when: {model: BERT-Large, says: [seq384, precision=fp32], torch: [unknown, "<1.11"]}
        words: {optimizer: lamb}            # the module that reads the section defines its keys
        source: optimization.py of the program, if args.fp16

``when`` maps names of facts of a row to conditions. All must hold:

    text      the fact equals the text; ``*``, ``?`` and ``[]`` are wildcards, as in file names
    "<1.11"   comparison of a number or version with <, <=, > or >=; false if the fact is not known
              or is not a number
    /text/    the regular expression matches somewhere in the fact
    unknown   the fact is not known, or blank
    given     the fact is known and not blank
    [a, b]    at least one of these conditions holds

Two keys of ``when`` are not facts: ``says`` lists words that must all occur in the row's text, and
``not`` has another ``when`` that must not hold. A rule without ``when`` always holds. ``source``
says where the rule's content is from.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast

from simcore.base.database import read_yaml, shipped_folder
from simcore.base.errors import DataError

#: A fact of a row: a cell's text, a number, a version or a switch; None if it is not known.
Fact = str | float | tuple[int, ...] | bool | None
Facts = Mapping[str, Fact]

#: Name of the fact that ``says`` searches: all of a row's text, in lower case.
TEXT = "text"
UNKNOWN, GIVEN = "unknown", "given"
_EXPRESSION = re.compile(r"/(.+)/", re.DOTALL)
_COMPARED = re.compile(r"(<=|>=|<|>)\s*(\d+(?:\.\d+)*)")
_VERSION = re.compile(r"\d+(?:\.\d+)+")
_SIGNS = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
_OWN_KEYS = ("when", "source")


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule: its condition ``when``, its ``source``, and ``gives``, all of its other keys."""

    when: Mapping[str, Any]
    gives: Mapping[str, Any]
    source: str = ""

    def holds(self, facts: Facts) -> bool:
        """Whether all conditions hold for a row's facts. Raises KeyError for an unknown fact."""
        return _holds(self.when, facts)


@dataclass(frozen=True, slots=True)
class Corpus:
    """The sections of a corpus: lists of rules, and tables of names (the source's -> simcore's)."""

    rules: Mapping[str, tuple[Rule, ...]]
    names: Mapping[str, Mapping[str, str]]

    def first(self, section: str, facts: Facts) -> Rule | None:
        """The first rule of a section that holds."""
        return next((r for r in self.rules[section] if r.holds(facts)), None)

    def every(self, section: str, facts: Facts) -> list[Rule]:
        """All rules of a section that hold, in order."""
        return [r for r in self.rules[section] if r.holds(facts)]

    def value(self, section: str, key: str, facts: Facts) -> Any:
        """The value of a key in the first rule that holds; None if there is none."""
        found = self.first(section, facts)
        return None if found is None else found.gives.get(key)


def corpus(name: str) -> Corpus:
    """The rules of ``validate/corpora/NAME.yaml``. Raises DataError."""
    return _corpus(str(corpora_folder() / f"{name}.yaml"))


def corpora_folder() -> Path:
    """The folder of the corpora, in the installed package or in a checkout."""
    return shipped_folder("validate/corpora")


@lru_cache(maxsize=8)
def _corpus(path: str) -> Corpus:
    file = Path(path)
    data = read_yaml(file)
    if not isinstance(data, dict):
        raise DataError("must be a mapping of sections", file=file, line=1)
    rules, names = {}, {}
    for section, content in data.items():
        if isinstance(content, dict):
            names[section] = MappingProxyType({str(k): v for k, v in content.items()})
        elif isinstance(content, list):
            rules[section] = tuple(_rule(file, section, one) for one in content)
        else:
            raise DataError(f"{section}: must be a list of rules or a table of names", file=file)
    return Corpus(MappingProxyType(rules), MappingProxyType(names))


def _rule(file: Path, section: str, data: Any) -> Rule:
    if not isinstance(data, dict) or not isinstance(data.get("when", {}), dict):
        raise DataError(f"{section}: a rule is a mapping, and so is its 'when'", file=file)
    gives = {k: v for k, v in data.items() if k not in _OWN_KEYS}
    when, source = data.get("when", {}), data.get("source", "")
    return Rule(MappingProxyType(when), MappingProxyType(gives), source)


def _holds(when: Mapping[str, Any], facts: Facts) -> bool:
    return all(_one_holds(name, condition, facts) for name, condition in when.items())


def _one_holds(name: str, condition: Any, facts: Facts) -> bool:
    if name == "not":
        return not _holds(condition, facts)
    if name == "says":
        words = [condition] if isinstance(condition, str) else cast("Sequence[str]", condition)
        return all(word.lower() in str(facts[TEXT]) for word in words)
    fact = facts[name]
    return any(
        _matches(one, fact) for one in (condition if isinstance(condition, list) else [condition])
    )


def _matches(condition: Any, fact: Fact) -> bool:
    unknown = fact in (None, "")
    if condition in (UNKNOWN, GIVEN):
        return unknown is (condition == UNKNOWN)
    if fact is None:
        return False
    if isinstance(fact, str) and not isinstance(condition, str):
        return not isinstance(condition, bool) and bool(_number_of(fact) == condition)
    if isinstance(condition, str) and (found := _COMPARED.fullmatch(condition)):
        return _compares(fact, found[1], found[2])
    if isinstance(fact, str):
        if isinstance(condition, str) and (found := _EXPRESSION.fullmatch(condition)):
            return re.search(found[1], fact) is not None
        return fnmatchcase(fact, str(condition))
    return bool(fact == condition)


def _number_of(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _version_of(text: str) -> tuple[int, ...] | None:
    return tuple(map(int, text.split("."))) if _VERSION.fullmatch(text) else None


def _compares(fact: Fact, sign: str, bound: str) -> bool:
    if isinstance(fact, str):
        number = _number_of(fact)
        fact = _version_of(fact) if number is None else number
        if fact is None:
            return False
    left: Any = fact if isinstance(fact, tuple) else (fact,)
    right: Any = tuple(map(int, bound.split("."))) if isinstance(fact, tuple) else (float(bound),)
    compare: Callable[[Any, Any], bool] = _SIGNS[sign]
    return compare(left, right)
