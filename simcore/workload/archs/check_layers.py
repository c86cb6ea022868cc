"""What is wrong with a network's record (``archs.layers``): file, line and nearest valid key."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from string import Template
from typing import Any, get_args

from simcore.base.database import read_yaml
from simcore.base.errors import DataError, did_you_mean
from simcore.base.figures import KeyedError, line_of
from simcore.workload import ops
from simcore.workload.archs import KERNELS, adapters, network_file, networks
from simcore.workload.archs.formulas import FUNCTIONS, formula
from simcore.workload.archs.tape import Tape
from simcore.workload.graph import Frozen, Kernel, KernelKind, Workload
from simcore.workload.saved import Saved

#: A way of keys into a record.
Keys = tuple[int | str, ...]
#: Functions that make layers, by kind of layer.
Makers = Mapping[str, Callable[..., Any]]

_KEYS = ("with", "sample_unit", "settings", "values", "tape", "body", "parts", "input", "features",
         "head", "stages", "input_bytes", "tokens", "workload", "frozen")  # fmt: skip
_OF_STAGES = ("layers", "times", "at", "shares", "boundary", "recomputed", "in_layer", "fused",
              "bias_apart", "bias_grads", "only_forward", "compiled", "trained")  # fmt: skip
#: Keys that hold the layers that run.
_RUN = ("features", "head", "stages")
#: Arguments that every kind of layer has, and those of all operators.
_OF_LAYERS, _OF_OPS = ("when", "from", "as"), ("makes", "saves_inputs")
#: Names that have a value in every record.
_GIVEN = ("x", "stage", "number", "repeated", "depth", "inputs", "results", "resident", "trains",
          "conditioned", "prefix", "reads")  # fmt: skip
#: Kind of layer that names values.
_LET = "let"


def check_network(path: Path, makers: Mapping[str, Makers]) -> None:
    """Raises DataError for the first mistake in a network's record, or in those it adds.

    ``makers``: those of records on a ``tape`` and on a ``body``.
    """
    files = dict(_files(path))
    parts: dict[str, Any] = {}  # the first file's of each name
    for data in files.values():
        parts = {**data.get("parts", {}), **parts}
    names = {name for data in files.values() for name in (*_GIVEN, *_named(data, parts))}
    # Parts for several networks have names of these, and are checked where a network runs them.
    run: dict[str, Any] = {}
    _find_run([files[path].get(key, []) for key in _RUN], parts, run)
    whole = any(key in files[path] for key in _RUN)
    for file, data in files.items():
        try:
            of_kind = makers.get("body" if "body" in data else "tape", {})
            _Check(of_kind, parts, names, run).record(data, whole)
        except KeyedError as err:
            raise _error(file, err.keys, str(err)) from None


def located(path: Path, record: Mapping[str, Any], at: Any, err: Exception) -> DataError:
    """The error of a layer ``at`` which, or of keys at which, a record could not be computed."""
    keys = at if isinstance(at, tuple) else next(_ways_to(record, at), ())
    said = f"nothing gives {err} a value here" if isinstance(err, KeyError) else str(err)
    holders = (file for file, data in _files(path) if keys and _holds(data, keys))
    return _error(next(holders, path), keys, said)


def _error(file: Path, keys: Keys, said: str) -> DataError:
    line = line_of(file.read_text(encoding="utf-8"), keys) or 1
    return DataError(said, file=file, line=line, key=".".join(map(str, keys)))


def _files(path: Path) -> Iterator[tuple[Path, Mapping[str, Any]]]:
    """The file of a record with its data, then those whose parts it has by ``with``."""
    seen = set()
    while path not in seen:
        seen.add(path)
        data = read_yaml(path)
        if not isinstance(data, dict):
            raise DataError("must be a mapping of keys to values", file=path, line=1)
        for key in ("settings", "values", "parts"):
            if not isinstance(data.get(key, {}), dict):
                raise _error(path, (key,), "must be a mapping of names")
        yield path, data
        if "with" in data:
            found = network_file(str(data["with"]))
            if found is None:
                raise _error(path, ("with",), _unknown("network", data["with"], networks()))
            path = found


def _holds(data: Any, keys: Keys) -> bool:
    for key in keys:
        try:
            data = data[key]
        except (LookupError, TypeError):
            return False
    return True


def _ways_to(data: Any, layer: object) -> Iterator[Keys]:
    """The keys at which a record has this very object."""
    if data is layer:
        yield ()
    for key, value in _items(data):
        yield from ((key, *keys) for keys in _ways_to(value, layer))


def _find_run(data: Any, parts: Mapping[str, Any], run: dict[str, Any]) -> None:
    """Add to ``run`` the parts that layers use, and those that these use."""
    for key, value in _items(data):
        if key in parts and key not in run:
            run[key] = parts[key]
            _find_run(parts[key], parts, run)
        _find_run(value, parts, run)


def _items(data: Any) -> Iterable[tuple[Any, Any]]:
    """Keys and values of a mapping, or indices and values of a list; of anything else none."""
    if isinstance(data, dict):
        return data.items()
    return enumerate(data) if isinstance(data, list) else ()


def _named(data: Any, parts: Iterable[str]) -> Iterator[str]:
    """Every name to which a record gives a value somewhere."""
    for key, value in _items(data):
        if key in ("settings", "values", _LET, *parts) and isinstance(value, dict):
            yield from value
        elif key == "as":
            yield str(value)
        elif key == "columns" and isinstance(value, list):
            yield from map(str, value)
        yield from _named(value, parts)


def _unknown(what: str, name: object, known: Iterable[str]) -> str:
    return f"unknown {what} {str(name)!r}{did_you_mean(str(name), known)}"


def _only(keys: Keys, what: str, given: Any, known: Iterable[str]) -> None:
    """Raises KeyedError unless ``given`` is a mapping with no other keys than the known ones."""
    known = list(known)
    if not isinstance(given, dict):
        raise KeyedError(keys, f"must be a mapping with {what}s such as {known[0]}")
    for key in given:
        if key not in known:
            raise KeyedError((*keys, key), _unknown(what, key, known))


def _arguments(maker: Callable[..., Any]) -> tuple[list[str], list[str], bool]:
    """Arguments that a layer's function needs, those it knows, and whether it takes any other."""
    needed, known, others = [], [], False
    for name, p in inspect.signature(maker).parameters.items():
        others |= p.kind is p.VAR_KEYWORD
        is_tensor = name in ("self", "body") or p.annotation == "T"
        if not is_tensor and p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL):
            known.append(name)
            needed += [name] if p.default is p.empty else []
    return needed, known, others


def _fields(cls: Any, *but: str) -> list[str]:
    return [field.name for field in fields(cls) if field.name not in but]


class _Check:
    """Checks one file; ``names``: those that have a value, ``run``: the parts that layers use."""

    def __init__(
        self, makers: Makers, parts: Iterable[str], names: set[str], run: Mapping[str, Any]
    ) -> None:
        self.makers, self.parts, self.names, self.run = makers, parts, names, run
        self.kinds = [_LET, *makers, *parts, *ops.operator_names()]
        self.knows_names = False

    def record(self, data: Mapping[str, Any], whole: bool) -> None:
        """Raises KeyedError; ``whole``: all names are those of this network."""
        _only((), "key", data, _KEYS)
        if "settings" not in data:
            raise KeyedError((), "key 'settings' is missing")
        for name, stated in data["settings"].items():
            if isinstance(stated, dict):
                keys = ("default", "choices" if "choices" in stated else "numbers_between")
                _only(("settings", name), "key", stated, keys)
                for key in keys:
                    if key not in stated:
                        raise KeyedError(("settings", name), f"key {key!r} is missing")
        for part in data.get("parts", {}):
            if part in self.makers or part == _LET:
                raise KeyedError(("parts", part), f"{part!r} is a kind of layer of every network")
            self.knows_names = self.run.get(part) is data["parts"][part]
            self.layers(("parts", part), data["parts"][part])
        self.knows_names = whole
        for key in ("features", "head"):
            self.layers((key,), data.get(key, []))
        self.stages(data.get("stages", []))
        for key, known in (
            ("tape", _arguments(Tape)[1]), ("body", _arguments(adapters)[1]),
            ("input", ["channels", "grid", "share"]),
            ("workload", _fields(Workload, "name", "sample_unit", "blocks", "order")),
            ("frozen", _fields(Frozen, "name", "ops")),
        ):  # fmt: skip
            _only((key,), "key", data.get(key, {}), known)
        for key in ("channels", "grid") if "input" in data else ():
            if key not in data["input"]:
                raise KeyedError(("input",), f"key {key!r} is missing")
        for key in (
            "values",
            "tape",
            "body",
            "input",
            "input_bytes",
            "tokens",
            "workload",
            "frozen",
        ):
            self.value((key,), data.get(key))

    def stages(self, stated: Any) -> None:
        """Raises KeyedError for a list of stages."""
        before: list[str] = []
        for i, stage in enumerate(stated if isinstance(stated, list) else [stated]):
            if not isinstance(stage, dict) or len(stage) != 1:
                raise KeyedError(("stages", i), "must be one block: `name: {layers: [...]}`")
            for name, given in stage.items():
                at = ("stages", i, name)
                _only(at, "key", given, _OF_STAGES)
                self.layers((*at, "layers"), given.get("layers", [] if "shares" in given else None))
                self.value(at, {k: v for k, v in given.items() if k != "layers"})
                if "shares" in given and given["shares"] not in before:
                    raise KeyedError((*at, "shares"), _unknown("block", given["shares"], before))
                before.append(name)

    def layers(self, keys: Keys, stated: Any) -> None:
        """Raises KeyedError for a list of layers."""
        if not isinstance(stated, list):
            raise KeyedError(keys, "must be a list of layers")
        for i, layer in enumerate(stated):
            if not isinstance(layer, dict) or len(layer) != 1:
                example = "`conv: {name: stem, channels: 64, kernel: 7}`"
                raise KeyedError((*keys, i), f"must be one kind with its arguments: {example}")
            (kind, given), = layer.items()  # fmt: skip
            if kind not in self.kinds:
                raise KeyedError((*keys, i, kind), _unknown("kind of layer", kind, self.kinds))
            self.layer((*keys, i, kind), kind, given)

    def layer(self, at: Keys, kind: str, given: Any) -> None:
        """Raises KeyedError for a layer of a known kind."""
        if not isinstance(given, dict):
            raise KeyedError(at, "arguments must be a mapping such as {name: stem}")
        if kind not in self.parts and kind != _LET:
            maker = self.makers.get(kind) or ops.operator(kind)
            needed, known, others = _arguments(maker)
            own = _OF_OPS if kind not in self.makers or kind == "op" else ()
            if not others or kind == "op":
                _only(at, "argument", given, (*known, *own, *_OF_LAYERS))
            for name in needed:
                if name not in given:
                    raise KeyedError(at, f"argument {name!r} is missing")
        for name, value in given.items():
            self.argument((*at, name), kind, name, value)

    def argument(self, at: Keys, kind: str, name: str, value: Any) -> None:
        """Raises KeyedError for an argument of a layer."""
        if kind in self.makers and name in ("layers", "shortcut"):
            self.layers(at, value)
        elif kind in self.makers and name == "branches":
            for i, branch in enumerate(value if isinstance(value, list) else [value]):
                self.layers((*at, i), branch)
        elif kind == "op" and name in ("forward", "backward"):
            self.kernels(at, value)
        elif kind == "network" and name == "record" and value not in networks():
            raise KeyedError(at, _unknown("network", value, networks()))
        else:
            if kind in self.makers and name in ("saved", "result", "boundary"):
                _only(at, "key", value, _fields(Saved))
            elif name == "makes":
                _only(at, "key", value, _arguments(self.makers["tensor"])[1])
            self.value(at, value)

    def kernels(self, at: Keys, stated: Any) -> None:
        """Raises KeyedError for a list of kernels."""
        for i, kernel in enumerate(stated if isinstance(stated, list) else [stated]):
            if not isinstance(kernel, dict) or len(kernel) != 1:
                raise KeyedError((*at, i), "must be one kind of kernel with its amounts")
            _only((*at, i), "kind of kernel", kernel, (*get_args(KernelKind), *KERNELS))
            for kind, amounts in kernel.items():
                made = kind in KERNELS
                known = _arguments(getattr(ops, kind))[1] if made else _fields(Kernel, "kind")
                _only((*at, i, kind), "amount", amounts, known)
                self.value((*at, i, kind), amounts)

    def value(self, at: Keys, stated: Any) -> None:
        """Raises KeyedError for a formula that is none, or has a name without a value."""
        for key, value in _items(stated):
            self.value((*at, key), value)
        if not isinstance(stated, str):
            return
        names: Iterable[str] = Template(stated).get_identifiers()
        if stated.startswith("="):
            try:
                formula(stated[1:].strip())
            except ValueError as err:
                raise KeyedError(at, str(err)) from None
            tree = ast.walk(ast.parse(stated[1:].strip(), mode="eval"))
            names = [n.id for n in tree if isinstance(n, ast.Name) and n.id not in FUNCTIONS]
        for name in names if self.knows_names else ():
            if name not in self.names:
                raise KeyedError(at, _unknown("name", name, self.names))
