"""Which tensors of a block begin and end at each op, against lists by hand."""

from __future__ import annotations

import pytest
from strategies import block, strategy

from simcore.base.record import Same
from simcore.memory.moments import (
    COPY,
    EARLY,
    GRADIENT,
    SAVED,
    STUB,
    TERMS,
    WORKING,
    Tensor,
    gradients_after,
    held_at_ticks,
    shared_with_input,
    takes_input,
    tensors_of,
    ticks_of,
)
from simcore.step.transients import storages
from simcore.workload import ops
from simcore.workload.graph import Affine, Block, Kernel, Op
from simcore.workload.saved import Saved

BF16 = strategy("ddp", "bf16").precision
SAMPLE = Affine(per_sample=1.0)


def product(name: str, elems: float, *, saved: float, weight: float = 0.0, **more: object) -> Op:
    """A matrix product with a result of ``elems`` elements a sample; backward moves twice that."""
    forward = Kernel(kind="gemm", m=SAMPLE, n=Affine(elems), low=2.0 * elems, weight=weight)
    backward = Kernel(kind="gemm", m=SAMPLE, n=Affine(elems), low=2.0 * elems)
    return Op(
        name=name, fwd=(forward,), bwd=(backward,), saved=Saved(low=saved), gemm_weight=weight,
        **more,  # type: ignore[arg-type]
    )  # fmt: skip


def two_ops(**more: object) -> Block:
    """``a`` saves 10 elements and writes 20, which ``b`` saves; ``b`` writes 15."""
    params = block("x", [7, 5]).params
    a = product("a", 20.0, saved=10.0, weight=7.0)
    b = product("b", 15.0, saved=20.0, weight=5.0)
    return Block(name="two", ops=(a, b), params=params, **more)  # type: ignore[arg-type]


def tensors(of: Block, *, pins: bool = True, again: bool = False) -> list[Tensor]:
    return list(tensors_of(Same(of), BF16, pins=pins, again=again))


def of_kind(found: list[Tensor], kind: int) -> list[tuple[str, float, int, int]]:
    return [(t.op, t.size, t.begin, t.end) for t in found if t.kind == kind]


def test_each_tensor_of_two_ops() -> None:
    """Ticks 0 and 1 are forward of a and b, 2 and 3 backward of b and a; 2 bytes an element."""
    found = tensors(two_ops())
    assert of_kind(found, SAVED) == [("a", 20.0, 0, 3), ("a", 40.0, 0, 2)]
    assert of_kind(found, COPY) == [("a", 7.0, 0, 3), ("b", 5.0, 1, 2)]
    assert of_kind(found, WORKING) == [
        ("b", 30.0, 1, 1),  # what the block hands on
        ("b backward", 30.0, 2, 2),
        ("b gradient", 30.0, 2, 3),
        ("a backward", 10.0, 3, 3),
        ("a gradient", 40.0, 3, 3),
    ]
    assert of_kind(found, GRADIENT) == [("p1", 5.0, 2, 4), ("p0", 7.0, 3, 4)]


def test_gradients_of_several_branches_are_summed_and_end_before_the_next_op() -> None:
    """A gradient that is larger than what the next op holds besides what it hands on."""
    wide = product("b", 30.0, saved=20.0)
    found = tensors(Block(name="x", ops=(product("a", 20.0, saved=10.0), wide)))
    (gradient,) = (t for t in found if t.op == "b gradient")
    assert gradient == Tensor(WORKING, 60.0, "b gradient", 2, 2, late=True)
    assert of_kind(found, WORKING)[-2:] == [("a backward", 40.0, 3, 3), ("a gradient", 40.0, 3, 3)]


@pytest.mark.parametrize("recomputable", [False, True])
def test_stubs_are_of_weights_outside_the_layers(recomputable: bool) -> None:
    found = of_kind(tensors(two_ops(recomputable=recomputable)), STUB)
    assert not found
    forward, weights = Kernel(kind="gemm"), Kernel(kind="gemm", k=SAMPLE)
    op = Op(name="head", fwd=(forward,), bwd=(weights,), gemm_weight=42.0)
    found = tensors(Block(name="x", ops=(op,), recomputable=recomputable))
    assert of_kind(found, STUB) == ([] if recomputable else [("head", 42.0, 1, 1)])


def test_operands_of_backward_are_what_it_holds() -> None:
    """Gradient in, scratch and gradient out of an op add up to ``backward_bytes``."""
    held = held_at_ticks(Same(two_ops()), BF16, pins=True, again=False)
    assert held[:, SAVED].tolist() == [60.0, 60.0, 60.0, 20.0]
    assert held[:, COPY].tolist() == [7.0, 12.0, 12.0, 7.0]
    assert held[:, GRADIENT].tolist() == [0.0, 0.0, 5.0, 12.0]
    assert held[1, WORKING] == 30.0
    assert held[2, WORKING] == 2 * 2 * 15.0
    assert held[3, WORKING] == 2 * 2 * 20.0


def test_a_checkpoint_saves_nothing() -> None:
    found = tensors(two_ops(), pins=False)
    assert {t.kind for t in found} == {WORKING, COPY}
    assert of_kind(found, WORKING) == [("a", 40.0, 0, 1), ("b", 30.0, 1, 1)]


def test_what_runs_again_is_work_and_its_input_exists_once() -> None:
    whole = two_ops(boundary=Saved(low=10.0), recomputable=True)
    assert shared_with_input(whole, BF16) == 20.0
    found = tensors(whole, again=True)
    assert not of_kind(found, SAVED) and not of_kind(found, STUB)
    assert of_kind(found, WORKING)[0] == ("a", 40.0, 0, 2)
    assert not [t for t in found if t.size == 20.0 and t.begin == 0]
    other = two_ops(boundary=Saved(low=11.0), recomputable=True)
    assert shared_with_input(other, BF16) == 0.0
    assert of_kind(tensors(other, again=True), WORKING)[0] == ("a", 20.0, 0, 3)


def test_a_result_that_nothing_saves_ends_with_the_op_that_reads_it() -> None:
    first = product("a", 20.0, saved=0.0)
    second = product("b", 30.0, saved=0.0)
    third = product("c", 40.0, saved=0.0)
    found = tensors(Block(name="x", ops=(first, second, third)), pins=False)
    assert of_kind(found, WORKING) == [("a", 40.0, 0, 1), ("b", 60.0, 1, 2), ("c", 80.0, 2, 2)]


def test_a_result_that_its_op_saves_is_one_tensor() -> None:
    found = tensors(Block(name="x", ops=(product("a", 20.0, saved=20.0),)))
    assert [t for t in found if t.begin == 0] == [Tensor(SAVED, 40.0, "a", 0, 1, late=True)]


def test_an_op_in_place_hands_on_its_input() -> None:
    first, second = product("a", 20.0, saved=0.0), product("b", 30.0, saved=0.0, in_place=True)
    third = product("c", 5.0, saved=20.0)
    found = tensors(Block(name="x", ops=(first, second, third)))
    assert of_kind(found, SAVED) == [("a", 40.0, 0, 3)]  # until backward of c, the first


def test_gradients_made_in_forward_are_there_for_their_op_only() -> None:
    op = product("head", 20.0, saved=10.0, grad_early=6.0)
    assert of_kind(tensors(Block(name="x", ops=(op,))), EARLY) == [("head", 6.0, 0, 0)]


def test_recomputed_ops_of_a_module_are_there_all_through_its_backward() -> None:
    whole = two_ops(recomputed=Saved(low=9.0, high=4.0))
    found = of_kind(tensors(whole), WORKING)
    assert ("recomputed", 18.0, 2, 3) in found and ("recomputed", 8.0, 2, 3) in found
    assert ("recomputed", 18.0, 2, 3) not in of_kind(tensors(whole, pins=False), WORKING)


def test_the_parts_of_a_tick() -> None:
    """Operands begin, end, gradients begin, what forward saved ends."""
    found = tensors(two_ops())
    ticks = ticks_of(Same(two_ops()), BF16, pins=True, again=False)
    assert len(ticks) == 5
    named = [[[(found[k].kind, found[k].op) for k in part] for part in tick] for tick in ticks]
    begin, done, gradients, late = named[2]
    assert (WORKING, "b gradient") in begin and (WORKING, "b gradient") not in done
    assert gradients == [(GRADIENT, "p1")]
    assert late == [(SAVED, "a"), (COPY, "b")]
    assert (WORKING, "b gradient") in named[3][1]
    assert named[4] == [[], [], [], []]
    begun = sorted(k for tick in ticks for part in (tick.begin, tick.gradients) for k in part)
    ended = sorted(k for tick in ticks for part in (tick.done, tick.late) for k in part)
    assert begun == list(range(len(found)))
    assert ended == [k for k, t in enumerate(found) if t.kind != GRADIENT]


def test_a_loss_that_reads_logits_keeps_the_very_tensor() -> None:
    """Not a second one beside them: what a fused loss keeps is what the head wrote."""
    loss, _ = ops.loss_compiled("loss", 10.0, 1000)
    logits = 2.0 * 10 * 1000
    assert takes_input(loss, logits, storages(loss.saved, BF16))
    head = product("head", 10_000.0, saved=3.0)
    found = tensors(Block(name="x", ops=(head, loss)))
    assert of_kind(found, SAVED)[:2] == [("head", 6.0, 0, 3), ("head", logits, 0, 2)]
    assert [t.size for t in found if t.begin == 1 and t.kind == SAVED] == [80.0]  # the labels


@pytest.mark.parametrize(
    ("before", "words", "taken"),
    [(40.0, {}, True), (0.0, {}, False), (41.0, {}, False), (40.0, {"saves_result": True}, False),
     (40.0, {"saves_result": True, "sink": True}, True),
     (40.0, {"saves_result": True, "in_place": True}, True)],
)  # fmt: skip
def test_whether_what_is_saved_is_the_input(
    before: float, words: dict[str, bool], taken: bool
) -> None:
    assert takes_input(product("a", 20.0, saved=20.0, **words), before, [40.0]) is taken


def test_softmax_saves_its_result() -> None:
    op = Op(name="s", fwd=(Kernel(kind="softmax"),), bwd=(), saved=Saved(low=20.0))
    assert not takes_input(op, 40.0, [40.0])


@pytest.mark.parametrize(
    ("weights", "numels", "counts"),
    [
        ((1.0, 1.0), (10, 10), (2, 1)),
        ((3.0, 1.0), (10, 10, 20), (3, 1)),
        ((1.0, 3.0), (10, 10, 20), (3, 2)),
        ((0.0, 1.0), (10, 10), (2, 2)),
        ((1.0, 1.0, 2.0), (10, 10, 20), (3, 2, 1)),
        ((2.0, 1.0, 1.0), (10, 10, 10, 10), (4, 2, 1)),
        ((1.0, 0.0), (10, 10), (2, 0)),
        ((0.0, 0.0), (10, 10), (0, 0)),
    ],
)
def test_gradients_come_in_the_order_of_backward(
    weights: tuple[float, ...], numels: tuple[int, ...], counts: tuple[int, ...]
) -> None:
    made = tuple(product(f"op{i}", 1.0, saved=1.0, weight=w) for i, w in enumerate(weights))
    whole = Block(name="x", ops=made, params=block("x", numels).params)
    assert gradients_after(whole) == counts
    found = [t for t in tensors(whole) if t.kind == GRADIENT]
    assert [t.op for t in found] == [f"p{i}" for i in reversed(range(len(numels)))]
    for j, count in enumerate(counts):
        assert sum(t.begin <= 2 * len(made) - 1 - j for t in found) == count
    assert len(TERMS) == 6


def test_what_an_op_needs_beside_is_there_twice_in_its_backward() -> None:
    """3 elements of 2 bytes: once while forward runs, with their gradient in backward."""
    op = product("a", 20.0, saved=10.0, beside=Saved(low=3.0))
    found = [t for t in tensors(Block(name="x", ops=(op,))) if "beside" in t.op]
    assert found == [
        Tensor(WORKING, 6.0, "a beside", 0, 0),
        Tensor(WORKING, 12.0, "a beside backward", 1, 1),
    ]
