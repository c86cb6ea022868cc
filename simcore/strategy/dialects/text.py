"""The text of a launch file from keys and values."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


def written_text(data: Mapping[str, Any], form: str) -> str:
    """Dotted keys and values as JSON, TOML or YAML, or as flags, one a line."""
    if form == "flags":
        return "".join(_flag(key, value) for key, value in data.items() if value is not False)
    nested: dict[str, Any] = {}
    for key, value in data.items():
        *sections, last = key.split(".")
        place = nested
        for section in sections:
            place = place.setdefault(section, {})
        place[last] = value
    if form == "json":
        return json.dumps(nested, indent=2) + "\n"
    lines: list[str] = []
    _lines(nested, form, (), lines)
    return "\n".join(lines).strip() + "\n"


def _flag(key: str, value: Any) -> str:
    return f"--{key}\n" if value is True else f"--{key} {value}\n"


def _lines(data: Mapping[str, Any], form: str, sections: tuple[str, ...], out: list[str]) -> None:
    """Append the keys of a table as TOML or YAML; values are written as in JSON, valid in both."""
    indent = "  " * len(sections) if form == "yaml" else ""
    for key, value in data.items():
        if not isinstance(value, Mapping):
            mark = ": " if form == "yaml" else " = "
            out.append(f"{indent}{key}{mark}{json.dumps(value)}")
    for key, value in data.items():
        if isinstance(value, Mapping):
            inner = (*sections, key)
            out += [f"{indent}{key}:"] if form == "yaml" else ["", f"[{'.'.join(inner)}]"]
            _lines(value, form, inner, out)
