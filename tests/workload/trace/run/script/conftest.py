"""One process with torch loaded, from which a process for each script is forked."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from simcore.api import capture as parent

_FORKS = """
import json, os, sys
import simcore.workload.trace.run.capture
from simcore.workload.trace.run.script import child, confined, libraries, refusals
from simcore.workload.trace.run.capture import World, dry_run
try:
    with dry_run(World(0, 8, 8, "H100", 80, (9, 0))):  # imports what it needs
        pass
except Exception:
    pass
for line in sys.stdin:
    pid = os.fork()
    if not pid:
        folder, request = json.loads(line)
        os.chdir(folder)
        child.run(child.Request(**request))
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
"""


@pytest.fixture(scope="session")
def forks() -> Iterator[Callable[[dict[str, Any], bool], int]]:
    """A function in place of ``api.capture._run``."""
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", _FORKS], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=None if os.environ.get("SHOW") else subprocess.DEVNULL, text=True,
    )  # fmt: skip
    assert process.stdin is not None and process.stdout is not None
    stdin, stdout = process.stdin, process.stdout

    def run(request: dict[str, Any], _: bool) -> int:
        stdin.write(json.dumps([str(Path.cwd()), request]) + "\n")
        stdin.flush()
        for line in stdout:
            if line.strip().lstrip("-").isdigit():
                return int(line)
        raise AssertionError("the process that forks has ended")

    yield run
    stdin.close()
    process.wait()


@pytest.fixture
def capture(forks: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Any]:
    """``capture(text, *words, **options)``: the job of a script, as rank 0 of 8."""
    monkeypatch.setattr(parent, "_run", forks)
    monkeypatch.chdir(tmp_path)

    def call(text: str, *words: str, gpus: str = "1x8xH100", **options: Any) -> Any:
        file = tmp_path / "train.py"
        file.write_text(text, encoding="utf-8")
        return parent.capture(gpus, str(file), words, **options)

    return call
