"""Docstrings are written to be read in an editor: their aligned columns become literal blocks."""

from __future__ import annotations

import re
from itertools import groupby
from typing import Any

from sphinx.application import Sphinx

#: Two words with a gap between them that prose does not have.
_COLUMNS = re.compile(r"\S {3,}\S")


def literal_columns(lines: list[str]) -> list[str]:
    """The lines, each paragraph that is set in columns as a block of text."""
    out: list[str] = []
    for blank, group in groupby(lines, key=lambda line: not line.strip()):
        paragraph = list(group)
        if not blank and any(_COLUMNS.search(line.strip()) for line in paragraph):
            paragraph = [".. code-block:: text", "", *(f"    {line}" for line in paragraph)]
        out += paragraph
    return out


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the change."""

    def process(
        app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]
    ) -> None:
        lines[:] = literal_columns(lines)

    app.connect("autodoc-process-docstring", process)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
