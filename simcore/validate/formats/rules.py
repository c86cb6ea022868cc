"""Rules of a published corpus: data that says what a row's cells mean in words of ``predict``.

A corpus is a YAML file of ``validate/corpora`` with one list of rules a section:

    models:
      - when: {model: BERT-Large, says: [seq384, precision=fp32], torch: [unknown, "<1.11"]}
        words: {optimizer: lamb}            # what the reader makes of it is the section's business
        source: optimization.py of the program, if args.fp16

``when`` maps names of facts to conditions, all of which must hold:

    text      the fact equals it; ``*``, ``?`` and ``[]`` as in file names (V100-*)
    "<1.11"   a number or version compared: <, <=, >, >=; a fact that is not known, or is text and
              no number, never holds
    /text/    a regular expression that is found in the fact
    unknown   the fact is not known, or blank
    given     the fact is known
    [a, b]    any of these

``says`` lists words that must all stand in the row's text; ``not`` holds another ``when`` that must
not hold. A rule without ``when`` always holds. ``source`` says where it is from.
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

from simcore.base.database import read_yaml, shipped_root
from simcore.base.errors import DataError

#: A fact of a row: a cell's text, a number, a version; None where it is not known.
Fact = str | float | tuple[int, ...] | bool | None
Facts = Mapping[str, Fact]

#: The fact that ``says`` looks into: all of a row's text, in lower case.
TEXT = "text"
UNKNOWN, GIVEN = "unknown", "given"
_EXPRESSION = re.compile(r"/(.+)/", re.DOTALL)
_COMPARED = re.compile(r"(<=|>=|<|>)\s*(\d+(?:\.\d+)*)")
_VERSION = re.compile(r"\d+(?:\.\d+)+")
_SIGNS = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
_OWN_KEYS = ("when", "source")


@dataclass(frozen=True, slots=True)
class Rule:
    """What a section's reader is given of a rule: ``gives``, all keys but its condition."""

    when: Mapping[str, Any]
    gives: Mapping[str, Any]
    source: str = ""

    def holds(self, facts: Facts) -> bool:
        """Whether all conditions hold of a row. Raises KeyError for a fact that no row has."""
        return _holds(self.when, facts)


@dataclass(frozen=True, slots=True)
class Corpus:
    """A corpus' sections: lists of rules, and tables of names (theirs to ours)."""

    rules: Mapping[str, tuple[Rule, ...]]
    names: Mapping[str, Mapping[str, str]]

    def first(self, section: str, facts: Facts) -> Rule | None:
        """The first rule of a section that holds."""
        return next((r for r in self.rules[section] if r.holds(facts)), None)

    def every(self, section: str, facts: Facts) -> list[Rule]:
        """All rules of a section that hold, in order."""
        return [r for r in self.rules[section] if r.holds(facts)]

    def value(self, section: str, key: str, facts: Facts) -> Any:
        """What the first rule of a section that holds gives for a key; None where none does."""
        found = self.first(section, facts)
        return None if found is None else found.gives.get(key)


def corpus(name: str) -> Corpus:
    """The rules of ``validate/corpora/NAME.yaml``. Raises DataError."""
    return _corpus(str(corpora_folder() / f"{name}.yaml"))


def corpus_data(name: str) -> dict[str, Any]:
    """The plain data of ``validate/corpora/NAME.yaml``. Raises DataError."""
    file = corpora_folder() / f"{name}.yaml"
    data = read_yaml(file)
    if not isinstance(data, dict):
        raise DataError("must be a mapping of sections", file=file, line=1)
    return data


def rule_of(data: Mapping[str, Any]) -> Rule:
    """A rule as the file has it: its condition, its source, and all else that it gives."""
    gives = {k: v for k, v in data.items() if k not in _OWN_KEYS}
    return Rule(
        MappingProxyType(data.get("when", {})), MappingProxyType(gives), data.get("source", "")
    )


def corpora_folder() -> Path:
    """Where the corpora lie: in the wheel or the checkout."""
    root = shipped_root()
    packed = root / "validate_corpora"
    return packed if packed.is_dir() else root / "validate" / "corpora"


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
    return rule_of(data)


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
