"""YAML text of profiles and records: nested mappings as blocks, each figure on one line."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

#: Characters that have a meaning in YAML, and words that YAML does not read as text.
_MARKS: Final = frozenset(":#{}[],&*'\"|>%@`")
_WORDS: Final = ("true", "false", "yes", "no", "on", "off", "null", "~")
_NUMBER_OR_DATE: Final = re.compile(r"[-+.\d][-+.:\de]*")


def yaml_text(data: Mapping[Any, Any], comments: Mapping[str, str] | None = None) -> str:
    """The data as YAML 1.2, numbers with four digits.

    ``comments``: key -> text above it, which also gets a blank line before; "" at the top.
    """
    notes = comments or {}
    lines = _comment(notes.get("", ""))
    for key, item in data.items():
        if comments is not None and _nested(item) and key != "sources":
            lines += ["", *_comment(notes.get(key, ""))]
        lines += _entry(key, item, "", block=key == "sources")
    return "\n".join(lines) + "\n"


def _comment(text: str) -> list[str]:
    return [f"# {line}" for line in text.splitlines()]


def _entry(key: object, item: Any, pad: str, *, block: bool = False) -> Iterator[str]:
    """The lines of one key: a mapping of figures as a block, as is a list of mappings."""
    if isinstance(item, Mapping) and (block or any(_nested(v) for v in item.values())):
        yield f"{pad}{key}:"
        for name, value in item.items():
            yield from _entry(name, value, pad + "  ")
    elif isinstance(item, list) and any(isinstance(v, Mapping) for v in item):
        yield f"{pad}{key}:"
        yield from (f"{pad}  - {_flow(row)}" for row in item)
    else:
        yield f"{pad}{key}: {_flow(item)}"


def _nested(value: Any) -> bool:
    return isinstance(value, Mapping | list)


def _flow(value: Any) -> str:
    """A value on one line."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{k}: {_flow(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_flow, value)) + "]"
    if isinstance(value, str):
        return value if _plain(value) else json.dumps(value, ensure_ascii=False)
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _plain(text: str) -> bool:
    """Whether a text needs no quotes."""
    starts_well = bool(text) and text[0] not in " \t-?!"
    return starts_well and not (
        _MARKS & set(text) or text.lower() in _WORDS or _NUMBER_OR_DATE.fullmatch(text)
    )
