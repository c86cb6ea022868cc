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
REQUIRED = object()


class Fields:
    """The keys of a JSON object, read with checks; every reading method raises DataError.

    A reading method takes several ``keys``, and uses the first that is present and not null. Dots
    in a key lead into objects within the object: ``vision_config.patch_size``.

    ``path``, ``text``: the file and its text, for errors; ``prefix``: the path of the object inside
    the file (``text_config.``).
    """

    def __init__(self, data: Mapping[str, Any], path: Path, text: str, prefix: str = "") -> None:
        self.data, self.path, self.text, self.prefix = data, path, text, prefix

    def error(self, key: str, message: str) -> DataError:
        """A DataError about ``key``, with the line of the file on which the key stands, if any."""
        last = key.rpartition(".")[2]
        found = re.search(rf'"{re.escape(last)}"\s*:', self.text)
        line = self.text.count("\n", 0, found.start()) + 1 if found else None
        return DataError(message, file=self.path, line=line, key=self.prefix + key)

    def value(self, key: str) -> Any:
        """The value of ``key`` as the file has it; None if the key is missing or null."""
        return self._holder(key).get(key.rpartition(".")[2])

    def has(self, *keys: str) -> bool:
        """Whether any of ``keys`` is present and not null."""
        return any(self.value(key) is not None for key in keys)

    def is_null(self, key: str) -> bool:
        """Whether ``key`` is present with the value null."""
        last = key.rpartition(".")[2]
        return self._holder(key).get(last, REQUIRED) is None

    def _holder(self, key: str) -> Mapping[str, Any]:
        """The object that may have the last part of ``key``; an empty one if it is missing."""
        holder: Mapping[str, Any] = self.data
        parts = key.split(".")
        for depth, part in enumerate(parts[:-1], 1):
            held = holder.get(part)
            if not isinstance(held, dict | None):
                outer = ".".join(parts[:depth])
                raise self.error(outer, f"must be an object, not {shown(held)}")
            holder = held or {}
        return holder

    def first(self, keys: tuple[str, ...], default: Any) -> tuple[str, Any]:
        """The first of ``keys`` that has a value, with that value; else ``default``."""
        for key in keys:
            if (value := self.value(key)) is not None:
                return key, value
        if default is REQUIRED:
            raise self.error(keys[0], "key is missing")
        return keys[0], default

    def count(
        self, *keys: str, default: Any = REQUIRED, low: int = 1, high: int = MAX_COUNT
    ) -> int:
        """A whole number from ``low`` to ``high``, or ``default`` if all keys are missing."""
        key, value = self.first(keys, default)
        if isinstance(value, list) and value and value.count(value[0]) == len(value):
            value = value[0]  # a number for each layer, the same for all of them
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.error(key, f"must be a whole number, not {shown(value)}")
        if value is not default and not low <= value <= high:
            raise self.error(key, f"must be {low:,} to {high:,}, not {shown(value)}")
        return value

    def number(
        self, *keys: str, default: Any = REQUIRED, low: float = 0.0, high: float = MAX_COUNT
    ) -> float:
        """A finite number from ``low`` to ``high``."""
        key, value = self.first(keys, default)
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise self.error(key, f"must be a number, not {shown(value)}")
        if not math.isfinite(value) or not low <= value <= high:
            raise self.error(key, f"must be {low:g} to {high:g}, not {shown(value)}")
        return float(value)

    def flag(self, *keys: str, default: Any = REQUIRED) -> bool:
        """A boolean."""
        key, value = self.first(keys, default)
        if not isinstance(value, bool):
            raise self.error(key, f"must be true or false, not {shown(value)}")
        return value

    def word(self, *keys: str, among: Mapping[str, str], default: Any = REQUIRED) -> str:
        """The value in ``among`` of a word that must be one of its keys."""
        key, value = self.first(keys, default)
        if not isinstance(value, str) or value not in among:
            known = ", ".join(sorted(among))
            raise self.error(key, f"{shown(value)} is not supported: known are {known}")
        return among[value]

    def words(self, key: str) -> tuple[str, ...]:
        """A list of strings; empty if the key is missing."""
        value = self.value(key)
        if value is None:
            return ()
        if not isinstance(value, list) or not all(isinstance(v, str) for v in value):
            raise self.error(key, f"must be a list of words, not {shown(value)}")
        return tuple(value)

    def counts(self, key: str) -> tuple[int, ...]:
        """A list of whole numbers from 0, or their text ``4,5,6``; empty if the key is missing.

        Numbers may be written as ``10000.0``.
        """
        value = self.value(key)
        if value is None:
            return ()
        if isinstance(value, str) and all(n.strip().isdigit() for n in value.split(",")):
            value = [int(n) for n in value.split(",")]
        whole = isinstance(value, list) and all(
            type(v) in (int, float) and v >= 0 and v % 1 == 0 for v in value
        )
        if not whole:
            raise self.error(key, f"must be a list of whole numbers, not {shown(value)}")
        return tuple(map(int, value))

    def inside(self, key: str) -> Fields:
        """The object under ``key``; an empty one if the key is missing."""
        held = self._holder(f"{key}.")
        return Fields(held, self.path, self.text, f"{self.prefix}{key}.")


def shown(value: object) -> str:
    """A value as error messages show it."""
    return f"{value!r:.40}"
