"""What README and documentation show is what the commands print."""

from __future__ import annotations

from pathlib import Path

import outputs
import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow  # calibrates and validates a table
@pytest.mark.parametrize("page", outputs.pages(), ids=lambda p: p.relative_to(ROOT).as_posix())
def test_outputs_are_the_real_ones(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert outputs.renewed(text) == text, "run: python docs/_ext/outputs.py"


def test_pages_have_outputs() -> None:
    shown = {p.name: p.read_text(encoding="utf-8").count("<!-- output of") for p in outputs.pages()}
    assert shown["README.md"] >= 1
    assert shown["tutorial.md"] >= 5


def test_a_wrong_output_is_replaced() -> None:
    page = "a\n\n<!-- output of: simcore --version -->\n\n```text\nold\n```\n\nb\n"
    new = outputs.renewed(page)
    from simcore import __version__

    assert new == page.replace("old", f"$ simcore --version\nsimcore {__version__}")
    assert outputs.renewed(new) == new


def test_only_the_lines_asked_for_are_shown() -> None:
    page = "<!-- output of: simcore list strategies | head -2 -->\n\n```text\n```\n"
    body = outputs.renewed(page).splitlines()[3:-1]
    assert body[0] == "$ simcore list strategies"
    assert len(body) == 4 and body[-1] == "..."


def test_code_of_a_page_runs_in_one_go() -> None:
    shown = "<!-- output of the code above -->\n\n```text\n```\n"
    page = f"```python\nx = 2\n```\n\n```python\nprint(x)\n```\n\n{shown}\n"
    page += f"```python\nprint(x + 1)\n```\n\n{shown}"
    new = outputs.renewed(page)
    assert "```text\n2\n```" in new and "```text\n3\n```" in new


def test_errors_go_into_the_output() -> None:
    said = outputs.command_output("simcore predict --model gpt2 --gpus 1x1xA6000ad")
    assert said.startswith("error: ") and "'A6000ada'" in said


REPORT = """# Report

## One

| quantity | n | MAPE | median | bias | P90 | in 80 % |
|---|---|---|---|---|---|---|
| step time, blind | 10 | 25.8 % | 25.4 % | +24.9 % | 38.0 % | 90 % |

| source | n | MAPE | median | bias | memory n | MAPE |
|---|---|---|---|---|---|---|
| good | 9 | 5.0 % | 4.0 % | -4.0 % | 0 | - |
| bad | 3 | 45.0 % | 4.0 % | -41.0 % | 2 | 3.0 % |
| worse | 1 | 145.0 % | 4.0 % | +145.0 % | 0 | - |

## Two

| blind | n | MAPE | median | bias | P90 | in 80 % |
|---|---|---|---|---|---|---|
| step time | 1 | 5.0 % | 5.0 % | -5.0 % | 5.0 % | 100 % |
| peak memory | 2 | 6.0 % | 5.0 % | -5.0 % | 5.0 % | 50 % |
"""


def test_tables_come_from_the_report() -> None:
    rows = outputs.error_table(REPORT).replace(outputs.NO_BREAK, " ").splitlines()[2:]
    assert rows == [
        "| One | step time, blind | 10 | 25.8 % | +24.9 % | 90 % |",
        "| Two | step time, blind | 1 | 5.0 % | -5.0 % | 100 % |",
        "|  | peak memory, blind | 2 | 6.0 % | -5.0 % | 50 % |",
    ]
    assert len(outputs.TABLES["step errors"](REPORT).splitlines()) == 4
    assert outputs.worst_sources(REPORT).splitlines()[2:] == [
        "| worse | 1 | 145.0 % | +145.0 % |",
        "| bad | 3 | 45.0 % | -41.0 % |",
    ]
    assert outputs.chosen_sources(REPORT, "good, worse").splitlines()[2:] == [
        "| good | 9 | 5.0 % | -4.0 % |",
        "| worse | 1 | 145.0 % | +145.0 % |",
    ]


def test_best_and_worst_steps_of_a_table() -> None:
    printed = (
        "row   predicted low high measured error\n"
        "a-1  step time  355 ms  291 ms  447 ms  328 ms  +8.0 %\n"
        "a-1  peak memory  19 GB  17 GB  21 GB  18.9 GB  +0.9 %\n"
        "a-2  step time  960 ms  795 ms  1.28 s  1.23 s  -22 %\n"
        "a-3  step time  9.60 s  795 ms  1.28 s  1.23 s  +680 %  flagged\n"
    )
    rows = outputs.nearest_and_farthest(printed).splitlines()[2:]
    assert rows == [
        "| a-1 | 355 ms | 291 ms to 447 ms | 328 ms | +8.0 % |",
        "| a-2 | 960 ms | 795 ms to 1.28 s | 1.23 s | -22 % |",
    ]
