"""YAML from strangers: looked over as a stream of events before anything is built from it.

An alias can make ten lines stand for a billion values (a "billion laughs"), nesting can exhaust
the stack. Neither has a place in a record, so both are refused where they stand.
"""

from __future__ import annotations

from typing import Any

from simcore.base.database import parse_yaml
from simcore.base.errors import DataError
from simcore.base.units import KIB

MAX_BYTES = 64 * KIB
MAX_DEPTH = 8
#: Keys, values and containers; a calibration of a hundred knobs has two thousand.
MAX_NODES = 5_000


def decode(raw: bytes, file: str, max_bytes: int) -> str:
    """Bytes as text. Raises DataError where they are too many or no UTF-8."""
    if len(raw) > max_bytes:
        raise DataError(f"is larger than {max_bytes // KIB} KiB", file=file)
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as err:
        line = raw[: err.start].count(b"\n") + 1
        raise DataError("is not text in UTF-8", file=file, line=line) from None


def untrusted_yaml(text: str, file: str) -> Any:
    """Plain data from YAML text without aliases, anchors, tags, deep nesting or great size.

    ``file`` is what errors name. Raises DataError with the line.
    """
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    depth = nodes = 0
    try:
        for event in YAML(typ="safe", pure=True).parse(text):
            line = event.start_mark.line + 1
            kind = type(event).__name__
            if kind == "AliasEvent" or getattr(event, "anchor", None):
                raise DataError("anchors (&) and aliases (*) are not taken", file=file, line=line)
            if getattr(event, "tag", None):
                raise DataError("tags (!) are not taken", file=file, line=line)
            depth += kind.endswith("StartEvent") - kind.endswith("EndEvent")
            nodes += kind in ("ScalarEvent", "MappingStartEvent", "SequenceStartEvent")
            if depth > MAX_DEPTH + 2:  # the stream and the document are two levels
                raise DataError("is nested too deeply", file=file, line=line)
            if nodes > MAX_NODES:
                raise DataError(f"has more than {MAX_NODES:,} values", file=file, line=line)
    except YAMLError:
        pass  # said properly, with its line, when it is parsed
    except (RecursionError, ValueError, TypeError) as err:
        raise DataError(f"not valid YAML: {type(err).__name__}", file=file) from None
    try:
        return parse_yaml(text, file)
    except (ValueError, TypeError, OverflowError, AttributeError) as err:  # 2026-99-99, ? {}
        first = (str(err).splitlines() or [type(err).__name__])[0]
        raise DataError(f"not valid YAML: {first:.80}", file=file) from None
