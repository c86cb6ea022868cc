"""What starting simcore costs, and what it must not load."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

import simcore

HEAVY = {
    "torch", "scipy", "matplotlib", "pandas", "networkx", "jinja2", "watchfiles", "pyarrow",
    "simpy", "dask", "distributed",
}  # fmt: skip
WEB = {"fastapi", "starlette", "uvicorn", "limits", "anyio"}
PREDICT = ["predict", "--model", "latte-xl", "--gpus", "4x8xA6000ada"]

#: Most modules of simcore that a dense prediction may have imported when it has printed. It is to
#: fall to 90: lower it whenever modules are merged or are imported later. Three of them replay the
#: step's allocations, for the device memory of ``--json``.
MOST_MODULES = 104

needs_cli = pytest.mark.skipif(
    importlib.util.find_spec("simcore.cli.main") is None, reason="simcore.cli.main is not written"
)


def loaded(code: str, cwd: Path) -> frozenset[str]:
    """Modules that a fresh interpreter holds after ``code``, asked once; its output is discarded.

    None of them ever goes: what is missing after several calls was missing after each.
    """
    return _loaded(code, cwd, os.environ.get("SIMCORE_CACHE"))


@cache
def _loaded(code: str, cwd: Path, _records: str | None) -> frozenset[str]:
    report = f"{code}\nimport json, sys\nprint()\nprint(json.dumps(sorted(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", report], cwd=cwd, capture_output=True, text=True, check=True
    )
    return frozenset(json.loads(done.stdout.splitlines()[-1]))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("start")


def command(arguments: list[str]) -> str:
    return (
        f"import sys\nsys.argv = ['simcore', *{arguments!r}]\n"
        "from simcore.cli.main import main\n"
        "try:\n    main()\nexcept SystemExit as end:\n    assert not end.code, end.code"
    )


def test_importing_simcore_loads_nothing_heavy(folder: Path) -> None:
    modules = loaded("import simcore", folder)
    assert not modules & (HEAVY | {"numpy", "pydantic", "typer", "rich", "ruamel"})
    assert not {m for m in modules if m.startswith("simcore.")}


def test_the_table_of_options_loads_neither_models_nor_the_command_line(folder: Path) -> None:
    """Every command imports it first; names of choices are looked up when one is needed."""
    modules = loaded("import simcore.strategy.options", folder)
    assert not modules & (HEAVY | {"numpy", "pydantic", "typer", "rich", "ruamel"})
    ours = {m for m in modules if m.startswith("simcore.")}
    assert not {m for m in ours if not m.startswith(("simcore.base", "simcore.strategy"))}
    assert not ours & {"simcore.strategy.strategy", "simcore.strategy.precision"}


@pytest.mark.parametrize("package", ["torch", "scipy", "networkx", *sorted(WEB)])
def test_what_must_not_load_could_be_loaded(package: str) -> None:
    """A check for absence says nothing where the package is not installed."""
    assert importlib.util.find_spec(package) is not None


@needs_cli
@pytest.mark.parametrize("arguments", [["--help"], PREDICT], ids=["help", "predict"])
def test_commands_load_nothing_heavy(arguments: list[str], folder: Path) -> None:
    assert not loaded(command(arguments), folder) & (HEAVY | WEB)


@needs_cli
@pytest.mark.parametrize(
    ("arguments", "more"),
    [(PREDICT, set()), (["list", "models", "llama"], {"numpy"}), (["show", "gpu", "H100"], set())],
    ids=["predict", "list", "show"],
)
def test_pydantic_loads_for_files_that_were_not_checked_before(
    arguments: list[str], more: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SIMCORE_CACHE", str(tmp_path / "cache"))
    heavy = {"pydantic", "ruamel.yaml", *more}
    first, second = (loaded(f"{command(arguments)}  # {n}", tmp_path) for n in (1, 2))
    assert "pydantic" in first
    assert not second & heavy


def test_public_names_are_lazy_and_complete(folder: Path) -> None:
    assert simcore.__all__ == sorted(simcore.__all__)
    assert set(simcore.__all__) == {
        "BadQuantity", "DataError", "InvalidConfig", "Prediction", "SimcoreError", "UnknownName",
        "UsageError", "__version__", "compare", "dry_run", "estimate_memory", "explain", "goodput",
        "gpus", "memory_timeline", "models", "plan", "predict", "programs", "scaling", "sweep",
    }  # fmt: skip
    from simcore.api import predict
    from simcore.api.results import Prediction

    assert simcore.predict is predict
    assert simcore.Prediction is Prediction
    packages = {p.name for p in Path(simcore.__path__[0]).iterdir()}
    packages |= {Path(p).stem for p in packages}
    assert not packages & set(simcore.__all__), "a package would take the name once it is imported"
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = simcore.nothing
    assert "simcore.api" in loaded("import simcore; simcore.predict", folder)


#: A prediction, what it says and another one.
IN_PROCESS = (
    "import simcore; p = simcore.predict('latte-xl', '4x8xA6000ada')\n"
    "str(p); repr(p); p.replace(micro_batch=1)"
)


def test_a_prediction_in_process_loads_nothing_heavy(folder: Path) -> None:
    modules = loaded(IN_PROCESS, folder)
    assert not modules & HEAVY
    assert not {m for m in modules if m.startswith("simcore.validate")}
    assert not {m for m in modules if m.startswith(("simcore.report.plots", "simcore.report.html"))}


def test_what_shows_results_loads_when_they_are_shown(folder: Path) -> None:
    """The check above could not fail if nothing ever loaded them."""
    start = "import simcore; p = simcore.predict('gpt2', '8xA100'); "
    drawn = loaded(start + "p.plot()", folder)
    assert "matplotlib.figure" in drawn and "matplotlib.pyplot" not in drawn
    assert not drawn & {"jinja2", "pandas"}
    page = loaded(start + "p._repr_html_()", folder)
    assert {"matplotlib", "jinja2"} <= page and "pandas" not in page
    assert "pandas" in loaded(start + "p.to_pandas()", folder)


@needs_cli
def test_schedules_of_pipelines_load_where_one_is_named(folder: Path) -> None:
    others = {f"simcore.step.schedules.{name}" for name in ("gpipe", "dualpipe")}
    drawing = {"simcore.answer.pipeline_timeline"}
    assert not loaded(command(PREDICT), folder) & (others | drawing)
    cut = ["predict", "--model", "gpt2-xl", "--gpus", "8xH100", "--pp", "2", "--grad-accum", "4"]
    assert not loaded(command(cut), folder) & (others | drawing)
    drawn = loaded(command([*cut, "--trace", str(folder / "trace.json")]), folder)
    assert drawn & (others | drawing) == drawing
    gpipe = loaded(command([*cut, "--schedule", "gpipe"]), folder)
    assert gpipe & others == {"simcore.step.schedules.gpipe"}


@needs_cli
@pytest.mark.parametrize("action", ["", "; simcore.explain('latte-xl', '4x8xA6000ada', 'mfu')"])
def test_explanations_load_where_one_is_asked_for(action: str, folder: Path) -> None:
    """A prediction does not pay for them."""
    explains = {m for m in loaded(IN_PROCESS + action, folder) if "simcore.answer.explain" in m}
    assert bool(explains) is bool(action)


@needs_cli
def test_a_completion_loads_no_engine(folder: Path) -> None:
    """One TAB reads names of files: it loads neither the engine nor what that needs."""
    code = (
        "import os\n"
        "os.environ.update(_SIMCORE_COMPLETE='complete_bash', COMP_CWORD='5',\n"
        "    COMP_WORDS='simcore predict --model bert-base --gpus A6000a')\n"
    )
    modules = loaded(code + command([]), folder)
    assert "simcore.cli.names" in modules, "it completed nothing"
    assert not modules & (HEAVY | WEB | {"simcore.answer.predict", "simcore.report"})


@needs_cli
def test_a_dense_prediction_imports_few_modules_of_simcore(folder: Path) -> None:
    """Neither other commands, nor other architectures, programs and schedules than its own."""
    dense = ["predict", "--model", "gpt2", "--gpus", "8xA100", "--json"]
    modules = {m for m in loaded(command(dense), folder) if m.split(".")[0] == "simcore"}
    assert len(modules) <= MOST_MODULES, f"{len(modules)} modules"
    apart = ("planning", "validate", "calibrate", "serve", "api.spaces", "api.tables", "cli.names")
    assert not {m for m in modules for name in apart if f"{m}.".startswith(f"simcore.{name}.")}
