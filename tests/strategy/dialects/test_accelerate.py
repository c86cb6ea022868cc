"""Accelerate's YAML with FSDP, DeepSpeed and neither; sharding strategies held against torch."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from torch.distributed.fsdp import ShardingStrategy

from simcore.base.errors import InvalidConfig
from simcore.strategy.dialects import Job, Launch, emit, read_launch
from simcore.strategy.dialects.accelerate import ACCELERATE, _by_name
from simcore.strategy.dialects.record import RECORDS

SAMPLES = Path(__file__).parent / "samples"


def read(tmp_path: Path, text: str) -> Launch:
    path = tmp_path / "accelerate.yaml"
    path.write_text("num_processes: 8\n" + text)
    return read_launch(str(path))


def test_sharding_strategies_are_those_of_torch() -> None:
    (meaning,) = RECORDS["accelerate"].keys["fsdp_config.fsdp_sharding_strategy"]
    for strategy in ShardingStrategy:
        if strategy.name != "_HYBRID_SHARD_ZERO2":
            assert meaning.values[strategy.name] == meaning.values[str(strategy.value)]
    assert meaning.values["FULL_SHARD"] == "zero3" and meaning.values["NO_SHARD"] == "ddp"
    assert meaning.values["SHARD_GRAD_OP"] == "zero2" and meaning.values["HYBRID_SHARD"] == "hsdp"


@pytest.mark.parametrize(
    ("sample", "words"),
    [
        ("fsdp", {"strategy": "zero3", "precision": "bf16", "recompute": "full",
                  "offload": "none", "nnodes": 2, "nproc_per_node": 8,
                  "software": "accelerate"}),
        ("fsdp1", {"strategy": "zero2", "precision": "fp32", "offload": "none", "nnodes": 1,
                   "nproc_per_node": 4, "software": "fsdp@no-sync"}),
        ("deepspeed", {"strategy": "zero2", "precision": "fp16", "offload": "optimizer:cpu",
                       "grad_accum": 4, "grad_clip": True, "nnodes": 1, "nproc_per_node": 8,
                       "software": "deepspeed", "overlap": "none"}),
        ("multi_gpu", {"strategy": "ddp", "precision": "amp-fp16", "offload": "none",
                       "nnodes": 1, "nproc_per_node": 8, "compile": True}),
        ("ds_file", {"strategy": "zero2", "micro_batch": 4, "grad_accum": 2, "precision": "bf16",
                     "optimizer": "adamw", "offload": "none", "grad_clip": True,
                     "bucket_numel": 200_000_000, "nnodes": 4, "nproc_per_node": 8,
                     "software": "deepspeed", "overlap": "grads"}),
    ],
)  # fmt: skip
def test_samples(sample: str, words: dict) -> None:
    launch = read_launch(str(SAMPLES / f"accelerate_{sample}.yaml"))
    assert launch.words() == words
    assert launch.violations() == []


def test_a_mesh_of_replicas_and_shards_is_hybrid_sharding(tmp_path: Path) -> None:
    """Accelerate's own names (parallelism_config.py); FSDP shards over dp_shard times cp."""
    text = ("distributed_type: FSDP\nfsdp_config:\n"
            "  fsdp_version: 2\nparallelism_config:\n"
            "  parallelism_config_dp_replicate_size: 4\n"
            "  parallelism_config_dp_shard_size: {}\n"
            "  parallelism_config_cp_size: {}\n")  # fmt: skip
    for shard, cp in ((8, 1), (4, 2)):
        launch = read(tmp_path, text.format(shard, cp))
        assert not launch.violations()
        assert (launch.strategy, launch.shard_ranks, launch.cp) == (
            "zero3",
            8,
            cp if cp > 1 else None,
        )
    named = text.replace("fsdp_version: 2", "fsdp_sharding_strategy: HYBRID_SHARD").format(8, 1)
    assert read(tmp_path, named).strategy == "zero3"
    whole = read(tmp_path, text.replace("replicate_size: 4", "replicate_size: 1").format(32, 1))
    assert (whole.strategy, whole.shard_ranks) == ("zero3", None)


def test_typos_are_named() -> None:
    launch = read_launch(str(SAMPLES / "accelerate_multi_gpu.yaml"))
    assert "did you mean 'num_processes'" in launch.unknown[0]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("distributed_type: FSDP\nfsdp_config:\n  fsdp_sharding_strategy: HYBRID_SHARD_ZERO2\n",
         "'HYBRID_SHARD_ZERO2' is not supported yet: give --strategy"),
        ("distributed_type: FSDP\nfsdp_config:\n  fsdp_sharding_strategy: FULL_SHRAD\n",
         "did you mean 'full_shard'"),
        ("distributed_type: MULTI_GPU\nmixed_precision: fp8\n",
         "'fp8' over fp32 weights is not supported yet"),
        ("distributed_type: MEGATRON_LM\n", "Megatron's own flags"),
        ("distributed_type: XLA\n", "'XLA' is not supported yet"),
        ("distributed_type: MULTI_GPU\nnum_machines: 3\n", "no multiple of num_machines = 3"),
        ("distributed_type: FSDP\nparallelism_config:\n  parallelism_config_sp_size: 2\n",
         "sequence parallelism of attention heads"),
        ("distributed_type: FSDP\nparallelism_config:\n  dp_replicate_size: 4\n",
         "takes FSDP with dp_shard_size above 1"),
        ("distributed_type: DEEPSPEED\nparallelism_config:\n  dp_replicate_size: 4\n"
         "  dp_shard_size: 8\n", "takes FSDP with dp_shard_size above 1"),
        ("distributed_type: FSDP\nfsdp_config:\n  fsdp_reshard_after_forward: false\n"
         "  fsdp_offload_params: true\n", "fsdp_offload_params"),
        ("distributed_type: DEEPSPEED\ndeepspeed_config:\n  zero_stage: 2\n"
         "  offload_optimizer_device: nvme\n", "needs stage 3"),
    ],
)  # fmt: skip
def test_refused(text: str, said: str, tmp_path: Path) -> None:
    violations = read(tmp_path, text).violations()
    assert len(violations) == 1 and said in violations[0]


def test_a_section_that_is_not_in_use_does_not_count(tmp_path: Path) -> None:
    launch = read(tmp_path, "distributed_type: MULTI_GPU\ndeepspeed_config:\n  zero_stage: 3\n"
                            "fsdp_config: {}\nmegatron_lm_config: {}\n")  # fmt: skip
    assert launch.strategy == "ddp" and "deepspeed_config" in launch.ignored
    assert launch.unknown == ()


def test_an_empty_section_is_nothing_unknown(tmp_path: Path) -> None:
    text = "distributed_type: FSDP\nfsdp_config: {}\nfsdp_cfg: {}\n"
    (unknown,) = read(tmp_path, text).unknown
    assert "'fsdp_cfg'" in unknown


def test_defaults(tmp_path: Path) -> None:
    assert read(tmp_path, "distributed_type: FSDP\n").strategy == "zero3"
    assert read(tmp_path, "distributed_type: DEEPSPEED\n").strategy == "zero2"
    none = read(tmp_path, "distributed_type: 'NO'\n")
    assert (none.nnodes, none.nproc_per_node) == (1, 1)


def test_ranks_of_a_sharding_group_are_not_all_contexts() -> None:
    """16 ranks in two groups of eight; with four context ranks in each, two are left to shard."""
    asked = Job(
        model="gpt2-xl", strategy="zero3", micro_batch=4, grad_accum=2, precision="fp32",
        recompute="none", optimizer="adamw", offload="none", nnodes=2, nproc_per_node=8, cp=4,
        shard_ranks=8,
    )  # fmt: skip
    text = emit("accelerate", asked).text
    for size in ("dp_replicate_size: 2", "dp_shard_size: 2", "cp_size: 4"):
        assert f"parallelism_config_{size}" in text
    with pytest.raises(InvalidConfig, match="over 8 ranks of which 8 are context"):
        emit("accelerate", replace(asked, cp=8))


@pytest.mark.parametrize(
    ("given", "nodes", "per_node"),
    [
        ("num_machines: 2\nnum_processes: 16\n", 2, 8),
        ("num_machines: 2\nnum_processes: -1\n", 2, None),  # the cluster gives the number
        ("num_processes: 6\n", 1, 6), ("num_machines: 4\n", 4, 2),
    ],
)  # fmt: skip
def test_counts_of_machines_and_processes(
    tmp_path: Path, given: str, nodes: int, per_node: int | None
) -> None:
    path = tmp_path / "accelerate.yaml"
    text = "distributed_type: MULTI_GPU\nmixed_precision: bf16\n" + given
    if "num_processes" not in given:
        text += "num_processes: 8\n"
    path.write_text(text)
    launch = read_launch(str(path))
    assert (launch.nnodes, launch.nproc_per_node) == (nodes, per_node)


def test_processes_that_machines_cannot_share_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "accelerate.yaml"
    path.write_text("distributed_type: MULTI_GPU\nnum_machines: 3\nnum_processes: 16\n")
    launch = read_launch(str(path))
    assert launch.nproc_per_node is None
    assert any("num_machines = 3" in u.text for u in launch.unsupported)


@pytest.mark.parametrize(
    ("name", "kind", "section"),
    [
        ("fsdp.yaml", "FSDP", {"fsdp_config": {}}),
        ("fsdp2.yaml", "FSDP", {"fsdp_config": {"fsdp_version": 2}}),
        ("fsdp_v2_config.yaml", "FSDP", {"fsdp_config": {"fsdp_version": 2}}),
        ("FSDP-VERSION2.yaml", "FSDP", {"fsdp_config": {}}),
        ("deepspeed_zero3.yaml", "DEEPSPEED", {"deepspeed_config": {"zero_stage": 3}}),
        ("multi_gpu.yaml", "MULTI_GPU", {}), ("ddp.yaml", "MULTI_GPU", {}),
        ("single_gpu.yaml", "NO", {}), ("other.yaml", None, {}),
    ],
)  # fmt: skip
def test_what_usual_names_of_files_mean(
    name: str, kind: str | None, section: dict[str, object]
) -> None:
    found = _by_name(name)
    assert found.get("distributed_type") == kind
    assert {k: v for k, v in found.items() if k.endswith("_config")} == section


def written(**changes: object) -> dict[str, object]:
    job = Job(
        model="gpt2", strategy="zero3", micro_batch=1, grad_accum=1, precision="bf16",
        recompute="none", optimizer="adamw", offload="none", nnodes=2, nproc_per_node=8,
        seq_len=1024, grad_clip=True,
    )  # fmt: skip
    return yaml.safe_load(emit("accelerate", replace(job, **changes)).text)  # type: ignore[arg-type, no-any-return]


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({}, "FSDP"), ({"strategy": "zero2"}, "FSDP"), ({"strategy": "zero1"}, "DEEPSPEED"),
        ({"strategy": "ddp", "precision": "amp-bf16"}, "MULTI_GPU"),
        ({"strategy": "ddp", "precision": "amp-bf16", "nnodes": 1, "nproc_per_node": 1}, "NO"),
        # FSDP offloads parameters and state together
        ({"offload": "optimizer:cpu,params:cpu"}, "FSDP"),
        ({"offload": "optimizer:cpu"}, "DEEPSPEED"),
        ({"offload": "optimizer:nvme,params:nvme"}, "DEEPSPEED"),
    ],
)  # fmt: skip
def test_the_library_that_can_run_a_job(changes: dict[str, object], kind: str) -> None:
    found = written(**changes)
    assert found["distributed_type"] == kind
    assert found["num_machines"] == changes.get("nnodes", 2)


@pytest.mark.parametrize(
    "changes",
    [{"strategy": "ddp", "precision": "amp-bf16", "tp": 2}, {"strategy": "zero1", "tp": 2},
     {"strategy": "zero1", "cp": 2}],
)  # fmt: skip
def test_tensor_and_context_ranks_beside_data_ranks_take_fsdp(changes: dict[str, object]) -> None:
    with pytest.raises(InvalidConfig, match="beside data ranks with FSDP alone: zero3"):
        written(**changes)


def test_tensor_ranks_alone_need_no_fsdp() -> None:
    found = written(strategy="ddp", precision="amp-bf16", tp=8, nnodes=1)
    assert found["distributed_type"] == "MULTI_GPU"
    assert found["parallelism_config"]["parallelism_config_tp_size"] == 8


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        # launch.py: without a type, several processes are MULTI_GPU, one is none of it
        ("--num_processes 4", {"strategy": "ddp", "nnodes": 1, "nproc_per_node": 4}),
        ("--num-processes 1", {"nnodes": 1, "nproc_per_node": 1}),
        ("--multi_gpu --num_machines 2 --num_processes 8", {"nnodes": 2, "nproc_per_node": 4}),
        ("--use_fsdp --fsdp_sharding_strategy SHARD_GRAD_OP", {"strategy": "zero2"}),
        ("--use_fsdp --fsdp_version 2", {"strategy": "zero3", "software": "accelerate"}),
        ("--use_deepspeed --zero_stage 1 --offload_optimizer_device cpu",
         {"strategy": "zero1", "offload": "optimizer:cpu", "software": "deepspeed"}),
        ("--use_deepspeed --zero_stage 3 --gradient_accumulation_steps 4",
         {"strategy": "zero3", "grad_accum": 4}),
        ("--mixed_precision bf16", {"precision": "amp-bf16"}),
        ("--mixed_precision bf16 --dynamo_backend inductor", {"compile": True}),
        ("--use_fsdp --fsdp_version 2 --parallelism_config_dp_replicate_size 2 "
         "--parallelism_config_dp_shard_size 4 --num_processes 8",
         {"strategy": "zero3", "shard_ranks": 4}),
    ],
)  # fmt: skip
def test_flags_of_accelerate_launch(flags: str, words: dict[str, object]) -> None:
    launch = read_launch(f"accelerate launch {flags} train.py")
    assert {**launch.words(), **words} == launch.words()
    assert launch.violations() == [] and launch.unknown == ()


def test_flags_override_the_file_that_they_name(tmp_path: Path) -> None:
    """The keys beside the overridden one stay those of the file."""
    (tmp_path / "mine.yaml").write_text(
        "distributed_type: DEEPSPEED\nnum_processes: 8\nmixed_precision: bf16\n"
        "deepspeed_config:\n  zero_stage: 3\n  gradient_accumulation_steps: 2\n"
    )
    script = tmp_path / "run.sh"
    for flag in ("--config_file", "--config-file"):
        script.write_text(f"accelerate launch {flag} mine.yaml --zero_stage 2 train.py\n")
        launch = read_launch(str(script))
        assert (launch.strategy, launch.precision, launch.grad_accum) == ("zero2", "bf16", 2)
        assert launch.nproc_per_node == 8 and launch.absent_files == ()
        (absent,) = launch.approximated
        assert "train.py is not at hand" in absent


def test_a_file_that_is_not_at_hand_is_read_by_its_name_or_refused() -> None:
    launch = read_launch("accelerate launch --config_file zero3.yaml --num_processes 8 train.py")
    assert (launch.strategy, launch.precision, launch.nproc_per_node) == ("zero3", "bf16", 8)
    script, said = launch.approximated
    assert "read by its name as DEEPSPEED 3 bf16" in said and launch.violations() == []
    assert "train.py is not at hand" in script
    launch = read_launch("accelerate launch --config_file mine.yaml --num_processes 8 train.py")
    (refused,) = launch.violations()
    assert "mine.yaml is not at hand: give --strategy" in refused
    assert launch.violations(("strategy",)) == [] and launch.absent_files == ("mine.yaml",)


@pytest.mark.parametrize(
    ("flag", "taken"),
    [
        ("config-file", True), ("accelerate-config", True), ("num-machines", True),
        ("use-fsdp", True), ("mixed-precision", True), ("main-process-port", True),
        ("zero-stage", True), ("zero3-init-flag", True), ("fsdp-state-dict-type", True),
        ("debug", True), ("learning-rate", False), ("num-epochs", False), ("model", False),
    ],
)  # fmt: skip
def test_which_flags_are_the_launchers_own(flag: str, taken: bool) -> None:
    assert ACCELERATE.takes(flag) is taken
