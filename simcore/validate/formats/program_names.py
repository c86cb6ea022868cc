"""Programs as rules of corpora name them, ``NAME`` or ``NAME@RELEASE``."""

from __future__ import annotations

from collections.abc import Mapping

from simcore.base.errors import UnknownName
from simcore.strategy.software.pytorch import FOUNDRY, FOUNDRY_TORCH_1
from simcore.strategy.software.record import Program

PROGRAMS: Mapping[str, Program] = {
    "llm-foundry": FOUNDRY,
    "llm-foundry@torch-1": FOUNDRY_TORCH_1,
}


def program_named(name: str) -> Program:
    """The program of a name. Raises UnknownName."""
    if name not in PROGRAMS:
        raise UnknownName("program", name, list(PROGRAMS))
    return PROGRAMS[name]
