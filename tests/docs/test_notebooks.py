"""Notebooks are plain text with the same head, and the sliders of one of them move the answer."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

NOTEBOOKS = sorted((Path(__file__).resolve().parents[2] / "notebooks").glob("[0-9]*.md"))
_CELL = re.compile(r"^```\{code-cell\} ipython3\n(?::tags:[^\n]*\n\n)?(.*?)^```$", re.M | re.S)
#: What is wider cannot be read on the site without scrolling.
WIDTH = 94


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_each_is_a_notebook_for_jupytext(path: Path) -> None:
    jupytext = pytest.importorskip("jupytext", reason="not installed: jupytext (extra docs)")
    notebook = jupytext.read(path)
    assert notebook.metadata["kernelspec"]["name"] == "python3"
    code = [c.source for c in notebook.cells if c.cell_type == "code"]
    assert code == [c.strip("\n") for c in _CELL.findall(path.read_text(encoding="utf-8"))]
    assert len(code) >= 4
    assert "pyplot" not in "".join(code)
    shown = [c for c in notebook.cells if c.cell_type == "code" and not c.metadata.get("tags")]
    lines = [line for c in shown for line in c.source.splitlines()]
    assert max(map(len, lines)) <= WIDTH


def test_each_is_in_the_folder_s_index() -> None:
    index = (NOTEBOOKS[0].parent / "README.md").read_text(encoding="utf-8")
    assert len(NOTEBOOKS) == 6
    assert all(f"({p.name})" in index for p in NOTEBOOKS)


def test_sliders_move_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ipywidgets", reason="not installed: ipywidgets (extra docs)")
    import IPython.display

    monkeypatch.setattr(IPython.display, "display", lambda *_: None)
    names: dict[str, Any] = {}
    text = next(p for p in NOTEBOOKS if p.stem.startswith("02")).read_text(encoding="utf-8")
    for cell in _CELL.findall(text)[:2]:
        exec(compile(cell, "02", "exec"), names)
    sliders = names["sliders"]
    controls = {c.description: c for c in sliders.children[:-1]}
    assert set(controls) == {"gpu", "nodes", "network", "micro_batch", "strategy"}
    sliders.update()
    before = sliders.result
    for name, value in (("nodes", 4), ("network", "eth-10"), ("gpu", "H100"), ("micro_batch", 2)):
        controls[name].value = value
        after = sliders.result
        assert after.step_time_s.value != before.step_time_s.value, name
        before = after
    controls["strategy"].value = "dp"  # on four nodes: one sentence, no answer
    assert sliders.result is None
