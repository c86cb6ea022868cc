"""Tables whose rows are commands: what is read, which file a model is, what is refused."""

from __future__ import annotations

import os
import shutil
from importlib.util import find_spec
from pathlib import Path

import pytest

from simcore import api
from simcore.base.errors import DataError
from simcore.base.units import GIGA
from simcore.strategy.options import command_words, options_typed
from simcore.validate.formats.row_rules import corpora_folder
from simcore.validate.table import read_table
from simcore.workload.settings import TrustedName

HEAD = "id,bound,step_ms,alloc_gb,device_gb,simcore_arguments\n"
RESNET = ("predict --model torchvision:resnet50 --gpus 1xH200 --micro-batch 64 --precision fp32 "
          "--input 'float32[B,3,224,224]'")  # fmt: skip


def _table(folder: Path, *rows: str) -> Path:
    path = folder / "steps.csv"
    path.write_text(HEAD + "\n".join(rows) + "\n", encoding="utf-8")
    return path


def test_a_row_is_its_command_and_its_measurements_in_si(tmp_path: Path) -> None:
    (case,) = read_table(_table(tmp_path, f'a,gpu,32.5,5.85,7.5,"{RESNET}"')).cases
    peaks = {"peak_allocated_bytes": 5.85 * GIGA, "peak_shown_bytes": 7.5 * GIGA}
    assert case.measured == pytest.approx({"step_time_s": 0.0325, **peaks})
    assert (case.gpus, dict(case.options)) == (
        "1xH200", {"micro_batch": 64, "precision": "fp32"},
    )  # fmt: skip
    assert case.cell("bound") == "gpu"


def test_a_librarys_net_is_its_recorded_trace_unless_code_is_allowed(tmp_path: Path) -> None:
    path = _table(tmp_path, f'a,gpu,32.5,,,"{RESNET}"')
    (recorded,), (live,) = read_table(path).cases, read_table(path, allow_code=True).cases
    assert recorded.model == str(corpora_folder() / "nets" / "resnet50.yaml")
    assert live.model == "torchvision:resnet50" and isinstance(live.model, TrustedName)
    assert live.options["inputs"] == ["float32[B,3,224,224]"]


def test_model_files_are_beside_the_table_or_in_its_models(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    source = corpora_folder() / "nets" / "mlp.yaml"
    words = "predict --gpus 1xH200 --micro-batch 2 --model"
    path = _table(tmp_path, f"a,gpu,1,,,{words} net.yaml")
    shutil.copy(source, tmp_path / "models" / "net.yaml")
    assert read_table(path).cases[0].model == str(tmp_path / "models" / "net.yaml")
    shutil.copy(source, tmp_path / "net.yaml")
    assert read_table(path).cases[0].model == str(tmp_path / "net.yaml")


def test_code_that_nobody_recorded_is_not_run(tmp_path: Path) -> None:
    path = _table(tmp_path, "a,gpu,1,,,predict --model mine:net --gpus 1xH200 --micro-batch 2")
    table = read_table(path)
    assert not table.cases and "is Python code" in table.skipped[0].reason


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("sweep --model gpt2 --gpus 1xH200", "must begin with predict"),
        ("predict --gpus 1xH200", "--model is missing"),
        ("predict --model gpt2 --gpus 1xH200 --colour red", "'--colour' is no option of a job"),
        ("predict --model gpt2 --gpus 1xH200 --micro-batch", "--micro-batch has no value"),
        ("predict --model gpt2 --gpus --micro-batch 2", "--gpus has no value"),
        ("predict --model gpt2 --gpus 1xH200 --micro-batch two", "micro-batch"),
    ],
)
def test_a_wrong_command_is_refused_with_its_line(tmp_path: Path, words: str, told: str) -> None:
    with pytest.raises(DataError, match=r"steps.csv:2.*") as caught:
        read_table(_table(tmp_path, f"a,gpu,1,,,{words}"))
    assert told in str(caught.value)


def test_typed_words_give_the_options_that_wrote_them() -> None:
    options = {"model": "gpt2", "inputs": ("int64[B,8]", "float32[B]"), "micro_batch": 4,
               "compile": True, "settings": {"layers": 2, "dropout": 0.1}}  # fmt: skip
    typed = options_typed([*command_words(options), "--precision=fp32"])
    assert command_words(typed) == [*command_words(options), "--precision", "fp32"]


def test_judged_by_bound_by_what_memory_counts_and_with_a_calibration(tmp_path: Path) -> None:
    path = _table(
        tmp_path, f'a,gpu,32.5,5.85,7.5,"{RESNET}"', f'b,host,40,5.85,7.5,"{RESNET}"'
    )  # fmt: skip
    found = api.validate(path)
    assert set(found["groups"]["bound"]) == {"gpu", "host"}
    assert set(found["peak_memory_by_count"]) == {"allocated", "shown"}
    assert found["peak_memory_by_count"]["shown"]["n"] == 2
    rows = [r for r in found["per_row"] if r["quantity"] == "step_time"]
    ratio = rows[0]["high"] / rows[0]["low"]
    assert found["step_time"]["width80_ratio"] == pytest.approx(ratio)
    halved = tmp_path / "halved.yaml"
    halved.write_text(
        "name: halved\norigin: by hand\nrows: 1\nresidual_sd_log: 0.01\n"
        "leave_one_out_mape_frac: 0.01\nknobs:\n"
        "  - {knob: compute, value: 0.5, sd_log: 0.01}\n"
        "  - {knob: memory, value: 0.5, sd_log: 0.01}\n"
    )
    fitted = api.validate(path, calibration=halved)
    assert fitted["mode"] == "calibration halved"
    slower = next(r for r in fitted["per_row"] if r["quantity"] == "step_time")
    assert slower["predicted"] > 1.5 * rows[0]["predicted"]


def test_the_commands_of_rows_name_files_that_exist(tmp_path: Path) -> None:
    path = _table(tmp_path, f'a,gpu,32.5,,,"{RESNET}"')
    (command,) = api.commands(path)
    assert Path(command.words[command.words.index("--model") + 1]).is_file()
    assert "--input" not in command.words


def test_every_listed_net_is_there_and_says_what_it_was_made_of() -> None:
    import yaml

    folder = corpora_folder()
    nets = yaml.safe_load((folder / "nets.yaml").read_text(encoding="utf-8"))["nets"]
    assert {net["file"] for net in nets} == {p.name for p in (folder / "nets").glob("*.yaml")}
    for net in nets:
        text = (folder / "nets" / net["file"]).read_text(encoding="utf-8")
        assert f"trace of {net['model']} with " in text
        assert all(shape in text for shape in net.get("inputs", ()))


def test_recorded_traces_are_what_the_tracer_makes_now(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a library's net, and of a module where the measured tables are at hand."""
    pytest.importorskip("torch")
    from validate import nets

    harness = Path(os.environ.get("SIMCORE_TABLES", "absent")) / "gpu" / "harness"
    files = ["mlp.yaml"] * harness.is_dir() + ["resnet50.yaml"] * bool(find_spec("torchvision"))
    if not files:
        pytest.skip("neither torchvision nor $SIMCORE_TABLES")
    monkeypatch.syspath_prepend(str(harness))
    for net in (n for n in nets.nets() if n["file"] in files):
        recorded = (corpora_folder() / "nets" / net["file"]).read_text(encoding="utf-8")
        assert not nets.differs(nets.traced(net), recorded), "run: python -m validate.nets"
