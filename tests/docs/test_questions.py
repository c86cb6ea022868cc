"""Each of the forty questions is answered by its command and by its call in Python."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import simcore
import simcore.api
from simcore.cli.main import run
from simcore.serve.controls import controls

ROOT = Path(__file__).resolve().parents[2]
#: Calibrations of a table and searches over thousands of points take seconds.
_SLOW = ("--calibrated", "tables/latte.csv", "simcore plan", "2048x8xH100")
_FORM = re.compile(
    r"### (\d+)\. (.+)\n\n    (simcore .+)\n\n"
    r"Look for `(.+?)`\.(?: Page: .+\.)? Python:\n\n    (.+)\n"
)


class Question(NamedTuple):
    """A question, its command, what to look for in the output, and the call in Python."""

    number: str
    text: str
    command: str
    word: str
    call: str


def _questions() -> list[Question]:
    text = (ROOT / "docs/questions.md").read_text(encoding="utf-8")
    found = [Question(*match.groups()) for match in _FORM.finditer(text)]
    assert len(found) == text.count("\n### ")
    return found


QUESTIONS = _questions()


def _cases() -> Iterator[object]:
    """The questions; those that take seconds are left out of a check."""
    for q in QUESTIONS:
        slow = any(word in q.command for word in _SLOW)
        yield pytest.param(q, id=q.number, marks=[pytest.mark.long] if slow else [])


def test_there_are_forty_of_five_kinds_of_users() -> None:
    assert [int(q.number) for q in QUESTIONS] == list(range(1, 41))
    assert (ROOT / "docs/questions.md").read_text(encoding="utf-8").count("\n## ") == 5


@pytest.mark.parametrize("q", list(_cases()))
def test_command_and_call_answer_it(
    q: Question, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    code = run(shlex.split(q.command)[1:])
    ran = capsys.readouterr()
    assert code in (0, 1), ran.err
    assert q.word in ran.out
    assert eval(q.call, {"simcore": simcore}) is not None


def test_the_words_of_the_page_stand_on_it() -> None:
    text = (ROOT / "docs/questions.md").read_text(encoding="utf-8")
    files = (ROOT / "simcore/serve/static").glob("*.*")
    page = [f.read_text(encoding="utf-8") for f in files]
    page += [c.label for group in controls() for c in group.controls]
    places = re.findall(r"\*(.+?)\*", " ".join(re.findall(r" Page: (.+?)\. Python:", text)))
    assert len(places) > 20
    assert not [word for word in places if not any(word in shown for shown in page)]
