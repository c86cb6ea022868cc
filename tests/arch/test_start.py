"""What starting simcore costs, and what it must not load."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

import simcore

HEAVY = {"torch", "scipy", "matplotlib", "pandas", "networkx"}
WEB = {"fastapi", "starlette", "uvicorn", "limits", "anyio"}
PREDICT = ["predict", "--model", "latte-xl", "--gpus", "4x8xA6000ada"]

needs_cli = pytest.mark.skipif(
    importlib.util.find_spec("simcore.cli.main") is None, reason="simcore.cli.main is not written"
)


def loaded(code: str, cwd: Path) -> set[str]:
    """Modules that a fresh interpreter holds after ``code``; its own output is discarded."""
    report = f"{code}\nimport json, sys\nprint()\nprint(json.dumps(sorted(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", report], cwd=cwd, capture_output=True, text=True, check=True
    )
    return set(json.loads(done.stdout.splitlines()[-1]))


def command(arguments: list[str]) -> str:
    return (
        f"import sys\nsys.argv = ['simcore', *{arguments!r}]\n"
        "from simcore.cli.main import main\n"
        "try:\n    main()\nexcept SystemExit as end:\n    assert not end.code, end.code"
    )


def test_importing_simcore_loads_nothing_heavy(tmp_path: Path) -> None:
    modules = loaded("import simcore", tmp_path)
    assert not modules & (HEAVY | {"numpy", "pydantic", "typer", "rich", "ruamel"})
    assert not {m for m in modules if m.startswith("simcore.")}


@pytest.mark.parametrize("package", ["torch", "scipy", "networkx", *sorted(WEB)])
def test_what_must_not_load_could_be_loaded(package: str) -> None:
    """A check for absence says nothing where the package is not installed."""
    assert importlib.util.find_spec(package) is not None


@needs_cli
@pytest.mark.parametrize("arguments", [["--help"], PREDICT], ids=["help", "predict"])
def test_commands_load_nothing_heavy(arguments: list[str], tmp_path: Path) -> None:
    assert not loaded(command(arguments), tmp_path) & (HEAVY | WEB)


def test_public_names_are_lazy_and_complete(tmp_path: Path) -> None:
    assert simcore.__all__ == sorted(simcore.__all__)
    assert set(simcore.__all__) == {"Prediction", "__version__", "estimate_memory", "predict"}
    from simcore.api import predict
    from simcore.engine.result import Prediction

    assert simcore.predict is predict
    assert simcore.Prediction is Prediction
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = simcore.nothing
    assert "simcore.api" in loaded("import simcore; simcore.predict", tmp_path)


def test_a_prediction_in_process_loads_nothing_heavy(tmp_path: Path) -> None:
    code = "import simcore; simcore.predict('latte-xl', '4x8xA6000ada')"
    assert not loaded(code, tmp_path) & HEAVY
