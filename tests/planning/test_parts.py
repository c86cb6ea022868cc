"""Part files of a sweep are data: reading one that somebody else wrote runs nothing."""

from __future__ import annotations

import hashlib
import io
import json
from pathlib import Path

import numpy as np
import pytest
from evil import Evil

from simcore.planning.parts import UnusablePart, part_at, write_part

SWEEP = "one sweep"


class _Loaded:
    """An object whose pickle leaves the mark when it is loaded."""

    def __init__(self, evil: Evil) -> None:
        self.mark = str(evil.mark)

    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (Path(self.mark),)


def test_a_pickle_is_no_part(evil: Evil) -> None:
    file = evil.folder / "part.part"
    file.write_bytes(evil.pickled())
    with pytest.raises(UnusablePart, match="not a part of a sweep"):
        part_at(file, SWEEP)
    assert not evil.ran


def test_objects_among_the_points_are_refused_though_the_checksum_is_right(evil: Evil) -> None:
    """A part with all its lines in order, of which one column holds a pickled object."""
    file = write_part(evil.folder, SWEEP, (0, 1), (0, 1), []).file
    format_line, _, rest = file.read_bytes().split(b"\n", 2)
    head = json.loads(rest.partition(b"\n")[0])
    payload = io.BytesIO()
    np.savez(payload, cluster=np.array([_Loaded(evil)], dtype=object))
    forged = json.dumps(head).encode() + b"\n" + payload.getvalue()
    digest = hashlib.sha256(forged).hexdigest().encode()
    file.write_bytes(format_line + b"\n" + digest + b"\n" + forged)
    part = part_at(file, SWEEP)
    with pytest.raises(UnusablePart, match="cannot be read"):
        list(part.batches(SWEEP))
    assert not evil.ran
