"""Chakra files: the wire format by hand, a file a rank, groups by number."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from simcore import api
from simcore.answer.replay import Node, Replay
from simcore.base.errors import UsageError
from simcore.report.trace.chakra import MOST_RANKS, write_chakra

pytest.importorskip("google.protobuf", reason="Chakra traces need simcore[chakra]")


def _field(number: int, payload: bytes) -> bytes:
    """A length-delimited field (protobuf.dev/programming-guides/encoding)."""
    return bytes([number << 3 | 2, len(payload)]) + payload


def _attribute(name: bytes, key: bytes, value: bytes) -> bytes:
    return _field(10, _field(1, name) + key + value)


def test_bytes_on_disk(tmp_path: Path) -> None:
    """Two ranks, one all-reduce of 300 bytes after 5 us of compute."""
    nodes = (
        Node("work", seconds=5e-6),
        Node("sum", 0.0, "all_reduce", 300.0, "data", deps=(0,)),
    )
    write_chakra(Replay(2, 2, (nodes,), {"data": ((0, 1),)}), tmp_path / "t")
    bool_key, int64_key, uint64_key = b"\xd8\x01", b"\x48", b"\x68"
    string_key = b"\xea\x01"
    on_device = _attribute(b"is_cpu_op", bool_key, b"\x00")
    first = _field(2, b"work") + b"\x18\x04" + b"\x38\x05" + on_device
    second = (
        b"\x08\x01" + _field(2, b"sum") + b"\x18\x07" + _field(5, b"\x00") + on_device
        + _attribute(b"comm_size", uint64_key, b"\xac\x02")
        + _attribute(b"comm_type", int64_key, b"\x00")
        + _attribute(b"pg_name", string_key, b"\x011")
    )  # fmt: skip
    head = _field(1, b"0.0.4")
    wanted = b"".join(bytes([len(m)]) + m for m in (head, first, second))
    assert (tmp_path / "t.0.et").read_bytes() == (tmp_path / "t.1.et").read_bytes() == wanted
    assert json.loads((tmp_path / "t.groups.json").read_text()) == {"1": [0, 1]}


def test_a_file_a_rank(tmp_path: Path) -> None:
    graph = api.replay("llama3-8b", "2x8xH100", tp=4, pp=2, strategy="zero1", grad_accum=2)
    assert write_chakra(graph, tmp_path / "l") == 16
    assert {p.name for p in tmp_path.glob("*.et")} == {f"l.{r}.et" for r in range(16)}
    groups = json.loads((tmp_path / "l.groups.json").read_text())
    assert "0" not in groups  # ASTRA-sim's number of everyone
    assert sorted(map(len, groups.values())) == [2] * 8 + [4] * 4


def test_too_many_ranks(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=f"more than {MOST_RANKS}"):
        write_chakra(Replay(MOST_RANKS + 1, MOST_RANKS + 1, ((),)), tmp_path / "t")
