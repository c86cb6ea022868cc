"""Named configurations of training programs that are configured in Python: recipes.

torchtitan and Megatron-Bridge are started with the name of a Python function that returns a
configuration. Those that the programs ship are tables in ``programs_db/recipes``; a user's own file
of such functions is read here. Nothing is imported or run: of the syntax tree, assignments and
constructor calls with literal values are followed, and what else a function does is named.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import field
from pathlib import PurePath
from typing import Any

from simcore.base.database import Database
from simcore.base.errors import DataError
from simcore.base.figures import Record, entry
from simcore.base.record import dataclass
from simcore.strategy.dialects.source import MAX_DEPTH, MAX_NODES, Source

#: Keys of a configuration by dotted path; a section that is an object has its class as value.
Keys = dict[str, Any]
#: Classes of whole configurations: torchtitan's (and those of its extensions), Megatron-Bridge's.
_CONFIGURATIONS = ("Trainer", "FluxTrainer", "ConfigContainer")
#: Largest whole number that an expression may give, so that none takes long to compute.
_MOST = 2**63
_SUMS: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul,
    ast.Div: operator.truediv, ast.FloorDiv: operator.floordiv,
}  # fmt: skip


class RecipeTable(Record):
    """The recipes that a program ships.

    source    files and commit that they were read from
    models    model of models_db to the recipes that train it, the usual one first
    recipes   name to keys; ``like``: the recipe whose keys it has besides
    patterns  whole names of others by regular expression, and the keys that they say; {part} stands
              for what the group of that name has matched
    """

    title: str
    source: str
    models: dict[str, tuple[str, ...]] = entry(default_factory=dict)
    recipes: dict[str, dict[str, Any]] = entry(default_factory=dict)
    patterns: dict[str, dict[str, Any]] = entry(default_factory=dict)

    def keys(self, name: str) -> Keys | None:
        """The keys of a recipe, with those of the one that it is like; None for another name."""
        if name not in self.recipes:
            return None
        own = dict(self.recipes[name])
        base = self.keys(str(own.pop("like"))) if "like" in own else None
        found = dict(base or {})
        for key, value in own.items():
            put(found, key, value)
        return found

    def of_path(self, path: str) -> Keys | None:
        """The keys of the recipe whose name ends a path, whatever its ending and dashes."""
        plain = re.sub(r"\.(py|ya?ml|toml|json)$", "", path.replace("-", "_"))
        parts = PurePath(plain).parts
        folded = {name.replace("-", "_"): name for name in self.recipes}
        ends = ("/".join(parts[i:]) for i in range(len(parts)))
        found = next((folded[end] for end in ends if end in folded), None)
        return self._by_pattern(parts[-1] if parts else "") if found is None else self.keys(found)

    def _by_pattern(self, name: str) -> Keys | None:
        """The keys that a name says by the first pattern that it has."""
        for pattern, keys in self.patterns.items():
            if (match := re.fullmatch(pattern, name)) is not None:
                said = match.groupdict(default="")
                texts = {k: v.format(**said) for k, v in keys.items() if isinstance(v, str)}
                return {**keys, **texts}
        return None


TABLES: Database[RecipeTable] = Database("recipes", "programs_db/recipes", RecipeTable)


@dataclass(frozen=True)
class Recipe:
    """Keys of a configuration, and what the function does besides that is not followed."""

    keys: Keys
    not_followed: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Made:
    """An object that a call makes: its class or function, and its arguments."""

    name: str
    given: Mapping[str, Any] = field(default_factory=dict)
    listed: tuple[Any, ...] = ()

    @property
    def is_object(self) -> bool:
        """Whether a class was called, by its capital letter, and not a function."""
        return self.name.rpartition(".")[2][:1].isupper()


@dataclass(frozen=True)
class Unread:
    """A value that is no literal; ``text``: its expression."""

    text: str


def put(keys: Keys, path: str, value: Any) -> None:
    """Set a key and, for an object or a list of objects, those of its parts.

    What a function computes for a part, such as the size of a vocabulary, is not read.
    """
    if isinstance(value, _Made) and "." in path and not value.is_object:
        value = Unread(f"{value.name}(...)")
    if isinstance(value, (_Made, dict)) or value is None:  # replaces all that the section had
        for old in [k for k in keys if k.startswith(f"{path}.")]:
            del keys[old]
    parts: dict[str, Any] = {}
    if isinstance(value, _Made):
        keys[path] = value.name
        parts = {**{str(i): v for i, v in enumerate(value.listed)}, **value.given}
    elif isinstance(value, dict):
        parts = value
    elif isinstance(value, list) and any(isinstance(v, _Made) for v in value):
        keys[path] = [v.name if isinstance(v, _Made) else v for v in value]
        parts = {str(i): v for i, v in enumerate(value) if isinstance(v, _Made)}
    else:
        keys[path] = value
    for name, inner in parts.items():
        put(keys, f"{path}.{name}", inner)


def read_recipe(source: Source, name: str, known: Callable[[str], Keys | None]) -> Recipe | None:
    """The configuration that the function ``name`` of a Python file returns.

    ``known``: keys of a recipe that the file imports, by its name. None where the file has no such
    function. Raises DataError with the line for a text that is no Python, or is too long.
    """
    module = _parsed(source)
    functions = {n.name: n for n in module.body if isinstance(n, ast.FunctionDef)}
    if name not in functions:
        return None
    reader = _Reader(functions, known)
    for statement in module.body:
        reader.assign_names(statement, reader.constants)
    keys = reader.returned(name, {})
    return Recipe(keys or {}, tuple(dict.fromkeys(reader.left)))


def names_given(source: Source) -> Keys:
    """The values that a Python file gives to names outside of functions; parts by dotted path."""
    reader = _Reader({}, lambda _: None)
    for statement in _parsed(source).body:
        reader.assign_names(statement, reader.constants)
    found: Keys = {}
    for name, value in reader.constants.items():
        put(found, name, value)
    return {key: value for key, value in found.items() if not isinstance(value, Unread)}


def recipe_names(source: Source) -> tuple[str, ...]:
    """Functions of a Python file that return something and whose name does not start with ``_``."""
    functions = (n for n in _parsed(source).body if isinstance(n, ast.FunctionDef))
    return tuple(
        f.name for f in functions
        if not f.name.startswith("_") and any(isinstance(s, ast.Return) for s in f.body)
    )  # fmt: skip


def _parsed(source: Source) -> ast.Module:
    try:
        module = ast.parse(source.text)
    except SyntaxError as err:
        raise DataError(f"no Python: {err.msg}", file=source.where, line=err.lineno) from None
    except (RecursionError, MemoryError, ValueError) as err:
        text = str(err) if isinstance(err, ValueError) else "is nested too deeply"
        raise DataError(f"no Python: {text}", file=source.where) from None
    if sum(1 for _ in ast.walk(module)) > 10 * MAX_NODES:
        raise DataError("is too long for a file of recipes", file=source.where)
    return module


class _Reader:
    """Follows functions of one file; ``left``: what they do that is not followed."""

    def __init__(
        self, functions: Mapping[str, ast.FunctionDef], known: Callable[[str], Keys | None]
    ) -> None:
        self.functions, self.known = functions, known
        self.constants: dict[str, Any] = {}
        self.left: list[str] = []
        self._open: list[str] = []

    def returned(self, name: str, given: Mapping[str, Any]) -> Keys | None:
        """The keys that a function returns, called with values for some parameters."""
        if name in self._open or len(self._open) >= MAX_DEPTH:
            return None
        self._open.append(name)
        function = self.functions[name]
        local = {**self.constants, **self._defaults(function), **given}
        result: Keys | None = None
        for statement in function.body:
            if isinstance(statement, ast.Return) and statement.value is not None:
                result = self._keys_of(statement.value, local)
                break
            self._follow(statement, local)
        self._open.pop()
        return result

    def _defaults(self, function: ast.FunctionDef) -> dict[str, Any]:
        spec = function.args
        named = spec.posonlyargs + spec.args
        pairs = [
            *zip(named[len(named) - len(spec.defaults) :], spec.defaults, strict=True),
            *((a, d) for a, d in zip(spec.kwonlyargs, spec.kw_defaults, strict=True) if d),
        ]
        return {a.arg: self._value(d, self.constants) for a, d in pairs if d is not None}

    def _keys_of(self, node: ast.expr, local: Mapping[str, Any]) -> Keys | None:
        """The keys of a configuration that an expression is."""
        value = self._value(node, local)
        if isinstance(value, dict):
            return value
        if isinstance(value, _Made):
            keys: Keys = {}
            for name, inner in value.given.items():
                put(keys, name, inner)
            return keys
        self.left.append(f"return {_shown(node)}")
        return None

    def _follow(self, statement: ast.stmt, local: dict[str, Any]) -> None:
        """Follow a statement of a function, or note that it is not followed."""
        if self.assign_names(statement, local):
            return
        if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
            owner, path = _path(statement.targets[0])
            value = self._value(statement.value, local)
            if isinstance(local.get(owner), dict) and path:
                put(local[owner], path, value)
                return
        elif isinstance(statement, ast.Expr):
            if isinstance(statement.value, ast.Constant) or self._helped(statement.value, local):
                return
        elif isinstance(statement, (ast.Assert, ast.Pass, ast.FunctionDef, ast.Import,
                                    ast.ImportFrom)):  # fmt: skip
            return
        self.left.append(_shown(statement))

    def assign_names(self, statement: ast.stmt, local: dict[str, Any]) -> bool:
        """Give a plain name the value of a statement ``name = …``; False for other statements."""
        if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
            target, node = statement.targets[0], statement.value
        elif isinstance(statement, ast.AnnAssign) and statement.value is not None:
            target, node = statement.target, statement.value
        else:
            return False
        if not isinstance(target, ast.Name):
            return False
        value = self._value(node, local)
        if isinstance(value, _Made) and value.name in _CONFIGURATIONS:
            value = self._keys_of(node, local)
        local[target.id] = value
        return True

    def _helped(self, node: ast.expr, local: Mapping[str, Any]) -> bool:
        """Follow a call of a function of the file that changes a configuration given to it."""
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name)):
            return False
        function = self.functions.get(node.func.id)
        if function is None or function.name in self._open:
            return False
        self._open.append(function.name)
        own = {**self.constants, **self._defaults(function)}
        own |= self._arguments(function, node, local)
        for statement in function.body:
            self._follow(statement, own)
        self._open.pop()
        return True

    def _arguments(
        self, function: ast.FunctionDef, call: ast.Call, local: Mapping[str, Any]
    ) -> dict[str, Any]:
        names = [a.arg for a in (*function.args.posonlyargs, *function.args.args)]
        found = {n: self._value(a, local) for n, a in zip(names, call.args, strict=False)}
        return found | {k.arg: self._value(k.value, local) for k in call.keywords if k.arg}

    def _value(self, node: ast.expr, local: Mapping[str, Any]) -> Any:
        """The value of an expression: a literal, keys, an object that is made, or unknown."""
        match node:
            case ast.Constant(value=value):
                return value
            case ast.Name(id=name):
                return local.get(name, Unread(name))
            case ast.List(elts=items) | ast.Tuple(elts=items):
                values = [self._value(item, local) for item in items]
                unread = any(isinstance(v, Unread) for v in values)
                return Unread(_shown(node)) if unread else values
            case ast.UnaryOp(op=ast.USub(), operand=inner):
                value = self._value(inner, local)
                return -value if isinstance(value, (int, float)) else Unread(_shown(node))
            case ast.BinOp(left=left, op=op, right=right):
                sum_ = _sum(self._value(left, local), op, self._value(right, local))
                return Unread(_shown(node)) if sum_ is None else sum_
            case ast.Attribute(attr=attr):
                owner, path = _path(node)
                if isinstance(local.get(owner), dict):
                    return local[owner].get(path, Unread(_shown(node)))
                return attr  # a constant of a module: torch.bfloat16
            case ast.Call():
                return self._called(node, local)
        return Unread(_shown(node))

    def _called(self, node: ast.Call, local: Mapping[str, Any]) -> Any:
        owner, path = _path(node.func)
        name = f"{owner}.{path}" if path else owner
        if name in self.functions:
            keys = self.returned(name, self._arguments(self.functions[name], node, local))
            return Unread(_shown(node)) if keys is None else dict(keys)
        if not node.args and not node.keywords and (keys := self.known(name)) is not None:
            return dict(keys)
        given = {k.arg: self._value(k.value, local) for k in node.keywords if k.arg}
        if name == "dict" and not node.args:
            return given
        listed = tuple(self._value(a, local) for a in node.args)
        return _Made(name.removesuffix(".Config"), given, listed)


def _sum(left: Any, op: ast.operator, right: Any) -> int | float | None:
    """The result of an operation on two numbers; None where it has none, or too large a one."""
    numbers = all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in (left, right))
    if not numbers or type(op) not in _SUMS:
        return None
    try:
        value = _SUMS[type(op)](left, right)
    except (ZeroDivisionError, OverflowError):
        return None
    return value if abs(value) < _MOST else None


def _path(node: ast.expr) -> tuple[str, str]:
    """(name, dotted rest) of ``a.b.c`` or ``a.b[0].c``; ("", "") for another expression."""
    parts: list[str] = []
    while not isinstance(node, ast.Name):
        if isinstance(node, ast.Attribute):
            parts.append(node.attr)
        elif isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
            parts.append(str(node.slice.value))
        else:
            return "", ""
        node = node.value
    return node.id, ".".join(reversed(parts))


def _shown(node: ast.AST) -> str:
    text = " ".join(ast.unparse(node).split())
    return text if len(text) <= 60 else text[:57] + "..."
