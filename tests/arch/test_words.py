"""Phrases that readers did not understand stand in no text of the project.

Each is from a sentence that somebody tried to read; the second column is what to write instead.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TEXTS = sorted(
    p for kind in ("simcore/**/*.py", "simcore/**/*.js", "simcore/**/*.html", "docs/*.md", "*.md")
    for p in ROOT.glob(kind) if "node_modules" not in p.parts
)  # fmt: skip
INSTEAD = {
    r"of no weight": "has no effect on the prediction",
    r"speaks? for (the|a) device": "stands for the device; its time is the device's",
    r"figures that saw": "fitted without these figures",
    r"\bwhat parts\b": "what separates",
    r"fit or lack at most": "fit, or need at most so much more",
    r"what of it is": "the part of it that is",
    r"who is asked about": "the name that was looked up",
    r"reads? the share": "the fraction of its bytes that it reads twice",
}


@pytest.mark.parametrize("phrase", INSTEAD)
def test_no_text_has_a_phrase_that_readers_did_not_understand(phrase: str) -> None:
    word = re.compile(phrase, re.IGNORECASE)
    found = [
        f"{path.relative_to(ROOT)}:{number}: write {INSTEAD[phrase]!r}"
        for path in TEXTS
        for number, line in enumerate(path.read_text(encoding="utf-8").split("\n"), 1)
        if word.search(line)
    ]
    assert found == []


def test_texts_are_looked_at() -> None:
    assert len(TEXTS) > 500


#: ``room.name`` in a text that is no module: terms of memory, a folder of the repository.
NO_MODULES = {"memory.activations", "memory.act", "validate.on_gpu"}
ROOMS = sorted(p.parent.name for p in ROOT.glob("simcore/*/__init__.py"))
MODULE = re.compile(rf"``((?:{'|'.join(ROOMS)})\.[a-z_]+)(?:\.\w+)*``")


def test_modules_that_texts_point_to_exist() -> None:
    """A text that sends its reader to ``memory.events`` keeps up with modules that move."""
    gone = []
    for path in (p for p in TEXTS if p.suffix == ".py"):
        for name in MODULE.findall(path.read_text(encoding="utf-8")):
            room, _, member = name.partition(".")
            folder = ROOT / "simcore" / room
            here = (folder / f"{member}.py").exists() or (folder / member).is_dir()
            if not here and member not in (folder / "__init__.py").read_text(encoding="utf-8"):
                gone.append(f"{path.relative_to(ROOT)}: {name}")
    assert set(gone) == {g for g in gone if g.split(": ")[1] in NO_MODULES}
