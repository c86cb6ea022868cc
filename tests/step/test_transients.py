"""Bytes that an op holds beside what it saves, worked out for single kernels.

Under autocast to bf16 elements have 2 bytes (``low``) or 4 (``high``).
"""

from __future__ import annotations

from typing import Any

import pytest

from simcore.step.transients import (
    Backward,
    backward_bytes,
    context_of,
    just_written,
    output_bytes,
    saved_bytes,
    storages,
)
from simcore.strategy.precision import PRECISIONS
from simcore.workload.graph import Affine, Kernel, Op
from simcore.workload.saved import Saved

AMP, BF16, FP32, FP8 = (PRECISIONS[name] for name in ("amp-bf16", "bf16", "fp32", "fp8"))


def elementwise(**amounts: Any) -> Kernel:
    return Kernel(kind="elementwise", **amounts)


def product(m: Affine, n: Affine, groups: Affine, **amounts: Any) -> Kernel:
    return Kernel(kind="gemm", m=m, n=n, groups=groups, **amounts)


def fixed(n: float) -> Affine:
    return Affine(fixed=n)


def each(n: float) -> Affine:
    return Affine(per_sample=n)


def forward(*kernels: Kernel, **more: Any) -> Op:
    return Op(name="op", fwd=kernels, **more)


def backward(*kernels: Kernel, fwd: tuple[Kernel, ...] = (), **more: Any) -> Op:
    return Op(name="op", fwd=fwd, bwd=kernels, **more)


def test_a_gradient_over_what_forward_saved_needs_no_memory_of_its_own() -> None:
    """Liger's gated activation of 5 elements: its backward holds the gradient of its result; gate
    and up, which are saved, become their own gradients (liger_kernel/ops/swiglu.py)."""
    fwd, bwd = elementwise(low=15.0), elementwise(low=25.0)
    gated = {"fwd": (fwd,), "bwd": (bwd,), "saved": Saved(low=10.0), "result": Saved(low=5.0)}
    plain, over = (
        backward_bytes(Op(name="product", gradient_in_place=on, **gated), BF16)
        for on in (False, True)
    )
    assert plain.held == 2 * 15.0
    assert over == Backward(2 * 5.0, 0.0)


def test_each_class_of_saved_tensors_has_its_width() -> None:
    saved = Saved(
        low=1.0,
        high=10.0,
        raw_bytes=7.0,
        matmul=100.0,
        matmul_copy=1000.0,
        autocast=3.0,
        narrowed=5.0,
    )
    assert storages(saved, AMP) == (2.0, 40.0, 7.0, 200.0, 6.0, 10.0)
    assert storages(saved, BF16) == (2.0, 20.0, 7.0, 200.0, 10.0)
    assert storages(saved, FP32) == (4.0, 40.0, 7.0, 400.0)
    assert storages(saved, FP8) == (2.0, 20.0, 7.0, 100.0, 1000.0, 10.0)
    assert saved_bytes(saved, AMP) == 265.0
    assert storages(Saved(), AMP) == ()


@pytest.mark.parametrize(
    ("kernel", "expected"),
    [
        # half of what a kernel moves: 10 x 2 + 3 x 4 + 8 bytes
        (elementwise(low=10.0, high=3.0, raw_bytes=8.0), 20.0),
        # two launches of a chain each move half; those of a softmax are one operation
        (elementwise(low=8.0, launches=2.0), 4.0),
        (elementwise(low=8.0, launches=0.5), 8.0),
        (Kernel(kind="softmax", low=8.0, launches=2.0), 8.0),
        # casts: the wider side; a copy of one width is like any kernel
        (Kernel(kind="copy", low=10.0), 10.0),
        (Kernel(kind="copy", high=10.0), 20.0),
        (Kernel(kind="copy", low=10.0, high=6.0), 24.0),
        (Kernel(kind="copy", low=20.0, high=6.0), 40.0),
        (Kernel(kind="copy", low=10.0, raw_bytes=30.0), 30.0),
        (Kernel(kind="copy", low=10.0, high=6.0, raw_bytes=100.0), 24.0),
        (elementwise(low=10.0, high=6.0), 22.0),
        # products: 8 rows a sample of 5 columns in 3 groups, whatever is moved
        (product(each(8.0), fixed(5.0), fixed(3.0), low=1.0), 240.0),
        (product(fixed(8.0), fixed(5.0), each(3.0), low=1.0), 240.0),
        # rows and columns, or neither, that grow with the batch: no output of a layer
        (product(each(8.0), each(5.0), fixed(3.0), low=1.0), 0.0),
        (product(fixed(8.0), fixed(5.0), fixed(3.0), low=1.0), 0.0),
    ],
)
def test_output_of_one_kernel(kernel: Kernel, expected: float) -> None:
    assert output_bytes(forward(kernel), AMP) == expected


def test_output_is_of_the_last_kernel_that_makes_one() -> None:
    small, large, none = elementwise(low=4.0), elementwise(low=9.0), elementwise(weight=9.0)
    assert output_bytes(forward(small, large), AMP) == 9.0
    assert output_bytes(forward(large, small), AMP) == 4.0
    assert output_bytes(forward(large, small, none), AMP) == 4.0
    assert output_bytes(forward(small, sink=True), AMP) == 0.0
    assert output_bytes(forward(), AMP) == 0.0
    assert output_bytes(forward(small, result=Saved(high=3.0)), AMP) == 12.0
    assert output_bytes(forward(small, result=Saved(high=3.0), sink=True), AMP) == 12.0


def test_backward_holds_no_more_than_forward_moved() -> None:
    """Forward moves 20 bytes; backward's 60 include tensors that forward saved."""
    once, more = elementwise(low=10.0), elementwise(low=30.0)
    assert backward_bytes(backward(more, fwd=(once,)), AMP) == Backward(20.0, 10.0)
    assert backward_bytes(backward(once, fwd=(more,)), AMP) == Backward(20.0, 10.0)
    assert backward_bytes(backward(more), AMP) == Backward(60.0, 30.0)
    # a cast of 20 to 24 bytes makes the narrower tensor, unless it moves more than forward did
    cast = Kernel(kind="copy", low=10.0, high=6.0)
    for moved, held in ((23.0, Backward(44.0, 20.0)), (22.0, Backward(44.0, 20.0)),
                        (21.0, Backward(42.0, 21.0))):  # fmt: skip
        assert backward_bytes(backward(cast, fwd=(elementwise(low=moved),)), AMP) == held
    # the largest kernel of each
    assert backward_bytes(backward(more, fwd=(once, elementwise(low=20.0))), AMP) == (40.0, 20.0)
    assert backward_bytes(backward(more, once, fwd=(more,)), AMP) == Backward(60.0, 30.0)


def test_backward_in_place_and_of_a_loss() -> None:
    """In place nothing is new; of a loss the gradient that its largest kernel writes."""
    few, many = elementwise(low=4.0), elementwise(low=8.0)
    assert backward_bytes(backward(many, in_place=True), AMP) == Backward(0.0, 0.0)
    assert backward_bytes(backward(many, few, sink=True), AMP) == Backward(8.0, 8.0)
    assert backward_bytes(backward(sink=True), AMP) == Backward(0.0, 0.0)
    assert backward_bytes(backward(), AMP) == Backward(0.0, 0.0)


def test_backward_of_a_product() -> None:
    """The input's gradient: 8 x 5 x 2 = 80 bytes made of 120 moved; the weight's is not handed on.

    Operands are not compared with what forward moved, and nothing handed on exceeds what is held.
    """
    data = product(each(8.0), fixed(5.0), fixed(1.0), low=60.0)
    weight = product(fixed(8.0), fixed(5.0), fixed(1.0), low=75.0)
    assert backward_bytes(backward(data, fwd=(elementwise(low=1.0),)), AMP) == (120.0, 80.0)
    assert backward_bytes(backward(data, weight), AMP) == Backward(150.0, 80.0)
    small = product(each(8.0), fixed(5.0), fixed(1.0), low=1.0)
    assert backward_bytes(backward(small), AMP) == Backward(2.0, 2.0)


def test_backward_of_flash_attention() -> None:
    """1000 elements moved: half is gradients, 1000 bytes; q's sum is 4 x 16 x 3 of fp32, 768."""
    flash = Kernel(kind="attention_v2", m=fixed(4.0), n=fixed(16.0), groups=each(3.0), low=1000.0)
    assert backward_bytes(backward(flash, fwd=(elementwise(low=1.0),)), AMP) == (1768.0, 1000.0)


def test_kernels_read_what_the_one_before_wrote() -> None:
    """100 elements through a product, a GELU and a sum with a residual, and back, in bf16."""
    one, both = fixed(1.0), each(10.0)
    up = product(both, fixed(10.0), one)
    ops = (
        Op(name="up", fwd=(up,), bwd=(up,)),
        Op(name="gelu", fwd=(elementwise(low=200.0),), bwd=(elementwise(low=300.0),)),
        Op(name="sum", fwd=(elementwise(low=300.0),), result=Saved(low=100.0)),
        Op(name="mean", fwd=(Kernel(kind="reduction", low=100.0),)),
    )
    fresh = {k.kind + str(k.low): n for k, n in just_written(ops, BF16, backward=False)}
    assert fresh == {
        "gemm0.0": 0.0, "elementwise200.0": 200.0,
        "elementwise300.0": 200.0, "reduction100.0": 200.0,
    }  # fmt: skip
    back = just_written(ops, BF16, backward=True)
    assert [(k.kind, n) for k, n in back] == [("gemm", 0.0), ("elementwise", 200.0)]
    first = just_written(ops[1:2], BF16, backward=False)
    assert [n for _, n in first] == [0.0]  # what was before is not known


def test_what_a_kernel_reads_anew_is_what_was_written_and_no_more_than_it_reads() -> None:
    """A product writes 10 x 30 elements of 2 bytes. Half of what a kernel moves is read, of a
    reduction all of it; the kernels of an op read what the one before them wrote."""
    made = Op(name="made", fwd=(product(each(10.0), fixed(30.0), fixed(1.0)),))

    def fresh(*kernels: Kernel) -> list[float]:
        return [n for _, n in just_written((made, forward(*kernels)), BF16, backward=False)][1:]

    assert fresh(elementwise(low=200.0)) == [200.0]
    assert fresh(elementwise(low=400.0)) == [400.0]
    assert fresh(elementwise(low=900.0)) == [600.0]
    assert fresh(Kernel(kind="reduction", low=200.0)) == [400.0]
    assert fresh(elementwise(low=100.0), elementwise(low=300.0)) == [100.0, 100.0]
    assert fresh(elementwise(low=600.0), elementwise(low=100.0)) == [600.0, 100.0]
    # each launch of a chain reads its share; a product's operands count as none
    assert fresh(elementwise(low=600.0, launches=3.0)) == [200.0]
    assert fresh(product(each(10.0), fixed(5.0), fixed(1.0)), elementwise(low=900.0)) == [
        0.0,
        100.0,
    ]


def test_kernels_of_a_backward_read_the_gradient_of_the_result() -> None:
    """Of 100 elements of 2 bytes, both kernels of the op, but for what a product makes of it."""
    twice = backward(elementwise(low=300.0), elementwise(low=500.0), result=Saved(low=100.0))
    assert [n for _, n in just_written((twice,), BF16, backward=True)] == [200.0, 200.0]
    both = backward(
        product(each(10.0), fixed(3.0), fixed(1.0)), elementwise(low=500.0),
        result=Saved(low=100.0),
    )  # fmt: skip
    assert [n for _, n in just_written((both,), BF16, backward=True)] == [0.0, 60.0]
    # the op before it, which has no result of its own, reads the same gradient
    assert [n for _, n in just_written((backward(elementwise(low=500.0)), twice), BF16, True)] == [
        200.0, 200.0, 200.0,
    ]  # fmt: skip


def test_a_tensor_in_place_stays_the_one_that_was_written() -> None:
    drop = Op(name="dropout", fwd=(elementwise(low=200.0),), in_place=True)
    ops = (Op(name="a", fwd=(elementwise(low=200.0),)), drop, drop)
    assert [n for _, n in just_written(ops, FP32, backward=False)] == [0.0, 400.0, 400.0]


def test_what_decides_what_an_op_reads_reaches_to_the_last_op_that_writes_anew() -> None:
    """In backward the ops after it, up to the first that has a result."""
    names = {"a": False, "b": False, "c": True, "d": True, "e": False}
    ops = [
        Op(name=name, fwd=(elementwise(low=2.0),), bwd=(elementwise(low=2.0),), in_place=in_place)
        for name, in_place in names.items()
    ]
    forward = [[op.name for op in context_of(ops, j, BF16, backward=False)] for j in range(5)]
    assert forward == [["a"], ["a", "b"], ["b", "c"], ["b", "c", "d"], ["b", "c", "d", "e"]]
    assert [op.name for op in context_of(ops, 1, BF16, backward=True)] == ["b"]
