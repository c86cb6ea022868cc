"""The size of images as text: ``512``, or ``480x832`` (height, width)."""

from __future__ import annotations

import re

from simcore.base.errors import InvalidConfig

_SIZE = re.compile(r"(\d{1,5})(?:\s*[x×]\s*(\d{1,5}))?", re.IGNORECASE)


def sides(text: str) -> tuple[int, int]:
    """(height, width) in pixels from ``512`` or ``480x832``. Raises InvalidConfig."""
    found = _SIZE.fullmatch(text.strip())
    if found is None or 0 in (height := int(found[1]), width := int(found[2] or found[1])):
        raise InvalidConfig([f"resolution {text!r} is neither a side nor HEIGHTxWIDTH in pixels"])
    return height, width
