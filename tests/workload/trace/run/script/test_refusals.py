"""Scripts that cannot run dry end in one sentence with file, line and what to do."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from scripts_cannot import CANNOT, Cannot

from simcore.base.errors import UsageError


@pytest.mark.parametrize("name", CANNOT)
def test_one_sentence_with_file_line_and_what_to_do(
    name: str, capture: Any, tmp_path: Path
) -> None:
    own = tmp_path / "own.txt"
    own.write_text("mine", encoding="utf-8")
    cannot: Cannot = CANNOT[name]
    limits = {"time_s": 1} if "endless" in name else {"time_s": 60}
    with pytest.raises(UsageError) as caught:
        capture(cannot.text.replace("{own}", str(own)), memory_bytes=3_000_000_000, **limits)
    said = str(caught.value)
    assert re.search(cannot.says, said)
    assert "\n" not in said
    assert ("train.py " if name == "no step" else f"train.py:{cannot.line}: ") in said
    assert own.read_text(encoding="utf-8") == "mine"
