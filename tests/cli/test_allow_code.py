"""No file makes a command run code, unless ``--allow-code`` says so."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from evil import NAME, PERMITS, REFUSED, Evil

GPU = 'gpus = "1x1xA100"\n'
DEFAULTS = f'[defaults]\nmodel = "{NAME}"\n{GPU}'
TABLE = f"id,model,gpus,step_time_s\na,{NAME},1x1xA100,0.0003\nb,gpt2,1x1xA100,0.06\n"
#: Every command that takes the model's name from files of defaults.
COMMANDS = (
    ("predict",), ("predict", "--scaling"), ("predict", "--emit", "deepspeed"),
    ("predict", "--explain", "comm"), ("goodput",), ("sweep",), ("compare",),
    ("plan", "--samples", "1000"), ("report", "-o", "page.html"),
)  # fmt: skip


def _one_sentence(err: str, where: str) -> None:
    assert err.startswith(f"error: {where}: {REFUSED}") and err.count("\n") == 1, err
    assert PERMITS in err


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_defaults_of_the_folder_run_nothing(
    simcore: Callable, evil: Evil, words: tuple[str, ...]
) -> None:
    evil.write("simcore.toml", DEFAULTS)
    ran = simcore(*words)
    assert ran.code == 2 and ran.out == "" and not evil.ran
    _one_sentence(ran.err, "simcore.toml")


def test_nor_do_the_user_s(simcore: Callable, evil: Evil, monkeypatch: pytest.MonkeyPatch) -> None:
    config = evil.write("config.toml", DEFAULTS)
    monkeypatch.setenv("SIMCORE_CONFIG", str(config))
    ran = simcore("predict")
    assert ran.code == 2 and not evil.ran
    _one_sentence(ran.err, str(config))


@pytest.mark.parametrize("first", ["gpt2", "timm:resnet18", "torchvision:resnet18"])
def test_nor_does_code_behind_a_comma(simcore: Callable, evil: Evil, first: str) -> None:
    evil.write("simcore.toml", f'[defaults]\nmodel = "{first}, {NAME}"\n{GPU}')
    ran = simcore("sweep")
    assert ran.code == 2 and not evil.ran
    _one_sentence(ran.err, "simcore.toml")


def test_no_file_permits_itself(simcore: Callable, evil: Evil) -> None:
    evil.write("simcore.toml", f"{DEFAULTS}allow-code = true\n")
    ran = simcore("predict")
    assert ran.code == 2 and "unknown key 'allow-code'" in ran.err and not evil.ran


def test_to_show_a_default_is_not_to_run_it(simcore: Callable, evil: Evil) -> None:
    evil.write("simcore.toml", DEFAULTS)
    ran = simcore("config")
    assert ran.code == 0 and NAME in ran.out and not evil.ran


@pytest.mark.parametrize("words", [c for c in COMMANDS if "--emit" not in c], ids=" ".join)
def test_with_the_flag_defaults_run(simcore: Callable, evil: Evil, words: tuple[str, ...]) -> None:
    evil.write("simcore.toml", DEFAULTS)
    ran = simcore(*words, "--allow-code")
    assert ran.code == 0, ran.err
    assert evil.ran


def test_the_flag_holds_in_the_processes_of_a_sweep(simcore: Callable, evil: Evil) -> None:
    evil.write("simcore.toml", f'[defaults]\nmodel = "{NAME},mnist-cnn"\n')
    ran = simcore("sweep", "--gpus", "A100:1..2x1..8", "--jobs", "2", "--allow-code", "--json")
    assert ran.code == 0, ran.err
    assert {row["model"] for row in json.loads(ran.out)["best"]} == {NAME, "mnist-cnn"}


def test_what_is_typed_runs(simcore: Callable, evil: Evil) -> None:
    assert simcore("predict", "--model", NAME, "--gpus", "1x1xA100").code == 0
    assert evil.ran
    evil.mark.unlink()
    assert simcore("trace-model", NAME).code == 0
    assert simcore("sweep", "--model", f"gpt2, {NAME}", "--gpus", "1x1xA100").code == 0


def test_rows_of_a_table_run_nothing_and_the_others_go_on(simcore: Callable, evil: Evil) -> None:
    evil.write("t.csv", TABLE)
    ran = simcore("validate", "t.csv")
    assert ran.code == 0 and not evil.ran
    assert f"t.csv:2: {REFUSED}" in ran.out and PERMITS in ran.out and "1 predicted" in ran.out
    found = json.loads(simcore("validate", "t.csv", "--json").out)
    assert found["simulated"] == 1 and [row["id"] for row in found["per_row"]] == ["b"]
    told = simcore("calibrate", "--from", "t.csv", "-o", "c.yaml")
    assert told.code == 0 and f"t.csv:2: {REFUSED}" in told.out and not evil.ran
    only = evil.write("only.csv", "".join(TABLE.splitlines(keepends=True)[:2]))
    told = simcore("calibrate", "--from", str(only))
    assert told.code == 2 and not evil.ran


@pytest.mark.parametrize("more", [(), ("--fill",), ("--unnamed",), ("--calibrated",)])
def test_however_a_table_is_judged(simcore: Callable, evil: Evil, more: tuple[str, ...]) -> None:
    evil.write("t.csv", TABLE)
    simcore("validate", "t.csv", *more)
    assert not evil.ran


def test_with_the_flag_rows_run(simcore: Callable, evil: Evil) -> None:
    evil.write("t.csv", TABLE)
    found = json.loads(simcore("validate", "t.csv", "--json", "--allow-code").out)
    assert found["simulated"] == 2 and evil.ran
    evil.mark.unlink()
    evil.write("evilmod.py", (evil.folder / "evilmod.py").read_text() + "\n")  # read anew
    told = simcore("calibrate", "--from", "t.csv", "--allow-code")
    assert told.code == 0 and "2 measured rows" in told.out and evil.ran


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("jobs.csv", f"name,model,submit_s,gpus,run_s\n{NAME},{NAME},0,8,60\n",
         ("fleet", "jobs.csv", "--gpus", "8")),
        ("ds.json", json.dumps({"model": NAME, "train_micro_batch_size_per_gpu": 1}),
         ("predict", "--model", "gpt2", "--gpus", "1x1xA100", "--launch", "ds.json")),
        ("job.toml", f'[model]\nname = "{NAME}"\nflavor = "{NAME}"\n[training]\nlocal_batch_size=1',
         ("predict", "--model", "gpt2", "--gpus", "1x1xA100", "--launch", "job.toml")),
        ("run.sh", "torchrun --nproc-per-node $(touch RAN; echo 1) train.py `touch RAN`\n",
         ("predict", "--model", "gpt2", "--gpus", "1x1xA100", "--launch", "run.sh")),
        ("a.yaml", "distributed_type: NO\nnum_processes: "
         '!!python/object/apply:os.system ["touch RAN"]\n',
         ("predict", "--model", "gpt2", "--gpus", "1x1xA100", "--launch", "a.yaml")),
        ("net.yaml", 'name: !!python/object/apply:os.system ["touch RAN"]\n',
         ("predict", "--model", "net.yaml", "--gpus", "1x1xA100")),
        ("c.yaml", 'name: !!python/object/apply:os.system ["touch RAN"]\n',
         ("predict", "--model", "gpt2", "--gpus", "1x1xA100", "--calibration", "c.yaml")),
        ("config.json", json.dumps({"model_type": "evilmod", "architectures": ["evilmod.make"],
                                    "auto_map": {"AutoModel": "evilmod.make"},
                                    "trust_remote_code": True}),
         ("predict", "--model", "config.json", "--gpus", "1x1xA100")),
        ("trace.json", json.dumps({"traceEvents": [], "model": NAME}),
         ("explain-trace", "trace.json")),
    ],
)  # fmt: skip
def test_no_other_file_runs_anything(
    simcore: Callable, evil: Evil, name: str, text: str, words: tuple[str, ...]
) -> None:
    evil.write(name, text)
    ran = simcore(*words)
    assert ran.code in (0, 2) and "internal error" not in ran.err and not evil.ran


def test_a_record_names_an_architecture_and_no_module(simcore: Callable, evil: Evil) -> None:
    text = (Path(__file__).parents[2] / "models_db" / "gpt2.yaml").read_text()
    evil.write("net.yaml", text.replace("arch: transformer", f'arch: "{NAME}"'))
    ran = simcore("predict", "--model", "net.yaml", "--gpus", "1x1xA100")
    assert ran.code == 2 and f"unknown architecture '{NAME}'" in ran.err and not evil.ran


@pytest.mark.parametrize("name", ["timm:hf-hub:a/b", "timm:local-dir:.", "timm:evilmod", "timm:"])
def test_a_library_s_name_is_one_of_its_list(simcore: Callable, evil: Evil, name: str) -> None:
    pytest.importorskip("timm")
    evil.write("config.json", json.dumps({"architecture": NAME}))
    evil.write("t.csv", TABLE.replace(NAME, name))
    found = json.loads(simcore("validate", "t.csv", "--json").out)
    assert found["simulated"] == 1 and not evil.ran


def test_files_of_the_folder_are_no_libraries(
    process: Callable, evil: Evil, tmp_path: Path
) -> None:
    """``python -m`` puts the current folder first on the path, where data may lie."""
    for library in ("platformdirs", "timm", "jinja2"):
        evil.write(f"{library}.py", (evil.folder / "evilmod.py").read_text())
    evil.write("t.csv", TABLE.replace(NAME, "timm:resnet18"))
    root = str(Path(__file__).parents[2])
    code = (
        "import os, subprocess, sys; os.chdir(sys.argv[1]);"
        "sys.exit(subprocess.run([sys.executable, '-m', 'simcore', *sys.argv[2:]]).returncode)"
    )
    env = {"PYTHONPATH": root, "SIMCORE_CACHE": "off", "PATH": os.environ.get("PATH", "")}
    ran = process(str(tmp_path), "validate", "t.csv", code=code, **env)
    assert ran.code == 0, ran.err
    assert process(
        str(tmp_path), "report", "--model", "mnist-cnn", "--gpus", "1x1xA100", "-o", "p.html",
        code=code, **env,
    ).code == 0  # fmt: skip
    assert not evil.ran
