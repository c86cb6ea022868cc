"""``simcore serve`` refuses in one sentence; what it serves is tested in tests/serve."""

from __future__ import annotations

import socket
import sys

import pytest

from simcore.cli.main import run


def complaint(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert run(["serve", *arguments]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    return said.err


def test_without_its_packages_it_says_what_to_install(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [n for n in sys.modules if n.startswith("simcore.serve")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "fastapi", None)
    said = complaint(capsys)
    assert said.count("\n") == 1
    assert "pip install '.[serve]'" in said


def test_a_port_that_is_taken(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        said = complaint(capsys, "--port", port)
    assert f"cannot listen on 127.0.0.1 port {port}" in said
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--port", "many"], "--port 'many' is not a whole number"),
        (["--port", "70000"], "at most 65535"),
        (["--port", "-1"], "at least 0"),
        (["--rate", "0"], "at least 1"),
        (["--host", "no such host"], "cannot listen on no such host"),
        (["--host", "203.0.113.7"], "cannot listen on 203.0.113.7"),
    ],
)
def test_a_wrong_word(capsys: pytest.CaptureFixture[str], arguments: list[str], says: str) -> None:
    assert says in complaint(capsys, *arguments)
