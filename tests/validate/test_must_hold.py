"""The table of what must hold: what a clause says, what the command prints and how it ends."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from validate.must_hold import __main__ as command
from validate.must_hold.card import holds_80
from validate.must_hold.clause import Clause, Found, at_least, at_most, between
from validate.must_hold.tables import Tables


@pytest.mark.parametrize(
    ("found", "holds"),
    [
        (at_most(0.15, 0.15), True), (at_most(0.15, 0.151), False), (at_most(0.15, None), False),
        (at_least(0.95, 0.95), True), (at_least(0.95, 0.949), False), (at_least(0.95, None), False),
        (between(0.7, 0.9, 0.8), True), (between(0.7, 0.9, 0.69), False),
        (between(0.7, 0.9, 0.91), False), (between(0.7, 0.9, None), False),
    ],
)  # fmt: skip
def test_limits_are_part_of_what_holds_and_no_row_is_none(found: Found, holds: bool) -> None:
    assert found.holds is holds
    assert ("no row" in found.text) is (found.value is None)


@pytest.mark.parametrize(
    ("inside", "n", "holds"),
    [
        (28, 31, True), (29, 31, False),  # 28 or more of 31: 10.7 %; 29 or more: 3.7 %
        (21, 31, True), (20, 31, False),  # 21 or fewer of 31: 7.5 %; 20 or fewer: 3.3 %
        (0, 1, True), (309, 400, True), (307, 400, False), (332, 400, True), (333, 400, False),
    ],
)  # fmt: skip
def test_coverage_that_is_accepted_as_80_percent(inside: int, n: int, holds: bool) -> None:
    assert holds_80(inside, n) is holds


def test_every_clause_has_a_name_of_its_own() -> None:
    names = [c.name for c in command.CLAUSES]
    assert len(set(names)) == len(names)


def _run(
    clauses: tuple[Clause, ...], monkeypatch: pytest.MonkeyPatch, folder: Path, *words: str
) -> int:
    monkeypatch.setenv("SIMCORE_TABLES", str(folder))
    monkeypatch.setattr(command, "CLAUSES", clauses)
    return command.main(words)


GOOD = Clause("good", "yes", "1", lambda _: Found(True, "7 %", 0.07))
BAD = Clause("bad", "no", "2", lambda _: Found(False, "99 %", 0.99))
BROKEN = Clause("broken", "a table", "3", lambda t: at_most(1.0, t.held_out["nothing"]))


def test_one_that_fails_ends_with_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _run((GOOD, BAD), monkeypatch, tmp_path) == 1
    first, second, last = capsys.readouterr().out.splitlines()
    assert " yes " in first and " NO " in second and last == "1 of 2 hold"
    assert _run((GOOD, BAD), monkeypatch, tmp_path, "--only", "good") == 0


def test_what_cannot_be_computed_does_not_hold(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Tables, "held_out", {})
    assert _run((BROKEN,), monkeypatch, tmp_path, "--json") == 1
    (told,) = json.loads(capsys.readouterr().out)
    assert told["holds"] is False and told["found"].startswith("not computed: KeyError")


def test_wrong_requests_end_with_two(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _run((GOOD,), monkeypatch, tmp_path, "--only", "nonsense") == 2
    assert "no clause has nonsense in its name" in capsys.readouterr().err
    assert _run((GOOD,), monkeypatch, tmp_path / "absent") == 2
    assert "SIMCORE_TABLES names no folder" in capsys.readouterr().err


def test_a_table_is_computed_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from simcore import api

    calls: list[Any] = []
    monkeypatch.setattr(api, "validate", lambda *a, **k: calls.append(a) or {})
    tables = Tables(tmp_path)
    assert tables.ddp is tables.ddp and len(calls) == 1


def test_the_seed_documents_verdicts_are_clauses_that_hold(tmp_path: Path) -> None:
    clauses = {c.name: c for c in command.CLAUSES}
    for name in ("Latte-XL, batch 1, one RTX 4090", "Latte-XL, batch 3, one A6000ada"):
        assert clauses[name].asked == "does not fit"
        assert clauses[name].compute(Tables(tmp_path)).holds
