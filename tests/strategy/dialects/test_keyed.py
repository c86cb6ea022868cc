"""A dialect that is one record is read, written, listed, explained and refused as any other."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from strategies import on_by_default

from simcore import api
from simcore.base.errors import DataError, InvalidConfig, UnknownName, UsageError
from simcore.cli.main import run
from simcore.strategy.dialects import (
    DIALECTS,
    DialectRecord,
    Job,
    TableDialect,
    emit,
    find_dialect,
    read_launch,
)
from simcore.strategy.dialects.keyed import read_named
from simcore.strategy.dialects.reading import Reading
from simcore.strategy.dialects.source import Source, read_source

JOB = ("gpt2", "1x8xA100")
RECORD = {
    "name": "barista", "title": "Barista", "summary": "TOML file of the barista trainer",
    "form": "toml", "marks": ("[barista]",),
    "keys": {
        "barista.cups": {"option": "micro_batch"},
        "barista.rounds": {"option": "grad_accum"},
        "barista.width": {"option": "precision", "values": {"narrow": "bf16", "wide": "fp32"}},
        "barista.shards": {"option": "strategy", "values": {"none": "ddp", "all": "zero3"}},
        "barista.machine": {"option": "optimizer"},
        "barista.again": {"option": "recompute"},
        "barista.tensor": {"option": "tp"},
    },
    "no_effect": {"it is only shown": "barista.name"}, "unsettable": ("pp", "strategy"),
}  # fmt: skip
BARISTA = TableDialect("barista", DialectRecord.model_validate(RECORD))
TEXT = """\
[barista]
name = "ristretto"
cups = 4
rounds = 2
width = "narrow"
shards = "all"
machine = "adamw"
"""


@pytest.fixture(autouse=True)
def _registered() -> Iterator[None]:
    with DIALECTS.registered("barista", BARISTA):
        yield
    assert "barista" not in DIALECTS


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "run.toml"
    path.write_text(TEXT, encoding="utf-8")
    return path


@pytest.fixture
def typed(capfd: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    def call(*words: str) -> tuple[int, str, str]:
        capfd.readouterr()
        code = run(words)
        return (code, *capfd.readouterr())

    return call


def test_its_file_is_recognised_and_read(file: Path) -> None:
    assert find_dialect(read_source(str(file))).name == "barista"
    launch = read_launch(str(file))
    assert launch.words() == {
        "strategy": "zero3", "micro_batch": 4, "grad_accum": 2, "precision": "bf16",
        "optimizer": "adamw",
    }  # fmt: skip
    assert launch.ignored == ("barista.name",) and not launch.unknown
    titan = file.with_name("titan.toml")
    titan.write_text("[training]\nlocal_batch_size = 2\n", encoding="utf-8")
    assert find_dialect(read_source(str(titan))).name == "torchtitan"


def test_the_command_line_predicts_its_file_and_says_so(file: Path, typed: Callable) -> None:
    ask = ("predict", "--model", JOB[0], "--gpus", JOB[1])
    by_file = typed(*ask, "--launch", str(file), "--json")
    by_hand = typed(*ask, "--strategy", "zero3", "--micro-batch", "4", "--grad-accum", "2",
                    "--precision", "bf16", "--optimizer", "adamw", "--json")  # fmt: skip
    found, typed_out = json.loads(by_file[1]), json.loads(by_hand[1])
    assert found["step_time_s"] == typed_out["step_time_s"]
    told = [text for text in found["assumptions"] if "(Barista): strategy zero3" in text]
    assert told and str(file) in told[0]


@pytest.mark.parametrize("form", ["toml", "json", "yaml"])
def test_what_it_writes_reads_as_the_job(form: str, tmp_path: Path) -> None:
    record = {**RECORD, "name": "twin", "form": form, "marks": ("cups",)}
    twin = TableDialect("twin", DialectRecord.model_validate(record))
    job = Job(model="gpt2", strategy="zero3", micro_batch=4, grad_accum=2, precision="bf16",
              recompute="none", optimizer="adamw", offload="none", nnodes=1, nproc_per_node=8,
              tp=2)  # fmt: skip
    with DIALECTS.registered("twin", twin):
        path = tmp_path / f"run.{form}"
        path.write_text(emit("twin", job).text, encoding="utf-8")
        again = read_launch(f"twin:{path}")
    said = {
        w: v for w, v in job.words().items() if w not in ("offload", "nnodes", "nproc_per_node")
    }
    assert again.words() == said


def test_the_command_line_writes_it(typed: Callable) -> None:
    code, out, err = typed("predict", "--model", JOB[0], "--gpus", JOB[1], "--strategy", "zero3",
                           "--precision", "bf16", "--emit", "barista")  # fmt: skip
    assert code in (0, 1) and out.startswith("[barista]\n") and 'shards = "all"' in out
    assert "nnodes 1" in err and "set them when you launch" in err


def test_it_is_listed_and_completed(typed: Callable) -> None:
    from simcore.cli.names import completions

    listed = typed("list", "dialects")[1].split()
    assert {"barista", "trainer"} <= set(listed)
    assert completions("dialect", "bar", {}) == ["barista"]
    assert "barista" in api.choices()["emit"]
    with pytest.raises(UnknownName, match="did you mean 'barista'"):
        emit("barsta", Job(model="gpt2"))


def test_what_it_has_no_place_for_is_refused(typed: Callable) -> None:
    with pytest.raises(InvalidConfig) as refused:
        api.launch_file("barista", "llama3-8b", "1x8xH100", strategy="zero1", pp=2, grad_accum=2)
    assert "Barista cannot express strategy zero1: ddp, zero3" in refused.value.violations
    assert "Barista has no setting for pp 2" in refused.value.violations
    code, _, err = typed("predict", "--model", JOB[0], "--gpus", JOB[1], "--strategy", "zero2",
                         "--emit", "barista")  # fmt: skip
    assert code == 2 and "error: Barista cannot express strategy zero2" in err


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ('cups = "many"', "'many' is not a whole number"),
        ('width = "thick"', "'thick' is unknown: known are narrow, wide"),
    ],
)
def test_a_wrong_value_of_its_file_is_refused(line: str, says: str, file: Path) -> None:
    file.write_text(f"[barista]\n{line}\n", encoding="utf-8")
    (problem,) = read_launch(str(file)).violations()
    assert says in problem and str(file) in problem


def test_an_unknown_key_names_the_nearest(file: Path) -> None:
    file.write_text(TEXT + "cubs = 3\n", encoding="utf-8")
    (unknown,) = read_launch(str(file)).unknown
    assert "unknown key 'barista.cubs': did you mean 'barista.cups'?" in unknown


def test_a_record_in_the_users_folder_is_a_dialect(tmp_path: Path) -> None:
    folder = tmp_path / "programs_db" / "dialects"
    folder.mkdir(parents=True)
    (folder / "barista.yaml").write_text(json.dumps(RECORD), encoding="utf-8")
    (tmp_path / "run.toml").write_text(TEXT, encoding="utf-8")
    ask = (
        "from simcore.strategy.dialects import read_launch; print(read_launch('run.toml').words())"
    )
    made = subprocess.run([sys.executable, "-c", ask], cwd=tmp_path, text=True,
                          capture_output=True, check=True)  # fmt: skip
    assert "'precision': 'bf16'" in made.stdout and "'strategy': 'zero3'" in made.stdout


def test_what_a_key_states_is_not_replaced_by_what_its_absence_means() -> None:
    """Megatron's weights are in fp32 without --bf16."""
    line = "torchrun --nproc_per_node 8 pretrain_gpt.py --micro-batch-size 1"
    assert read_launch(line).precision == "fp32"
    assert read_launch(f"{line} --bf16").precision == "bf16"


def test_what_a_key_implies_is_read_with_it(tmp_path: Path) -> None:
    """Sections and keys of DeepSpeed that say more than their own option."""
    file = tmp_path / "ds.json"
    for text, word, value in (
        ('{"train_batch_size": 8}', "recompute", None),
        ('{"activation_checkpointing": {"partition_activations": true}}', "recompute", "full"),
        ('{"tensor_parallel": {"autotp_size": 2}}', "sequence_parallel", False),
    ):
        file.write_text(text, encoding="utf-8")
        assert getattr(read_launch(str(file)), word) == value


@pytest.mark.parametrize(
    ("name", "strategy", "offload"),
    [
        ("zero2.json", "zero2", "none"), ("ds_z3_offload.json", "zero3",
                                          "optimizer:cpu,params:cpu"),
        ("stage1_offload.json", "zero1", "optimizer:cpu"), ("zero_0.json", "ddp", "none"),
        ("zero3_no_offload.json", "zero3", "none"), ("ZeRO-stage_2.json", "zero2", "none"),
    ],
)  # fmt: skip
def test_a_named_file_that_is_not_at_hand_says_its_stage(
    name: str, strategy: str, offload: str
) -> None:
    reading = Reading("accelerate", Source("", "line"))
    found = read_named(reading, "--deepspeed", "deepspeed", name)
    assert (found.strategy, found.offload, found.software) == (strategy, offload, "deepspeed")
    assert found.keys["strategy"] == "--deepspeed" and found.dialect == "deepspeed"
    (said,) = reading.finish().approximated
    stage = 0 if strategy == "ddp" else strategy[-1]
    assert f"--deepspeed {name} is not at hand: read by its name as stage {stage}" in said


def test_a_named_file_is_read_where_it_is_and_missed_where_its_name_says_nothing(
    tmp_path: Path,
) -> None:
    (tmp_path / "zero2.json").write_text('{"zero_optimization": {"stage": 3}}')
    reading = Reading("accelerate", Source("", "run.sh", tmp_path / "run.sh"))
    assert read_named(reading, "--deepspeed", "deepspeed", "zero2.json").strategy == "zero3"
    assert reading.finish().approximated == ()
    with pytest.raises((DataError, UsageError), match=r"mine\.json"):
        read_named(reading, "--deepspeed", "deepspeed", "mine.json")


def test_a_dialect_of_a_record_describes_no_models_by_default() -> None:
    assert on_by_default(TableDialect) == {}


def test_a_configuration_of_the_program_by_name_is_no_missing_file() -> None:
    """ms-swift's own are zero0 to zero3_offload (swift/arguments/sft_args.py, line 262)."""
    reading = Reading("ms-swift", Source("", "line"))
    found = read_named(reading, "--deepspeed", "deepspeed", "zero3_offload")
    assert (found.strategy, found.offload) == ("zero3", "optimizer:cpu,params:cpu")
    assert reading.finish().approximated == ()
