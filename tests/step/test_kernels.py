"""What a precision makes of the kernels of an op."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from simcore import api
from simcore.hardware.cluster import parse_cluster
from simcore.hardware.estimates import Estimate
from simcore.hardware.profile import Profile, load_profile
from simcore.hardware.spec import GpuSpec, PeakName
from simcore.step.kernels import (
    ACROSS,
    BATCHED,
    BATCHED_LOADS,
    CAST,
    DEPTH_LOADS,
    KINDS,
    NARROW_LOADS,
    SHORT_SOFTMAX,
    UNALIGNED,
    WIDE,
    KernelTable,
    kernel_table,
)
from simcore.strategy.precision import PRECISIONS
from simcore.timing.compute import phase_seconds
from simcore.timing.rates import class_rates
from simcore.workload import ops
from simcore.workload.archs.traced import read_ops
from simcore.workload.graph import Affine, Block, Kernel, Op, Workload
from simcore.workload.models import MODELS

ROWS, K, N = 512, 1024, 4096


def table_of(op: Op, precision: str) -> KernelTable:
    block = Block(name="b", ops=(op,))
    alone = Workload(name="one", sample_unit="sample", blocks=(block,), order=(0,))
    return kernel_table(alone, PRECISIONS[precision])


def moved(table: KernelTable, kind: str) -> float:
    rows = table["kind"] == KINDS.index(kind)
    return float((table["n_bytes"].sum(axis=1) * table["count"])[rows].sum())


@pytest.mark.parametrize(
    ("precision", "width", "cast"),
    [
        ("fp8", 1.0, 4.0),
        ("mxfp8", 1.03125, 4.0625),
        ("fp8-dynamic", 1.0, 6.0),
        ("nvfp4", 0.5625, 3.125),
    ],
)
def test_narrow_products_read_less_and_their_inputs_are_cast(
    precision: str, width: float, cast: float
) -> None:
    """By hand: the input before forward and the output's gradient in backward are cast once."""
    table = table_of(ops.linear("up", ROWS, K, N), precision)
    inputs, results, weight = ROWS * K, ROWS * N, K * N
    forward = (inputs + weight) * width + results * 2
    backward = (results + weight) * width + inputs * 2 + (inputs + results) * width + weight * 2
    assert moved(table, "gemm") == pytest.approx(forward + backward)
    assert moved(table, CAST) == pytest.approx((inputs + results) * cast)
    # issuing the casts is in what a program takes for a product in 8 bits
    assert (table.issues_per_phase.sum(), table.launches_per_phase.sum()) == (3, 5)


def test_scales_of_rows_cast_weights_and_transposes_of_their_own() -> None:
    """As torchao's own roofline counts kernels: 8 bytes of an input or a gradient, 10 of a weight
    (3 before forward, 7 before the gradient of the input).
    """
    table = table_of(ops.linear("up", ROWS, K, N), "fp8-rowwise")
    activations, weight = ROWS * K + ROWS * N, K * N
    assert moved(table, CAST) == pytest.approx(8 * activations + 10 * weight)
    assert moved(table, "gemm") == moved(table_of(ops.linear("up", ROWS, K, N), "fp8"), "gemm")


def test_recipes_of_torchao_in_their_order() -> None:
    """torchao/float8/README.md: Llama 3 8B on 8 H100 of 500 W, 6,150, 6,768 and 7,690 tokens/s."""
    job = {"model": "llama3-8b", "gpus": "8xH100-SXM-96GB-HBM2e-500W", "strategy": "zero3",
           "software": "fsdp", "main_grads": "fp32", "recompute": "selective",
           "recompute_modules": "operators", "overlap": "grads,params",
           "micro_batch": 1, "seq_len": 8192}  # fmt: skip
    wide, rows, whole = (
        api.predict(precision=p, **job).step_time_s.value
        for p in ("bf16", "fp8-rowwise", "fp8-dynamic")
    )
    assert 1.05 < wide / rows < wide / whole < 1.3


def test_hosts_issue_collectives_and_checkpoints_too() -> None:
    """Two collectives a pass of a layer are worth four kernels, its checkpoint nine."""
    layer = Block(name="layer", ops=(ops.linear("up", ROWS, K, N),), recomputable=True, exchanges=2)
    model = Workload(name="one", sample_unit="sample", blocks=(layer,), order=(0,))
    for again, more in ((False, 0.0), (True, 9.0)):
        table = kernel_table(model, PRECISIONS["bf16"], again)
        assert table.launches_per_phase.tolist() == [1.0, 2.0]
        assert table.issues_per_phase.tolist() == [5.0, 6.0 + more]


@pytest.mark.parametrize(
    ("gpu", "precision", "share"),
    [("H100", "fp8", 1.0), ("B200", "fp8", 4 / 3), ("B200", "bf16", 1.0)],
)
def test_one_copy_does_where_products_take_either_layout(
    gpu: str, precision: str, share: float
) -> None:
    rates = class_rates(
        parse_cluster(f"1x8x{gpu}").groups[0], PRECISIONS[precision], load_profile()
    )
    rate = rates.kernels.kinds["bytes_per_s"]
    assert rate[KINDS.index(CAST)] / rate[KINDS.index("elementwise")] == pytest.approx(share)


def test_wide_products_stay_in_16_bit() -> None:
    narrow = table_of(ops.linear("head", ROWS, K, N, wide=True), "fp8")
    in_16_bit = table_of(ops.linear("head", ROWS, K, N, wide=True), "bf16")
    assert set(narrow["kind"]) == {KINDS.index(WIDE)}
    assert moved(narrow, WIDE) == moved(in_16_bit, "gemm")
    scores = table_of(ops.bmm("scores", 8, 64, 64, 32), "fp8")
    assert set(scores["kind"]) == {KINDS.index(WIDE)}
    group = parse_cluster("1x8xH100-SXM5-80GB").groups[0]
    rates = [
        class_rates(group, PRECISIONS[p], load_profile()).kernels.kinds["flop_per_s"]
        for p in ("fp8", "bf16")
    ]
    at = KINDS.index(WIDE), KINDS.index("gemm")
    assert rates[0][at[0]] == rates[1][at[1]] < rates[0][at[1]]


def test_products_of_activations_are_told_from_those_of_weights() -> None:
    """Each head's product is one of a batch; experts' products have weights, and are not."""
    for precision in ("fp32", "amp-bf16", "bf16"):
        scores = table_of(ops.bmm("scores", 8, 64, 64, 32), precision)
        assert set(scores["kind"]) == {KINDS.index(BATCHED)}
    model = MODELS["mixtral-8x7b"].build()
    experts = next(op for b in model.blocks for op in b.ops if op.name == "experts.down")
    assert KINDS.index(BATCHED) not in table_of(experts, "fp32")["kind"]


class HalfAsFast(Profile):
    """A profile in which products of activations reach half of what others do."""

    def compute_efficiency(
        self, kind: str, peak: PeakName, gpu: GpuSpec, *, sustained: bool = True,
        unaligned: bool = False,
    ) -> Estimate:  # fmt: skip
        found = super().compute_efficiency(
            "gemm", peak, gpu, sustained=sustained, unaligned=unaligned
        )
        return replace(found, value=found.value * (0.5 if kind == "bmm" else 1.0))


def test_batched_products_run_at_their_own_rate() -> None:
    shipped = load_profile()
    half = HalfAsFast("half", "test", shipped.efficiency_file, shipped.runtime)
    rates = class_rates(parse_cluster("1x1xA100-PCIE-80GB").groups[0], PRECISIONS["fp32"], half)
    at, of_weights = KINDS.index(BATCHED), KINDS.index("gemm")
    assert rates.kernels.kinds["flop_per_s"][at] == pytest.approx(
        0.5 * rates.kernels.kinds["flop_per_s"][of_weights]
    )
    assert rates.kernels.kinds["bytes_per_s"][at] == rates.kernels.kinds["bytes_per_s"][of_weights]


@pytest.mark.parametrize(("row", "kind"), [(512, SHORT_SOFTMAX), (1024, SHORT_SOFTMAX),
                                           (1025, "softmax"), (1, "softmax")])  # fmt: skip
def test_a_warp_holds_rows_of_1024_elements(row: int, kind: str) -> None:
    """A length of one is one that is not known."""
    table = table_of(ops.softmax("p", 4096.0 * row, row=row), "fp32")
    assert set(table["kind"]) == {KINDS.index(kind)}


@pytest.mark.parametrize(("head_dim", "slow"), [(128, False), (144, False), (150, True)])
@pytest.mark.parametrize("written_out", [ops.attention_fused_softmax, ops.attention_eager])
def test_heads_that_8_does_not_divide_run_on_vector_units(
    written_out: Any, head_dim: int, slow: bool
) -> None:
    """In 16 bit, on NVIDIA's devices: both products of attention; nothing else of it."""
    parts = written_out("attention", 16, 2048, 2048, head_dim)
    products = [k for op in parts for k in (*op.fwd, *op.bwd) if k.kind == "gemm"]
    assert len(products) == 2 * 3
    assert {k.unaligned for k in products} == {slow}
    for precision in ("bf16", "amp-fp16", "fp8"):
        table = table_of(parts[_scores(parts)], precision)
        assert (UNALIGNED in {KINDS[k] for k in table["kind"]}) == slow
    assert UNALIGNED not in {KINDS[k] for k in table_of(parts[_scores(parts)], "fp32")["kind"]}


def _scores(parts: tuple[Any, ...]) -> int:
    return next(i for i, op in enumerate(parts) if op.name.endswith(".scores"))


@pytest.mark.parametrize(("gpu", "as_fast_as"), [("A100", "fp32"), ("MI300X", "bf16")])
def test_vector_units_are_as_fast_as_in_fp32_and_other_vendors_need_none(
    gpu: str, as_fast_as: str
) -> None:
    group = parse_cluster(f"1x8x{gpu}").groups[0]
    half, other = (class_rates(group, PRECISIONS[p], load_profile()) for p in ("bf16", as_fast_as))
    rate = half.kernels.of(UNALIGNED)["flop_per_s"]
    assert rate == pytest.approx(other.kernels.of(BATCHED)["flop_per_s"])
    assert (rate < half.kernels.of("gemm")["flop_per_s"]) == (gpu == "A100")


@pytest.mark.parametrize(
    ("vocab", "precision", "loaded"),
    [
        (267_735, "fp16", 1), (30_522, "fp16", 2), (33_708, "amp-bf16", 4), (50_304, "bf16", 8),
        (33_708, "tf32", 8), (30_522, "tf32", 2),  # 16 bytes are 4 elements of fp32
    ],
)  # fmt: skip
def test_a_head_over_an_unpadded_vocabulary_loads_few_elements_at_a_time(
    vocab: int, precision: str, loaded: int
) -> None:
    """Forward and both ways back: the logits, whose rows are unaligned, are in all three."""
    op = ops.linear("head", ROWS, K, vocab, row_elems=ops.row_elems(K, vocab))
    kinds = {KINDS[k] for k in table_of(op, precision)["kind"]} - {"elementwise"}  # autocast's
    aligned = {"gemm", ACROSS} if precision == "tf32" else {"gemm"}
    if loaded in NARROW_LOADS:
        assert kinds == {NARROW_LOADS[loaded], DEPTH_LOADS[loaded, 1], DEPTH_LOADS[loaded, 2]}
    else:
        assert kinds == aligned


@pytest.mark.parametrize(
    ("tokens", "keys", "precision", "loaded"),
    [
        (197, 197, "amp-fp16", 1), (50, 50, "bf16", 2), (256, 256, "bf16", 8),
        (197, 64, "bf16", 8),  # queries are no row of scores; keys are
        (64, 77, "bf16", 1), (196, 196, "tf32", 8), (50, 50, "tf32", 2),
    ],
)  # fmt: skip
def test_attention_over_odd_tokens_loads_few_elements_at_a_time(
    tokens: int, keys: int, precision: str, loaded: int
) -> None:
    """Scores have rows of keys: all six products read or write them."""
    heads, dim = 12, 64
    scores = ops.bmm("scores", heads, tokens, keys, dim)
    context = ops.bmm("context", heads, tokens, dim, keys)
    for op in (scores, context):
        assert {KINDS[k] for k in table_of(op, precision)["kind"]} == {
            BATCHED_LOADS.get(loaded, BATCHED)
        }


def test_a_trace_of_attention_over_odd_tokens_loads_as_few() -> None:
    (op,) = read_ops("bmm\n  > gemm flop=1 low=1 m=197 n=197 k=64 g=0+12\n")
    (weights,) = read_ops("mm\n  > gemm flop=1 low=1 fixed=4096 m=0+197 n=64 k=64\n")
    assert (op.fwd[0].load_elems, weights.fwd[0].load_elems) == (1, 8)


def test_before_cublas_11_such_heads_compute_on_vector_units() -> None:
    op = ops.linear("head", ROWS, K, 267_735, row_elems=1, vector_units=True)
    assert {KINDS[k] for k in table_of(op, "fp16")["kind"]} == {UNALIGNED}
    assert UNALIGNED not in {KINDS[k] for k in table_of(op, "fp32")["kind"]}
    padded = ops.linear("head", ROWS, K, 267_736, row_elems=8, vector_units=True)
    assert {KINDS[k] for k in table_of(padded, "fp16")["kind"]} == {"gemm"}


@pytest.mark.parametrize(
    ("gpu", "precision", "slowdown"),
    [
        ("A100", "bf16", 2.5), ("A100", "fp32", 1.0), ("MI300X", "bf16", 1.0),
        ("V100", "fp16", 1.75), ("H100", "bf16", 1 / 0.629 + 3), ("P100", "fp16", 1.0),
    ],
)  # fmt: skip
def test_how_much_slower_single_elements_load(gpu: str, precision: str, slowdown: float) -> None:
    """FMAs of an SM and clock from the datasheet: 1,024, 512 and 2,048 on matrix units."""
    rates = class_rates(
        parse_cluster(f"1x1x{gpu}").groups[0], PRECISIONS[precision], load_profile()
    )
    one, whole = (rates.kernels.of(k)["flop_per_s"] for k in (NARROW_LOADS[1], "gemm"))
    assert whole / one == pytest.approx(slowdown, rel=0.02)
    two = rates.kernels.of(NARROW_LOADS[2])["flop_per_s"]
    assert one <= two <= whole
    each, heads = (rates.kernels.of(k)["flop_per_s"] for k in (BATCHED_LOADS[1], BATCHED))
    assert heads / each == pytest.approx(whole / one)


def test_a_bias_apart_is_one_more_kernel_that_reads_and_writes_the_result() -> None:
    fused, apart = (ops.linear("up", ROWS, K, N, bias=True, bias_apart=a) for a in (False, True))
    more = apart.fwd[1:]
    assert fused.fwd == apart.fwd[:1]
    assert fused.bwd == apart.bwd
    assert [(k.low, k.weight, k.launches) for k in more] == [(2 * ROWS * N, N, 1)]
    assert ops.linear("up", ROWS, K, N, bias_apart=True).fwd == fused.fwd


def test_formats_of_16_bit_and_more_know_no_casts() -> None:
    for precision in ("fp32", "bf16"):
        table = table_of(ops.linear("up", ROWS, K, N), precision)
        assert set(table["kind"]) <= {KINDS.index("gemm"), KINDS.index(ACROSS)}


def test_heads_and_routers_are_wide_and_nothing_else_of_a_layer() -> None:
    model = MODELS["mixtral-8x7b"].build()
    wide = {op.name for b in model.blocks for op in b.ops for k in op.fwd if k.wide}
    assert wide == {"head", "router"}
    flop = np.array([k.flop for b in model.blocks for op in b.ops for k in op.fwd if k.cast])
    assert flop.size
    assert (flop > 0).all()


def test_instance_norm_costs_a_batch_norm_over_the_channels_of_all_images() -> None:
    images, channels, moved = 32.0, 8.0, 3.0 * 8 * 64 * 64
    rates = class_rates(parse_cluster("1x1xA100").groups[0], PRECISIONS["fp16"], load_profile())
    one = np.ones(1)

    def seconds(batch: float, low: float, blocks: Affine) -> float:
        op = Op(name="norm", fwd=(Kernel(kind="batch_norm", low=low, blocks=blocks),))
        return float(
            phase_seconds(table_of(op, "fp16"), rates.kernels, batch * one, one, one)[0, 0]
        )

    each = seconds(images, moved, Affine(0.0, channels))
    whole = seconds(1.0, moved * images, Affine(channels * images))
    assert each == pytest.approx(whole)
    assert each < seconds(images, moved, Affine(channels))
