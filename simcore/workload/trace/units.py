"""The repeated modules of a model, which become the blocks of its workload."""

from __future__ import annotations

from collections import Counter
from typing import Any

_CONTAINERS = ("Sequential", "ModuleList", "ModuleDict")


def _is_leaf(module: Any) -> bool:
    return next(module.children(), None) is None


def repeated_units(root: Any) -> list[str]:
    """Paths of repeated modules: members of a container of which at least two have one class.

    One is enough in a part of a model, whose attribute ``is_stage`` is true: others have the rest.

    Only the outermost ones count, so that the experts inside a layer are part of the layer. Leaves
    (a Linear among activations) and plain containers are not repeated modules.
    """
    paths: list[str] = []
    least = 1 if getattr(root, "is_stage", False) else 2

    def walk(module: Any, path: str) -> None:
        children = list(module.named_children())
        units: set[str] = set()
        if type(module).__name__ in _CONTAINERS:
            kinds = Counter(type(m) for _, m in children if not _is_leaf(m))
            units = {
                name
                for name, m in children
                if not _is_leaf(m)
                and kinds[type(m)] >= least
                and type(m).__name__ not in _CONTAINERS
            }
        for name, child in children:
            at = f"{path}.{name}" if path else name
            if name in units:
                paths.append(at)
            else:
                walk(child, at)

    walk(root, "")
    return paths
