"""Every row of the table of entrances names a test that exists."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
TEXT = (TESTS.parent / "docs" / "security.md").read_text(encoding="utf-8")


def test_every_row_has_a_test_that_exists() -> None:
    rows = [x for x in TEXT.splitlines() if x.startswith("|") and not x.startswith(("|--", "| wh"))]
    assert len(rows) > 30
    for row in rows:
        named = re.findall(r"`([\w/]+\.py)::(\w+)`", row)
        assert named, row
        for file, test in named:
            assert f"def {test}(" in (TESTS / file).read_text(encoding="utf-8"), (file, test)
