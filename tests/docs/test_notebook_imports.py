"""What notebooks import from simcore is there; running them is `pytest -m long`."""

from __future__ import annotations

import ast
import re
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("[0-9]*.md"))
_CELL = re.compile(r"^```\{code-cell\}[^\n]*\n(.*?)^```", re.S | re.M)


def imported(text: str) -> list[tuple[str, str]]:
    """Module and name of each import from simcore in a notebook's cells."""
    code = "\n".join(
        line
        for cell in _CELL.findall(text)
        for line in cell.splitlines()
        if not line.startswith((":", "%", "!", "---"))
    )
    return [
        (node.module, alias.name)
        for node in ast.walk(ast.parse(code))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("simcore")
        for alias in node.names
        if node.module
    ]


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda p: p.stem)
def test_imports_of_notebooks_are_there(notebook: Path) -> None:
    missing = [
        (module, name)
        for module, name in imported(notebook.read_text())
        if not hasattr(import_module(module), name) and find_spec(f"{module}.{name}") is None
    ]
    assert missing == []


def test_imports_are_seen() -> None:
    assert sum(len(imported(p.read_text())) for p in NOTEBOOKS) >= 8
