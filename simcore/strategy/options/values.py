"""Reads the options of a call with the table: values for the engine, and messages of errors."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike, fspath
from typing import Any

from simcore.base.errors import InvalidConfig, UnknownName, UsageError
from simcore.base.pairs import pair_texts
from simcore.strategy.options import OPTIONS, Option, Pairs, Texts
from simcore.strategy.options.kinds import SWITCH
from simcore.strategy.options.synonyms import word_meant


def read_options(given: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """The options of a call converted for the engine, and one message for each wrong option.

    Numbers and switches given as text are converted; None stays None; wrong options are left out.
    The message about an unknown name suggests the option that is probably meant.
    """
    found: dict[str, Any] = {}
    problems: list[str] = []
    for name, value in given.items():
        option = OPTIONS.get(name)
        if option is None or option.part != "option":
            problems.append(_unknown(name, value))
        elif value is None:
            found[name] = None
        else:
            try:
                refuse_empty(option, value)
                found[name] = option.read(fspath(value) if isinstance(value, PathLike) else value)
            except UsageError as err:
                problems += err.sentences
    return found, problems


def refuse_empty(option: Option, value: object) -> None:
    """Raise InvalidConfig where the value of an option is an empty text, or a list with one."""
    texts = value if isinstance(value, list | tuple) else [value]
    if any(isinstance(text, str) and not text.strip() for text in texts):
        raise InvalidConfig([f"{option.typed} is empty: give it a value, or leave it out"])


def _unknown(name: str, value: object) -> str:
    known = OPTIONS.options()
    if meant := word_meant(name, value, known):
        return f"unknown setting {name!r}: did you mean {meant}?"
    return str(UnknownName("setting", name, known))


def shown(value: object) -> str:
    """A value as it is typed on the command line."""
    if isinstance(value, bool):
        return {on: word for word, on in SWITCH.items()}[value]
    if isinstance(value, Mapping):
        return " ".join(pair_texts(value))
    return str(value)


def command_words(options: Mapping[str, Any]) -> list[str]:
    """The words of the command line (flag, value, flag, value ...) that set these options."""
    found: list[str] = []
    for name, value in options.items():
        if value is None:
            continue
        option = OPTIONS[name]
        if isinstance(option.kind, Texts):
            values = [value] if isinstance(value, str) else list(value)
        elif isinstance(option.kind, Pairs):
            values = [option.read(value)]
        else:
            values = [value]
        for one in values:
            found += [option.typed, shown(one)]
    return found


def on_or_off(flag: str, value: bool | str | None) -> bool:
    """Whether a switch is on; ``None`` means off. Raises InvalidConfig for an unknown word."""
    if isinstance(value, str):
        if value not in SWITCH:
            raise InvalidConfig([str(UnknownName(flag, value, list(SWITCH)))])
        return SWITCH[value]
    return bool(value)


def with_files(given: Mapping[str, Any]) -> dict[str, Any]:
    """The options with every path (of a calibration or a launch file) converted to text."""
    return {k: fspath(v) if isinstance(v, PathLike) else v for k, v in given.items()}


def inputs_of(given: Mapping[str, Any]) -> tuple[str, ...]:
    """Shapes of a callable's inputs as a tuple; the option may also be a single text."""
    found = given.get("inputs") or ()
    return (found,) if isinstance(found, str) else tuple(found)
