"""Uploaded files, parsed and held in memory: they are never written to disk and never executed.

The name of an upload is a hash of its text, so that links to it work while the server holds it.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Literal

from simcore import api
from simcore.base.errors import DataError, SimcoreError, UnknownName
from simcore.base.units import KIB
from simcore.base.untrusted import MAX_BYTES as MAX_YAML_BYTES
from simcore.base.untrusted import decode

Kind = Literal["model", "calibration"]
PREFIX = "upload:"
#: Largest Hugging Face config, which usually has a few kilobytes. For calibrations, the limit is
#: that of ``base.untrusted``.
MAX_CONFIG_BYTES = 256 * KIB
MOST_BYTES = max(MAX_CONFIG_BYTES, MAX_YAML_BYTES)
#: Number of uploads that are held; the least recently used one is dropped first.
KEPT = 64
#: Most blocks of an uploaded model. Published models have up to about 130 layers, and the time of a
#: prediction grows with the square of their number.
MOST_BLOCKS = 256
_ID_LENGTH = 16
_FILES: dict[Kind, str] = {"model": "config.json", "calibration": "calibration.yaml"}


def _bounded(model: api.ModelSource, file: str) -> api.ModelSource:
    """The model. Raises DataError where it has so many blocks that a prediction takes too long."""
    n_blocks = len(model.build().order)
    if n_blocks > MOST_BLOCKS:
        raise DataError(f"has {n_blocks:,} blocks: at most {MOST_BLOCKS} are accepted", file=file)
    return model


@lru_cache(maxsize=KEPT)
def parsed(kind: Kind, raw: bytes) -> Any:
    """The model or profile in an uploaded file. Raises DataError with the line."""
    file = _FILES[kind]
    if kind == "model":
        return _bounded(api.read_config(decode(raw, file, MAX_CONFIG_BYTES), file), file)
    return api.read_calibration(decode(raw, file, MAX_YAML_BYTES), file)


class Uploads:
    """The ``KEPT`` most recently used uploads, as they were sent."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, tuple[Kind, bytes]] = OrderedDict()

    def add(self, kind: Kind, raw: bytes) -> str:
        """Store a file that was ``parsed``; returns its name."""
        name = PREFIX + hashlib.sha256(kind.encode() + b"\n" + raw).hexdigest()[:_ID_LENGTH]
        self._kept[name] = (kind, raw)
        self._kept.move_to_end(name)
        while len(self._kept) > KEPT:
            self._kept.popitem(last=False)
        return name

    def named_in(self, words: Mapping[str, Any]) -> Uploads:
        """Those uploads that the words of a set-up name."""
        found = Uploads()
        for name in words.values():
            if isinstance(name, str) and name in self._kept:
                found.add(*self._kept[name])
                self._kept.move_to_end(name)
        return found

    def model(self, name: str) -> Any:
        """The uploaded model of that name. Raises UnknownUpload."""
        return self._of("model", name)

    def calibration(self, name: str) -> Any:
        """The uploaded calibration of that name. Raises UnknownUpload."""
        return self._of("calibration", name)

    def _of(self, kind: Kind, name: str) -> Any:
        found = self._kept.get(name)
        if found is None or found[0] != kind:
            raise UnknownUpload(kind)
        return parsed(*found)


class UnknownUpload(UnknownName):
    """An upload that this server never had or no longer holds."""

    def __init__(self, kind: Kind) -> None:
        self.kind, self.name = kind, PREFIX
        SimcoreError.__init__(
            self,
            f"unknown {kind}: the server no longer has this upload, upload {_FILES[kind]} again",
        )
