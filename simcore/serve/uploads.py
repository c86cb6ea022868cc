"""Uploaded files, kept in memory as what they mean: never written down, never executed.

A file is known by a hash of its text, so that a link names it as long as this server keeps it.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from typing import Any, Literal

from simcore import api
from simcore.base.errors import DataError, SimcoreError, UnknownName
from simcore.base.units import KIB
from simcore.base.untrusted import MAX_BYTES as MAX_YAML_BYTES
from simcore.base.untrusted import decode

Kind = Literal["model", "calibration"]
PREFIX = "upload:"
#: A Hugging Face config is a few kilobytes; a calibration as ``base.untrusted`` has it.
MAX_CONFIG_BYTES = 256 * KIB
MOST_BYTES = max(MAX_CONFIG_BYTES, MAX_YAML_BYTES)
#: The oldest of more is forgotten.
KEPT = 64
#: Published models have up to some 130 layers; the time of a prediction grows with their square.
MOST_BLOCKS = 256
_ID_LENGTH = 16
_FILES: dict[Kind, str] = {"model": "config.json", "calibration": "calibration.yaml"}


def _bounded(model: api.ModelSource, file: str) -> api.ModelSource:
    """The model, unless a prediction of it would keep everybody waiting. Raises DataError."""
    n_blocks = len(model.build().order)
    if n_blocks > MOST_BLOCKS:
        raise DataError(f"has {n_blocks:,} blocks: at most {MOST_BLOCKS} are taken here", file=file)
    return model


class Uploads:
    """The last ``KEPT`` files that were uploaded. Used by one thread at a time."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, tuple[Kind, Any]] = OrderedDict()

    def add(self, kind: Kind, raw: bytes) -> tuple[str, Any]:
        """(its name, the model or profile that it holds). Raises DataError with the line."""
        file = _FILES[kind]
        if kind == "model":
            text = decode(raw, file, MAX_CONFIG_BYTES)
            found: Any = _bounded(api.read_config(text, file), file)
        else:
            text = decode(raw, file, MAX_YAML_BYTES)
            found = api.read_calibration(text, file)
        name = PREFIX + hashlib.sha256(f"{kind}\n{text}".encode()).hexdigest()[:_ID_LENGTH]
        if name in self._kept:  # the record that other requests have cached their work by
            found = self._kept[name][1]
        self._kept[name] = (kind, found)
        self._kept.move_to_end(name)
        while len(self._kept) > KEPT:
            self._kept.popitem(last=False)
        return name, found

    def model(self, name: str) -> Any:
        """An uploaded model. Raises UnknownUpload."""
        return self._of("model", name)

    def calibration(self, name: str) -> Any:
        """An uploaded calibration. Raises UnknownUpload."""
        return self._of("calibration", name)

    def _of(self, kind: Kind, name: str) -> Any:
        found_kind, found = self._kept.get(name, (None, None))
        if found_kind != kind:
            raise UnknownUpload(kind)
        self._kept.move_to_end(name)
        return found


class UnknownUpload(UnknownName):
    """A link to an upload that this server does not have, or no longer."""

    def __init__(self, kind: Kind) -> None:
        self.kind, self.name = kind, PREFIX
        SimcoreError.__init__(
            self, f"unknown {kind}: this upload is not kept any more, upload {_FILES[kind]} again"
        )
