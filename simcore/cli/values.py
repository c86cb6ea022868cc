"""Reads numbers of the command line; error messages are collected, so that all are reported."""

from __future__ import annotations

import math

from simcore.base.errors import InvalidConfig
from simcore.base.units import GIGA, KILO, MEGA, TERA
from simcore.strategy.options import OPTIONS, Whole


def whole(flag: str, text: str | None, problems: list[str], *, least: int | None = 1) -> int | None:
    """The whole number in ``text``, or None with an error message added to ``problems``."""
    if text is None:
        return None
    try:
        option = OPTIONS.get(flag.replace("-", "_"))
        binary = isinstance(kind := getattr(option, "kind", None), Whole) and kind.binary
        return int(Whole(least=least, binary=binary).read(f"--{flag}", text))
    except InvalidConfig as err:
        problems += err.violations
        return None


def number(flag: str, text: str | None, problems: list[str]) -> float | None:
    """The finite number in ``text``, or None with an error message added to ``problems``."""
    if text is None:
        return None
    try:
        value = float(text)
    except ValueError:
        problems.append(f"--{flag} {text!r} is not a number")
        return None
    if not math.isfinite(value):
        problems.append(f"--{flag} must be finite, not {text}")
        return None
    return value


#: Suffixes of counts; G and B both mean a billion.
_LETTERS = {"K": KILO, "M": MEGA, "G": GIGA, "B": GIGA, "T": TERA}


def count(flag: str, text: str | None, problems: list[str]) -> float | None:
    """The number in ``text``, which may end in a suffix: 15T, 300B, 2.5M; else as ``number``."""
    size = _LETTERS.get(text.strip()[-1:].upper()) if text is not None else None
    if text is None or size is None:
        return number(flag, text, problems)
    found: list[str] = []
    value = number(flag, text.strip()[:-1], found)
    if value is None:
        problems.append(f"--{flag} {text!r} is not a number, such as 1e12, 300B or 15T")
        return None
    return value * size


def with_zero(strategy: str | None, stage: str | None, problems: list[str]) -> str | None:
    """The strategy that ``--strategy`` or ``--zero N`` names."""
    if stage is None:
        return strategy
    if strategy is not None:
        problems.append("give --strategy or --zero, not both")
    elif stage.strip() not in ("1", "2", "3"):
        problems.append(f"--zero must be 1, 2 or 3, not {stage!r}")
    else:
        return f"zero{stage.strip()}"
    return strategy


def with_zeros(strategy: str | None, stages: str | None, problems: list[str]) -> str | None:
    """The list of strategies that ``--strategy`` or ``--zero 1,3`` (or ``1..3``) names."""
    if stages is None:
        return strategy
    if strategy is not None:
        problems.append("give --strategy or --zero, not both")
        return strategy
    from simcore.base.errors import InvalidConfig
    from simcore.planning.grid import whole_values

    try:
        found = whole_values("--zero", stages)
    except InvalidConfig as err:
        problems += err.violations
        return None
    named = [with_zero(None, str(stage), problems) for stage in found]
    return ",".join(name for name in named if name is not None)
