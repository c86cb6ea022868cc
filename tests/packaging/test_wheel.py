"""The wheel answers by itself: outside the repository, without a network, from its own files."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
needs_cli = pytest.mark.skipif(
    importlib.util.find_spec("simcore.cli.main") is None, reason="simcore.cli.main is not written"
)
#: Loaded by every interpreter that finds it on its path.
NO_NETWORK = """
import socket
def refuse(*_args, **_kwargs):
    raise OSError("this test allows no network")
socket.socket = socket.create_connection = socket.getaddrinfo = refuse
"""


def pip(*arguments: str, cwd: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pip", "--quiet", *arguments],
        cwd=cwd, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    pip("wheel", str(ROOT), "--no-deps", "--no-build-isolation", "-w", str(folder), cwd=folder)
    (built,) = folder.glob("simcore-*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path) -> Path:
    """A folder that holds the unpacked wheel and a sitecustomize that blocks sockets."""
    target = wheel.parent / "site"
    pip("install", str(wheel), "--no-deps", "--target", str(target), cwd=wheel.parent)
    (target / "sitecustomize.py").write_text(NO_NETWORK, encoding="utf-8")
    return target


def run(
    installed: Path, cwd: Path, *arguments: str, check: bool = True
) -> subprocess.CompletedProcess[str]:
    env = {k: v for k, v in os.environ.items() if not k.startswith(("SIMCORE_", "XDG_", "PYTHON"))}
    env |= {"PYTHONPATH": str(installed), "HOME": str(cwd)}
    return subprocess.run(
        [sys.executable, *arguments], cwd=cwd, env=env, capture_output=True, text=True, check=check
    )


def test_the_wheel_holds_the_databases_and_nothing_of_the_rest(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    for folder in ("hardware_db", "models_db", "programs_db"):
        files = [p.relative_to(ROOT) for p in (ROOT / folder).rglob("*.yaml")]
        assert len(files) > 10, folder
        assert {f"simcore/_data/{f.as_posix()}" for f in files} <= names
    assert {"simcore/py.typed", "simcore/api/__init__.py"} <= names
    assert any(n.endswith("licenses/LICENSE") for n in names)
    assert {n.split("/")[0].split("-")[0] for n in names} == {"simcore"}
    modules = {p.relative_to(ROOT).as_posix() for p in (ROOT / "simcore").rglob("*.py")}
    assert {n for n in names if n.endswith(".py")} == modules
    static = {p.relative_to(ROOT).as_posix() for p in (ROOT / "simcore/serve/static").iterdir()}
    assert len(static) >= 10 and static <= names


def test_the_network_is_blocked(installed: Path, tmp_path: Path) -> None:
    code = "import socket; socket.create_connection(('127.0.0.1', 9))"
    done = run(installed, tmp_path, "-c", code, check=False)
    assert "this test allows no network" in done.stderr


def test_the_library_predicts_from_its_own_databases(installed: Path, tmp_path: Path) -> None:
    code = (
        "import json, simcore\n"
        "from simcore.base.database import shipped_root\n"
        "from simcore.hardware.spec import GPUS\n"
        "from simcore.workload.models import MODELS\n"
        "answer = simcore.predict('latte-xl', '4x8xA6000ada')\n"
        "print(json.dumps([simcore.__file__, str(shipped_root()), str(GPUS.files()['A6000ada']),\n"
        "    str(MODELS.files()['latte-xl']), answer.step_time_s.value]))\n"
    )
    *places, step_s = json.loads(run(installed, tmp_path, "-c", code).stdout)
    for place in places:
        assert Path(place).resolve().is_relative_to(installed.resolve()), place
    assert 0.1 < step_s < 10


@needs_cli
def test_the_command_predicts(installed: Path, tmp_path: Path) -> None:
    """The first command of the README, as JSON."""
    script = installed / "bin" / "simcore"
    done = run(
        installed, tmp_path, str(script),
        "predict", "--model", "latte-xl", "--gpus", "4x8xA6000ada", "--json",
    )  # fmt: skip
    answer = json.loads(done.stdout)
    assert answer["fits"] is True
    assert 0.1 < answer["step_time_s"]["value"] < 10
    assert not done.stderr


@needs_cli
def test_the_wheel_writes_a_report_without_a_network(installed: Path, tmp_path: Path) -> None:
    """Its templates are packed, and nothing of the page is fetched."""
    words = ("report", "--model", "gpt2", "--gpus", "8xA100", "-o", "run.html")
    done = run(installed, tmp_path, "-m", "simcore", *words)
    assert "run.html" in done.stderr
    page = (tmp_path / "run.html").read_text(encoding="utf-8")
    assert "<svg" in page and "Where the memory goes" in page
