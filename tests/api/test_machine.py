"""The closed loop's table, with and without a profile to keep."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from simcore import api


@pytest.fixture
def ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranks that write a profile where they are told to, and a note that names it."""

    def run(arguments: list[str], device: str | None) -> dict[str, Any]:
        target = Path(arguments[arguments.index("-o") + 1])
        target.write_text("name: selftest\n", encoding="utf-8")
        notes = ["others used the machine", f"{target.parent}/selftest.raw/steps.csv:8: left out"]
        return {"holds": True, "calibration_notes": notes, "written": [str(target)]}

    monkeypatch.setattr("simcore.calibrate.machine.launch.run_ranks", run)


@pytest.mark.usefixtures("ranks")
def test_a_table_names_no_file_that_is_gone() -> None:
    found = api.selftest(quiet=True)
    assert found["written"] == []
    assert found["calibration_notes"] == [
        "others used the machine", "selftest.raw/steps.csv:8: left out",
    ]  # fmt: skip


@pytest.mark.usefixtures("ranks")
def test_a_profile_that_is_kept_is_named(tmp_path: Path) -> None:
    target = tmp_path / "mine.yaml"
    found = api.selftest(output=target, quiet=True)
    assert found["written"] == [str(target)]
    assert target.exists()
    assert found["calibration_notes"][1].startswith(str(tmp_path))
