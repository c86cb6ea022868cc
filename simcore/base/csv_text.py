"""Text of tables as spreadsheets save it: its encoding and its delimiter."""

from __future__ import annotations

import codecs
from typing import Final

_UTF16_MARKS: Final = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


def decoded(raw: bytes) -> str:
    """The text of bytes in UTF-8, with or without a byte order mark, or in UTF-16 with one.

    These are the two encodings in which Excel saves text. Raises UnicodeDecodeError.
    """
    return raw.decode("utf-16" if raw.startswith(_UTF16_MARKS) else "utf-8-sig")


def between(heading: str) -> str:
    """Delimiter of a table's header line: a comma, a semicolon or a tab.

    Spreadsheets write semicolons where the decimal point is a comma.
    """
    return max(",;\t", key=heading.count)
