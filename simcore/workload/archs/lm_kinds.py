"""What layers of one language model differ in, and the patterns that say so."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Kind:
    """What layers differ in: their sight, their feed-forward part, whether positions are turned."""

    windowed: bool
    routed: bool
    turned: bool


def pattern_of(key: str, pattern: str, letters: str, layers: int) -> str:
    """``pattern`` repeated over the layers. Raises ValueError for other letters."""
    if not pattern or set(pattern) - set(letters):
        raise ValueError(f"{key} {pattern!r} must consist of the letters {', '.join(letters)}")
    return (pattern * layers)[:layers]


def name_of(kind: Kind, kinds: list[Kind]) -> str:
    """What a layer is called: by what tells it from others."""
    words = ["layer"]
    if len({k.windowed for k in kinds}) > 1:
        words.append("windowed" if kind.windowed else "full")
    if len({k.routed for k in kinds}) > 1:
        words.append("experts" if kind.routed else "dense")
    # where sight tells them apart already, positions go without saying
    if len({(k.windowed, k.routed) for k in kinds}) < len(kinds):
        words.append("turned" if kind.turned else "unturned")
    return " ".join(words)
