"""Keyword arguments of the calls in a Python script or notebook.

Nothing is imported or run: of the syntax tree, calls by name are taken, and of their arguments
literals, names of constants and formats of torch.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

from simcore.strategy.dialects.source import MAX_NODES, Source

#: Endings of files in Python.
PYTHON = (".py", ".ipynb")
#: What stands for the first argument of a call that has no name.
FIRST_ARGUMENT = "model"
#: Ends of the names of classes that train what is given to them: SFTTrainer, Trainer.
_TRAINER = "Trainer"

#: Calls by dotted name, with their arguments whose values are known.
Calls = tuple[tuple[str, Mapping[str, Any]], ...]


@lru_cache(maxsize=4)
def calls_in(source: Source) -> Calls:
    """Each call, in the order in which they are evaluated; () of other text."""
    nodes = [node for tree in _trees(source) for node in _evaluated(tree)][:MAX_NODES]
    constants: dict[str, Any] = {}
    for node in nodes:
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            target = node.targets[0]
            if isinstance(target, ast.Name) and (value := _value(node.value, {})) is not None:
                constants[target.id] = value
    return tuple(
        (name, _arguments(node, constants))
        for node in nodes
        if isinstance(node, ast.Call) and (name := _name(node.func))
    )


def arguments_of(source: Source, calls: Mapping[str, str]) -> dict[str, Any]:
    """The arguments of those calls, by name with what stands before it; the last call counts.

    Calls after the last trainer is made do not count: they load what is trained, to use it.
    ``calls``: ends of dotted names of functions, and what stands before their arguments' names.
    """
    found: dict[str, Any] = {}
    for name, given in _training(calls_in(source)):
        for end, before in calls.items():
            if name == end or name.endswith(f".{end}"):
                found |= {before + key: value for key, value in given.items()}
    return found


def _training(calls: Calls) -> Calls:
    """The calls up to the last trainer that is made; all of them where none is."""
    last = max((n for n, (name, _) in enumerate(calls) if name.endswith(_TRAINER)), default=None)
    return calls if last is None else calls[: last + 1]


def _evaluated(tree: ast.Module) -> list[ast.stmt | ast.expr]:
    """Statements and expressions as they stand, arguments of a call before the call."""
    return sorted(
        (node for node in ast.walk(tree) if isinstance(node, ast.stmt | ast.expr)),
        key=lambda node: (node.end_lineno or 0, node.end_col_offset or 0),
    )


def called(source: Source, ends: Mapping[str, str]) -> int:
    """How many of those functions are called."""
    names = {name for name, _ in calls_in(source)}
    return sum(any(n == e or n.endswith(f".{e}") for n in names) for e in ends)


def _trees(source: Source) -> Iterator[ast.Module]:
    """The syntax trees of a script, or of the cells of a notebook; broken ones are left out."""
    texts = [source.text]
    if source.suffix == ".ipynb":
        try:
            cells = json.loads(source.text)["cells"]
            texts = ["".join(c["source"]) for c in cells if c["cell_type"] == "code"]
        except (ValueError, KeyError, TypeError, RecursionError):
            return
    for text in texts:
        lines = ("" if line.lstrip()[:1] in ("%", "!") else line for line in text.splitlines())
        try:
            yield ast.parse("\n".join(lines))
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue


def _name(node: ast.expr) -> str:
    """The dotted name of what is called; "" of anything else."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        before = _name(node.value)
        return f"{before}.{node.attr}" if before else node.attr
    return ""


def _arguments(node: ast.Call, constants: Mapping[str, Any]) -> dict[str, Any]:
    found = {k.arg: _value(k.value, constants) for k in node.keywords if k.arg is not None}
    if node.args:
        found = {FIRST_ARGUMENT: _value(node.args[0], constants), **found}
    return {key: value for key, value in found.items() if value is not None}


def _value(node: ast.expr, constants: Mapping[str, Any]) -> Any:
    """The value of an expression; None where it is not known, or None."""
    if isinstance(node, ast.Name):
        return constants.get(node.id)
    if isinstance(node, ast.Attribute):  # torch.bfloat16
        return node.attr if _name(node).startswith("torch.") else None
    try:
        value = ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        return None
    plain = isinstance(value, str | int | float | bool | dict | list | tuple)
    return value if plain else None
