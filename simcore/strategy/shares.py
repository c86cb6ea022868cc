"""The division of a batch over GPUs of several types as text: ``3:1``, equal or auto."""

from __future__ import annotations

import re

from simcore.base.errors import InvalidConfig

EQUAL, AUTO = ("equal", "even"), "auto"
_RATIO = re.compile(r"^\d+(:\d+)+$")


def check_shares(text: str) -> str:
    """``auto``, a ratio such as ``3:1``, or "" for equal shares. Raises InvalidConfig."""
    text = text.strip().lower()
    if text not in (*EQUAL, AUTO) and (not _RATIO.match(text) or "0" in text.split(":")):
        raise InvalidConfig(
            [f"shares {text!r} are not auto, equal or a ratio of samples by GPU type such as 3:1"]
        )
    return "" if text in EQUAL else text
