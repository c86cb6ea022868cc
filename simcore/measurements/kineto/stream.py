"""Reader of a trace's events one by one, so that files of gigabytes need little memory.

A trace is a JSON object with the long list ``traceEvents``, or that list alone. All other keys are
small and are stored unchanged.
"""

from __future__ import annotations

import codecs
import json
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from simcore.base.errors import DataError
from simcore.base.units import MIB

_CHUNK: Final = MIB
_NOT_BLANK: Final = re.compile(r"[^ \t\r\n]")
_NEXT_EVENT: Final = re.compile(r"\s*,?\s*(?=\{)")
#: Most that is unpacked at once.
_UNPACKED: Final = 8 * MIB
#: Window bits that make zlib read the gzip format.
_GZIP: Final = 31
#: Largest size of an event or another value [bytes]; a file with a larger one is no trace.
_MOST: Final = 256 * MIB


class TraceStream:
    """Iterator over the events of a trace; ``header`` and ``cut`` are complete afterwards.

    ``header``: all keys but ``traceEvents``. ``cut``: where a truncated file ends, such as "after
    event 1234"; empty for a complete file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.header: dict[str, Any] = {}
        self.cut = ""
        self.n_events = 0
        self._text, self._at, self._over = "", 0, False
        self._gzip = zlib.decompressobj(_GZIP) if path.suffix == ".gz" else None
        self._packed = b""
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")
        self._decoder = json.JSONDecoder(strict=False)  # kernel names may hold control characters

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """The events, as dictionaries. Raises DataError for a file that is no trace."""
        try:
            with self.path.open("rb") as self._file:
                yield from self._document()
        except OSError as err:
            raise DataError(f"cannot be read: {err.strerror or err}", file=self.path) from None

    # -- the document ----------------------------------------------------------------------

    def _document(self) -> Iterator[dict[str, Any]]:
        first = self._peek()
        if first == "[":
            yield from self._events()
            return
        if first != "{":
            raise DataError("is no trace: it is not JSON", file=self.path)
        self._at += 1
        found = False
        while (mark := self._peek()) not in ("}", ""):
            if mark == ",":
                self._at += 1
                continue
            key = self._value()
            if self._peek() != ":":
                break
            self._at += 1
            self._peek()
            if key == "traceEvents":
                found = True
                yield from self._events()
                if self.cut:
                    return
            else:
                self.header[str(key)] = self._value()
        if not found:
            raise DataError("is no trace of PyTorch's profiler: it has no traceEvents",
                            file=self.path)  # fmt: skip
        if mark != "}":
            self.cut = self.cut or f"after event {self.n_events}"

    def _events(self) -> Iterator[dict[str, Any]]:
        if self._peek() != "[":
            raise DataError("traceEvents is no list", file=self.path)
        self._at += 1
        while True:
            if near := _NEXT_EVENT.match(self._text, self._at):
                self._at, mark = near.end(), "{"
            else:
                mark = self._peek()
            if mark == "]":
                self._at += 1
                return
            if mark == ",":
                self._at += 1
                continue
            if mark == "":
                self.cut = f"after event {self.n_events}"
                return
            try:
                event = self._value()
            except DataError:
                if not self._over:
                    raise
                self.cut = f"in event {self.n_events + 1}"
                return
            self.n_events += 1
            if isinstance(event, dict):
                yield event

    # -- the buffer ------------------------------------------------------------------------

    def _more(self) -> bool:
        """Read the next chunk; False at the end of the file or at damaged compressed data."""
        text = ""
        while not text:
            data = self._packed or self._file.read(_CHUNK)
            if not data:
                self._over = True
                return False
            try:
                text = self._utf8.decode(self._inflate(data))
            except zlib.error:
                self._over = True
                return False
        self._text = self._text[self._at :] + text
        self._at = 0
        return True

    def _inflate(self, data: bytes) -> bytes:
        """A part of ``data`` unpacked; ``_packed`` is what is left of it."""
        if self._gzip is None:
            return data
        if self._gzip.eof:  # files joined with cat
            self._gzip = zlib.decompressobj(_GZIP)
        out = self._gzip.decompress(data, _UNPACKED)
        self._packed = self._gzip.unconsumed_tail or self._gzip.unused_data
        return out

    def _peek(self) -> str:
        """The next character that is not blank; "" at the end."""
        blank = 0
        while True:
            found = _NOT_BLANK.search(self._text, self._at)
            if found is not None:
                self._at = found.start()
                return found[0]
            blank += len(self._text) - self._at
            self._at = len(self._text)
            if blank > _MOST:
                raise DataError("is no trace: it is blank", file=self.path)
            if not self._more():
                return ""

    def _value(self) -> Any:
        """The JSON value that begins here; one that ends beyond the buffer is parsed anew."""
        while True:
            try:
                value, end = self._decoder.raw_decode(self._text, self._at)
            except json.JSONDecodeError as err:
                if len(self._text) - self._at < _MOST and self._more():
                    continue
                raise DataError(f"is no JSON after event {self.n_events}: {err.msg}",
                                file=self.path) from None  # fmt: skip
            if end == len(self._text) and self._more():
                continue  # a number may go on
            self._at = end
            return value
