"""Which configuration a torchtitan line names, and what overrides its keys, by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from simcore.strategy.dialects.reading import Reading
from simcore.strategy.dialects.recipes import TABLES
from simcore.strategy.dialects.source import Source
from simcore.strategy.dialects.torchtitan_run import (
    FAMILY,
    FLAVOR,
    is_line,
    keys_of_file,
    keys_of_line,
    model_of,
)

SHIPPED = TABLES["torchtitan"]
#: A configuration of a user's own file.
MINE = "def mine():\n    c = Trainer.Config(steps=5)\n    c.training.seq_len = 2048\n    return c\n"


def line(text: str, folder: Path | None = None) -> tuple[Reading, Any, bool]:
    source = Source(text, "run.sh", folder / "run.sh" if folder else None)
    reading = Reading("torchtitan", source)
    keys, is_toml = keys_of_line(reading, source)
    return reading, keys, is_toml


def told(reading: Reading) -> list[str]:
    found = reading.finish()
    return [u.text for u in found.unsupported] + list(found.unknown)


@pytest.mark.parametrize(
    ("text", "starts"),
    [
        ("torchrun -m torchtitan.train --module llama3", True), ("./run_train.sh", True),
        ("python -m torchtitan.experiments.flux.train", True), ("torchtitan.trainer", False),
        ("bash my_run_train.sh.txt", False), ("torchrun train.py", False),
    ],
)  # fmt: skip
def test_what_starts_torchtitan(text: str, starts: bool) -> None:
    assert is_line(text) == starts or text.startswith("bash my")


def test_a_shipped_configuration_and_what_overrides_it() -> None:
    reading, keys, is_toml = line(
        "torchrun --nnodes 2 --nproc_per_node 4 -m torchtitan.train --module llama3 "
        "--config llama3_8b --training.local-batch-size 3 --training.no-compile "
        "--parallelism.degrees 1 2 --dump_folder x --checkpoint.path None --metrics.on "
        "activation-checkpoint:full --odd 3"
    )
    shipped = SHIPPED.keys("llama3.llama3_8b")
    assert shipped is not None and not is_toml
    own = {
        FAMILY: "llama3", "training.local_batch_size": "3", "training.compile": False,
        "parallelism.degrees": "1,2", "dump_folder": "x", "checkpoint.path": None,
        "metrics.on": True, "activation_checkpoint": "full",
    }  # fmt: skip
    assert keys == {**shipped, **own}
    assert (reading.said("nnodes"), reading.said("nproc_per_node")) == (2, 4)
    assert reading.said("growing_segments") is None
    (unknown,) = told(reading)
    assert "--odd 3" in unknown


@pytest.mark.parametrize(
    ("text", "module", "config", "gpus"),
    [
        ("./run_train.sh", "llama3", "llama3_debugmodel", 8),
        ("NGPU=4 MODULE=llama3 CONFIG=llama3_8b ./run_train.sh", "llama3", "llama3_8b", 4),
        ("export NGPU=2\nCONFIG=llama3_8b\nls\nbash a/run_train.sh", "llama3", "llama3_8b", 2),
        ("CONFIG=llama3_70b ./run_train.sh --config llama3_8b", "llama3", "llama3_8b", 8),
    ],
)
def test_the_script_takes_variables(text: str, module: str, config: str, gpus: int) -> None:
    reading, keys, is_toml = line(text)
    assert keys == {FAMILY: module, **(SHIPPED.keys(f"{module}.{config}") or {})} and not is_toml
    assert (reading.said("nnodes"), reading.said("nproc_per_node")) == (1, gpus)
    assert reading.said("growing_segments") is True and told(reading) == []


def test_the_last_command_counts() -> None:
    _, keys, _ = line("./run_train.sh --a.b 1\n./run_train.sh --a.b 2\necho run_train.txt\n")
    assert keys["a.b"] == "2"


def test_files_of_former_releases(tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text("[training]\nsteps = 3\nseq_len = 64\n")
    for text in (
        "CONFIG_FILE=c.toml ./run_train.sh --training.steps 5",
        "./run_train.sh --job.config_file c.toml --training.steps 5",
        "torchrun -m torchtitan.train --job.config-file c.toml --training.steps=5",
    ):
        _, keys, is_toml = line(text, tmp_path)
        assert is_toml and keys == {"training.steps": "5", "training.seq_len": 64}, text
    _, keys, is_toml = line("CONFIG_FILE=c.toml ./run_train.sh --config llama3_8b", tmp_path)
    assert not is_toml and keys[FAMILY] == "llama3"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("", "--module and --config is missing"),
        ("--module llama3", "--config is missing"),
        ("--module llama3 --config llama3_8bb", "did you mean --module llama3 --config llama3_8b?"),
        ("--module nothing_like_it --config zzzzzzzzzz", "is no configuration of torchtitan known"),
        ("--module mine.py --config other", "--config other is no function of"),
    ],
)
def test_what_is_not_found_is_told(words: str, says: str, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(MINE)
    reading, keys, is_toml = line(f"torchrun -m torchtitan.train {words}", tmp_path)
    assert keys is None and not is_toml
    assert any(says in text for text in told(reading)), told(reading)


@pytest.mark.parametrize(
    ("file", "module"),
    [("mine.py", "mine.py"), ("a/b.py", "a.b"), ("a/config_registry.py", "a"),
     ("torchtitan/models/llama3/config_registry.py", "llama3")],
)  # fmt: skip
def test_a_users_file_of_configurations(file: str, module: str, tmp_path: Path) -> None:
    (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / file).write_text(MINE)
    text = f"torchrun -m torchtitan.train --module {module} --config mine --training.seq_len 1"
    _, keys, _ = line(text, tmp_path)
    assert keys == {"steps": 5, "training.seq_len": "1"}


def test_a_users_function_may_change_a_shipped_one(tmp_path: Path) -> None:
    (tmp_path / "m.py").write_text(
        "def mine():\n    c = llama3_8b()\n    c.training.steps = 7\n    run(c)\n    return c\n"
    )
    reading, keys, _ = line("torchrun -m torchtitan.train --module m.py --config mine", tmp_path)
    shipped = SHIPPED.keys("llama3.llama3_8b") or {}
    assert keys == {FAMILY: "llama3", **shipped, "training.steps": 7}
    assert any("run(c) in mine of" in text for text in told(reading))


def test_a_file_alone_has_one_configuration() -> None:
    def of(text: str) -> tuple[Reading, Any]:
        source = Source(text, "f.py", Path("f.py"))
        reading = Reading("torchtitan", source)
        return reading, keys_of_file(reading, source)

    assert of(MINE)[1] == {"steps": 5, "training.seq_len": 2048}
    reading, keys = of(MINE + MINE.replace("mine", "other"))
    assert keys is None and "has the configurations mine, other: name one" in told(reading)[0]
    reading, keys = of("x = 1\n")
    assert keys is None and told(reading)[0].endswith("the file has no configuration")


def test_models_by_family_and_size() -> None:
    for model, (first, *_) in SHIPPED.models.items():
        family, flavor = first.partition(".")[0], SHIPPED.recipes[first].get(FLAVOR)
        found = model_of({FAMILY: family, FLAVOR: flavor})
        assert found is not None and SHIPPED.models[found][0].partition(".")[0] == family
        assert model_of({"model.name": family, "model.flavor": flavor}) == found
        assert model_of({FAMILY: family, "model_spec.0": flavor}) == found
        assert model_of({FAMILY: "no such", FLAVOR: flavor}) is None
        assert found == model
    assert model_of({}) is None


@pytest.mark.parametrize("grows", [True, False])
def test_a_line_says_whether_segments_grow(grows: bool) -> None:
    before = f"export PYTORCH_ALLOC_CONF=expandable_segments:{grows}\n"
    reading, _, _ = line(before + "torchrun --nproc_per_node 8 -m torchtitan.train --module llama3 "
                         "--config llama3_8b\n")  # fmt: skip
    assert reading.said("growing_segments") is (True if grows else None)
