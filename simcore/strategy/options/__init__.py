"""The table of a job's options: each is declared once, in the module with its heading.

The command line, Python signatures, sweeps, the web page, JSON, launch files and shell completion
are all derived from this table. ``OPTIONS.register(Option(...))`` adds an option to all of them.
``read_options`` reads the options of a call with it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Container, Mapping, Sequence
from functools import lru_cache
from os import PathLike, fspath
from typing import Any

from simcore.base.errors import InvalidConfig, UnknownName, UsageError
from simcore.base.names import pair_texts
from simcore.strategy.options import cluster, job, parallelism
from simcore.strategy.options.kinds import SWITCH
from simcore.strategy.options.option import (
    OPTIONS,
    Axis,
    Control,
    File,
    Made,
    Name,
    NameList,
    Number,
    Option,
    OptionTable,
    Pairs,
    Switch,
    Text,
    Texts,
    Whole,
)

#: Options of a job by name; one that is missing or None takes its default. ``read_options`` checks.
Options = dict[str, Any]

for _heading in (job, parallelism, cluster):
    OPTIONS.register(*_heading.DECLARED)
OPTIONS.register(*cluster.EXPERT)

__all__ = [
    "OPTIONS",
    "Axis",
    "Control",
    "File",
    "Made",
    "Name",
    "NameList",
    "Number",
    "Option",
    "OptionTable",
    "Options",
    "Pairs",
    "Switch",
    "Text",
    "Texts",
    "Whole",
    "called",
    "check_shares",
    "command_words",
    "inputs_of",
    "on_or_off",
    "options_typed",
    "read_options",
    "refuse_empty",
    "shown",
    "sides",
    "spelt",
    "with_files",
    "word_meant",
    "written_out",
]  # fmt: skip


def read_options(given: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """The options of a call converted for the engine, and one message for each wrong option.

    Numbers and switches given as text are converted; None stays None; wrong options are left out.
    The message about an unknown name suggests the option that is probably meant.
    """
    found: dict[str, Any] = {}
    problems: list[str] = []
    for typed, value in given.items():
        name = spelt(typed, OPTIONS)
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


def written_out(given: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a call with a shorthand (``qlora``) replaced by the options it stands for.

    Options that are given themselves keep their values. Raises UsageError for a shorthand that is
    neither on nor off.
    """
    found = dict(given)
    for name in [name for name in given if name in OPTIONS and OPTIONS[name].stands_for]:
        if (value := found.pop(name)) is not None and OPTIONS[name].read(value):
            for other, stood_for in OPTIONS[name].stands_for.items():
                if found.get(other) is None:
                    found[other] = stood_for
    return found


#: Endings that are spelt in two ways: quantised, quantized.
_BOTH_WAYS = re.compile("i([sz])e")


def spelt(name: str, known: Container[str]) -> str:
    """A name in the spelling in which it is ``known``, of quantised and quantized; else itself."""
    if name in known:
        return name
    other = _BOTH_WAYS.sub(lambda m: f"i{'z' if m[1] == 's' else 's'}e", name)
    return other if other in known else name


def refuse_empty(option: Option, value: object) -> None:
    """Raise InvalidConfig where the value of an option is an empty text, or a list with one."""
    texts = value if isinstance(value, list | tuple) else (value,)
    if [text for text in texts if isinstance(text, str) and not text.strip()]:
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


def options_typed(words: Sequence[str]) -> dict[str, Any]:
    """The values of options, as text by name, that the words of a command line set.

    The opposite of ``command_words``; an option that takes several texts has a list of them.
    Raises InvalidConfig for a word that sets no option, and for an option without a value.
    """
    flags = {option.typed: option for option in OPTIONS}
    found: dict[str, Any] = {}
    rest = iter(words)
    for word in rest:
        flag, equals, value = word.partition("=")
        option = flags.get(flag)
        if option is None:
            raise InvalidConfig([f"{word!r} is no option of a job"])
        if not equals and (value := next(rest, "")) in ("", *flags):
            raise InvalidConfig([f"{flag} has no value"])
        if isinstance(option.kind, Texts | Pairs):
            found.setdefault(option.name, []).append(value)
        else:
            found[option.name] = value
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


_SIZE = re.compile(r"(\d{1,5})(?:\s*[x×]\s*(\d{1,5}))?", re.IGNORECASE)


def sides(text: str) -> tuple[int, int]:
    """(height, width) in pixels from ``512`` or ``480x832``. Raises InvalidConfig."""
    found = _SIZE.fullmatch(text.strip())
    if found is None or 0 in (height := int(found[1]), width := int(found[2] or found[1])):
        raise InvalidConfig([f"resolution {text!r} is neither a side nor HEIGHTxWIDTH in pixels"])
    return height, width


EQUAL, AUTO = ("equal", "even"), "auto"
_RATIO = re.compile(r"^\d+(:\d+)+$")


def check_shares(text: str) -> str:
    """``auto``, a ratio such as ``3:1``, or "" for equal shares. Raises InvalidConfig."""
    text = text.strip().lower()
    if text not in (*EQUAL, AUTO) and (not _RATIO.match(text) or "0" in text.split(":")):
        raise InvalidConfig(
            [f"shares {text!r} are not auto, equal or a ratio of samples by GPU type such as 3:1"]
        )
    return "" if text in EQUAL else text
