"""The app in this process, and a server as users start it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from serving import UNLIMITED, client_of
from starlette.testclient import TestClient

ADDRESS = re.compile(r"http://127\.0\.0\.1:\d+")


@pytest.fixture(scope="session")
def client() -> Iterator[TestClient]:
    """The app without a rate limit that tests would meet."""
    with client_of() as found:
        yield found


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of ``simcore serve`` in a process of its own, on a free port."""
    folder = tmp_path_factory.mktemp("served")
    root = Path(__file__).resolve().parents[2]
    env = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(root), os.environ.get("PYTHONPATH", "")])
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "simcore", "serve", "--port", "0", "--rate", str(UNLIMITED)],
        cwd=folder, env=env, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stderr is not None
    line = process.stderr.readline()
    match = ADDRESS.search(line)
    assert match, line
    yield match[0]
    process.terminate()
    process.wait(timeout=10)
