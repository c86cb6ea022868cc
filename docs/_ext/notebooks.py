"""Notebooks ship as .ipynb with their outputs; this makes them from their sources.

    python docs/_ext/notebooks.py [NAME...]  # run notebooks (all) and write them
    python docs/_ext/notebooks.py --check    # say whose texts differ; exit code 1 if any

The source of ``notebooks/NAME.ipynb`` is ``NAME.md`` beside it (MyST, paired by jupytext). What
depends on the machine or the moment is left out: times, versions, widgets.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any

import jupytext

ROOT = Path(__file__).resolve().parents[2]
#: Seconds that a cell may take before it counts as hanging.
TIMEOUT_S = 300


def sources() -> list[Path]:
    """The notebooks' sources, in order."""
    return sorted((ROOT / "notebooks").glob("[0-9]*.md"))


def shipped(source: Path) -> Path:
    """The notebook with outputs of a source."""
    return source.with_suffix(".ipynb")


def executed(source: Path) -> Any:
    """The notebook of a source with its outputs, as it ships."""
    from nbclient import NotebookClient

    notebook = jupytext.read(source)
    os.environ["SIMCORE_TRACE_CACHE"] = "off"
    os.environ["PYTHONPATH"] = os.pathsep.join(
        filter(None, (str(ROOT), os.environ.get("PYTHONPATH")))
    )
    where = {"metadata": {"path": str(source.parent)}}
    NotebookClient(notebook, timeout=TIMEOUT_S, kernel_name="python3", resources=where).execute()
    notebook.metadata.get("language_info", {}).pop("version", None)
    notebook.metadata.pop("widgets", None)
    for number, cell in enumerate(notebook.cells):
        cell["id"] = f"cell-{number}"
        cell.metadata.pop("execution", None)
        if cell.cell_type == "code":
            hidden = "remove-output" in cell.metadata.get("tags", ())
            cell["outputs"] = [] if hidden else _merged(cell.outputs)
    return notebook


def _merged(outputs: list[Any]) -> list[Any]:
    """Outputs with one text per stream in a row, and pictures as SVG alone."""
    found: list[Any] = []
    for output in outputs:
        if output.output_type == "stream" and found and found[-1].get("name") == output.name:
            found[-1]["text"] += output.text
            continue
        data = output.get("data", {})
        if "image/svg+xml" in data:
            data.pop("image/png", None)
        found.append(output)
    return found


def texts(notebook: Any) -> list[str]:
    """What the cells print and the texts of their results, without pictures and HTML."""
    return [
        re.sub(
            r" +$",
            "",
            output.get("text") or output.get("data", {}).get("text/plain", ""),
            flags=re.M,
        )
        for cell in notebook.cells
        if cell.cell_type == "code"
        for output in cell.outputs
    ]


def main(words: list[str]) -> int:
    """Write, or with ``--check`` only compare; the exit code."""
    differ = []
    named = [word for word in words if word != "--check"]
    for source in (s for s in sources() if s.stem in named or not named):
        notebook = executed(source)
        if "--check" not in words:
            jupytext.write(notebook, shipped(source))
        elif texts(notebook) != texts(jupytext.read(shipped(source))):
            differ.append(source.stem)
    sys.stdout.write(f"differ: {', '.join(differ) or 'none'}\n")
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
