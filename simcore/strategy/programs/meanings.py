"""Checks of facts whose words are names from elsewhere: options, settings of layers, cut rules."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from simcore.base.database import KeyedError
from simcore.base.errors import UnknownName
from simcore.strategy.cut_rules import CUT_RULES
from simcore.strategy.programs.checked import Keys, check_key
from simcore.workload.models import setting_kinds

#: Architecture of the language models whose settings ``runs`` changes.
_ARCH = "transformer"
_SETTINGS = ("settings", "compiled_settings")
#: Fields of ``runs`` that hold the value of an option, and the option.
_VALUES_OF = {
    "overlap": "overlap",
    "recipe_overlap": "overlap",
    "main_grads": "main_grads",
    "selective_modules": "recompute_modules",
    "fp8_format": "precision",
}


def check_meaning(subject: str, key: str, value: Any, at: Keys) -> None:
    """Raises KeyedError, with the nearest name, where a fact's value names nothing that exists."""
    if (subject, key) == ("pipeline", "cut") and value not in CUT_RULES:
        raise KeyedError(at, str(UnknownName("cut rule", value, list(CUT_RULES))))
    if subject != "runs":
        return
    if key in _SETTINGS:
        for setting in value:
            check_key(str(setting), setting_kinds(_ARCH), (*at, setting))
    elif key == "options":
        _check_options(value, at)
    elif key in _VALUES_OF:
        words = value.split(",") if isinstance(value, str) else sorted(value)
        _check_names(_VALUES_OF[key], [word for word in words if word], at)
    elif key == "dropout" and not 0.0 <= value < 1.0:
        raise KeyedError(at, f"must be at least 0 and below 1, not {value:g}")


def _check_names(name: str, words: list[str], at: Keys) -> None:
    from simcore.strategy.options import OPTIONS
    from simcore.strategy.options.kinds import names_of

    option = OPTIONS[name]
    known = list(names_of(getattr(option.kind, "names")))  # noqa: B009 (kinds of names have it)
    for word in words:
        if word not in known:
            raise KeyedError(at, str(UnknownName(option.word, word, known)))


def _check_options(values: Mapping[str, Any], at: Keys) -> None:
    from simcore.strategy.options.values import read_options

    for name, value in values.items():
        _, problems = read_options({str(name): value})
        if problems:
            raise KeyedError((*at, name), problems[0])
