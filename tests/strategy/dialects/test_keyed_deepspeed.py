"""DeepSpeed files by hand, with DeepSpeed's own defaults."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from simcore import api
from simcore.strategy.dialects import DIALECTS, Job, Launch, emit, read_launch
from simcore.strategy.dialects.reading import flat
from simcore.strategy.dialects.source import Source

SAMPLES = Path(__file__).parent / "samples"


def read(**data: object) -> Launch:
    return DIALECTS["deepspeed"].read(Source(json.dumps(data), "ds.json"))


def test_zero2_sample() -> None:
    launch = read_launch(str(SAMPLES / "deepspeed_zero2.json"))
    assert launch.words() == {
        "strategy": "zero2", "micro_batch": 4, "grad_accum": 2, "precision": "bf16",
        "optimizer": "adamw", "offload": "none", "grad_clip": True, "bucket_numel": 200_000_000,
        "software": "deepspeed", "overlap": "grads",
    }  # fmt: skip
    assert launch.global_batch == 256
    assert launch.violations() == [] and launch.unknown == () and launch.approximated == ()
    assert launch.keys["strategy"] == "zero_optimization.stage"
    assert len(launch.ignored) == len(set(launch.ignored)) == 7


def test_zero3_sample_with_offload() -> None:
    launch = read_launch(str(SAMPLES / "deepspeed_zero3_offload.json"))
    assert launch.offload == "optimizer:nvme,params:cpu"
    assert (launch.strategy, launch.precision, launch.optimizer) == ("zero3", "fp16", "adam")
    assert launch.recompute == "full" and "recompute full" in launch.approximated[0]
    assert launch.violations() == [] and launch.unknown == ()


def test_auto_needs_a_value_and_says_which() -> None:
    launch = read_launch(str(SAMPLES / "deepspeed_auto.json"))
    violations = launch.violations()
    assert all("'auto'" in v and "deepspeed_auto.json" in v for v in violations)
    assert [v.rsplit(" ", 1)[1] for v in violations] == [
        "--micro-batch", "--grad-accum", "--precision", "--precision",
    ]  # fmt: skip
    assert launch.violations({"micro_batch", "grad_accum", "precision"}) == []
    assert launch.precision is None


def test_everything_unsupported_is_listed_with_its_key() -> None:
    launch = read_launch(str(SAMPLES / "deepspeed_unsupported.json"))
    text = "\n".join(launch.violations())
    for key in ("zero_hpz_partition_size = 8", "zero_quantized_weights", "ratio = 0.4",
                "bf16_optimizer_states", "'OneBitAdam'",
                "elasticity"):  # fmt: skip
        assert key in text
    assert len(launch.violations()) == 6
    assert (launch.cp, launch.cp_comm) == (2, "ulysses")
    assert (launch.tp, launch.sequence_parallel) == (4, False)
    assert "progressive_layer_drop" in launch.ignored  # it is switched off
    assert "did you mean 'zero_optimization.stage'" in launch.unknown[0]


@pytest.mark.parametrize(
    ("data", "word", "expected"),
    [
        ({}, "strategy", "ddp"),  # stage 0 is DeepSpeed's default
        ({"zero_optimization": True}, "strategy", "zero1"),
        ({"zero_optimization": {"stage": 1}}, "strategy", "zero1"),
        ({}, "precision", "fp32"),
        ({"fp16": {"enabled": False}, "bf16": {"enabled": True}}, "precision", "bf16"),
        ({"torch_autocast": {"enabled": True, "dtype": "torch.float16"}}, "precision", "amp-fp16"),
        ({"amp": {"enabled": True, "opt_level": "O2"}}, "precision", "fp16"),
        ({"optimizer": {"type": "Adam"}}, "optimizer", "adamw"),  # adam_w_mode is on by default
        ({"optimizer": {"type": "Adam", "params": {"adam_w_mode": False}}}, "optimizer", "adam"),
        ({"optimizer": {"type": "AdamW", "params": {"adam_w_mode": False}}}, "optimizer", "adamw"),
        ({"optimizer": {"type": "SGD", "params": {"momentum": 0.9}}}, "optimizer", "sgd"),
        ({"optimizer": {"type": "SGD"}}, "optimizer", "sgd-plain"),
        ({}, "optimizer", None),  # the script's
        ({"gradient_clipping": 0}, "grad_clip", False),
        ({"zero_optimization": {"stage": 2, "cpu_offload": True}}, "offload", "optimizer:cpu"),
        ({"zero_optimization": {"stage": 3, "reduce_bucket_size": 1e6}}, "bucket_numel", None),
        ({"train_micro_batch_size_per_gpu": 4.0}, "micro_batch", 4),
    ],
)
def test_defaults_and_spellings(data: dict, word: str, expected: object) -> None:
    launch = read(**data)
    assert launch.violations() == []
    assert getattr(launch, word) == expected


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({"zero_optimization": {"stage": 4}}, "stage = 4 is no stage of ZeRO"),
        ({"zero_optimization": {"stage": "two"}}, "stage = 'two' is not a whole number"),
        ({"train_batch_size": 0}, "train_batch_size = 0 must be at least 1"),
        ({"train_batch_size": 2.5}, "train_batch_size = 2.5 is not a whole number"),
        ({"train_batch_size": True}, "train_batch_size = True is not a whole number"),
        ({"train_batch_size": [8]}, "train_batch_size = [8] is not a whole number"),
        ({"fp16": {"enabled": "maybe"}}, "fp16.enabled = 'maybe' is neither true nor false"),
        ({"fp16": {"enabled": True}, "bf16": {"enabled": True}}, "are both on"),
        ({"optimizer": {"type": "AdamV"}}, "'AdamV' is unknown: did you mean 'adam"),
        ({"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "nvme"}}},
         "needs stage 3 in DeepSpeed"),
        ({"zero_optimization": {"stage": 3, "offload_param": {"device": "disk"}}}, "'disk'"),
        ({"gradient_clipping": "lots"}, "gradient_clipping = 'lots' is not a number"),
    ],
)  # fmt: skip
def test_wrong_values_name_key_and_value(data: dict, said: str) -> None:
    violations = read(**data).violations()
    assert len(violations) == 1
    assert violations[0].startswith("ds.json: ") and said in violations[0]


def test_gradients_hide_where_deepspeed_hides_them() -> None:
    """Off by default but for stage 3 (zero/config.py, overlap_comm_valid); never without ZeRO."""
    for zero, hidden in (
        ({"stage": 1}, "none"), ({"stage": 2, "overlap_comm": False}, "none"),
        ({"stage": 2, "overlap_comm": True}, "grads"), ({"stage": 3}, "grads"),
        ({"stage": 3, "overlap_comm": False}, "none"), ({"stage": 0}, "none"),
        ({"stage": 0, "overlap_comm": True}, "none"),
    ):  # fmt: skip
        assert read(zero_optimization=zero).overlap == hidden, zero


@pytest.mark.parametrize("strategy", ["ddp", "zero1", "zero2", "zero3"])
@pytest.mark.parametrize("overlap", [None, "none", "grads", "grads,params"])
def test_what_is_hidden_goes_out_and_comes_back(strategy: str, overlap: str | None) -> None:
    asked = Job(
        model="gpt2-xl", strategy=strategy, micro_batch=1, grad_accum=1, precision="bf16",
        recompute="none", optimizer="adamw", offload="none", nnodes=1, nproc_per_node=8,
        overlap=overlap,
    )  # fmt: skip
    made = emit("deepspeed", asked)
    assert read(**json.loads(made.text)).overlap == made.program["overlap"]
    if strategy != "ddp" and overlap != "grads,params":
        assert made.program["overlap"] == (overlap or "grads")


def test_what_is_not_hidden_makes_the_step_longer(tmp_path: Path) -> None:
    path = tmp_path / "ds.json"
    data = {"bf16": {"enabled": True}, "train_micro_batch_size_per_gpu": 1}
    steps = {}
    for on in (True, False):
        zero = {"stage": 2, "overlap_comm": on}
        path.write_text(json.dumps({**data, "zero_optimization": zero}), encoding="utf-8")
        steps[on] = api.predict("gpt2-xl", "2x8xA100", launch=str(path))
    assert steps[False].step_time_s.value > steps[True].step_time_s.value
    assert steps[False].time_s["communication_hidden"] == pytest.approx(0.0, abs=1e-9)
    assert steps[True].time_s["communication_hidden"] > 0.0


def _written(**changes: object) -> dict[str, object]:
    """The keys of a file for GPT-2 on eight GPUs, flat."""
    job = Job(
        model="gpt2", strategy="zero2", micro_batch=1, grad_accum=1, precision="bf16",
        recompute="none", optimizer="adamw", offload="none", nnodes=1, nproc_per_node=8,
        seq_len=1024, grad_clip=True,
    )  # fmt: skip
    text = emit("deepspeed", replace(job, **changes)).text  # type: ignore[arg-type]
    return dict(flat(json.loads(text)))


@pytest.mark.parametrize(
    ("changes", "key", "value"),
    [
        ({"precision": "amp-bf16"}, "torch_autocast.enabled", True),
        ({"optimizer": "adam"}, "optimizer.params.adam_w_mode", False),
        ({"optimizer": "sgd"}, "optimizer.params.momentum", 0.9),
        ({"optimizer": "sgd-plain"}, "optimizer.type", "SGD"),
        ({"offload": "optimizer:cpu"}, "zero_optimization.offload_optimizer.pin_memory", True),
        ({"recompute": "full"}, "activation_checkpointing.partition_activations", False),
    ],
)
def test_keys_are_written_where_a_job_is_as_their_block_says(
    changes: dict[str, object], key: str, value: object
) -> None:
    assert _written(**changes)[key] == value
    assert _written().get(key) != value
