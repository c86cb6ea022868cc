"""One command line, run in process or as a process of its own."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from simcore.cli.main import run


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str


@pytest.fixture
def simcore(capfd: pytest.CaptureFixture[str]) -> Callable[..., Ran]:
    """``simcore("predict", "--model", …)`` in this process."""

    def call(*words: str) -> Ran:
        capfd.readouterr()
        code = run(words)
        out, err = capfd.readouterr()
        return Ran(code, out, err)

    return call


@pytest.fixture(scope="session")
def process(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Ran]:
    """The same in a fresh interpreter; bytecode is cached, as in an installed package.

    Where this process writes none, it is made for these tests alone.
    """
    cache = {}
    if sys.dont_write_bytecode:
        cache["PYTHONPYCACHEPREFIX"] = str(tmp_path_factory.mktemp("bytecode"))

    def call(*words: str, code: str | None = None, **env: str) -> Ran:
        start = ["-c", code] if code is not None else ["-m", "simcore"]
        kept = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
        done = subprocess.run(
            [sys.executable, *start, *words],
            capture_output=True,
            text=True,
            env={**kept, **cache, **env},
            cwd=Path(__file__).parents[2],
            timeout=120,
        )
        return Ran(done.returncode, done.stdout, done.stderr)

    return call


@pytest.fixture(autouse=True)
def _collector_stays() -> None:
    assert gc.isenabled(), "run() must leave the collector alone: only main() may stop it"
