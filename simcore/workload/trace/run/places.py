"""Which files are a user's and which are libraries'; imports no library."""

from __future__ import annotations

import re
import sysconfig
import traceback
from collections.abc import Iterable
from pathlib import Path

_STANDARD = Path(sysconfig.get_paths()["stdlib"])
_OURS = Path(__file__).resolve().parents[3]
_INSTALLED = {"site-packages", "dist-packages"}
#: A line of the stacks that Python's faulthandler writes.
_FRAME = re.compile(r'^ *File "(.+)", line (\d+) in', re.MULTILINE)


def is_library(file: str) -> bool:
    """Whether a file belongs to Python, an installed library or simcore."""
    path = Path(file)
    outside = file.startswith("<") or not _INSTALLED.isdisjoint(path.parts)
    return outside or path.is_relative_to(_STANDARD) or path.is_relative_to(_OURS)


def place_in_script(frames: Iterable[traceback.FrameSummary]) -> str:
    """``file:line`` of the innermost line that is the user's; empty if there is none."""
    own = [f"{f.filename}:{f.lineno}" for f in frames if not is_library(f.filename)]
    return own[-1] if own else ""


def libraries_in(frames: Iterable[traceback.FrameSummary]) -> list[str]:
    """Top packages of the installed libraries that are running, the innermost first."""
    found: dict[str, None] = {}
    for frame in frames:
        parts = Path(frame.filename).parts
        if is_library(frame.filename) and not _INSTALLED.isdisjoint(parts):
            at = max(i for i, part in enumerate(parts) if part in _INSTALLED)
            found[parts[at + 1].removesuffix(".py")] = None
    return list(found)[::-1]


def place_in_trace(text: str) -> str:
    """``file:line`` of the innermost line of the user's in stacks written by faulthandler."""
    frames = _FRAME.findall(text)
    return next((f"{file}:{line}" for file, line in frames if not is_library(file)), "")
