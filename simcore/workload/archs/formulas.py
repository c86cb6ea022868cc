"""Formulas in records of networks: ``=2 * width // 3``, as in a spreadsheet.

A formula has numbers, texts, lists, names of the record, fields of tensors (``x.c``), arithmetic,
comparisons, ``and``, ``or``, ``not``, ``a if b else c`` and the functions of ``FUNCTIONS``. It is
parsed, never run as code: any other syntax is an error.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any


def round8(width: float) -> int:
    """``width`` rounded to a multiple of eight channels, but never below nine tenths of it."""
    out = max(8, int(width + 4) // 8 * 8)
    return out + 8 if out < 0.9 * width else out


FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "ceil": math.ceil, "float": float, "gcd": lambda numbers: math.gcd(*numbers), "int": int,
    "len": len, "max": max, "min": min, "prod": math.prod, "replace": str.replace, "round": round,
    "round8": round8, "sum": sum, "upper": str.upper,
}  # fmt: skip
_OPERATIONS: Mapping[type[ast.AST], Callable[..., Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Pow: operator.pow,
    ast.Div: operator.truediv, ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod,
    ast.USub: operator.neg, ast.Not: operator.not_, ast.Eq: operator.eq, ast.NotEq: operator.ne,
    ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge,
    ast.In: lambda one, several: one in several,
}  # fmt: skip
#: Fields of tensors that a formula may read.
_FIELDS = ("c", "grid", "points", "elems", "high", "grad")


#: What a formula's value is, of named values.
Meaning = Callable[[Mapping[str, Any]], Any]


@lru_cache(maxsize=4096)
def formula(text: str) -> Meaning:
    """What a formula, without its ``=``, means. Raises ValueError if it is none."""
    try:
        return _meaning(ast.parse(text, mode="eval").body)
    except SyntaxError:
        raise ValueError(f"{text!r} is no formula") from None


def _meaning(node: ast.expr) -> Meaning:
    match node:
        case ast.Constant(value=constant):
            return lambda _named: constant
        case ast.Name(id=name):
            return operator.itemgetter(name)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATIONS:
            return _applied(_OPERATIONS[type(op)], left, right)
        case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _OPERATIONS:
            return _applied(_OPERATIONS[type(op)], left, right)
        case ast.UnaryOp(op=op, operand=operand) if type(op) in _OPERATIONS:
            return _applied(_OPERATIONS[type(op)], operand)
        case ast.BoolOp(op=op, values=nodes):
            choose, parts = (all if isinstance(op, ast.And) else any), [*map(_meaning, nodes)]
            return lambda named: choose(part(named) for part in parts)
        case ast.IfExp():
            test, one, other = map(_meaning, (node.test, node.body, node.orelse))
            return lambda named: one(named) if test(named) else other(named)
        case ast.List(elts=nodes):
            parts = [*map(_meaning, nodes)]
            return lambda named: [part(named) for part in parts]
        case ast.Subscript(value=whole_list, slice=ast.Slice(lower=low, upper=high)):
            ends = [low or ast.Constant(None), high or ast.Constant(None)]
            return _applied(lambda held, start, end: held[start:end], whole_list, *ends)
        case ast.Subscript(value=held, slice=index):
            return _applied(operator.getitem, held, index)
        case ast.Attribute(value=tensor, attr=name) if name in _FIELDS:
            return _applied(operator.attrgetter(name), tensor)
        case ast.Call(func=ast.Name(id=name), args=nodes) if name in FUNCTIONS:
            return _applied(FUNCTIONS[name], *nodes)
    raise ValueError(f"{ast.unparse(node)!r} is nothing that a formula may have")


def _applied(function: Callable[..., Any], *nodes: ast.expr) -> Meaning:
    parts = [*map(_meaning, nodes)]
    if len(parts) == 2:
        first, second = parts
        return lambda named: function(first(named), second(named))
    return lambda named: function(*[part(named) for part in parts])
