"""Sizes of parts of a model, worked out for two or three blocks under autocast to bf16.

There ``low`` elements have 2 bytes, ``high`` ones and parameters 4, frozen weights of adapters 2.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from strategies import block, strategy, workload

from simcore.memory.parts import (
    SavedActivations,
    frozen_away,
    frozen_base,
    frozen_width,
    parts_of,
    saved_activations,
    stub_bytes,
)
from simcore.strategy.precision import PRECISIONS
from simcore.strategy.strategy import Offload
from simcore.workload.graph import Affine, Block, Frozen, Kernel, Op, Param, Workload
from simcore.workload.saved import Saved

AMP = PRECISIONS["amp-bf16"]


def outer_and_two_layers(**of_layer: Any) -> Workload:
    """A block that saves 3 elements, and twice a layer that saves 7 narrow and 1 wide one."""
    outer = block("outer", [4], saved=Saved(low=3.0))
    layer = block("layer", [10, 2], saved=Saved(low=7.0, high=1.0), recomputable=True, **of_layer)
    return workload([outer, layer], [0, 1, 1])


def frozen(numel: int, **more: Any) -> Frozen:
    return Frozen(name="net", resident_numel=numel, ops=more.pop("ops", ()), **more)


OPS = (Op(name="op", fwd=(Kernel(kind="gemm", flop=1.0),)),)


def test_what_a_part_saves() -> None:
    """3 x 2 and 2 x (7 x 2 + 4) bytes; of recomputed layers their input of 5 x 2 instead."""
    model = outer_and_two_layers(boundary=Saved(low=5.0))
    assert saved_activations(model, AMP, False) == SavedActivations(
        42.0, 0.0, {6.0: 1, 14.0: 2, 4.0: 2}
    )
    assert saved_activations(model, AMP, True) == SavedActivations(26.0, 20.0, {6.0: 1, 10.0: 2})


def test_inputs_that_leave_the_device_are_not_kept() -> None:
    """3 of 5 elements stay: 6 bytes twice, of the size of the outer block's."""
    model = outer_and_two_layers(boundary=Saved(low=5.0), offloaded=Saved(low=2.0))
    assert saved_activations(model, AMP, True) == SavedActivations(18.0, 12.0, {6.0: 3})


def test_width_of_frozen_weights() -> None:
    """As stated; as trained weights where the network runs itself; else as products read them."""
    assert frozen_width(frozen(1, bytes_per_param=0.5, ops=OPS), AMP) == 0.5
    assert frozen_width(frozen(1, bytes_per_param=0.0), AMP) == 0.0
    assert frozen_width(frozen(1, ops=OPS), AMP) == 4
    assert frozen_width(frozen(1, as_trained=True), AMP) == 4
    assert frozen_width(frozen(1), AMP) == 2


@pytest.mark.parametrize(
    ("numel", "expected"),
    # two layers of 10 x 2 + 3 bytes, of which experts' 4 x 2 + 1; at most what is resident
    [(100, (46.0, 18.0)), (20, (40.0, 18.0)), (5, (10.0, 10.0))],
)
def test_frozen_base_of_adapters(numel: int, expected: tuple[float, float]) -> None:
    layer = block(
        "layer", [1], base_numel=10, packed_bytes=3.0, routed_base_numel=4, routed_packed_bytes=1.0
    )
    nets = (frozen(numel), frozen(1000, ops=OPS))
    assert frozen_base(workload([layer], [0, 0], frozen=nets), AMP) == expected


@pytest.mark.parametrize(
    ("shards", "expert_ranks", "away"),
    # 60 bytes of all and 40 of experts; these are sharded over shards / expert_ranks
    [(4.0, 2.0, 60 * 3 / 4 + 40 / 2), (4.0, 1.0, 75.0), (4.0, 8.0, 45.0), (1.0, 1.0, 0.0)],
)
def test_frozen_base_on_other_ranks(shards: float, expert_ranks: float, away: float) -> None:
    assert float(frozen_away((100.0, 40.0), shards, expert_ranks)) == away


def product(k: float, n: float) -> Op:
    """A layer's matrix, whose gradient sums over the batch."""
    forward = Kernel(kind="gemm", k=Affine(fixed=k), n=Affine(fixed=n))
    back = Kernel(kind="gemm", k=Affine(per_sample=1.0))
    return Op(name="op", fwd=(forward,), bwd=(back,), gemm_weight=k * n)


def test_stubs_have_one_tensor_a_shape() -> None:
    """3 x 5 twice and 2 x 7: (15 + 14) x 4 bytes; outside the layers there is none."""
    ops = (product(3.0, 5.0), product(3.0, 5.0), product(2.0, 7.0))
    layer = Block(name="layer", ops=ops, recomputable=True)
    head = Block(name="head", ops=(product(9.0, 9.0),))
    model = workload([layer, head], [0, 0, 1])
    assert stub_bytes(model, replace(AMP, main_grads=True)) == 116.0
    assert stub_bytes(model, AMP) == 0.0


def test_sizes_of_two_parts() -> None:
    """Every size of a part with frozen networks, and of one with a single block."""
    nets = (
        frozen(50, transient_low=8.0, ops=OPS), frozen(7, transient_low=3.0),
        frozen(2, bytes_per_param=0.5),
    )  # fmt: skip
    experts = Block(name="experts", ops=OPS, params=(Param("e", 6, routed=True), Param("r", 1)))
    outer_layer = outer_and_two_layers(boundary=Saved(low=5.0), base_numel=3, routed_base_numel=1)
    blocks = (*outer_layer.blocks, experts)
    first = workload(blocks, [0, 1, 1, 2, 2], frozen=nets, buffers_numel=6)
    second = workload([block("out", [3], saved=Saved(high=1.0))])
    parts = parts_of((first, second), strategy("ddp", "amp-bf16", offload=Offload(blocks=1)))
    sizes = {name: array.tolist() for name, array in parts.sizes._asdict().items()}
    assert sizes == {
        "trainable_numel": [4 + 2 * 12 + 2 * 7, 3],
        "expert_numel": [12, 0],
        "layers_numel": [24, 0],
        "largest_block_numel": [12, 3],
        "largest_param_numel": [10, 3],
        "kept": [42, 4],
        "inputs": [0, 0],
        "transient_frozen": [16, 0],
        # 50 x 4 + 7 x 2 + 2 / 2, and 6 elements of buffers as wide as weights
        "resident_frozen": [215 + 24, 0],
        "base": [2 * 3 * 2, 0],
        "routed_base": [2 * 1 * 2, 0],
        "swapped_base": [3 * 2, 0],
        "stubs": [0, 0],
        "rests": [0, 0],
    }
    assert parts.storage_bytes.tolist() == [[6, 4], [14, 0], [4, 0]]
    assert parts.storage_count.tolist() == [[1, 1], [2, 0], [2, 0]]
    each = parts.sizes_at(np.array([1, 0, 1]))
    assert each.trainable_numel.tolist() == [3, 42, 3] and each.kept.tolist() == [4, 42, 4]


def test_a_single_part_is_that_of_all_configurations() -> None:
    parts = parts_of((workload([block("b", [3])]),), strategy("ddp", "amp-bf16"))
    assert parts.sizes_at(np.array([0, 0, 0])) is parts.sizes
    assert parts.storage_bytes.tolist() == parts.storage_count.tolist() == [[0.0]]


def test_parts_under_full_recompute() -> None:
    model = outer_and_two_layers(boundary=Saved(low=5.0))
    parts = parts_of((model,), strategy("ddp", "amp-bf16", recompute="full"))
    assert parts.sizes.kept.tolist() == [26.0] and parts.sizes.inputs.tolist() == [20.0]
