"""Whole numbers that are written as sums and products: ``$((1024 * 2))`` of a shell script."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping

from simcore.base.units import TERA

#: Longest text that is computed, and the largest number that may come out.
_MOST_LETTERS, _MOST = 200, int(1000 * TERA)


def _quotient(a: int, b: int) -> int:
    """Division that rounds towards zero, as a shell's does."""
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


_OF: Mapping[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul,
    ast.Div: _quotient, ast.Mod: lambda a, b: a - b * _quotient(a, b),
}  # fmt: skip


def whole_number(text: str) -> int:
    """The number of a text of digits, + - * / % and brackets. Raises ValueError for others."""
    if len(text) > _MOST_LETTERS:
        raise ValueError("too long")
    try:
        return _value(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, ZeroDivisionError, RecursionError, MemoryError) as err:
        raise ValueError(str(err)) from None


def _value(node: ast.expr) -> int:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        found = node.value
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        found = -_value(node.operand)
    elif isinstance(node, ast.BinOp) and type(node.op) in _OF:
        found = _OF[type(node.op)](_value(node.left), _value(node.right))
    else:
        raise ValueError("no sum of whole numbers")
    if abs(found) > _MOST:
        raise ValueError("too large")
    return found
