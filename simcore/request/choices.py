"""The names that each option accepts, for menus and shell completion."""

from __future__ import annotations

from simcore.strategy.dialects import dialects
from simcore.strategy.options import OPTIONS

#: Keys of two lists that belong to no option: GPU types in a cluster's text, launch-file formats.
_GPU, _EMIT = "gpu", "emit"


def choices() -> dict[str, tuple[str, ...]]:
    """Names that each option accepts, by option, in the order in which menus show them.

    ``gpu``: GPU types that a cluster may consist of; ``emit``: formats of launch files.
    """
    found = {o.name: names for o in OPTIONS if (names := o.names())}
    found[_GPU] = found.pop("gpus")
    found[_EMIT] = dialects()
    return found
