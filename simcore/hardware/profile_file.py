"""Reads from a profile's file only the sections and the devices that a prediction needs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from simcore.base.database import parse_shipped
from simcore.base.errors import DataError

#: Sections of the efficiency file that predictions read; collectives have formulas of their own.
_SECTION = re.compile(
    r"^(?:compute_efficiency|memory_efficiency|clocks|host|backward_over_forward_time):\n"
    r"(?:[ #].*\n|\n)*",
    re.MULTILINE,
)
_SOURCES = re.compile(r"^sources:\n(?:[ #].*\n|\n)*", re.MULTILINE)
#: The line of one device or family in a ``by_gpu`` or ``by_family`` table.
_ENTRY = re.compile(r"^      (\S+): \{.*\n", re.MULTILINE)


def sources_of(text: str) -> Mapping[str, Any]:
    """The ``sources`` section of a profile's text: source key -> citation."""
    sources: Mapping[str, Any] = parse_shipped(_SOURCES.findall(text)[0])["sources"]
    return sources


@lru_cache(maxsize=8)
def text_of(path: Path) -> str:
    """The text of a file. Raises DataError where it cannot be read."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError as err:
        raise DataError(f"cannot be read: {err.strerror}", file=path) from None


@lru_cache(maxsize=256)
def efficiencies(text: str, names: tuple[str, ...], path: Path) -> Mapping[str, Any]:
    """The efficiency tables, of devices and families only those in ``names``.

    That leaves a tenth of the file to parse. Raises DataError where the rest is no valid YAML.
    """
    wanted = "".join(_SECTION.findall(text))
    wanted = _ENTRY.sub(lambda m: m[0] if m[1].strip("'\"") in names else "", wanted)
    try:
        data = parse_shipped(wanted)
    except Exception as err:
        problem = (str(err).splitlines() or [""])[0]
        raise DataError(f"not valid YAML: {problem}", file=path) from None
    if not isinstance(data, dict):
        raise DataError("must be a mapping", file=path)
    return data
