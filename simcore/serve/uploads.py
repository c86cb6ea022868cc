"""Uploaded files, parsed and held in memory: they are never written to disk and never executed.

The name of an upload is a hash of its text, so that links to it work while the server holds it.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from threading import Lock
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


class Uploads:
    """The ``KEPT`` most recently used uploads."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._kept: OrderedDict[str, tuple[Kind, Any]] = OrderedDict()

    def add(self, kind: Kind, raw: bytes) -> tuple[str, Any]:
        """Parse and store a file; returns its name and the model or profile in it.

        Raises DataError with the line.
        """
        file = _FILES[kind]
        if kind == "model":
            text = decode(raw, file, MAX_CONFIG_BYTES)
            found: Any = _bounded(api.read_config(text, file), file)
        else:
            text = decode(raw, file, MAX_YAML_BYTES)
            found = api.read_calibration(text, file)
        name = PREFIX + hashlib.sha256(f"{kind}\n{text}".encode()).hexdigest()[:_ID_LENGTH]
        with self._lock:
            if name in self._kept:  # caches of other requests refer to the existing object
                found = self._kept[name][1]
            self._kept[name] = (kind, found)
            self._kept.move_to_end(name)
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        return name, found

    def model(self, name: str) -> Any:
        """The uploaded model of that name. Raises UnknownUpload."""
        return self._of("model", name)

    def calibration(self, name: str) -> Any:
        """The uploaded calibration of that name. Raises UnknownUpload."""
        return self._of("calibration", name)

    def _of(self, kind: Kind, name: str) -> Any:
        with self._lock:
            found_kind, found = self._kept.get(name, (None, None))
            if found_kind != kind:
                raise UnknownUpload(kind)
            self._kept.move_to_end(name)
        return found


class UnknownUpload(UnknownName):
    """An upload that this server never had or no longer holds."""

    def __init__(self, kind: Kind) -> None:
        self.kind, self.name = kind, PREFIX
        SimcoreError.__init__(
            self,
            f"unknown {kind}: the server no longer has this upload, upload {_FILES[kind]} again",
        )
