"""Finds an option by the names that other programs use for it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import lru_cache

from simcore.strategy.options import OPTIONS

_STAGES = ("1", "2", "3")


def called() -> Mapping[str, str]:
    """Names that other programs use for each option, as text separated by blanks.

    The key is the option's name with dashes, followed by a value where the other name implies one
    (``optimizer-impl fused``). The names come from Trainer, DeepSpeed, Megatron-LM, torchtitan and
    from common usage.
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
    """The keyword among ``known`` that corresponds to the word ``typed`` of another program.

    It is written as in a Python call: ``micro_batch`` for ``batch_size``, ``strategy='zero1'`` for
    ``zero``. Empty where ``typed`` is no such word.
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
