"""How a batch is dealt out over GPUs of several kinds, as it is typed: ``3:1``, equal or auto."""

from __future__ import annotations

import re

from simcore.base.errors import InvalidConfig

EQUAL, AUTO = ("equal", "even"), "auto"
_RATIO = re.compile(r"^\d+(:\d+)+$")


def check_shares(text: str) -> str:
    """``auto``, a ratio such as ``3:1``, or nothing for equal ones. Raises InvalidConfig."""
    text = text.strip().lower()
    if text not in (*EQUAL, AUTO) and (not _RATIO.match(text) or "0" in text.split(":")):
        raise InvalidConfig(
            [f"shares {text!r} are neither auto, equal nor samples of each kind of GPU: 3:1"]
        )
    return "" if text in EQUAL else text
