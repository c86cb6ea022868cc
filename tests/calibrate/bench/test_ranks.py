"""Ranks joined by torch.distributed exchange values; here one rank, the least of a machine."""

from __future__ import annotations

import re
import socket
from pathlib import Path

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


@pytest.mark.parametrize(
    ("variables", "says"),
    [
        ({"RANK": "0", "WORLD_SIZE": "two"}, r"\$WORLD_SIZE is 'two', not the number"),
        ({"RANK": "0", "WORLD_SIZE": "-2"}, r"\$WORLD_SIZE is '-2', not the number"),
        ({"RANK": "0", "WORLD_SIZE": "2"}, "cannot join the other ranks"),
    ],
)
def test_variables_that_no_launcher_sets_are_one_sentence(
    variables: dict[str, str], says: str, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str], tmp_path: Path,
) -> None:  # fmt: skip
    from simcore.calibrate.machine.rank import main

    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert main(["--device", "cpu", "-o", str(tmp_path / "x.yaml")]) == 2
    err = capsys.readouterr().err
    assert re.search(says, err) and err.count("\n") == 1
