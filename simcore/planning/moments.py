"""When a run must be done: durations, dates and times; and from when these count."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime, time, timedelta

from simcore.base.errors import InvalidConfig
from simcore.base.units import DAY, HOUR

_UNITS = {
    "s": 1.0, "sec": 1.0, "second": 1.0, "min": 60.0, "minute": 60.0, "h": HOUR, "hour": HOUR,
    "d": DAY, "day": DAY, "w": 7 * DAY, "week": 7 * DAY,
}  # fmt: skip
_EXAMPLES = "30d, 12h, 90min, 2w"


@dataclass(frozen=True, slots=True)
class Deadline:
    """``seconds`` from ``start`` on, and whether it was said as a moment."""

    seconds: float
    start: datetime
    dated: bool = False

    @property
    def at(self) -> datetime:
        """When it is."""
        return self.start + timedelta(seconds=self.seconds)


def duration_seconds(text: str) -> float:
    """``30d``, ``12 h``, ``90 min`` or ``in 2 weeks`` as seconds. Raises InvalidConfig."""
    found = _duration(text)
    if found is None:
        raise InvalidConfig([f"--deadline {text.strip()!r} is not a time: write {_EXAMPLES}"])
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
    """A deadline in words, seen from ``start``. Raises InvalidConfig, too where it is past.

    A date alone is all of its day; what names no time zone is in that of ``start``.
    """
    seconds = _duration(text)
    if seconds is not None:
        return Deadline(seconds, start)
    at = _moment(text, start, end_of_day=True)
    if at is None:
        raise InvalidConfig(
            [f"--deadline {text.strip()!r} is no time: write {_EXAMPLES}, in 10 days, 2026-12-24 "
             "or 2026-12-24T18:00"]
        )  # fmt: skip
    seconds = (at - start).total_seconds()
    if seconds <= 0:
        raise InvalidConfig(
            [f"--deadline {text.strip()!r} is past: the run begins {minute(start)} (--start)"]
        )
    return Deadline(seconds, start, dated=True)


def start_of(text: str | date | None) -> datetime:
    """The moment a run begins; None: now. Raises InvalidConfig."""
    if text is None:
        return datetime.now().astimezone()
    said = text.isoformat() if isinstance(text, date) else text
    found = _moment(said, None, end_of_day=False) if isinstance(said, str) else None
    if found is None:
        raise InvalidConfig(
            [f"--start {text!r} is no moment: write 2026-12-01 or 2026-12-01T09:00"]
        )
    return found


def minute(moment: datetime) -> str:
    """A moment to the minute, with its zone."""
    return f"{moment:%Y-%m-%d %H:%M %Z}".rstrip()


def _moment(text: str, like: datetime | None, *, end_of_day: bool) -> datetime | None:
    """ISO 8601, a date alone being its first or its last moment."""
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
    # local time has the offset of that day, not of the day it is asked on
    if like is None or like.tzinfo == like.astimezone().tzinfo:
        return found.astimezone()
    return found.replace(tzinfo=like.tzinfo)
