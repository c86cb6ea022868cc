"""Host work beside kernels: every count of kernel issues worked out for blocks of a few tensors."""

from __future__ import annotations

import pytest
from strategies import on_by_default, strategy, workload

from simcore.step.host_calls import (
    Managed,
    adapters,
    calls,
    driver_issues,
    managed,
    unit_calls,
    weight_casts,
)
from simcore.strategy.programs import program_named
from simcore.strategy.programs.mechanisms import (
    ModuleHooks,
    ModuleOverhead,
    TrainerLoop,
    UnitHooks,
)
from simcore.workload.graph import Block, Frozen, Kernel, Op, Param, Workload

FROZEN = Frozen(name="encoder", resident_numel=5, ops=())
HOOKS = ModuleHooks(
    module=(1.0, 10.0), layer=(0.5, 5.0), matrix=(2.0, 20.0), gradient=3.0, bucket=4.0
)
OVERHEAD = ModuleOverhead(layer=(10.0, 60.0), adapter=(3.0, 5.0))


def matrix(name: str) -> Op:
    return Op(name=name, fwd=(Kernel(kind="gemm", flop=1.0, weight=6.0),))


def made_of(*names: str, **more: object) -> Block:
    """A block with a matrix product for each name, and an op without a weight."""
    attention = Op(name="scores", fwd=(Kernel(kind="gemm", flop=1.0),))
    lookup = Op(name="lookup", fwd=(Kernel(kind="copy", weight=6.0),))
    ops = (*map(matrix, names), attention, lookup)
    return Block(name="b", ops=ops, **more)  # type: ignore[arg-type]


def params(**sizes: int) -> tuple[Param, ...]:
    return tuple(Param(name.replace("_", "."), n) for name, n in sizes.items())


def pair_of(model: Workload, by: Managed) -> list[float]:
    """Issues of the only block, forward and backward."""
    return calls(model, False, False, by).tolist()


@pytest.mark.parametrize(
    ("recompute", "early", "expected"),
    [
        # forward of both blocks, backward of both, the frozen network; 2 issues a collective
        (False, False, [6.0, 2.0, 6.0, 2.0, 0.0]),
        (True, False, [6.0, 2.0, 6.0, 2.0 + 9.0, 0.0]),
        (True, True, [6.0, 2.0 + 17.0, 6.0, 2.0 + 41.0, 0.0]),
        (False, True, [6.0, 2.0, 6.0, 2.0, 0.0]),
    ],
)
def test_collectives_and_checkpoints(recompute: bool, early: bool, expected: list[float]) -> None:
    """Only the layer is recomputable; a checkpoint that stops early hooks both directions."""
    blocks = [made_of(exchanges=3), made_of(exchanges=1, recomputable=True)]
    model = workload(blocks, frozen=(FROZEN,))
    assert calls(model, recompute, early, None).tolist() == expected
    assert calls(model, recompute, early, Managed()).tolist() == expected


def test_hooks_of_zero_3() -> None:
    """Two matrices; tensors of 6, 2, 12 and 4 elements in three modules.

    A bucket of 10: tensors 2 and 12, and 12 and 4, do not share one, which is two buckets; elements
    (12 as the 10 that fit) fill 22 / 10 buckets, which is more. Forward 3 x 1 + 2 x 2 = 7; backward
    3 x 10 + 2 x 20 + 4 x 3 + 2.2 x 4 = 90.8. A layer adds 0.5 and 5. A bucket of 7: no two
    neighbours share one, the last and the first neither: 4 buckets, 7.2 issues more.
    """
    tensors = params(a_weight=6, a_bias=2, b_weight=12, norm_weight=4)
    alone, layer = (made_of("a", "b", params=tensors, recomputable=r) for r in (False, True))
    assert pair_of(workload([alone]), Managed(HOOKS, 10)) == pytest.approx([7.0, 90.8])
    assert pair_of(workload([layer]), Managed(HOOKS, 10)) == pytest.approx([7.5, 95.8])
    assert pair_of(workload([alone]), Managed(HOOKS, 7)) == pytest.approx([7.0, 98.0])


def test_hooks_of_frozen_matrices() -> None:
    """A matrix owns a tensor even where none is trained: 2 x (1 + 2) and 2 x (10 + 20)."""
    assert pair_of(workload([made_of("a", "b")]), Managed(HOOKS, 10)) == [6.0, 60.0]


def test_tensors_that_just_fill_a_bucket_share_it() -> None:
    """6 + 4 elements are one bucket of 10: 10 + 2 x 3 + 1 x 4 in backward."""
    block = made_of(params=params(a_weight=6, a_bias=4))
    assert pair_of(workload([block]), Managed(HOOKS, 10)) == [1.0, 20.0]


def test_the_code_of_modules() -> None:
    """10 and 60 for a layer, and 3 and 5 for its adapter; outside the layers the adapter alone."""
    layer = made_of("q", "q.lora_a", "q.lora_b", recomputable=True)
    outer = made_of("head", "head.lora_a", "head.lora_b")
    found = calls(workload([layer, outer]), False, False, Managed(modules=OVERHEAD))
    assert found.tolist() == pytest.approx([13.0, 3.0, 65.0, 5.0])


def units(*, adapters: bool = False) -> Managed:
    hooks = UnitHooks(
        unit=(10.0, 20.0), tensor=(1.0, 2.0), reduced=5.0, reduced_tensor=3.0, adapters=adapters
    )
    return Managed(units=hooks)


def test_one_unit_a_block() -> None:
    """Three tensors: 10 + 3 x 1 forward; 20 + 3 x 2, and reduced 5 + 3 x 3, backward."""
    block = made_of("q", params=params(a=1, b=2, c=3))
    found = unit_calls(workload([block], frozen=(FROZEN,)), units())
    assert found.tolist() == [13.0, 40.0, 0.0]
    assert unit_calls(workload([block], frozen=(FROZEN,)), None).tolist() == [0.0, 0.0, 0.0]
    assert unit_calls(workload([block]), Managed()).tolist() == [0.0, 0.0]


def test_phases_of_units_are_in_the_order_of_blocks() -> None:
    blocks = [made_of(params=params(a=1)), made_of(params=params(a=1, b=1))]
    assert unit_calls(workload(blocks), units()).tolist() == [11.0, 12.0, 30.0, 35.0]


def test_matrices_of_an_adapter_are_units_of_their_own() -> None:
    """A norm and an adapter's two matrices are trained; q and k are frozen.

    The block's unit holds q and k (two matrices are more than one trained tensor): 10 + 2 x 1
    forward, 20 + 2 x 2 + 5 + 3 backward. Each of the two others: 10 + 1, and 20 + 2 + 5 + 3.
    """
    ops = ("q", "k", "q.lora_a", "q.lora_b")
    block = made_of(*ops, params=params(norm=1, la=1, lb=1))
    assert adapters(block) == 1
    assert unit_calls(workload([block]), units(adapters=True)).tolist() == [12 + 22, 32 + 60]
    # As one unit: 3 trained tensors are more than 4 - 2 matrices.
    assert unit_calls(workload([block]), units()).tolist() == [13.0, 40.0]
    # Nothing but the adapter is trained: the block's unit reduces nothing.
    frozen = made_of(*ops, params=params(la=1, lb=1))
    assert unit_calls(workload([frozen]), units(adapters=True)).tolist() == [12 + 22, 24 + 60]


def test_a_block_without_weights_is_no_unit() -> None:
    def of(block: Block) -> list[float]:
        return unit_calls(workload([block]), units()).tolist()

    assert of(made_of()) == [0.0, 0.0]
    assert of(made_of(base_numel=1)) == of(made_of(packed_bytes=1.0)) == [10.0, 20.0]
    assert of(made_of("q")) == [11.0, 22.0]


def test_a_trainer_between_micro_steps() -> None:
    """7, and for each of three layers 2 and two adapters of half an issue; one more outside."""
    layer = made_of("q.lora_a", "q.lora_b", "k.lora_a", "k.lora_b", recomputable=True)
    outer = made_of("head.lora_a", "head.lora_b")
    model = workload([outer, layer], [0, 1, 1, 1])
    driver = TrainerLoop(micro_step=7.0, layer=2.0, adapter=0.5)
    assert driver_issues(model, driver) == 7.0 + 3 * (2.0 + 2 * 0.5) + 0.5


def test_what_each_program_does_around_modules() -> None:
    """Hooks and units where parameters are sharded; transformers' modules whatever is sharded."""
    deepspeed, fsdp, loop = map(program_named, ("deepspeed", "fsdp", "transformers"))
    zero3 = strategy("zero3", program=deepspeed, zero_numel=77)
    assert managed(zero3) == Managed(deepspeed.zero3.hooks, 77)
    assert managed(strategy("zero2", program=deepspeed)) is None
    sharded = strategy("zero3", program=fsdp, zero_numel=77)
    assert managed(sharded) == Managed(units=fsdp.fsdp.units)
    whole = managed(strategy("ddp", program=loop))
    assert whole == Managed(modules=loop.host.modules) != Managed()
    both = managed(strategy("zero3", program=loop))
    assert both == Managed(units=loop.fsdp.units, modules=loop.host.modules)


def test_autocast_casts_each_matrix_and_the_biases_of_matrices() -> None:
    """Two matrices of which one has a bias, a norm whose bias is no matrix's, a bare block."""
    two = Block(
        name="two",
        ops=(Op(name="up", fwd=(), gemm_weight=12.0), Op(name="down", fwd=(), gemm_weight=6.0),
             Op(name="act", fwd=())),
        params=params(up_weight=12, up_bias=4, down_weight=6, norm_weight=3, norm_bias=3),
    )  # fmt: skip
    bare = Block(name="bare", ops=(), params=params(norm_weight=3, norm_bias=3))
    model = workload([two, bare]).replace(frozen=(FROZEN,))
    assert weight_casts(model).tolist() == [2 + 1, 0, 1, 0, 0]


def test_a_library_that_says_no_bucket_has_none() -> None:
    assert on_by_default(Managed) == {}
