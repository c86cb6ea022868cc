"""What is written is parsed by the programs' own classes, where they are installed.

Run by ``pytest -m long`` beside ``pip install accelerate deepspeed`` (without a GPU: DeepSpeed with
``DS_ACCELERATOR=cpu``); a program that is absent skips its test.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from simcore import api

pytestmark = pytest.mark.long

JOBS: tuple[dict[str, Any], ...] = (
    {"strategy": "zero2", "precision": "bf16", "micro_batch": 4, "grad_accum": 2},
    {"strategy": "zero3", "precision": "bf16", "micro_batch": 1, "grad_clip": True},
    {"strategy": "zero3", "precision": "bf16", "micro_batch": 2, "offload": "optimizer"},
    {"strategy": "zero3", "precision": "bf16", "micro_batch": 2, "offload": "optimizer,params"},
)


def written(dialect: str, job: dict[str, Any]) -> str:
    """A job as a launch file."""
    return api.launch_file(dialect, "llama3-8b", "2x8xA100", **job).text


@pytest.mark.parametrize("job", JOBS, ids=str)
def test_deepspeed_takes_its_file(job: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DS_ACCELERATOR", "cpu")
    config = pytest.importorskip("deepspeed.runtime.config", reason="pip install deepspeed")
    zero = pytest.importorskip("deepspeed.runtime.zero.config")
    told = json.loads(written("deepspeed", job))
    read = zero.DeepSpeedZeroConfig(**told["zero_optimization"])  # refuses unknown keys
    assert int(read.stage) == int(job["strategy"][-1])
    assert (read.offload_optimizer is not None) == ("offload" in job)
    assert (read.offload_param is not None) == ("params" in job.get("offload", ""))
    constants = {v for k, v in vars(config).items() if k.isupper() and isinstance(v, str)}
    assert set(told) <= constants | {"zero_optimization", "bf16", "optimizer", "gradient_clipping"}
    batches = ("train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
    assert [told[k] for k in batches] == [job["micro_batch"], job.get("grad_accum", 1)]


@pytest.mark.parametrize("job", [j for j in JOBS if j.get("offload") != "optimizer"], ids=str)
def test_accelerate_takes_its_file(job: dict[str, Any], tmp_path: Path) -> None:
    args = pytest.importorskip(
        "accelerate.commands.config.config_args", reason="pip install accelerate"
    )
    dataclasses = pytest.importorskip("accelerate.utils.dataclasses")
    path = tmp_path / "accelerate.yaml"
    path.write_text(written("accelerate", job), encoding="utf-8")
    read = args.load_config_from_file(str(path))  # refuses unknown keys
    assert (read.num_machines, read.num_processes) == (2, 16)
    assert read.distributed_type == dataclasses.DistributedType.FSDP
    plugin = dataclasses.FullyShardedDataParallelPlugin.__dataclass_fields__
    names = {key.removeprefix("fsdp_") for key in read.fsdp_config}
    renamed = {"offload_params": "cpu_offload", "version": "fsdp_version"}
    assert {renamed.get(n, n) for n in names} <= {*plugin, "sharding_strategy"}
    reshard = str(read.fsdp_config["fsdp_reshard_after_forward"]).lower()
    assert (reshard == "true") == (job["strategy"] == "zero3")
