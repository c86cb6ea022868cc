"""Part files of a sweep: points of consecutive pieces, with their range, sweep and checksum.

A file consists of a line that names the format, the SHA-256 of everything after it, a line of JSON
(the sweep's identity, pieces, points, number of bytes) and the points in numpy's .npz format.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from simcore.base.atomic import replacing
from simcore.planning.points import ARRAYS, Batch, FormWords

#: A range of pieces or points: the first, and the one after the last.
Span = tuple[int, int]

_FORMAT = b"simcore part of a sweep, format 1\n"
_DIGEST_CHARS = 64


class UnusablePart(Exception):
    """A part whose points cannot be used; its text completes "the part ...": ``is empty``.

    ``foreign``: the part is valid, but belongs to another sweep.
    """

    def __init__(self, text: str, *, foreign: bool = False) -> None:
        super().__init__(text)
        self.foreign = foreign


@dataclass(frozen=True, order=True)
class Part:
    """A valid part of this sweep: its ranges of pieces and points, and its file."""

    pieces: Span
    points: Span
    file: Path

    def batches(self, sweep: str) -> Iterator[Batch]:
        """Its batches in order. Raises UnusablePart where the file is damaged by now."""
        head, payload = _checked(self.file, sweep)
        try:
            yield from _batches(head["batches"], payload)
        except (ValueError, KeyError, TypeError) as err:
            raise UnusablePart(f"cannot be read ({err})") from None


def part_at(file: Path, sweep: str) -> Part:
    """The part in a file. Raises UnusablePart where it is damaged or not of sweep ``sweep``."""
    head, _ = _checked(file, sweep)
    first, last = head["pieces"]
    return Part((first, last), tuple(head["points"]), file)


def write_part(
    folder: Path, sweep: str, pieces: Span, points: Span, batches: Sequence[Batch]
) -> Part:
    """Write batches as a part file named by its points, atomically. Raises OSError."""
    full = [b for b in batches if len(b)]
    arrays: dict[str, Any] = {
        name: np.concatenate([np.broadcast_to(getattr(b, name), len(b)) for b in full])
        if full
        else np.array([])
        for name in ARRAYS
    }
    payload = io.BytesIO()
    np.savez(payload, **arrays)
    heads = [
        {
            "unit": b.unit,
            "piece": b.piece,
            "n_points": b.n_points,
            "invalid": b.invalid,
            "rows": len(b),
            "form": b.form.to_dict() if b.form is not None else None,
        }
        for b in batches
    ]
    head = {
        "sweep": sweep, "pieces": pieces, "points": points, "bytes": len(payload.getbuffer()),
        "batches": heads,
    }  # fmt: skip
    rest = json.dumps(head).encode() + b"\n" + payload.getvalue()
    file = folder / f"part-{points[0]:012d}-{points[1]:012d}.part"
    with replacing(file) as partial, partial.open("wb") as stream:
        stream.write(_FORMAT + hashlib.sha256(rest).hexdigest().encode() + b"\n")
        stream.write(rest)
    return Part(pieces, points, file)


def _checked(file: Path, sweep: str) -> tuple[dict[str, Any], bytes]:
    """The JSON line and the points of a part. Raises UnusablePart."""
    try:
        data = file.read_bytes()
    except FileNotFoundError:
        raise UnusablePart("is missing") from None
    except OSError as err:
        raise UnusablePart(f"cannot be read ({err.strerror or err})") from None
    if not data:
        raise UnusablePart("is empty")
    body = len(_FORMAT) + _DIGEST_CHARS + 1
    if not data.startswith(_FORMAT[: len(data)]):
        raise UnusablePart("is not a part of a sweep")
    if len(data) <= body:
        raise UnusablePart("is truncated")
    rest = data[body:]
    line, _, payload = rest.partition(b"\n")
    if data[len(_FORMAT) : body] != hashlib.sha256(rest).hexdigest().encode() + b"\n":
        short = _is_short(line, payload)
        raise UnusablePart("is truncated" if short else "is corrupted (its checksum is wrong)")
    head: dict[str, Any] = json.loads(line)
    if head["sweep"] != sweep:
        raise UnusablePart("belongs to another sweep", foreign=True)
    return head, payload


def _is_short(line: bytes, payload: bytes) -> bool:
    """Whether a part with a wrong checksum is truncated."""
    try:
        return len(payload) < int(json.loads(line)["bytes"])
    except (ValueError, KeyError, TypeError):
        return not payload


def _batches(heads: Sequence[dict[str, Any]], payload: bytes) -> Iterator[Batch]:
    with np.load(io.BytesIO(payload), allow_pickle=False) as held:
        arrays = {name: held[name] for name in ARRAYS}
    at = 0
    for head in heads:
        words = dict(head)
        rows, form = words.pop("rows"), words.pop("form")
        columns = {k: v[at : at + rows] for k, v in arrays.items()}
        yield Batch(**words, **columns, form=FormWords.from_dict(form) if form else None)
        at += rows
