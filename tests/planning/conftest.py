"""One command line in this process."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from simcore.cli.main import run


@pytest.fixture
def simcore_cli(capfd: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """``simcore_cli("plan", …)``: exit code, standard output, standard error."""

    def call(*words: str) -> tuple[int, str, str]:
        capfd.readouterr()
        code = run(words)
        out, err = capfd.readouterr()
        return code, out, err

    return call
