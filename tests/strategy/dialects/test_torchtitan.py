"""torchtitan's TOML, new and old sections, with torchtitan's defaults."""

from __future__ import annotations

from pathlib import Path

import pytest

from simcore.strategy.dialects import DIALECTS, Launch, read_launch
from simcore.strategy.dialects.source import Source

SAMPLES = Path(__file__).parent / "samples"


def read(text: str) -> Launch:
    return DIALECTS["torchtitan"].read(Source(text, "job.toml"))


def test_new_sections() -> None:
    launch = read_launch(str(SAMPLES / "torchtitan_llama3.toml"))
    assert launch.words() == {
        "strategy": "zero2", "micro_batch": 2, "precision": "bf16", "recompute": "full",
        "optimizer": "adamw", "offload": "none", "seq_len": 8192, "grad_clip": True,
        "software": "fsdp", "compile": True, "optimizer_impl": "fused",
    }  # fmt: skip
    assert (launch.global_batch, launch.n_gpus) == (64, 8)
    assert launch.violations() == [] and launch.unknown == ()
    assert "job" in launch.ignored and "checkpoint" in launch.ignored


def test_old_sections_with_replicas_of_shards() -> None:
    launch = read_launch(str(SAMPLES / "torchtitan_old.toml"))
    assert launch.violations() == []
    assert (launch.strategy, launch.shard_ranks, launch.software) == ("zero3", 8, "fsdp")
    assert (launch.recompute, launch.recompute_modules) == ("selective", "operators")
    assert (launch.tp, launch.pp, launch.cp, launch.sequence_parallel) == (2, 2, None, True)
    assert launch.n_gpus == 4 * 8 * 2 * 2
    assert launch.precision == "fp8-dynamic"
    # With a pipeline the local batch of 4 runs through it in micro-batches of 1.
    assert (launch.micro_batch, launch.grad_accum) == (1, 4)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ("zero3", "bf16")),  # FSDP over all ranks, bfloat16
        ("[parallelism]\ndata_parallel_shard_degree = 1", ("ddp", "amp-bf16")),
        ("[parallelism]\ndata_parallel_replicate_degree = 8", ("ddp", "amp-bf16")),
        ("[parallelism]\nfsdp_reshard_after_forward = 'never'", ("zero2", "bf16")),
        ("[training]\nmixed_precision_param = 'float32'", ("zero3", "fp32")),
        ("[model]\nconverters = ['quantize.linear.float8']", ("zero3", "fp8-dynamic")),
        (
            "[model]\nconverters = ['quantize.linear.float8']\n"
            "[quantize.linear.float8]\nrecipe_name = 'rowwise'",
            ("zero3", "fp8-rowwise"),
        ),
        ("[model]\nconverters = ['quantize.linear.mx']", ("zero3", "mxfp8")),
        ("[training]\ndata_parallel_degree = -1", ("zero3", "bf16")),
    ],
)
def test_degrees_and_precision(text: str, expected: tuple[str, str]) -> None:
    launch = read(text)
    assert launch.violations() == []
    assert (launch.strategy, launch.precision) == expected


def test_replicas_on_more_gpus_would_be_hsdp() -> None:
    launch = read("[parallelism]\ndata_parallel_replicate_degree = 8")
    assert launch.n_gpus == 8 and "HSDP" in launch.whole_world


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "[model]\nconverters = ['float8']\n[parallelism]\ndata_parallel_shard_degree = 1",
            "over amp-bf16 is not supported yet",
        ),
        ("[training]\ndtype = 'bfloat16'", "training.dtype"),
        ("[parallelism]\nexpert_tensor_parallel_degree = 2", "tensor parallelism of experts"),
        (
            "[training]\nlocal_batch_size = 5\n[parallelism]\npipeline_parallel_degree = 2\n"
            "pipeline_parallel_microbatch_size = 2",
            "is no multiple of",
        ),
        ("[training]\nseq_len = 'long'", "seq_len = 'long'"),
        (
            "[activation_checkpoint]\nmode = 'selective'\nselective_ac_option = '2'",
            "every n-th layer",
        ),
        ("[activation_checkpoint]\nmode = 'selective'", "default differs between versions"),
        ("[optimizer]\nname = 'Shampoo'", "'Shampoo' is unknown"),
    ],
)
def test_refused(text: str, said: str) -> None:
    violations = read(text).violations()
    assert len(violations) == 1 and said in violations[0]


def test_unknown_key_names_the_nearest() -> None:
    assert "did you mean 'training.local_batch_size'" in read(
        "[training]\nlocal_batchsize = 4").unknown[0]  # fmt: skip


@pytest.mark.parametrize(
    ("schedule", "said"), [("1F1B", "1f1b"), ("GPipe", "gpipe"), ("Interleaved1F1B", None)]
)
def test_schedules_by_name(schedule: str, said: str | None) -> None:
    """torch.distributed.pipelining's names; of others 1F1B is told."""
    launch = read(
        f"[parallelism]\npipeline_parallel_degree = 2\npipeline_parallel_schedule = '{schedule}'"
    )
    assert launch.words().get("schedule") == said
    told = [text for text in launch.approximated if "pipeline_parallel_schedule" in text]
    assert bool(told) is (said is None)
