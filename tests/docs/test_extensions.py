"""What the site makes of docstrings and of the command line."""

from __future__ import annotations

import re
from pathlib import Path

import plain_docstrings
import pytest
import typer

from simcore.cli.main import app
from simcore.report.plots import KINDS

DOCS = Path(__file__).resolve().parents[2] / "docs"


def test_columns_become_a_block_of_text() -> None:
    lines = ["Words of a job.", "", "a     one", "long  two", "", "The end."]
    assert plain_docstrings.literal_columns(lines) == [
        "Words of a job.", "", ".. code-block:: text", "", "    a     one", "    long  two", "",
        "The end.",
    ]  # fmt: skip
    prose = ["One sentence.  Another one.", "  indented"]
    assert plain_docstrings.literal_columns(prose) == prose


def test_reference_names_every_command_and_option() -> None:
    pytest.importorskip("sphinx")
    import cli_reference

    text = cli_reference.markdown()
    for name, command in typer.main.get_command(app).commands.items():
        assert f"## simcore {name}" in text
        for option in (o for p in command.params for o in p.opts if o.startswith("--")):
            assert option in text, f"{name} {option}"
    assert text.count("| word | meaning |") == text.count("\n## ") + 1


def test_every_kind_of_picture_is_on_its_page() -> None:
    page = (DOCS / "pictures.md").read_text(encoding="utf-8")
    shown = set(re.findall(r"\(plots/([\w-]+)\.png\)", page))
    assert all((DOCS / "plots" / f"{name}.png").is_file() for name in shown)
    assert not {k for k in KINDS if f"`{k}`" not in page and f"## {k}:" not in page}
