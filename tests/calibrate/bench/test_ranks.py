"""Ranks joined by torch.distributed exchange values; here one rank, the least of a machine."""

from __future__ import annotations

import socket

import pytest

torch = pytest.importorskip("torch")


def test_a_single_rank_joins_and_hears_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    from simcore.calibrate.bench.ranks import Ranks

    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    for name, value in {"RANK": 0, "WORLD_SIZE": 1, "MASTER_PORT": port}.items():
        monkeypatch.setenv(name, str(value))
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    try:
        world = Ranks.join("gloo")
        assert (world.rank, world.size) == (0, 1)
        assert world.share({"a": 1}) == {"a": 1}
        assert world.gather(3.5) == [3.5]
        world.barrier()
    finally:
        Ranks.leave()
