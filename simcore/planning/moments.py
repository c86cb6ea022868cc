"""Reads the deadline and the start of a run: durations, dates and times."""

from __future__ import annotations

from datetime import date, datetime, time, timedelta

from simcore.base.errors import InvalidConfig
from simcore.base.record import dataclass
from simcore.base.units import DAY, HOUR

_UNITS = {
    "s": 1.0, "sec": 1.0, "second": 1.0, "min": 60.0, "minute": 60.0, "h": HOUR, "hour": HOUR,
    "d": DAY, "day": DAY, "w": 7 * DAY, "week": 7 * DAY, "y": 365 * DAY, "year": 365 * DAY,
}  # fmt: skip
_EXAMPLES = "30d, 12h, 90min, 2w"


@dataclass(frozen=True)
class Deadline:
    """A deadline ``seconds`` after ``start``; ``dated``: whether it was given as a date or time."""

    seconds: float
    start: datetime
    dated: bool = False

    @property
    def at(self) -> datetime:
        """The date and time of the deadline."""
        return self.start + timedelta(seconds=self.seconds)


def duration_seconds(flag: str, text: str) -> float:
    """Seconds of a duration: ``30d``, ``12 h``, ``90 min``, ``in 2 weeks``.

    Raises InvalidConfig, whose message begins with the option ``flag``.
    """
    found = _duration(text)
    if found is None:
        raise InvalidConfig([f"{flag} {text.strip()!r} is not a duration: write {_EXAMPLES}"])
    return found


def _duration(text: str) -> float | None:
    words = text.strip().lower().removeprefix("in ").strip()
    digits = words.rstrip("abcdefghijklmnopqrstuvwxyz ")
    unit = words[len(digits) :].strip()
    size = _UNITS.get(unit) or _UNITS.get(unit.removesuffix("s"))
    try:
        value = float(digits)
    except ValueError:
        return None
    return value * size if size and 0 < value < float("inf") else None


def deadline_of(text: str, start: datetime) -> Deadline:
    """The deadline that a text states: a duration after ``start``, or a date.

    A date without a time means the end of that day; without a time zone, that of ``start``. Raises
    InvalidConfig, also for a deadline before ``start``.
    """
    seconds = _duration(text)
    if seconds is not None:
        return Deadline(seconds, start)
    at = _moment(text, start, end_of_day=True)
    if at is None:
        raise InvalidConfig(
            [f"--deadline {text.strip()!r} is neither a duration nor a date: write {_EXAMPLES}, "
             "in 10 days, 2026-12-24 or 2026-12-24T18:00"]
        )  # fmt: skip
    seconds = (at - start).total_seconds()
    if seconds <= 0:
        raise InvalidConfig(
            [f"--deadline {text.strip()!r} is before the run begins, {minute(start)} (--start)"]
        )
    return Deadline(seconds, start, dated=True)


def start_of(text: str | date | None) -> datetime:
    """The date and time when a run begins; for None, now. Raises InvalidConfig."""
    if text is None:
        return datetime.now().astimezone()
    iso = text.isoformat() if isinstance(text, date) else text
    found = _moment(iso, None, end_of_day=False) if isinstance(iso, str) else None
    if found is None:
        raise InvalidConfig(
            [f"--start {text!r} is not a date: write 2026-12-01 or 2026-12-01T09:00"]
        )
    return found


def minute(moment: datetime) -> str:
    """Text of a date and time, to the minute, with its time zone."""
    return f"{moment:%Y-%m-%d %H:%M %Z}".rstrip()


def _moment(text: str, like: datetime | None, *, end_of_day: bool) -> datetime | None:
    """The date and time of an ISO 8601 text, or None; a date means the beginning or end of the day.

    ``like``: whose time zone applies where the text names none.
    """
    text = text.strip()
    try:
        day = date.fromisoformat(text)
    except ValueError:
        try:
            found = datetime.fromisoformat(text)
        except ValueError:
            return None
    else:
        found = datetime.combine(day + timedelta(days=end_of_day), time())
    if found.tzinfo:
        return found
    # local time: with the UTC offset of that day, not of today
    if like is None or like.tzinfo == like.astimezone().tzinfo:
        return found.astimezone()
    return found.replace(tzinfo=like.tzinfo)
