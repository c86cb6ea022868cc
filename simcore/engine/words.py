"""Whether the words of a call are those of a job, and of their kinds, before anything is made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from os import PathLike, fspath
from pathlib import Path
from types import NoneType
from typing import Any, get_args, get_type_hints

from simcore.base.called import word_meant
from simcore.base.errors import InvalidConfig, UnknownName
from simcore.hardware.profile import Profile
from simcore.workload.settings import as_words, settings_given

#: Least values of numbers whose rules nothing else checks.
_LEAST = {
    "bucket_numel": 1, "lora_rank": 1, "offload_layers": 0, "prefetch_blocks": 0,
    "recompute_layers": 0, "reuse_numel": 0, "shard_ranks": 0,
}  # fmt: skip
#: Words of options that are on or off.
SWITCH = {"on": True, "off": False}


#: How the command line calls words that it has under another name.
_FLAGS = {"inputs": "input", "settings": "set"}


def command_words(options: Mapping[str, Any]) -> list[str]:
    """The flags and values of the command line, one after the other, that give these options."""
    found: list[str] = []
    for name, value in options.items():
        if value is None:
            continue
        flag = "--" + _FLAGS.get(name, name).replace("_", "-")
        if name == "settings":
            value = " ".join(as_words(settings_given(value)))
        for one in inputs_of(options) if name == "inputs" else [value]:
            found += [flag, shown(one)]
    return found


def shown(value: object) -> str:
    """A word's value as the command line has it."""
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else str(value)


@lru_cache(maxsize=4)
def _kinds(words: type) -> dict[str, frozenset[object]]:
    hints = get_type_hints(words).items()
    return {name: frozenset(get_args(kind)) - {Path} for name, kind in hints}  # text by now


def word_problems(given: Mapping[str, Any], words: type) -> list[str]:
    """What is wrong with the names and kinds of ``given``, by the typed dictionary ``words``.

    Text where only text is meant, a whole number (or its text) where a number is; Python would
    take 2.5 samples for 2 and "off" for on, and drop a misspelt word.
    """
    kinds, found = _kinds(words), []
    for name, value in given.items():
        flag = "--" + name.replace("_", "-")
        if name not in kinds:
            meant = word_meant(name, value, kinds)
            found.append(f"unknown setting {name!r}: did you mean {meant}?" if meant
                         else str(UnknownName("setting", name, kinds)))  # fmt: skip
        elif value is not None and (wrong := _wrong_kind(name, value, kinds[name])):
            found.append(f"{flag} {wrong}, not {value!r}")
    return found


def _wrong_kind(name: str, value: Any, kinds: frozenset[object]) -> str:
    """What ``value`` must be and is not; nothing where it may be so."""
    if Profile in kinds:
        return "" if isinstance(value, Profile) else "must be what read_calibration made"
    if bool in kinds and not isinstance(value, str):
        return "" if _switch(value) else "must be True or False"
    if bool in kinds and str not in kinds:
        return "must be True or False"
    if name == "settings":
        good = isinstance(value, Mapping) or _texts(value)
        return "" if good else "must be settings by name, or texts such as layers=16"
    if name == "inputs":
        return "" if _texts(value) else "must be a list of texts such as float32[B,3,224,224]"
    if kinds - {int, str, NoneType}:
        return ""
    if int not in kinds:
        return "" if isinstance(value, str) else f"must be text{_as_text(name, value)}"
    if not _whole(value, text=str in kinds):
        return "must be a whole number"
    least = _LEAST.get(name)
    return f"must be at least {least}" if least is not None and int(value) < least else ""


def _as_text(name: str, value: Any) -> str:
    """How the command line says what other programs take as a switch or a list."""
    if isinstance(value, bool) and name == "recompute":
        return f" ({'full' if value else 'none'!r})"
    if isinstance(value, list | tuple) and value and _texts(value):
        return f" ({','.join(value)!r})"
    return ""


def on_or_off(flag: str, value: bool | str | None) -> bool:
    """What a switch says, ``None`` being off. Raises InvalidConfig."""
    if isinstance(value, str):
        if value not in SWITCH:
            raise InvalidConfig([str(UnknownName(flag, value, list(SWITCH)))])
        return SWITCH[value]
    return bool(value)


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


def with_files(given: Mapping[str, Any]) -> dict[str, Any]:
    """The words of a call with paths as text: a calibration or a launch file may be one."""
    return {k: fspath(v) if isinstance(v, PathLike) else v for k, v in given.items()}


def inputs_of(given: Mapping[str, Any]) -> tuple[str, ...]:
    """Shapes of a callable's inputs, of which one may stand without a list."""
    found = given.get("inputs") or ()
    return (found,) if isinstance(found, str) else tuple(found)


def _texts(value: Any) -> bool:
    return isinstance(value, str) or (
        isinstance(value, Sequence) and all(isinstance(v, str) for v in value)
    )


def _switch(value: Any) -> bool:
    try:
        return bool(value in (True, False))  # numpy's too
    except ValueError:
        return False


def _whole(value: Any, *, text: bool) -> bool:
    if isinstance(value, str):
        return text or value.strip().lstrip("+-").isdigit()
    try:
        return bool(value == int(value)) and not isinstance(value, bool)
    except (TypeError, ValueError, OverflowError):
        return False
