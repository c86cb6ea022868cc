"""The names that each option takes, for menus and completion."""

from __future__ import annotations

from simcore.strategy.dialects import dialects
from simcore.strategy.options import OPTIONS

#: What a cluster's text holds of names, and what files a job can be written as.
_GPU, _EMIT = "gpu", "emit"


def choices() -> dict[str, tuple[str, ...]]:
    """Option to names, in the order in which they are worth showing.

    ``gpu`` are the types that a cluster may be of, ``emit`` the dialects of launch files.
    """
    found = {o.name: names for o in OPTIONS if (names := o.names())}
    found[_GPU] = found.pop("gpus")
    found[_EMIT] = dialects()
    return found
