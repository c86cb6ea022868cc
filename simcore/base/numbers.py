"""Numbers of a call in Python: whether they are numbers, finite and large enough."""

from __future__ import annotations

from typing import Any


def number_problems(
    word: str, value: Any, *, least: float | None = None, whole: bool = False
) -> list[str]:
    """What is wrong with a number: finite and above zero, or ``least`` at least. Fine: None."""
    if value is None:
        return []
    kind = "a whole number" if whole else "a number"
    try:
        real = not isinstance(value, str | bool) and (not whole or value == int(value))
        size = float(value) if real else 0.0
    except (TypeError, ValueError, OverflowError):
        real = False
    if not real:
        return [f"{word} must be {kind}, not {value!r}"]
    if least is None:
        good, bound = 0 < size < float("inf"), "above zero"
    else:
        good, bound = least <= size < float("inf"), f"at least {least:g}"
    return [] if good else [f"{word} must be {bound}, not {value:g}"]
