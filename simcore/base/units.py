"""Conversion of quantities: text with a unit to SI floats, and SI floats to text.

The only module that may contain a literal 1e9 or 2**30. Inside simcore every figure is SI: bytes,
seconds, FLOP, FLOP/s, bytes/s, hertz, watts.
"""

from __future__ import annotations

import math
import re
from itertools import pairwise
from typing import Any, Final, Literal

from simcore.base.errors import BadQuantity

Dimension = Literal[
    "bytes", "bytes_per_s", "flop", "flop_per_s", "seconds", "hertz", "watts", "per_s"
]

KIB: Final = 2**10
MIB: Final = 2**20
GIB: Final = 2**30
KILO: Final = 1e3
MEGA: Final = 1e6
GIGA: Final = 1e9
TERA: Final = 1e12
MICRO: Final = 1e-6
MILLI: Final = 1e-3
PERCENT: Final = 100.0
HOUR: Final = 3600.0
DAY: Final = 86400.0
BITS_PER_BYTE: Final = 8
#: Bytes of IEEE half and single precision numbers, and of a torch index.
HALF_BYTES: Final = 2
FP32_BYTES: Final = 4
INT64_BYTES: Final = 8

_SI: Final = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18}
_IEC: Final = {"Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40, "Pi": 2.0**50}


def _unit_table() -> dict[str, dict[str, float]]:
    byte = {f"{p}B": f for p, f in (_SI | _IEC).items()}
    bit = {f"{p}{b}": f / BITS_PER_BYTE for p, f in (_SI | _IEC).items() for b in ("b", "bit")}
    rate = {f"{u}/s": f for u, f in (byte | bit).items()}
    rate |= {f"{p}bps": f / BITS_PER_BYTE for p, f in _SI.items()}
    work = {f"{p}{w}": f for p, f in _SI.items() for w in ("FLOP", "OP")}
    return {
        "bytes": byte,
        "bytes_per_s": rate,
        "flop": work,
        "flop_per_s": {f"{u}/s": f for u, f in work.items()},
        "seconds": {"s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9, "min": 60.0,
                    "h": 3600.0, "d": 86400.0},
        "hertz": {f"{p}Hz": f for p, f in _SI.items()},
        "watts": {f"{p}W": f for p, f in _SI.items()},
        "per_s": {f"{p}/s": f for p, f in _SI.items()},
    }  # fmt: skip


_UNITS: Final = _unit_table()
_EXAMPLE: Final = {
    "bytes": "48 GiB", "bytes_per_s": "960 GB/s or 200 Gbit/s", "flop": "2.5 TFLOP",
    "flop_per_s": "364.2 TFLOP/s", "seconds": "5 us", "hertz": "2505 MHz", "watts": "300 W",
    "per_s": "120 k/s",
}  # fmt: skip
_NUMBER: Final = re.compile(
    r"^\s*([+-]?(?:\d+(?:[_\d]*)?\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*(.*?)\s*$"
)


def parse_quantity(text: object, dimension: Dimension, *, positive: bool = True) -> float:
    """The SI value of a text such as ``"960 GB/s"``.

    Raises BadQuantity for a bare number, an unknown unit, NaN, infinity, or (with ``positive``)
    a value that is not above zero.
    """
    want = f"a number with a unit, such as {_EXAMPLE[dimension]}"
    if not isinstance(text, str):
        raise BadQuantity(f"{text!r} has no unit: write {want}")
    match = _NUMBER.match(text)
    if match is None:
        raise BadQuantity(f"{text!r} is not a quantity: write {want}")
    number, unit = match.groups()
    units = _UNITS[dimension]
    if unit not in units:
        if not unit:
            raise BadQuantity(f"{text!r} has no unit: write {want}")
        known = ", ".join([u for u in units if len(u) <= 7][:15])
        raise BadQuantity(f"unknown unit {unit!r} in {text!r}: write {want} (units: {known})")
    value = float(number.replace("_", "")) * units[unit]
    if not math.isfinite(value):
        raise BadQuantity(f"{text!r} is not finite: write {want}")
    if value < 0 or (positive and value == 0):
        raise BadQuantity(f"{text!r} must be {'above' if positive else 'at least'} zero")
    return value


def format_gib(n_bytes: float) -> str:
    """Bytes as decimal text in GiB, 2**30 bytes."""
    return f"{n_bytes / GIB:.2f} GiB"


def format_si(value: float, unit: str, digits: int = 3) -> str:
    """A number with its SI prefix: ``format_si(3.2e12, "FLOP/s")`` is ``3.2 TFLOP/s``."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g} {unit}"
    for prefix, factor in reversed(_SI.items()):
        if prefix != "K" and abs(value) >= factor:
            return f"{value / factor:.{digits}g} {prefix}{unit}"
    return f"{value:.{digits}g} {unit}"


def format_count(value: float) -> str:
    """A number of parameters as text: ``6.74 B``, ``124 M``."""
    # Round first, or 999.9 M becomes 1e+03 M.
    value = float(f"{value:.3g}") if value >= 100.0 else value
    for word, factor in (("T", TERA), ("B", GIGA), ("M", MEGA), ("k", KILO)):
        if value >= factor:
            return f"{value / factor:.3g} {word}"
    return f"{value:.0f}"


def _two_units(seconds: float) -> str:
    """A time of a minute or more in its largest unit and the next, to which it is rounded."""
    sizes = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))
    for (size, name), (small, rest) in pairwise(sizes):
        whole, left = divmod(round(seconds / small), size // small)
        if whole:
            return f"{whole} {name}" + (f" {left} {rest}" if left else "")
    raise ValueError(f"{seconds} s is less than a minute")


def format_seconds(seconds: float, digits: int = 3, *, padded: bool = True) -> str:
    """A duration as text: ``1.2`` is ``1.20 s``, ``93784`` is ``1 d 2 h``.

    ``padded``: always ``digits`` significant digits, so that columns line up; otherwise without
    trailing zeros, for constants and figures of datasheets.
    """
    if not math.isfinite(seconds):
        return f"{seconds}"
    if seconds >= 120:
        return _two_units(seconds)
    if seconds <= 0:
        return "0 s"
    seconds = float(f"{seconds:.{digits - 1}e}")  # round first, or 999.7 ms becomes 1e+03 ms
    units = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns"))
    factor, name = next((u for u in units if seconds >= u[0]), units[-1])
    text = f"{seconds / factor:#.{digits}g}" if padded else f"{seconds / factor:.{digits}g}"
    return f"{text.rstrip('.')} {name}"


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
