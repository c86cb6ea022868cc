"""Arguments of Hugging Face's Trainer, held against transformers' own names."""

from __future__ import annotations

import pytest

from simcore.strategy.dialects import read_launch
from simcore.strategy.dialects.record import LINES

LINE = "torchrun --nproc_per_node 4 train.py --per_device_train_batch_size 2 --bf16"


def test_names_are_those_of_transformers() -> None:
    arguments = pytest.importorskip("transformers.training_args")
    utilities = pytest.importorskip("transformers.trainer_utils")
    (optimizers,), (sharding,) = (LINES["trainer"].keys[key] for key in ("optim", "fsdp"))
    assert set(optimizers.values) == {o.value for o in arguments.OptimizerNames}
    assert set(optimizers.partly) <= set(optimizers.values)
    words = {o.value for o in utilities.FSDPOption}
    assert {*sharding.values, "offload", "auto_wrap"} == words


def test_fsdp_and_its_precision() -> None:
    """As an Accelerate FSDP file with mixed_precision bf16 says it, of transformers' models."""
    launch = read_launch(f"{LINE} --fsdp 'full_shard auto_wrap offload' --optim adamw_torch_fused")
    assert launch.words() == {
        "strategy": "zero3", "software": "transformers", "offload": "optimizer:cpu,params:cpu",
        "precision": "bf16", "optimizer": "adamw", "micro_batch": 2, "nnodes": 1,
        "nproc_per_node": 4,
    }  # fmt: skip
    assert launch.violations() == []
    split = read_launch(f"{LINE} --fsdp shard_grad_op auto_wrap")
    assert (split.strategy, split.precision, split.offload) == ("zero2", "bf16", None)
    hybrid = read_launch(f"{LINE} --fsdp 'hybrid_shard offload'")
    assert (hybrid.strategy, hybrid.software) == (
        "hsdp",
        "transformers",
    ) and not hybrid.violations()
    assert hybrid.offload == "optimizer:cpu,params:cpu"
    assert read_launch(LINE).precision == "amp-bf16"


@pytest.mark.parametrize(
    ("argument", "said", "word"),
    [
        ("--optim galore_adamw", "--optim galore_adamw is not supported yet", "optimizer"),
        ("--fsdp hybrid_shard_zero2", "hybrid_shard_zero2 is not supported yet", "strategy"),
        ("--fsdp 'shard_grad_op offload'", "kept after forward is not supported yet", "offload"),
    ],
)
def test_what_cannot_be_followed_is_refused(argument: str, said: str, word: str) -> None:
    launch = read_launch(f"{LINE} {argument}")
    assert [said in text for text in launch.violations()] == [True]
    assert launch.violations({word}) == []


def test_what_is_followed_in_part_is_told() -> None:
    launch = read_launch(f"{LINE} --optim paged_adamw_8bit --torch_compile True")
    assert launch.optimizer == "adamw-8bit" and launch.violations() == []
    assert len(launch.approximated) == 1 and launch.compile


def test_a_script_with_arguments_of_its_own_is_left_alone() -> None:
    launch = read_launch(f"{LINE} --optim my_sgd --fsdp yes --torch_compile False")
    assert launch.violations() == [] and launch.approximated == ()
    assert (launch.optimizer, launch.strategy) == (None, None)
    assert any("3 arguments" in text for text in launch.ignored)
