"""Typed access to the keys of one config; its errors name file, line and key."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from simcore.base.errors import DataError

#: The largest accepted count; a larger one is a mistake and would overflow later.
MAX_COUNT = 10**8
MAX_LAYERS = 10_000
#: The default of keys that must be present.
_REQUIRED = object()


class Fields:
    """The keys of a JSON object, read with checks; every reading method raises DataError.

    A reading method takes several ``keys``, and uses the first that is present and not null.

    ``path``, ``text``: the file and its text, for errors; ``prefix``: the path of the object inside
    the file (``text_config.``).
    """

    def __init__(self, data: Mapping[str, Any], path: Path, text: str, prefix: str = "") -> None:
        self.data, self.path, self.text, self.prefix = data, path, text, prefix

    def error(self, key: str, message: str) -> DataError:
        """A DataError about ``key``, with the line of the file on which the key stands, if any."""
        found = re.search(rf'"{re.escape(key)}"\s*:', self.text)
        line = self.text.count("\n", 0, found.start()) + 1 if found else None
        return DataError(message, file=self.path, line=line, key=self.prefix + key)

    def has(self, *keys: str) -> bool:
        """Whether any of ``keys`` is present and not null."""
        return any(self.data.get(key) is not None for key in keys)

    def _find(self, keys: tuple[str, ...], default: Any) -> tuple[str, Any]:
        for key in keys:
            if self.data.get(key) is not None:
                return key, self.data[key]
        if default is _REQUIRED:
            raise self.error(keys[0], "key is missing")
        return keys[0], default

    def count(
        self, *keys: str, default: Any = _REQUIRED, low: int = 1, high: int = MAX_COUNT
    ) -> int:
        """A whole number from ``low`` to ``high``, or ``default`` if all keys are missing."""
        key, value = self._find(keys, default)
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.error(key, f"must be a whole number, not {_shown(value)}")
        if value is not default and not low <= value <= high:
            raise self.error(key, f"must be {low:,} to {high:,}, not {_shown(value)}")
        return value

    def layers(self, *keys: str, default: Any = _REQUIRED) -> int:
        """A number of layers, at most ``MAX_LAYERS``."""
        return self.count(*keys, default=default, high=MAX_LAYERS)

    def number(
        self, *keys: str, default: float, low: float = 0.0, high: float = MAX_COUNT
    ) -> float:
        """A finite number from ``low`` to ``high``."""
        key, value = self._find(keys, default)
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise self.error(key, f"must be a number, not {_shown(value)}")
        if not math.isfinite(value) or not low <= value <= high:
            raise self.error(key, f"must be {low:g} to {high:g}, not {_shown(value)}")
        return float(value)

    def flag(self, *keys: str, default: bool) -> bool:
        """A boolean."""
        key, value = self._find(keys, default)
        if not isinstance(value, bool):
            raise self.error(key, f"must be true or false, not {_shown(value)}")
        return value

    def word(self, *keys: str, default: str, among: Mapping[str, str]) -> str:
        """The value in ``among`` of a word that must be one of its keys."""
        key, value = self._find(keys, default)
        if not isinstance(value, str) or value not in among:
            known = ", ".join(sorted(among))
            raise self.error(key, f"{_shown(value)} is not supported: known are {known}")
        return among[value]

    def words(self, key: str) -> tuple[str, ...]:
        """A list of strings; empty if the key is missing."""
        value = self.data.get(key)
        if value is None:
            return ()
        if not isinstance(value, list) or not all(isinstance(v, str) for v in value):
            raise self.error(key, f"must be a list of words, not {_shown(value)}")
        return tuple(value)

    def counts(self, key: str) -> tuple[int, ...]:
        """A list of whole numbers from 0; empty if the key is missing."""
        value = self.data.get(key)
        if value is None:
            return ()
        if not isinstance(value, list) or not all(type(v) is int and v >= 0 for v in value):
            raise self.error(key, f"must be a list of whole numbers, not {_shown(value)}")
        return tuple(value)

    def inside(self, key: str) -> Fields:
        """The object under ``key``; an empty one if the key is missing."""
        value = self.data.get(key)
        if value is None:
            value = {}
        if not isinstance(value, dict):
            raise self.error(key, f"must be an object, not {_shown(value)}")
        return Fields(value, self.path, self.text, f"{self.prefix}{key}.")

    def heads(self, hidden: int, *keys: str, default: Any = _REQUIRED, divides: bool = True) -> int:
        """A number of attention heads; with ``divides`` it must divide ``hidden``."""
        key, _ = self._find(keys, default)
        heads = self.count(*keys, default=default)
        if divides and hidden % heads:
            raise self.error(key, f"{heads} does not divide the hidden size {hidden}")
        return heads


def _shown(value: object) -> str:
    """A value as error messages show it."""
    return f"{value!r:.40}"
