"""Rows of TPU steps as commands: slices, micro-batches, models by name."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from simcore import api
from simcore.validate.table import Table, read_table

TABLE = Path(os.environ.get("SIMCORE_TABLES", "/nowhere")) / "steps" / "tpu.csv"
HEAD = (
    "id,source,arch,model,layers,hidden,heads,kv_heads,ffn,vocab,seq_len,global_batch,micro_batch,"
    "gpus,gpu_type,gpus_per_node,tp,pp,sharding,precision,step_time_s,quality"
)


def _table(folder: Path, *rows: str) -> Table:
    path = folder / "tpu.csv"
    path.write_text("\n".join([HEAD, *rows]) + "\n", encoding="utf-8")
    return read_table(path)


def test_chips_of_a_row_are_slices_and_samples_of_a_chip_a_micro_batch(tmp_path: Path) -> None:
    found = _table(
        tmp_path,
        "a,tpu-recipes-x,llama,llama3-8b,32,4096,32,8,14336,128256,8192,1024,,512,TPU-v6e-32GB,,1,1,"
        "fsdp,bf16,3.4,B",
    ).cases[0]
    assert found.gpus == "2x256xTPU-v6e-32GB"
    assert found.options["micro_batch"] == 2
    assert found.options["shard_ranks"] == 256
    assert found.program == "maxtext@tpu"


def test_fewer_samples_than_chips_share_a_sample(tmp_path: Path) -> None:
    found = _table(
        tmp_path,
        "a,tpu-recipes-x,llama,llama3-8b,32,4096,32,8,14336,128256,131072,64,,256,TPU-v7x-192GB,4,1,"
        "1,fsdp,bf16,34,B",
    ).cases[0]
    assert (found.options["micro_batch"], found.options["cp"]) == (1, 4)


def test_recipes_that_keep_inputs_of_layers_on_the_host(tmp_path: Path) -> None:
    """Without it, 235 B parameters on 256 chips would need more than a chip has."""
    row = "qwen3-235b-a22b,94,4096,64,4,,151936,4096,8192,,256,TPU-v7x-192GB,4,1,1,fsdp,bf16,31,B"
    ironwood, other = _table(
        tmp_path, f"a,tpu-recipes-ironwood,llama,{row}", f"b,tpu-recipes-x,llama,{row}"
    ).cases
    assert ironwood.options["offload"] == "activations"
    assert "offload" not in other.options


def test_models_without_dimensions_are_found_by_name(tmp_path: Path) -> None:
    read = _table(
        tmp_path,
        "a,tpu-recipes-x,,gemma4-26b,,,,,,,4096,2048,,64,TPU-v7x-192GB,4,1,1,fsdp,bf16,5.5,B",
        "b,tpu-recipes-x,,wan2.1-14b,,,,,,,75600,32,,64,TPU-v7x-192GB,4,1,1,fsdp,bf16,24.6,B",
        "c,tpu-recipes-x,,no-such-model,,,,,,,4096,64,,64,TPU-v7x-192GB,4,1,1,fsdp,bf16,5.5,B",
    )
    gemma, wan = read.cases
    assert (gemma.model, gemma.options["seq_len"]) == ("gemma4-26b", 4096)
    assert wan.options["resolution"] == "720x1280"  # 21 latents of 45 x 80 tokens
    assert wan.options["settings"]["frames"] == 81
    assert [s.reason for s in read.skipped] == ["layers is blank"]


def test_rows_of_quality_c_are_shown_when_they_are_asked_for(tmp_path: Path) -> None:
    row = (
        "a,tpu-recipes-x,llama,llama3-8b,32,4096,32,8,14336,128256,8192,64,,32,TPU-v6e,,1,1,fsdp,"
        "bf16,3.4,C"
    )
    assert not _table(tmp_path, row).cases
    path = tmp_path / "tpu.csv"
    assert len(read_table(path, only={"quality": "C"}).cases) == 1
    assert not read_table(path, only={"quality": "B"}).cases


@pytest.mark.skipif(not TABLE.is_file(), reason="SIMCORE_TABLES is not set")
def test_steps_of_the_table_are_within_what_was_promised() -> None:
    found = api.validate([TABLE])
    assert found["simulated"] >= 29
    step = found["step_time"]
    assert step["mape_frac"] <= 0.15
    assert 0.72 <= step["coverage80_frac"] <= 0.97
