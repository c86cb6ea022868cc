"""Expressions of the records of Hugging Face types, and their values for one config.

A record's values are constants or expressions: mappings whose first key names what is computed
(``docs/adding.md`` lists them). Nothing of a record is executed as code: an expression can only
name a function of this package.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from simcore.base.lookup import Registry
from simcore.workload.huggingface.fields import MAX_COUNT, MAX_LAYERS, Fields
from simcore.workload.huggingface.records import Rules, TypeRecord, shared, table

#: An expression of a record: a mapping whose first key names what is computed.
Expression = Mapping[str, Any]
#: Readings of one key, or of the first of several that has a value, with their ranges.
_READINGS: Mapping[str, tuple[Callable[..., Any], Mapping[str, float]]] = {
    "count": (Fields.count, {"high": MAX_COUNT}),
    "layers": (Fields.count, {"high": MAX_LAYERS}),
    "number": (Fields.number, {}),
    "share": (Fields.number, {"high": 1.0}),
    "flag": (Fields.flag, {}),
    "word": (Fields.word, {}),
}
_OPERATIONS: Mapping[str, Callable[..., Any]] = {
    "product": lambda *factors: math.prod(factors),
    "sum": lambda *terms: sum(terms),
    "difference": operator.sub,
    "quotient": operator.floordiv,
    "ratio": operator.truediv,
    "least": min,
    "less": operator.lt,
    "equal": operator.eq,
    "contains": operator.contains,
}
#: Other expressions by their first key: functions of the translation, the value of that key, and
#: the whole expression.
FORMS: Registry[Callable[[Translation, Any, Expression], Any]] = Registry("expression")


class Translation:
    """One config read by the record of its type: names and their values, each computed once."""

    def __init__(self, record: TypeRecord, fields: Fields) -> None:
        self.record, self.fields = record, fields
        self._expressions = {**record.values, **record.settings}
        self._values: dict[str, Any] = {}

    def applying(self) -> Iterator[Rules]:
        """The rules of the record whose conditions hold; their settings become names."""
        for rules in (self.record, *self.record.cases):
            if rules.when is None or self.value(rules.when):
                self._expressions |= rules.settings
                yield rules

    def named(self, name: str) -> Any:
        """The value of a name of the record, or a shared sentence; None if it is left out here."""
        if name not in self._values:
            known = name in self._expressions
            self._values[name] = (
                self.value(self._expressions[name]) if known else shared()["sentences"][name]
            )
        return self._values[name]

    def value(self, expression: Any) -> Any:
        """The value of a constant, of ``$name``, or of an expression; None if it is left out."""
        if isinstance(expression, str) and expression.startswith("$"):
            return self.named(expression[1:])
        if not isinstance(expression, dict):
            return expression
        if "when" in expression and not self.value(expression["when"]):
            return None
        kind = next(k for k in expression if k != "when")
        operand = expression[kind]
        if kind in _READINGS:
            return self._read(kind, operand, expression)
        if kind in _OPERATIONS:
            return _OPERATIONS[kind](*map(self.value, operand))
        return FORMS[kind](self, operand, expression)

    def _read(self, kind: str, operand: Any, expression: Expression) -> Any:
        """The value of a config's key. Raises DataError."""
        keys = (operand,) if isinstance(operand, str) else tuple(operand)
        if "if_null" in expression and self.fields.is_null(keys[0]):
            return self.value(expression["if_null"])
        read, limits = _READINGS[kind]
        value = read(self.fields, *keys, **{**limits, **self._limits(keys, expression)})
        if expression.get("optional") and not value:
            return None
        if "divides" in expression:
            self._check_divides(keys, value, expression)
        return value

    def _limits(self, keys: tuple[str, ...], expression: Expression) -> dict[str, Any]:
        """Default, range and known words of a reading."""
        by_class = [d for k in keys if (d := self.record.defaults.get(k)) is not None]
        given = {
            k: self.value(expression[k]) for k in ("low", "high", "default") if k in expression
        }
        if by_class:
            given["default"] = by_class[0]
        if "among" in expression:
            given["among"] = table(expression["among"])
        return given

    def _check_divides(self, keys: tuple[str, ...], value: int, expression: Expression) -> None:
        unless = expression.get("unless")
        if unless and (self.fields.has(unless) or unless in self.record.defaults):
            return
        whole = self.value(expression["divides"])
        if whole % value:
            key, _ = self.fields.first(keys, 0)
            called = expression["called"]
            called = called if "{}" in called else f"{called} {{}}"
            raise self.fields.error(key, f"{value} does not divide {called.format(whole)}")

    def check(self, requirement: Expression) -> None:
        """Raises DataError if a config does not fulfil a requirement of its type."""
        if "that" in requirement:
            key, holds = requirement["key"], bool(self.value(requirement["that"]))
        else:
            key, value = next(iter(requirement.values())), self.value(requirement)
            holds = "is" not in requirement or value == self.value(requirement["is"])
        if holds:
            return
        if "architecture" in requirement:
            key = "architectures"
            self._values["given"] = self.fields.words(key)[0]
        raise self.fields.error(key, self.filled(requirement["else"]))

    def filled(self, text: str) -> str:
        """The text with the values of the names in braces."""
        before, brace, rest = text.partition("{")
        if not brace:
            return text
        name, _, after = rest.partition("}")
        return f"{before}{self.named(name)}{self.filled(after)}"
