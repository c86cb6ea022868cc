"""Text of tables as spreadsheets save it: marks of encodings, and what stands between cells."""

from __future__ import annotations

import codecs
from typing import Final

_WIDE: Final = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


def decoded(raw: bytes) -> str:
    """UTF-8 with or without a mark, or UTF-16 with one (Excel's two ways to save as text).

    Raises UnicodeDecodeError.
    """
    return raw.decode("utf-16" if raw.startswith(_WIDE) else "utf-8-sig")


def between(heading: str) -> str:
    """What parts the cells of a heading: a comma; a semicolon, where the decimal point is a comma;
    or a tab.
    """
    return max(",;\t", key=heading.count)
