"""What the site makes of docstrings and of the command line."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

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


def test_what_a_notebook_takes_is_logged(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("sphinx")
    import notebook_times
    from sphinx.util import logging

    said: list[str] = []
    events: dict[str, Callable[..., None]] = {}
    clock = iter([100.0, 116.0])
    logger = SimpleNamespace(info=lambda text, *a: said.append(text % a))
    monkeypatch.setattr(notebook_times, "_children_s", lambda: next(clock))
    monkeypatch.setattr(logging, "getLogger", lambda _: logger)
    env = SimpleNamespace(docname="n", nb_metadata={"n": {"exec_data": {"runtime": 90.0}}})
    app: Any = SimpleNamespace(connect=events.__setitem__, env=env)
    notebook_times.setup(app)
    events["source-read"](app, "n", [""])
    events["doctree-read"](app, None)
    assert said == ["n: 16.0 s of processor time, 90.0 s on the clock"]


def test_every_picture_is_on_the_page_of_pictures() -> None:
    page = (DOCS / "pictures.md").read_text(encoding="utf-8")
    shown = set(re.findall(r"\(plots/([\w-]+)\.png\)", page))
    drawn = {p.stem for p in (DOCS / "plots").glob("*.png")}
    assert shown == drawn - {"time", "memory"}  # halves of the overview
    assert set(re.findall(r"^## ([\w-]+):", page, re.M)) <= set(KINDS)


def test_every_paper_that_the_model_cites_is_listed() -> None:
    model = " ".join((DOCS / "model.md").read_text(encoding="utf-8").split())
    cited = set(re.findall(r"\w+ et al\. \d{4}|& \w+ \d{4}", model))
    listed = (DOCS / "sources.md").read_text(encoding="utf-8")
    assert len(cited) >= 10
    assert not {c for c in cited if c not in listed}
