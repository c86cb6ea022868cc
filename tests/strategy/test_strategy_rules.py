"""What a strategy says of itself, and each rule at its border."""

from __future__ import annotations

from typing import Any

import pytest
from strategies import strategy

from simcore.strategy.precision import PRECISIONS, with_main_grads
from simcore.strategy.programs import program_named
from simcore.strategy.strategy import (
    SINGLE,
    STRATEGIES,
    STRATEGY_NAMES,
    Offload,
    Strategy,
    folded_strategy,
    issuer_named,
    node_shard_ranks,
    parallelism_named,
    single_refused,
    wraps_on_one_gpu,
)


def rules(name: str, cluster: tuple[int, int, int], **words: Any) -> list[str]:
    n_nodes, n_ranks, n_types = cluster
    return strategy(name, **words).violations(n_nodes, n_ranks, n_types)


@pytest.mark.parametrize(
    ("name", "cluster", "words", "said"),
    [
        ("dp", (1, 4, 1), {}, None),
        ("dp", (2, 4, 1), {}, "not 2 nodes: use ddp"),
        ("dp", (1, 4, 2), {}, "needs GPUs of one type"),
        ("ddp", (2, 4, 2), {}, None),
        ("zero3", (1, 4, 1), {"offload": Offload(params="cpu")}, None),
        ("zero2", (1, 4, 1), {"offload": Offload(params="cpu")}, "needs zero3, not zero2"),
        ("zero1", (1, 4, 1), {"offload": Offload(optimizer="cpu")}, None),
        ("ddp", (1, 4, 1), {"offload": Offload(optimizer="cpu")}, "needs zero1 to zero3, not ddp"),
        ("zero1", (2, 8, 1), {"shard_ranks": 4}, None),
        ("ddp", (2, 8, 1), {"shard_ranks": 4}, "shard-ranks needs zero1 to zero3, not ddp"),
        ("zero1", (2, 8, 1), {"shard_ranks": 3}, "shard-ranks=3 does not divide 8 ranks"),
        ("zero1", (2, 8, 1), {"shard_ranks": -4}, "shard-ranks=-4 does not divide 8 ranks"),
        ("zero1", (2, 8, 1), {"shard_ranks": 1}, None),
        ("ddp", (1, 1, 1), {"updates_in_backward": True}, None),
        ("ddp", (1, 2, 1), {"updates_in_backward": True}, "on several GPUs needs zero3"),
        ("zero2", (1, 2, 1), {"updates_in_backward": True}, "are reduced under zero2"),
        ("zero3", (1, 2, 1), {"updates_in_backward": True}, None),
        ("zero3", (1, 2, 1), {"updates_in_backward": True, "grad_clip": True}, "cannot clip"),
        (
            "zero3",
            (1, 2, 1),
            {"updates_in_backward": True, "offload": Offload(optimizer="cpu")},
            "needs the optimizer on the GPU",
        ),
    ],
)
def test_each_rule(
    name: str, cluster: tuple[int, int, int], words: dict[str, Any], said: str | None
) -> None:
    found = rules(name, cluster, **words)
    assert len(found) == (said is not None)
    assert said is None or said in found[0]


def test_what_follows_from_the_stage_and_the_precision() -> None:
    """16-bit gradients are widened for master weights, unless the host updates them."""
    assert strategy("ddp", "bf16").widens_gradients
    assert not strategy("ddp", "amp-bf16").widens_gradients  # its gradients are fp32
    assert not strategy("ddp", "bf16-true").widens_gradients  # nothing is fp32
    assert not strategy("zero2", "bf16", offload=Offload(optimizer="cpu")).widens_gradients
    sharded, whole = (strategy(n, "bf16") for n in ("zero3", "zero2"))
    assert (sharded.kept_grad_bytes, whole.kept_grad_bytes) == (2, 2)
    assert not sharded.wide_shards and not sharded.reduces_apart
    assert not sharded.early_grads and not sharded.keeps_grads


@pytest.mark.parametrize(("stage", "apart"), [("zero2", False), ("zero3", True)])
def test_fsdp_shards_in_fp32_and_reduces_on_its_own_stream(stage: str, apart: bool) -> None:
    torchtitan = program_named("torchtitan")
    assert torchtitan.fsdp.units is not None
    how = strategy(stage, "bf16", program=torchtitan)
    assert how.reduces_apart is apart and how.wide_shards is apart
    assert how.kept_grad_bytes == (4 if apart else 2)
    assert not strategy(stage, "bf16-true", program=torchtitan).wide_shards  # no fp32 copy at all


def test_buffers_of_main_gradients_exist_before_backward() -> None:
    wide = strategy("ddp", "bf16")
    main = Strategy(precision=with_main_grads(PRECISIONS["bf16"], "fp32"), optimizer=wide.optimizer)
    assert main.early_grads and not wide.early_grads


def test_one_process_on_one_gpu() -> None:
    bare = strategy("ddp", wraps_alone=False)
    assert bare.unwrapped(1) and not bare.unwrapped(2)
    assert not strategy("ddp").unwrapped(1) and not strategy("zero1").unwrapped(1)
    assert wraps_on_one_gpu("ddp", False) and not wraps_on_one_gpu(SINGLE, True)
    assert wraps_on_one_gpu(None, True) and not wraps_on_one_gpu(None, False)
    assert single_refused("single", 1) == [] == single_refused("ddp", 8) == single_refused(None, 8)
    assert "not 2 GPUs: use ddp" in single_refused("Single", 2)[0]


def test_names_of_strategies() -> None:
    assert STRATEGIES == ("dp", "manual", "ddp", "zero1", "zero2", "zero3", "hsdp")
    assert (*STRATEGIES, "single") == STRATEGY_NAMES
    assert (parallelism_named("single"), parallelism_named("hsdp")) == ("ddp", "zero3")
    assert folded_strategy(" Full_Shard ") == "zero3" and folded_strategy("Other-One") == "otherone"
    assert issuer_named("graph") == "graph"
    assert node_shard_ranks([8, 8], 2, 4) == 2  # two data ranks of a node are enough


def test_what_a_strategy_is_where_nothing_is_said() -> None:
    """torch's DDP with its defaults, PyTorch's foreach step, nothing offloaded or restricted."""
    bare = Strategy(precision=PRECISIONS["fp32"], optimizer=strategy().optimizer)
    assert (bare.parallelism, bare.recompute, bare.issuer) == ("ddp", "none", "torch")
    assert (bare.step_impl, bare.ema_impl) == ("foreach", "for-loop")
    for off in ("ema", "grad_clip", "gather_tensors",
                "launch_blocking", "nccl", "offload"):  # fmt: skip
        assert not getattr(bare, off), off
    for none in ("recompute_layers", "reuse_numel", "shard_ranks", "offload_layers", "fp8_copies"):
        assert getattr(bare, none) == 0, none
    for one in ("prefetch_blocks", "expert_ranks"):
        assert getattr(bare, one) == 1, one
    assert bare.buckets.wraps_alone and not bare.buckets.views
