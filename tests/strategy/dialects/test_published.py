"""Keys that programs publish: each is read, warned of, refused, or listed without effect.

``published/DIALECT.txt`` lists them, with the files and the commit of the program's source, and the
values of those that have few. What is written uses no others.
"""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest

from simcore import api
from simcore.strategy.dialects import DIALECTS, read_launch
from simcore.strategy.dialects.reading import Reading, Table
from simcore.strategy.dialects.source import Source

LISTS = sorted((Path(__file__).parent / "published").glob("*.txt"))
TORCHTITAN_JOBS: tuple[dict[str, Any], ...] = (
    {"strategy": "ddp", "precision": "amp-bf16"},
    {"strategy": "zero2", "precision": "bf16", "micro_batch": 2, "grad_accum": 4},
    {"tp": 2, "precision": "bf16", "compile": True, "recompute": "full"},
    {"pp": 2, "tp": 2, "precision": "bf16", "micro_batch": 1, "grad_accum": 8, "vpp": 2},
    {"cp": 2, "precision": "bf16-true", "recompute": "selective", "offload": "optimizer,params"},
    {"strategy": "hsdp", "precision": "fp32", "optimizer_impl": "foreach", "grad_clip": False},
)


def published(path: Path) -> dict[str, list[str]]:
    """The values of each key; none where it may have any."""
    lines = [n for n in path.read_text(encoding="utf-8").split("\n") if n and n[0] != "#"]
    return {k: v.split() for k, _, v in (line.partition(" = ") for line in lines)}


@pytest.mark.parametrize("path", LISTS, ids=lambda p: p.stem)
def test_every_published_key_is_known(path: Path) -> None:
    names = list(published(path))
    dialect = DIALECTS[path.stem]
    reading = Reading(dialect.name, Source("", path.name))
    launch = dialect.read_table(reading, Table(dict.fromkeys(names)))
    assert len(names) > 50 and launch.unknown == ()
    wrong = dialect.read_table(
        Reading(dialect.name, Source("", path.name)), Table({f"{names[0]}x": None})
    )
    assert wrong.unknown != ()


@pytest.mark.parametrize("job", TORCHTITAN_JOBS, ids=str)
@pytest.mark.parametrize("model", ["llama3-8b", "qwen3-32b", "llama2-13b"])
def test_a_written_configuration_sets_published_keys(model: str, job: dict[str, Any]) -> None:
    known = published(Path(__file__).parent / "published" / "torchtitan.txt")
    text = api.launch_file("torchtitan", model, "2x8xH100", software="torchtitan", **job).text
    made = ast.parse(text).body[-1]
    assert isinstance(made, ast.FunctionDef)
    written = [s for s in made.body if isinstance(s, ast.Assign)][1:]
    assert len(written) > 8
    for statement in written:
        path = ast.unparse(statement.targets[0]).replace("[", ".").replace("]", "")
        key = path.removeprefix("config.")
        if key in ("model_spec", "activation_checkpoint"):  # made by their own classes
            continue
        values = known[key]
        assert not values or str(ast.literal_eval(statement.value)) in values


def test_a_misspelt_configuration_is_told_the_nearest() -> None:
    line = (
        "tune run lora_finetune_single_device --config llama3_1/8B_lora_single_devic batch_size=1"
    )
    (told,) = read_launch(line).unknown
    assert "did you mean 'llama3_1/8B_lora_single_device'?" in told
