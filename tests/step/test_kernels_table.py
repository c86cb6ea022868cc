"""Columns of the kernel table, of one kernel each, worked out by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from simcore.step.kernels import (
    BATCHED,
    BATCHED_LOADS,
    CAST,
    DEPTH_LOADS,
    DEPTHWISE_LAST,
    KINDS,
    NARROW_LOADS,
    PLANES,
    UNALIGNED,
    VECTOR_CONV,
    WIDE,
    KernelTable,
    joined_table,
    kernel_table,
    table_of,
)
from simcore.strategy.optimizers import OPTIMIZERS
from simcore.strategy.precision import PRECISIONS
from simcore.strategy.strategy import Strategy
from simcore.workload.graph import Affine, Block, Frozen, Kernel, Op, Workload


def model(*ops: Op, frozen: tuple[Frozen, ...] = (), **of_block: Any) -> Workload:
    block = Block(name="b", ops=ops, **of_block)
    return Workload(name="m", sample_unit="s", blocks=(block,), order=(0,), frozen=frozen)


def forward(*kernels: Kernel, precision: str = "fp32") -> KernelTable:
    return kernel_table(model(Op(name="o", fwd=kernels)), PRECISIONS[precision])


def row(kernel: Kernel, precision: str = "fp32") -> Any:
    """The one row of a kernel."""
    table = forward(kernel, precision=precision)
    (first, *_) = table.kernels[: table.phase_start[1]]
    return first


def kind(kernel: Kernel, precision: str = "fp32") -> str:
    return KINDS[row(kernel, precision)["kind"]]


PRODUCT = Kernel(kind="gemm", flop=6.0, low=3.0, high=5.0, weight=7.0, raw_bytes=11.0,
                 m=Affine(1.0, 2.0), n=Affine(3.0, 4.0), k=Affine(5.0), groups=Affine(7.0, 8.0),
                 launches=2.0, awaited=Affine(0.5, 0.25))  # fmt: skip


def test_a_row_by_hand() -> None:
    found = row(PRODUCT)
    assert found["flop"] == 6.0
    assert found["n_bytes"].tolist() == [28.0, 3 * 4 + 5 * 4 + 11]
    assert found["sides"].tolist() == [[1, 2], [3, 4], [5, 0], [7, 8]]
    assert (found["launches"], found["calls"], found["issues"]) == (2.0, 2.0, 0.0)
    assert found["awaited"].tolist() == [0.5, 0.25]
    assert (found["count"], found["backward"]) == (1.0, False)
    stated = row(replace(PRODUCT, issues=3.0))
    assert (stated["calls"], stated["issues"]) == (0.0, 3.0)


@pytest.mark.parametrize(
    ("precision", "weight", "elements"),
    [("fp32", 4, 3 * 4 + 5 * 4), ("amp-fp16", 2, 3 * 2 + 5 * 4), ("bf16", 2, 3 * 2 + 5 * 2)],
)
def test_widths_by_precision(precision: str, weight: float, elements: float) -> None:
    assert row(PRODUCT, precision)["n_bytes"].tolist() == [7 * weight, elements + 11]
    # Norms, embeddings and the like read the parameters themselves.
    other = replace(PRODUCT, kind="gather", flop=0.0)
    assert row(other, precision)["n_bytes"][0] == 7 * PRECISIONS[precision].param_bytes


def test_operands_in_8_bit_by_hand() -> None:
    """Forward reads its cast inputs and weights in 8 bits; a weight's gradient all operands."""
    p = PRECISIONS["fp8"]
    assert (p.low_bytes, p.operand_bytes) == (2, 1.0)
    base = {"kind": "gemm", "flop": 1.0, "low": 10.0, "weight": 7.0}
    there = Kernel(**base, cast=4.0)
    back = Kernel(**base, k=Affine(0.0, 0.5))
    wide = Kernel(**base, cast=4.0, wide=True)
    assert row(there, "fp8")["n_bytes"].tolist() == [7.0, 10 * 2 - 4]
    assert row(back, "fp8")["n_bytes"].tolist() == [14.0, 10.0]
    assert row(wide, "fp8")["n_bytes"].tolist() == [14.0, 20.0]
    softmax = Kernel(kind="softmax", low=10.0, cast=4.0)
    assert row(softmax, "fp8")["n_bytes"].tolist() == [0.0, 20.0]


def test_a_cast_runs_where_widths_differ() -> None:
    """Of negative elements in one class: as many bytes less as the other class moves."""
    cast = Kernel(kind="copy", low=-3.0, high=3.0, launches=0.0, indexed=3.0)
    found = row(cast, "amp-bf16")
    assert (found["launches"], found["n_bytes"][1], found["indexed"]) == (1.0, 6.0, 3.0)
    same = row(cast, "fp32")
    assert (same["launches"], same["n_bytes"][1], same["indexed"]) == (0.0, 0.0, 0.0)
    plain = Kernel(kind="copy", low=3.0, launches=0.0)
    assert row(plain, "amp-bf16")["launches"] == 0.0


def test_mixed_elements_are_indexed_under_autocast_alone() -> None:
    kernel = Kernel(kind="elementwise", low=1.0, indexed=2.0, mixed=5.0)
    assert row(kernel, "fp32")["indexed"] == 2.0
    assert row(kernel, "amp-bf16")["indexed"] == 7.0


@pytest.mark.parametrize(
    ("kernel", "precision", "name"),
    [
        ({}, "fp32", "gemm"), ({}, "fp8", "gemm"), ({"wide": True}, "fp8", WIDE),
        ({"wide": True}, "bf16", "gemm"),
        ({"groups": Affine(2.0)}, "bf16", BATCHED), ({"groups": Affine(2.0)}, "fp8", "gemm"),
        ({"groups": Affine(2.0), "weight": 1.0}, "bf16", "gemm"),
        ({"unaligned": True}, "fp16", UNALIGNED), ({"unaligned": True}, "fp32", "gemm"),
        ({"unaligned": True, "kind": "conv"}, "fp16", VECTOR_CONV),
        ({"load_elems": 1}, "bf16", DEPTH_LOADS[1, 2]),
        ({"load_elems": 4, "k": Affine(0.0, 8.0)}, "bf16", NARROW_LOADS[4]),
        ({"load_elems": 4}, "fp32", "gemm"), ({"load_elems": 2}, "fp32", DEPTH_LOADS[2, 2]),
        ({"load_elems": 2, "groups": Affine(2.0)}, "bf16", BATCHED_LOADS[2]),
        ({"kind": "conv_depthwise"}, "fp32", DEPTHWISE_LAST),
        ({"kind": "conv_depthwise", "relaid": 1.0}, "fp32", "conv_depthwise"),
        ({"kind": "conv_pointwise", "planes": (2, 4)}, "tf32", PLANES),
        ({"kind": "conv_pointwise", "planes": (2,)}, "tf32", "conv_pointwise"),
        ({"kind": "conv_pointwise", "planes": (2, 4)}, "bf16", "conv_pointwise"),
        ({"kind": "norm"}, "fp8", "norm"),
    ],
)  # fmt: skip
def test_kinds(kernel: dict[str, Any], precision: str, name: str) -> None:
    assert kind(Kernel(**{"kind": "gemm", "flop": 1.0, "low": 1.0, **kernel}), precision) == name


@pytest.mark.parametrize(
    ("changes", "precision", "n_bytes"),
    [
        ({}, "fp32", 2 * 4 * 5), ({}, "fp16", 2 * 2 * 5),
        ({"planes": (2, 4)}, "fp16", 0), ({"planes": (4,)}, "fp16", 20),
        ({"planes": (2, 4)}, "tf32", 40), ({"planes": (2,)}, "tf32", 40),
        ({"unaligned": True}, "fp16", 0), ({"kind": "conv_depthwise"}, "fp16", 0),
    ],
)  # fmt: skip
def test_channels_first_tensors_are_turned(
    changes: dict[str, Any], precision: str, n_bytes: float
) -> None:
    kernel = Kernel(**{"kind": "conv", "flop": 1.0, "relaid": 5.0, **changes})
    table = forward(kernel, precision=precision)
    assert table["turned_bytes"][0] == n_bytes
    assert table.turned.rows.tolist() == ([0] if n_bytes else [])


def test_rows_and_blocks_by_hand() -> None:
    norm = row(
        Kernel(kind="norm", low=6.0, high=3.0, raw_bytes=2.0, rows=4.0, reread_frac=0.25),
        "amp-fp16",
    )
    assert (norm["rows"], norm["reread_frac"]) == (4.0, 0.25)
    assert norm["row_bytes"] == (6 * 2 + 3 * 4 + 2) / 4
    assert row(Kernel(kind="norm", low=6.0))["row_bytes"] == 0.0
    batch = row(
        Kernel(kind="batch_norm", low=6.0, high=3.0, raw_bytes=4.0, blocks=Affine(8.0)),
        "amp-fp16",
    )
    assert batch["blocks"].tolist() == [8.0, 0.0]
    assert batch["block_clocks"] == pytest.approx((6 + 4 / 2) * 0.55 + 3 * 0.27)
    each = row(Kernel(kind="batch_norm", low=6.0, blocks=Affine(0.0, 8.0)))
    assert each["blocks"].tolist() == [0.0, 8.0]
    assert each["block_clocks"] == pytest.approx(6 * 0.27)
    stated = row(Kernel(kind="batch_norm", low=6.0, blocks=Affine(8.0), block_clocks=5.0))
    assert stated["block_clocks"] == 5.0
    assert row(Kernel(kind="batch_norm", low=6.0))["block_clocks"] == 0.0


def test_selections_hold_the_kernels_to_which_a_formula_applies() -> None:
    table = forward(
        Kernel(kind="copy", low=1.0),
        Kernel(kind="gemm", flop=0.5),
        Kernel(kind="attention", flop=0.5),
        Kernel(kind="copy", low=1.0, indexed=0.5),
        Kernel(kind="norm", low=1.0, rows=0.5),
        Kernel(kind="batch_norm", low=0.5, blocks=Affine(0.5)),
        Kernel(kind="conv", flop=0.5, relaid=0.05),
        Kernel(kind="gemm"),
        Kernel(kind="attention"),
    )
    assert table.products.rows.tolist() == [1, 6]
    assert table.attention.rows.tolist() == [2]
    assert table.one_by_one.rows.tolist() == [3, 4]
    assert table.blockwise.rows.tolist() == [5]
    assert table.turned.rows.tolist() == [6]
    assert table.one_by_one.kernels["kind"].tolist() == table["kind"][3:5].tolist()


def test_sums_over_rows_have_columns_that_do_not_grow_with_the_batch() -> None:
    table = forward(
        Kernel(kind="reduction", low=1.0, n=Affine(2.0)),
        Kernel(kind="reduction", low=1.0, n=Affine(1.0)),
        Kernel(kind="reduction", low=1.0, n=Affine(1.0, 5.0)),
        Kernel(kind="norm", low=1.0, n=Affine(2.0)),
        Kernel(kind="reduction", low=1.0, m=Affine(2.0)),
    )
    assert table.column_sums.rows.tolist() == [0]


def test_fresh_tensors_are_those_of_the_kernel_before() -> None:
    """Nothing is known of what was written before the first; products count none."""
    ops = [Op(name=n, fwd=(Kernel(kind=k, low=4.0),)) for n, k in
           (("a", "elementwise"), ("b", "elementwise"), ("c", "gemm"), ("d", "norm"))]  # fmt: skip
    table = kernel_table(model(*ops), PRECISIONS["fp32"])
    first = table.kernels[: table.phase_start[1]]
    assert first["fresh_bytes"].tolist() == [0.0, 8.0, 0.0, 0.0]
    assert table.fresh.rows.tolist() == [1]


@pytest.mark.parametrize(
    ("precision", "runs"),
    [("fp32", "batch_norm"), ("bf16", "batch_norm_native"), ("amp-bf16", "batch_norm_native"),
     ("amp-fp16", "batch_norm"), ("fp16", "batch_norm")],
)  # fmt: skip
def test_of_a_batch_norm_the_kernels_of_one_library_run(precision: str, runs: str) -> None:
    """An op states both; the precision decides (ATen native/Normalization.cpp)."""
    both = Op(name="norm", fwd=(
        Kernel(kind="batch_norm", low=2.0), Kernel(kind="batch_norm_native", low=3.0),
        Kernel(kind="elementwise", low=1.0),
    ))  # fmt: skip
    found = kernel_table(model(both), PRECISIONS[precision])
    names = [KINDS[k] for k in found["kind"][: found.phase_start[1]]]
    if PRECISIONS[precision].native_norms != (runs == "batch_norm_native"):
        pytest.skip("16-bit state decides")
    assert names == [runs, "elementwise"]
    stated = Op(name="norm", fwd=(Kernel(kind="batch_norm", low=2.0),))  # of a trace: its own
    alone = kernel_table(model(stated), PRECISIONS[precision])
    assert KINDS[alone["kind"][0]] == "batch_norm"


def test_a_product_of_two_activations_casts_no_weight() -> None:
    """Its operands alone, in one kernel; a product with a weight casts that as well."""
    batched = Kernel(kind="gemm", flop=1.0, low=8.0, cast=4.0, groups=Affine(2.0))
    for kernel, casts in ((batched, 1), (replace(batched, weight=5.0, groups=Affine(1.0)), 2)):
        table = forward(kernel, precision="fp8-rowwise")
        found = [KINDS[k] for k in table["kind"][: table.phase_start[1]]]
        assert found.count(CAST) == casts and len(found) == casts + 1


# -- phases ----------------------------------------------------------------------------------------

UP = Kernel(kind="gemm", flop=2.0, low=1.0)


def counts(table: KernelTable, phase: int, kind: str = "gemm") -> list[float]:
    ends = [*table.phase_start[1:], len(table.kernels)]
    part = table.kernels[table.phase_start[phase] : ends[phase]]
    return [float(k["count"]) for k in part if KINDS[k["kind"]] == kind]


def test_equal_kernels_are_one_row_with_a_count_and_empty_phases_one_without() -> None:
    frozen = Frozen(name="f", resident_numel=1, ops=(Op(name="o", fwd=(UP, UP)),))
    table = kernel_table(
        model(Op(name="o", fwd=(UP, UP, replace(UP, flop=3.0))), frozen=(frozen,)),
        PRECISIONS["fp32"],
    )
    assert counts(table, 0) == [2.0, 1.0]
    assert counts(table, 1, "copy") == [0.0]
    assert counts(table, 2) == [2.0]
    assert table.n_phases == 3
    assert table.launches_per_phase.tolist() == [3.0, 0.0, 2.0]
    assert table["backward"].tolist() == [False] * 4
    waiting = forward(replace(UP, awaited=Affine(0.5, 2.0)), replace(UP, awaited=Affine(0.5, 2.0)))
    assert waiting.awaited_per_phase.tolist() == [[1.0, 4.0], [0.0, 0.0]]
    assert waiting.waits
    assert not table.waits


def test_counts_may_be_others() -> None:
    table = forward(UP, replace(UP, flop=3.0))
    other = table.with_counts(np.array([5.0, 0.0, 7.0]))
    assert other["count"].tolist() == [5.0, 0.0, 7.0]
    assert table["count"].tolist() == [1.0, 1.0, 0.0]
    assert other["flop"].tolist() == table["flop"].tolist()


def test_tables_joined_keep_their_phases() -> None:
    first, second = forward(UP, replace(UP, flop=3.0)), forward(replace(UP, flop=7.0))
    assert joined_table((first,)) is first
    both = joined_table((first, second, first))
    assert both["flop"].tolist() == [2.0, 3.0, 0.0, 7.0, 0.0, 2.0, 3.0, 0.0]
    assert both.phase_start.tolist() == [0, 2, 3, 4, 5, 7]
    assert both.launches_per_phase.tolist() == [2, 0, 1, 0, 2, 0]
    assert both.products.rows.tolist() == [0, 1, 3, 5, 6]


def test_attention_that_backward_repeats_runs_at_forwards_rate() -> None:
    flash = Kernel(kind="attention", flop=2.0)
    back = Kernel(kind="attention", flop=5.0)
    op = Op(name="o", fwd=(flash,), bwd=(back, flash))
    table = kernel_table(model(op), PRECISIONS["fp32"])
    assert table["flop"].tolist() == [2.0, 5.0, 2.0]
    assert table["backward"].tolist() == [False, True, False]
    product = Op(name="o", fwd=(UP,), bwd=(UP,))
    assert kernel_table(model(product), PRECISIONS["fp32"])["backward"].tolist() == [False, True]


def test_a_checkpoint_that_stops_early_repeats_forward_in_backward() -> None:
    """All of it but the last op, whose result backward does not need; and autocast's copies."""
    ops = (Op(name="a", fwd=(UP,), bwd=(replace(UP, flop=4.0),), gemm_weight=10.0),
           Op(name="b", fwd=(replace(UP, flop=3.0),), bwd=(replace(UP, flop=6.0),),
              gemm_weight=10.0))  # fmt: skip
    p = PRECISIONS["amp-bf16"]
    layer = model(*ops, recomputable=True)
    plain, whole, early = (
        kernel_table(layer, p, recompute, stops_early)
        for recompute, stops_early in ((False, True), (True, False), (True, True))
    )
    start = plain.phase_start[1]
    assert plain["flop"][start:].tolist() == [4.0, 6.0]
    assert whole["flop"][start:].tolist() == [4.0, 6.0, 0.0]
    assert early["flop"][start:].tolist()[:3] == [4.0, 6.0, 2.0]
    # Two matrices of 10 elements, read in fp32 and written in 16 bit.
    for table in (whole, early):
        last = table.kernels[-1]
        assert (last["n_bytes"].tolist(), last["count"]) == ([10 * 6.0, 0.0], 2.0)
    head = model(*ops)  # not one of the repeated layers
    assert len(kernel_table(head, p, True, True).kernels) == len(plain.kernels)
    strategy = Strategy(precision=p, optimizer=OPTIMIZERS["sgd"], recompute="full")
    assert len(table_of(layer, strategy).kernels) == len(whole.kernels)
    assert len(table_of(layer, replace(strategy, recompute="none")).kernels) == len(plain.kernels)


# -- casts -----------------------------------------------------------------------------------------


def of_kind(table: KernelTable, name: str) -> Any:
    return table.kernels[table["kind"] == KINDS.index(name)]


def test_autocast_casts_a_tensor_between_widths() -> None:
    """A product casts its input to 16 bit, which loads vectors; a norm to fp32, which does not."""
    kernel, norm = replace(UP, autocasts=3.0), Kernel(kind="norm", high=4.0, autocasts=3.0)
    for casting, indexed in ((kernel, 0.0), (norm, 3.0)):
        (cast,) = of_kind(forward(casting, precision="amp-bf16"), "elementwise")
        assert (cast["n_bytes"].tolist(), cast["indexed"]) == ([0.0, 3 * 2 + 3 * 4.0], indexed)
        assert cast["launches"] == 1.0
    assert not len(of_kind(forward(kernel, precision="bf16"), "elementwise"))


def test_a_weights_gradient_becomes_as_wide_as_the_weight_under_autocast() -> None:
    """7 elements written in 16 bit, and in fp32."""
    back = replace(UP, weight=7.0, k=Affine(0.0, 0.5))
    op = Op(name="o", fwd=(replace(back, flop=9.0),), bwd=(back, replace(UP, weight=7.0)))
    table = kernel_table(model(op), PRECISIONS["amp-bf16"])
    (cast,) = of_kind(table, "elementwise")
    assert cast["n_bytes"].tolist() == [7 * 6.0, 0.0]
    assert cast["backward"]
    assert not len(of_kind(kernel_table(model(op), PRECISIONS["bf16"]), "elementwise"))
    gathers = Op(name="o", fwd=(), bwd=(Kernel(kind="gather", weight=7.0, k=Affine(0.0, 1.0)),))
    assert not len(of_kind(kernel_table(model(gathers), PRECISIONS["amp-bf16"]), "elementwise"))


def test_inputs_of_8_bit_products_are_cast_without_an_issue() -> None:
    kernel = replace(UP, cast=5.0)
    (cast,) = of_kind(forward(kernel, precision="fp8"), CAST)
    assert cast["n_bytes"].tolist() == [0.0, 5 * PRECISIONS["fp8"].cast_traffic_bytes()]
    assert (cast["launches"], cast["issues"]) == (1.0, 0.0)
    assert not len(of_kind(forward(kernel, precision="bf16"), CAST))
    assert not len(of_kind(forward(UP, precision="fp8"), CAST))


def test_row_scales_cast_weights_in_each_pass() -> None:
    """3 bytes an element before forward, 7 before the gradient of the input."""
    p = PRECISIONS["fp8-rowwise"]
    assert p.weight_cast_bytes == (3.0, 7.0)
    product = replace(UP, cast=5.0, weight=10.0)
    gradient = replace(product, k=Affine(0.0, 1.0))
    table = kernel_table(model(Op(name="o", fwd=(product,), bwd=(product, gradient))), p)
    weights = [k for k in of_kind(table, CAST) if k["n_bytes"][0]]
    assert [(k["n_bytes"][0], k["backward"], k["count"]) for k in weights] == [
        (30.0, False, 1.0), (70.0, True, 1.0),
    ]  # fmt: skip
    assert [k["launches"] for k in weights] == [0.0, 0.0]
    alone = forward(replace(product, cast=0.0), precision="fp8-rowwise")
    assert not len(of_kind(alone, CAST))
