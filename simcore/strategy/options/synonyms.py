"""Options by the names that other programs give them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import lru_cache

from simcore.strategy.options import OPTIONS

_STAGES = ("1", "2", "3")


def called() -> Mapping[str, str]:
    """What others call each option: as it is typed, with a value where that is meant, to names
    parted by blanks. Trainer, DeepSpeed, Megatron-LM, torchtitan, or by habit.
    """
    return _called(OPTIONS.version)


@lru_cache(maxsize=2)
def _called(_version: int) -> Mapping[str, str]:
    return {
        f"{option.word} {value}".rstrip(): theirs
        for option in OPTIONS
        for value, theirs in option.called.items()
    }


def word_meant(typed: str, value: object, known: Collection[str]) -> str:
    """What a keyword of another program is among ``known``, as a call would say it: ``micro_batch``
    for ``batch_size``, ``strategy='zero1'`` for ``zero``; nothing where it is no such name.
    """
    name = typed.replace("_", "-").lower()
    stage = OPTIONS["zero"]
    if name in (stage.word, *stage.called[""].split()):
        return f"strategy='zero{value if str(value) in _STAGES else 'N'}'"
    for ours, theirs in called().items():
        word, _, fixed = ours.replace("-", "_").partition(" ")
        if name in theirs.split() and word in known:
            return f"{word}={fixed!r}" if fixed else word
    return ""
