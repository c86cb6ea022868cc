"""Reading a profile's file: only the sections and the device that a prediction asks for."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from simcore.base.database import parse_shipped
from simcore.base.errors import DataError

#: What predictions read of the efficiency file; the engine has its own collective formulas.
_SECTION = re.compile(
    r"^(?:compute_efficiency|memory_efficiency|clocks|host|backward_over_forward_time):\n"
    r"(?:[ #].*\n|\n)*",
    re.MULTILINE,
)
_SOURCES = re.compile(r"^sources:\n(?:[ #].*\n|\n)*", re.MULTILINE)
#: One device's or family's line in a by_gpu or by_family table.
_ENTRY = re.compile(r"^      (\S+): \{.*\n", re.MULTILINE)


def sources_of(text: str) -> Mapping[str, Any]:
    """Source keys of the file, spelt out."""
    found: Mapping[str, Any] = parse_shipped(_SOURCES.findall(text)[0])["sources"]
    return found


@lru_cache(maxsize=8)
def text_of(path: Path) -> str:
    """The file's text. Raises DataError."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError as err:
        raise DataError(f"cannot be read: {err.strerror}", file=path) from None


@lru_cache(maxsize=256)
def efficiencies(text: str, names: tuple[str, ...], path: Path) -> Mapping[str, Any]:
    """The efficiency tables with the lines of ``names`` only: a tenth of the file to parse."""
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
