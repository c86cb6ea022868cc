"""Files of unknown origin: bounded in size, and YAML checked before any data is built from it.

Aliases can stand for a billion values, and deep nesting can exhaust the stack. No upload needs
either, so both are refused, with the line where they occur.
"""

from __future__ import annotations

import csv
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from simcore.base.database import parse_yaml, refuse_bomb
from simcore.base.errors import DataError
from simcore.base.units import GIB, KIB, MIB

MAX_BYTES = 64 * KIB
MAX_DEPTH = 8
#: Largest number of keys, values and containers; a calibration of a hundred knobs has two thousand.
MAX_NODES = 5_000
#: Largest file that is read whole, also after it is unpacked, and the most of a large table.
MOST_FILE_BYTES, MOST_TABLE_BYTES = 128 * MIB, GIB
#: Window bits that make zlib read the gzip format.
_GZIP = 31


def bounded_bytes(path: Path, most_bytes: float = MOST_FILE_BYTES) -> bytes:
    """The content of a file, unpacked if it ends in ``.gz``.

    Raises DataError if it cannot be read, ends early or is larger than ``most_bytes``.
    """
    raw, cut = inflated(path, most_bytes)
    if cut:
        raise DataError("ends early", file=path)
    return raw


def inflated(path: Path, most_bytes: float = MOST_FILE_BYTES) -> tuple[bytes, bool]:
    """(The content of a file, unpacked if it ends in ``.gz``; whether its end is missing.)

    Raises DataError if it cannot be read or is larger than ``most_bytes``.
    """
    most = int(most_bytes)
    try:
        with path.open("rb") as file:
            raw = b"".join(_pieces(file, most + 1))
    except (OSError, ValueError) as err:
        reason = getattr(err, "strerror", None) or err
        raise DataError(f"cannot be read: {reason}", file=path) from None
    cut = False
    if path.suffix == ".gz":
        parts, size = [], 0
        while raw and size <= most and not cut:  # files joined with cat
            stream = zlib.decompressobj(_GZIP)
            try:
                parts.append(stream.decompress(raw, most + 1 - size))
            except zlib.error as err:
                raise DataError(f"cannot be read: {err}", file=path) from None
            size += len(parts[-1])
            cut, raw = not stream.eof and size <= most, stream.unused_data
        raw = b"".join(parts)
    if len(raw) > most:
        raise DataError(f"is larger than {most // MIB:,.0f} MiB", file=path)
    return raw, cut


def _pieces(file: BinaryIO, most: int) -> Iterator[bytes]:
    """The first ``most`` bytes of a file, piece by piece: a single read would make room for all."""
    left = most
    while left and (piece := file.read(min(left, int(MIB)))):
        left -= len(piece)
        yield piece


def rows_of(reader: Any, file: object) -> Iterator[Any]:
    """The rows of a reader of the module ``csv``. Raises DataError with the line."""
    try:
        yield from reader
    except csv.Error as err:
        line = getattr(reader, "reader", reader).line_num  # a DictReader's own is one behind
        raise DataError(f"is no table: {err}", file=file, line=line) from None


def decode(raw: bytes, file: str, max_bytes: int) -> str:
    """The text of UTF-8 bytes. Raises DataError for too many bytes or another encoding."""
    if len(raw) > max_bytes:
        raise DataError(f"is larger than {max_bytes // KIB} KiB", file=file)
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as err:
        line = raw[: err.start].count(b"\n") + 1
        raise DataError("is not text in UTF-8", file=file, line=line) from None


def untrusted_yaml(text: str, file: str) -> Any:
    """Plain data of YAML text; error messages call the text ``file``.

    Raises DataError, with the line, for aliases, anchors, tags, nesting beyond ``MAX_DEPTH`` and
    more than ``MAX_NODES`` values.
    """
    from ruamel.yaml.error import YAMLError

    try:
        refuse_bomb(text, file, MAX_NODES, MAX_DEPTH)
    except YAMLError:
        pass  # parse_yaml below reports it with its line
    except (RecursionError, ValueError, TypeError) as err:
        raise DataError(f"not valid YAML: {type(err).__name__}", file=file) from None
    try:
        return parse_yaml(text, file)
    except (ValueError, TypeError, OverflowError, AttributeError) as err:  # 2026-99-99, ? {}
        first = (str(err).splitlines() or [type(err).__name__])[0]
        raise DataError(f"not valid YAML: {first:.80}", file=file) from None
