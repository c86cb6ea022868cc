"""Words for strategies, offload and precisions."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from reference.meter import KernelMeter
from strategies import PARALLELISMS, on_by_default, strategy

from simcore.base.errors import InvalidConfig, UnknownName
from simcore.base.units import MIB
from simcore.strategy.optimizers import OPTIMIZERS
from simcore.strategy.precision import PRECISIONS, with_main_grads
from simcore.strategy.strategy import (
    Buckets,
    Offload,
    Strategy,
    hybrid,
    node_shard_ranks,
    parallelism_named,
    parse_offload,
    strategy_named,
)


@pytest.mark.parametrize(
    ("text", "optimizer", "params"),
    [
        ("none", "none", "none"),
        ("", "none", "none"),
        ("optimizer", "cpu", "none"),
        ("optimizer+params", "cpu", "cpu"),
        ("optimizer:nvme", "nvme", "none"),
        ("params:cpu-far", "none", "cpu-far"),
        ("optimizer:cpu-far, params:nvme", "cpu-far", "nvme"),
        ("Parameters:NVMe", "none", "nvme"),
        ("cpu", "cpu", "none"),
        ("nvme", "nvme", "none"),
    ],
)
def test_offload_words(text: str, optimizer: str, params: str) -> None:
    parsed = parse_offload(text)
    assert (parsed.optimizer, parsed.params) == (optimizer, params)
    assert parse_offload(str(parsed)) == parsed
    assert bool(parsed) == ((optimizer, params) != ("none", "none"))


@pytest.mark.parametrize("text", ["blocks", "blocks:", "blocks:0", "blocks:-1", "blocks:many"])
def test_blocks_are_a_number_of_them(text: str) -> None:
    assert parse_offload("blocks:18").blocks == 18
    with pytest.raises(InvalidConfig, match="write blocks:18 for 18 blocks"):
        parse_offload(text)


def test_a_moving_average_is_a_copy_of_the_module_or_of_fp32_masters() -> None:
    """EMA of the weights in pure 16 bit; of fp32 weights or masters elsewhere; without one none."""
    widths = {"bf16-true": 2, "fp16-true": 2, "bf16": 4, "amp-bf16": 4, "fp32": 4}
    for name, width in widths.items():
        for ema in (False, True):
            how = strategy("ddp", precision=name, ema=ema)
            assert how.ema_bytes == width * ema


def test_weights_are_in_eight_bits_where_copies_of_them_are() -> None:
    assert [strategy("zero3", fp8_copies=n).fp8_params for n in (0, 1, 2)] == [False, True, True]


@pytest.mark.parametrize("text", ["disk", "optimizer:disk", "gradients", "optimizer:", "+"])
def test_offload_that_is_none(text: str) -> None:
    if text == "optimizer:":
        assert parse_offload(text).optimizer == "cpu"
        return
    with pytest.raises(UnknownName, match="offload"):
        parse_offload(text)


@pytest.mark.parametrize("name", PARALLELISMS)
def test_strategy_names_fold(name: str) -> None:
    assert parallelism_named(f" {name.upper()} ") == name
    assert parallelism_named(name.replace("zero", "ZeRO-")) == name


@pytest.mark.parametrize(
    ("name", "means"),
    [("fsdp", "zero3"), ("FSDP2", "zero3"), ("FULL_SHARD", "zero3"), ("SHARD_GRAD_OP", "zero2"),
     ("DistributedDataParallel", "ddp"), ("hsdp", "zero3"), ("HYBRID_SHARD", "zero3")],
)  # fmt: skip
def test_torch_names_of_strategies(name: str, means: str) -> None:
    assert parallelism_named(name) == means


def test_unknown_strategy_names_the_nearest() -> None:
    with pytest.raises(UnknownName, match="did you mean 'zero3'"):
        parallelism_named("zero33")


def test_defaults_are_those_of_the_frameworks() -> None:
    """torch: 25 MiB buckets after a first of 1 MiB; DeepSpeed: reduce_bucket_size 5e8."""
    how = strategy()
    assert (how.buckets.cap_bytes, how.buckets.first_bytes) == (25 * MIB, MIB)
    assert how.buckets.zero_numel == 500_000_000


@pytest.mark.parametrize(("name", "stage"), [("ddp", 0), ("dp", 0), ("zero1", 1), ("zero3", 3)])
def test_stage(name: str, stage: int) -> None:
    assert strategy(name).zero_stage == stage


def test_violations_are_all_told() -> None:
    bad = strategy("dp", offload=Offload(optimizer="cpu", params="nvme"))
    found = bad.violations(n_nodes=2, n_ranks=4, n_types=2)
    assert len(found) == 4
    assert (
        strategy("zero3", offload=Offload(optimizer="cpu", params="nvme")).violations(4, 8, 2) == []
    )
    assert len(strategy("zero2", offload=Offload(params="cpu")).violations(1, 8, 1)) == 1


@pytest.mark.parametrize("name", PRECISIONS)
def test_precisions_weigh_what_they_say(name: str) -> None:
    """Adam: sixteen bytes a parameter in all, whatever the split; eight with nothing in fp32."""
    p = PRECISIONS[name]
    weights = p.param_bytes + p.grad_bytes + p.master_bytes
    assert weights == (4 if name.endswith("-true") else 16 - OPTIMIZERS["adamw"].state_bytes)
    assert p.narrow_state == name.endswith("-true")
    assert p.low_bytes <= p.high_bytes
    # autocast keeps 16-bit weights, fp8-true quantised ones
    assert (p.cast_bytes > 0) == (name.startswith("amp") or name == "fp8-true")


def test_main_grads_in_fp32_are_two_bytes_more_beside_16_bit_weights() -> None:
    """Megatron-LM with bf16: 2 weight, 4 main grad, 4 master, 8 Adam; fp32 has them anyway."""
    p = with_main_grads(PRECISIONS["bf16"], "fp32")
    assert (p.param_bytes, p.grad_bytes, p.master_bytes, p.main_grads) == (2, 4, 4, True)
    assert with_main_grads(PRECISIONS["bf16"], "weights") is PRECISIONS["bf16"]
    assert with_main_grads(PRECISIONS["fp32"], "fp32") is PRECISIONS["fp32"]
    with pytest.raises(UnknownName):
        with_main_grads(PRECISIONS["bf16"], "bf8")


def test_optimizers_read_their_own_state() -> None:
    for name in OPTIMIZERS:
        optimizer = OPTIMIZERS[name]
        # At least the weight read and written, and each state value read and written.
        assert optimizer.traffic_elems >= 2 + 2 * optimizer.state_bytes / 4


def test_bert_adam_moves_what_its_python_moves() -> None:
    """``BertAdam.step`` of NVIDIA's optimization.py on one tensor, watched by the dispatcher.

    With ``clip_grad_norm_`` of one tensor as PyTorch 1.10 to 1.13 have it (torch/nn/utils).
    """
    n = 10_000
    p, grad, m, v = (torch.rand(n) + 0.1 for _ in range(4))
    with KernelMeter() as meter:
        norm = torch.norm(torch.stack([torch.norm(grad)]))
        grad.mul_(torch.clamp(1.0 / (norm + 1e-6), max=1.0))
        m.mul_(0.9).add_(grad, alpha=0.1)
        v.mul_(0.999).addcmul_(grad, grad, value=0.001)
        update = m / (v.sqrt() + 1e-6)
        update += 0.01 * p
        p.add_(-(1e-4 * update))
    optimizer = OPTIMIZERS["bert-adam"]
    assert sum(meter.launches.values()) == optimizer.kernels_per_tensor
    # addcmul_ reads the gradient once, whatever its two arguments; the norm reads it elsewhere
    moved = sum(meter.elems.values()) / n - 2
    assert moved == pytest.approx(optimizer.traffic_elems, rel=1e-3)


@pytest.mark.parametrize(
    ("name", "build"),
    [
        ("adamw", lambda p: torch.optim.AdamW(p, foreach=False)),
        ("adam", lambda p: torch.optim.Adam(p, foreach=False)),
        ("sgd", lambda p: torch.optim.SGD(p, momentum=0.9, weight_decay=1e-4, foreach=False)),
    ],
)
def test_steps_move_what_torch_moves(name: str, build: Any) -> None:
    """The second step of torch's own optimizer, whose foreach kernels are its loop's."""
    n = 100_000
    weight = torch.nn.Parameter(torch.rand(n))
    optimizer = build([weight])
    weight.grad = torch.rand(n)
    optimizer.step()
    with KernelMeter() as meter:
        optimizer.step()
    again = meter.elems["aten.addcmul_"] > 3 * n  # names the gradient twice, which is in L1 then
    moved = sum(meter.elems.values()) / n - again
    assert moved == pytest.approx(OPTIMIZERS[name].traffic_elems, rel=0.01)


def test_hybrid_sharding_has_names_of_its_own() -> None:
    assert strategy_named("Hybrid-Shard") == "hsdp" and hybrid("HSDP")
    assert not hybrid("fsdp") and not hybrid("hdsp")
    with pytest.raises(UnknownName, match="did you mean 'hsdp'"):
        strategy_named("hdsp")


@pytest.mark.parametrize(
    ("per_node", "nodes", "tp", "shared"), [(8, 4, 1, 8), (8, 4, 2, 4), (8, 1, 1, 0), (2, 3, 1, 2)]
)
def test_hybrid_sharding_shares_within_a_node(
    per_node: int, nodes: int, tp: int, shared: int
) -> None:
    assert node_shard_ranks({per_node}, nodes, tp) == shared


@pytest.mark.parametrize(
    ("per_node", "tp", "said"),
    [({2, 3}, 1, "equally many GPUs, not 2, 3"), ({8}, 8, "tp=8 leaves one rank"),
     ({1}, 1, "a node of several GPUs")],
)  # fmt: skip
def test_where_hybrid_sharding_cannot_be(per_node: set[int], tp: int, said: str) -> None:
    with pytest.raises(InvalidConfig, match=said):
        node_shard_ranks(per_node, 2, tp)


@pytest.mark.parametrize(
    ("issuer", "compiled", "eager"),
    [("torch", False, True), ("torch", True, False), ("graph", False, False),
     ("megatron", False, False), ("megatron", True, False)],
)  # fmt: skip
def test_operators_are_issued_one_by_one_by_torch_that_compiles_nothing(
    issuer: str, compiled: bool, eager: bool
) -> None:
    assert strategy("ddp", issuer=issuer, compiled=compiled).eager == eager


def test_what_a_strategy_does_where_nothing_is_said() -> None:
    """FSDP and DeepSpeed gather one block ahead; torch's DDP wraps even a single device."""
    assert on_by_default(Strategy) == {
        "prefetch_blocks": 1, "expert_ranks": 1.0, "waits_for_gradients": True,
    }  # fmt: skip
    assert on_by_default(Offload) == {}
    assert on_by_default(Buckets) == {
        "cap_bytes": 25 * MIB, "first_bytes": MIB, "wraps_alone": True, "zero_numel": 500_000_000,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("gpus", "nodes", "tp", "ranks"),
    [([8], 4, 1, 8), ([8], 4, 4, 2), ([8], 1, 1, 0), ([2], 2, 1, 2)],
)  # fmt: skip
def test_hsdp_shards_over_the_data_ranks_of_a_node(
    gpus: list[int], nodes: int, tp: int, ranks: int
) -> None:
    assert node_shard_ranks(gpus, nodes, tp) == ranks


@pytest.mark.parametrize(
    ("gpus", "tp", "said"),
    [([4, 8], 1, "not 4, 8: use zero3"), ([2], 2, "tp=2 leaves one rank"),
     ([8], 8, "tp=8 leaves one rank"), ([1], 1, "within a node of several GPUs")],
)  # fmt: skip
def test_hsdp_needs_equal_nodes_of_several_data_ranks(gpus: list[int], tp: int, said: str) -> None:
    with pytest.raises(InvalidConfig, match=said):
        node_shard_ranks(gpus, 2, tp)
