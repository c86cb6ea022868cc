"""The written report says what the rows say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from simcore.validate.judge import judge
from simcore.validate.report import remarks, report
from simcore.validate.report_sections import inferred, inferred_facts
from simcore.validate.table import read_table

ROOT = Path(__file__).parents[2]
HELD_OUT = ROOT / "validate" / "held_out" / "published.csv"


@pytest.fixture(scope="module")
def part(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The held-out table's jobs that ran out of memory, and three of those that ran."""
    lines = HELD_OUT.read_text(encoding="utf-8").splitlines(keepends=True)
    at = next(i for i, line in enumerate(lines) if line.startswith("id,"))
    failed = [x for x in lines[at + 1 :] if x.partition(",")[0].endswith("-oom")]
    ran = [x for x in lines[at + 1 :] if x.startswith("dlperf-resnet50")][:3]
    path = tmp_path_factory.mktemp("tables") / "part.csv"
    path.write_text("".join([lines[at], *failed, *ran]), encoding="utf-8")
    return path


def test_what_fits_is_counted(part: Path) -> None:
    fits = judge([read_table(part)]).fits()
    told = re.search(
        r"Configurations: of (\d+) that ran out of memory (\d+) % are predicted not to fit; "
        r"of (\d+) that ran (\d+) % are predicted to fit\.\n",
        report([part]),
    )
    assert told is not None
    found, kept = fits["out_of_memory_found_frac"], fits["fits_recall_frac"]
    assert found is not None and kept is not None
    assert [int(n) for n in told.groups()] == [7, round(100 * found), 3, round(100 * kept)]


def test_errors_are_those_of_the_rows(part: Path) -> None:
    text = report([part])
    steps = [s for s in judge([read_table(part)]).scored if s.quantity == "step_time"]
    assert len(steps) == 3
    mean = sum(abs(s.error_frac) for s in steps) / len(steps)
    assert f"| step time | 3 | {100 * mean:.1f} % |" in text
    worst = max(steps, key=lambda s: abs(s.error_frac))
    first = text.partition("| furthest off |")[2].splitlines()[2]
    assert first.startswith(f"| {worst.id} |")
    assert first.endswith(f"| {100 * worst.error_frac:+.1f} % |")


def test_words_are_of_tables_that_have_a_title() -> None:
    written = (ROOT / "validate" / "REPORT.md").read_text(encoding="utf-8")
    said = remarks()
    assert len(said) > 5
    assert all(f"## {told['title']}\n" in written for told in said.values() if "remarks" in told)
    assert all(told.get("remarks", "").strip() in written for told in said.values())


def test_the_report_tells_which_facts_of_programs_are_inferred() -> None:
    found = {(told.of, key) for told in inferred_facts() for _, key, _ in told.values()}
    assert {("deepspeed", "interleaves"), ("llama3", "settings")} <= found
    assert ("deepspeed", "norm_copy_bytes") not in found  # its source states it
    text = inferred()
    assert text.count("\n| ") == 1 + len(list(inferred_facts()))
    assert text in (ROOT / "validate" / "REPORT.md").read_text(encoding="utf-8")
