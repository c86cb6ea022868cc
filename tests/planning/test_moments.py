"""Deadlines as durations, dates and times, by the calendar."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any

import pytest

from simcore import api
from simcore.base.errors import InvalidConfig
from simcore.planning.moments import deadline_of, duration_seconds, start_of

DAY = 86400.0
NOON = datetime(2026, 11, 23, 12, 0, tzinfo=UTC)


@pytest.fixture(autouse=True)
def local_time(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Local time is Berlin's: one hour ahead of UTC, two in summer."""
    import time

    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("30d", 30 * DAY), ("12 h", 43200), ("90 min", 5400), ("2w", 14 * DAY),
     ("in 10 days", 10 * DAY), ("10 days", 10 * DAY),
     ("1 week", 7 * DAY), ("In 1.5 hours", 5400), ("45s", 45)],
)  # fmt: skip
def test_durations(text: str, seconds: float) -> None:
    assert duration_seconds("--deadline", text) == pytest.approx(seconds)
    assert deadline_of(text, NOON).seconds == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("text", "days"),
    [
        ("2026-11-24T12:00", 1.0),
        ("2026-11-24 12:00", 1.0),
        ("2026-11-24T12:00Z", 1.0),
        ("2026-11-24T13:00+01:00", 1.0),
        ("20261124T1200", 1.0),
        ("2026-11-23", 0.5),
        ("2026-12-24", 31.5),  # all of the day
    ],
)
def test_moments(text: str, days: float) -> None:
    found = deadline_of(text, NOON)
    assert found.seconds == pytest.approx(days * DAY)
    assert found.at - found.start == timedelta(seconds=found.seconds)
    assert found.dated


def test_a_moment_without_zone_is_local_time() -> None:
    begins = start_of("2026-11-23T12:00")
    assert begins.utcoffset() == timedelta(hours=1)
    assert deadline_of("2026-11-24T12:00", begins).seconds == DAY
    # by summer an hour is lost, and local noon comes 23 hours after the noon before
    late = start_of("2027-03-27T12:00")
    assert deadline_of("2027-03-28T12:00", late).seconds == 23 * 3600
    # with a zone of its own what has none is in it
    far = start_of("2026-11-23T12:00+09:00")
    assert far.tzinfo == timezone(timedelta(hours=9))
    assert deadline_of("2026-11-24T12:00", far).seconds == DAY


def test_now_is_the_start_unless_one_is_said() -> None:
    before = datetime.now(UTC)
    assert before <= start_of(None) <= datetime.now(UTC)


@pytest.mark.parametrize(
    ("text", "said"),
    [("2026-11-23T11:59", "is before the run begins, 2026-11-23 12:00 UTC"),
     ("2020-01-01", "before the run begins"), ("2026-13-01", "2026-12-24T18:00"),
     ("Christmas", "30d, 12h"), ("3 months", "neither a duration nor a date"),
     ("24.12.2026", "nor a date"), ("-3d", "nor a date"), ("inf d", "nor a date"),
     ("", "nor a date")],
)  # fmt: skip
def test_what_is_no_deadline(text: str, said: str) -> None:
    with pytest.raises(InvalidConfig, match=said):
        deadline_of(text, NOON)


ASK: dict[str, Any] = {"samples": 1e6, "strategy": "ddp", "micro_batch": "2", "objective": "time"}
GPUS = "A6000ada:1..4x8"


def test_a_plan_states_from_when_to_when() -> None:
    found = api.plan("latte-xl", GPUS, deadline="2026-12-24", start="2026-12-01", **ASK)
    assert found.goal.deadline_s == 24 * DAY
    text = " ".join(str(found).split())
    assert "within 24.0 d (2026-12-01 00:00 CET to 2026-12-25 00:00 CET)" in text
    limits = found.to_dict()["limits"]
    assert limits["begins"] == "2026-12-01T00:00:00+01:00"
    assert limits["ends"] == "2026-12-25T00:00:00+01:00"
    same = api.plan("latte-xl", GPUS, deadline="24d", **ASK)
    assert same.best[0].step_time_s == found.best[0].step_time_s and "2026" not in str(same)
    days = {"deadline": date(2026, 12, 24), "start": datetime(2026, 12, 1)}
    assert api.plan("latte-xl", GPUS, **days, **ASK).goal == found.goal
    for text in (timedelta(days=24), "24d"):
        assert api.plan("latte-xl", GPUS, deadline=text, **ASK).goal.deadline_s == 24 * DAY
    # asked again, the moments are the same ones
    again = found.replace(deadline="2026-12-02T00:00")
    assert again.goal.deadline_s == DAY
    assert found.replace(deadline=None).goal.deadline_s is None


def test_the_command_line(simcore_cli: Callable[..., tuple[int, str, str]]) -> None:
    ask = ("plan", "--model", "latte-xl", "--gpus", GPUS, "--samples", "1e6",
           "--objective", "time")  # fmt: skip
    code, out, _ = simcore_cli(*ask, "--deadline", "2026-12-24T18:00", "--start", "2026-12-01")
    assert code == 0 and "2026-12-24 18:00 CET" in out and "23.8 d" in out
    code, _, err = simcore_cli(*ask, "--deadline", "2026-12-01", "--start", "2027-01-01")
    assert code == 2 and "is before the run begins" in err
    code, out, _ = simcore_cli(*ask, "--deadline", "2026-12-01T01:00", "--start", "2026-12-01")
    assert code == 1 and re.search(r"deadline from 1.00 h to \S+ h, 2026-12-01 \d\d:\d\d CET", out)
    code, _, err = simcore_cli(*ask, "--start", "2027-01-01")
    assert code == 2 and "--deadline" in err
