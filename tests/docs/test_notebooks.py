"""Notebooks ship with the outputs of their sources, their calls are typed, their sliders move."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("[0-9]*.md"))
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


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_each_ships_executed_with_the_cells_of_its_source(path: Path) -> None:
    jupytext = pytest.importorskip("jupytext", reason="not installed: jupytext (extra docs)")
    text = path.with_suffix(".ipynb").read_text(encoding="utf-8")
    source, shipped = jupytext.read(path), json.loads(text)
    cells = [(cell["cell_type"], "".join(cell["source"])) for cell in shipped["cells"]]
    assert cells == [(cell.cell_type, cell.source) for cell in source.cells], (
        "run: python docs/_ext/notebooks.py"
    )
    code = [cell for cell in shipped["cells"] if cell["cell_type"] == "code"]
    assert all(cell["execution_count"] for cell in code)
    kinds = {output["output_type"] for cell in code for output in cell["outputs"]}
    assert "execute_result" in kinds and "error" not in kinds
    assert len(text) < 400_000
    assert not re.search(r"/(tmp|home|root|work|usr|Users)/", text), "a path of a machine"


@pytest.mark.long
@pytest.mark.timeout(600)
def test_notebooks_run_and_print_what_they_ship_with() -> None:
    notebooks = pytest.importorskip("notebooks", reason="not installed: extra docs")
    stale = [
        path.stem
        for path in NOTEBOOKS
        if notebooks.texts(notebooks.executed(path))
        != notebooks.texts(notebooks.jupytext.read(path.with_suffix(".ipynb")))
    ]
    assert not stale, "run: python docs/_ext/notebooks.py"


def _scripts(folder: Path) -> list[Path]:
    """The code of each notebook as a Python file in ``folder``."""
    for path in NOTEBOOKS:
        code = "\n".join(_CELL.findall(path.read_text(encoding="utf-8")))
        (folder / f"notebook_{path.stem}.py").write_text(code, encoding="utf-8")
    return sorted(folder.glob("*.py"))


def _said(*command: object, **environ: str) -> str:
    """What a type checker prints; empty where it finds nothing."""
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, check=False,
                          env={**os.environ, **environ})  # fmt: skip
    return "" if done.returncode == 0 else done.stdout + done.stderr


@pytest.mark.skipif(find_spec("pyrefly") is None, reason="not installed: pyrefly (extra dev)")
def test_pyrefly_accepts_the_calls_and_refuses_wrong_ones(tmp_path: Path) -> None:
    config = tmp_path / "pyrefly.toml"
    paths = f'search-path = ["{ROOT}"]\npython-interpreter-path = "{sys.executable}"\n'
    config.write_text(f'preset = "default"\n{paths}', encoding="utf-8")
    check = (sys.executable, "-m", "pyrefly", "check", "-c", config)
    assert _said(*check, *_scripts(tmp_path)) == ""
    wrong = tmp_path / "wrong.py"
    wrong.write_text('import simcore\nsimcore.predict("gpt2", 3.5).nothing\n', encoding="utf-8")
    said = _said(*check, wrong)
    assert "bad-argument-type" in said and "missing-attribute" in said


@pytest.mark.long
@pytest.mark.timeout(600)
def test_mypy_accepts_the_calls(tmp_path: Path) -> None:
    said = _said(sys.executable, "-m", "mypy", "--ignore-missing-imports", "--config-file=",
                 "--disable-error-code=import-untyped", "--cache-dir", tmp_path / "cache",
                 *_scripts(tmp_path), MYPYPATH=str(ROOT))  # fmt: skip
    assert said == ""


def test_each_is_in_the_folder_s_index() -> None:
    index = (NOTEBOOKS[0].parent / "README.md").read_text(encoding="utf-8")
    assert len(NOTEBOOKS) == 6
    assert all(f"({p.stem}.ipynb)" in index for p in NOTEBOOKS)


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
