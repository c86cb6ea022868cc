"""How often tensor ranks sum up in backward, by what a library's layers are."""

from typing import Any

import numpy as np
import pytest

from simcore.answer.request import make_request
from simcore.step.parallel import tensor
from simcore.step.parallel.tensor import TensorRanks
from simcore.timing.exchanges import (
    Exchanges,
    exchanges_of,
    exchanges_s,
    exposed,
)
from simcore.timing.points import Points
from simcore.timing.steps import values_of
from simcore.workload.models import ModelRecord
from simcore.workload.resolve import resolve_model


@pytest.mark.parametrize(
    ("words", "backward"),
    [
        ({}, 2),
        ({"software": "scaling"}, 5),  # q, k and v, gate and up each for themselves
        # its norms gather what its products then keep: once, before both
        ({"software": "scaling", "sequence_parallel": True}, 2),
        # gathered once, before both; and once more for the gradients of both weights: half a sum
        ({"sequence_parallel": True}, 3),
        ({"sequence_parallel": True, "lora_rank": 8}, 2),  # of a frozen base there are none
        ({"software": "deepspeed"}, 2),
    ],
)
@pytest.mark.parametrize("recompute", ["none", "full"])
def test_products_apart_of_one_input_each_sum_up_its_gradient(
    words: dict[str, object], backward: int, recompute: str
) -> None:
    asked = {"sequence_parallel": False, **words}
    request = make_request(
        "llama3-8b", "1x8xA100-SXM-80GB", tp=8, strategy="zero1", recompute=recompute, **asked
    )
    assert request.placed is not None
    again = 2 if recompute == "full" else 0
    assert request.placed.tensor.passes == (2, backward + again)


def test_what_is_gathered_again_hides_under_the_gradient_of_the_input() -> None:
    """Korthikanti et al. 2022, 4.2.2. Kept whole it is not gathered; nothing else changes."""

    def exchange(overlap: str, whole: bool) -> float:
        record = resolve_model("llama3-8b")
        assert isinstance(record, ModelRecord)
        config = {**record.config, "gathered_inputs": whole}
        request = make_request(
            record.model_copy(update={"config": config}), "1x8xA100-SXM-80GB", tp=8,
            strategy="zero1", micro_batch=4, overlap=overlap, sequence_parallel=True,
        )  # fmt: skip
        placed = request.placed
        assert placed is not None
        points = Points.of(values_of(request), 1)
        seconds = exchanges_s(points, placed, 32)
        return float(exposed(seconds, placed, np.ones(1), np.zeros(1))["tensor parallel"][0])

    bare, again = exchange("none", whole=True), exchange("none", whole=False)
    assert again == pytest.approx(bare * 5 / 4)  # four sums a layer, and two halves
    assert exchange("dgrad", whole=False) == pytest.approx(exchange("dgrad", whole=True))
    assert exchange("dgrad", whole=False) == pytest.approx(bare * 3 / 4)


def test_one_product_of_an_input_sums_up_once() -> None:
    """GPT's MLP has no gate."""
    request = make_request(
        "gpt2-xl", "1x5xA100-SXM-80GB", tp=5, software="scaling", sequence_parallel=False,
        strategy="zero1",
    )  # fmt: skip
    assert request.placed is not None
    assert request.placed.tensor.passes == (2, 2)


GATHERS, SUMS = ("tensor parallel", "all_gather"), ("tensor parallel", "reduce_scatter")


def _exchanges(precision: str, micro_batch: int, overlap: str = "none") -> Exchanges:
    request = make_request(
        "llama3-8b", "1x8xH100-SXM5-80GB", tp=8, strategy="zero1", micro_batch=micro_batch,
        sequence_parallel=True, precision=precision, overlap=overlap,
    )  # fmt: skip
    assert request.placed is not None
    return exchanges_of(Points.of(values_of(request), 1), request.placed)


@pytest.mark.parametrize(
    ("precision", "like"), [("fp8", 2), ("fp8-dynamic", 2), ("fp8-rowwise", 4)]
)
def test_products_in_eight_bits_gather_operands_in_these(precision: str, like: int) -> None:
    """Half the bytes of what is summed up: as gathers of half the samples. Not with row scales."""
    narrow, wide = _exchanges(precision, 4).once_s, _exchanges("bf16", 4).once_s
    assert narrow[SUMS][0] == wide[SUMS][0] == wide[GATHERS][0]
    assert narrow[GATHERS][0] == pytest.approx(_exchanges("bf16", like).once_s[GATHERS][0])


@pytest.mark.parametrize("precision", ["bf16", "fp8"])
def test_a_layer_sums_up_four_times_and_gathers_six(precision: str) -> None:
    """By hand: two sums and two gathers each way, and two inputs gathered again (4.2.2).

    Beside weight gradients hide two sums and what is gathered again, shared out by bytes.
    """
    made = _exchanges(precision, 4, "dgrad")
    gather, add = (float(made.once_s[key][0]) for key in (GATHERS, SUMS))
    found = made.collectives_s(1)
    assert [found[key][0] for key in (GATHERS, SUMS)] == pytest.approx([6 * gather, 4 * add])
    seen = exposed(made.of_stage(1), made.placed, np.ones(1), np.zeros(1))["tensor parallel"]
    assert seen[0] == pytest.approx(4 * gather + 2 * add, rel=0.01)


@pytest.mark.parametrize(
    ("targets", "precision", "adapted", "gathers"),
    [
        # of a layer's two gathers and two scatters each way, one of each
        ("q_proj,k_proj,v_proj", "bf16", 1, 1.0),
        ("o_proj,down_proj", "bf16", 0, 1.0),
        ("all-linear", "bf16", 2, 1.0),
        # three gathers of four are of 8 bits still
        ("v_proj", "fp8", 1, (3 * 0.5 + 1) / 4),
        ("o_proj", "fp8", 0, 0.5),
    ],
)
def test_inputs_that_adapters_read_are_exchanged_whole(
    targets: str, precision: str, adapted: int, gathers: float
) -> None:
    """Three of four pieces hide of the two sums in forward and of all gathers but these inputs';
    backward's sums are of several products' gradients."""
    request = make_request(
        "llama3-8b", "1x4xH100", tp=4, strategy="zero1", overlap="tensor", precision=precision,
        lora_rank=8, lora_targets=targets, sequence_parallel=True,
    )  # fmt: skip
    placed = request.placed
    assert placed is not None
    assert placed.tensor.gathered_frac == pytest.approx(gathers)
    whole = {"tensor parallel": np.array([8.0])}
    seen = exposed(whole, placed, np.array([1e4]), np.zeros(1))["tensor parallel"][0]
    paired = (2 + (4 - adapted) * gathers) / (4 + 4 * gathers)
    assert seen == pytest.approx(8.0 * (1 - paired * 3 / 4))


def test_each_exchange_hides_beside_its_own_product() -> None:
    """By hand: columns of qkv, out, gate with up, and down over all products', forward and back.

    Ten exchanges: out and down hide a sum and a gather of gradients each beside 3/4 of a product;
    qkv and gate with up a gather beside 3/4 of theirs, and whole the gather again and the sum.
    """
    columns = {"qkv": 6144, "out": 4096, "both": 28_672, "down": 14_336}
    every = 3 * (32 * sum(columns.values()) + 128_256)
    found = _ranks("llama3-8b", {"tp": 4, "overlap": "tensor", "software": "megatron"}).pairs
    beside = sorted(pair.covering_frac for pair in found)
    parts = [3 / 4 * columns[name] for name in ("out", "out", "down", "down", "qkv", "both")]
    parts += [columns[name] for name in ("qkv", "qkv", "both", "both")]
    assert beside == pytest.approx(sorted(32 * part / every for part in parts), rel=1e-6)
    assert [pair.exchanged_frac for pair in found] == pytest.approx([3 / 4 / 10] * 10)
    assert all(pair.by_products for pair in found)


def test_tokens_reach_whole_experts_without_a_sum_over_tensor_ranks() -> None:
    """Megatron-Core: a layer's attention gathers and sums, its experts only where ranks cut them
    or tokens pass shared ones too (DeepSeek-V3's)."""
    words = {"tp": 2, "ep": 4, "software": "megatron"}
    assert _ranks("qwen3-30b-a3b", words).passes == (1.0, 1.5)
    assert _ranks("qwen3-30b-a3b", {**words, "expert_tp": 2}).passes == (2.0, 3.0)
    assert _ranks("deepseek-v3", words).passes == (2.0, 3.0)


def test_torch_finds_no_product_behind_a_sum_of_two() -> None:
    """A reduce-scatter of one product is cut into its pieces, one of two products' sum is not."""
    torch = pytest.importorskip("torch")
    from torch._inductor.fx_passes import micro_pipeline_tp

    graph = torch.fx.Graph()
    a, b = graph.placeholder("a"), graph.placeholder("b")
    product, other = (graph.call_function(torch.ops.aten.mm.default, (a, b)) for _ in range(2))
    both = graph.call_function(torch.ops.aten.add.Tensor, (product, other))
    assert micro_pipeline_tp._find_producer_matmul(product) is not None
    assert micro_pipeline_tp._find_producer_matmul(both) is None


def test_sums_of_pieces_are_kernels_of_their_own() -> None:
    """torch sums the tp pieces that a rank gathers; sums behind q, k, v and gate, up are copied.

    Forward has two sums of 1,024 rows of 4,096, read whole and a quarter written, backward two
    copies, read and written.
    """
    words = {"tp": 4, "strategy": "zero3", "recompute": "none", "micro_batch": 1, "seq_len": 1024}
    placed = make_request(
        "llama3-8b", "8xH100", software="torchtitan@2025-06", precision="bf16", overlap="tensor",
        **words,
    ).placed  # fmt: skip
    assert placed is not None
    layer = next(b for b in placed.part.blocks if b.recomputable)
    found = [op for op in layer.ops if op.name.startswith("tensor.")]
    forward, backward = ([k for op in found for k in kernels(op)] for kernels in _PASSES)
    assert sum(k.low for k in forward) == 2 * 5 / 4 * 1024 * 4096
    assert sum(k.low for k in backward) == 2 * 2 * 1024 * 4096


_PASSES = (lambda op: op.fwd, lambda op: op.bwd)


def _ranks(model: str, words: dict[str, Any]) -> TensorRanks:
    base: dict[str, Any] = {"precision": "bf16", "strategy": "zero1", "recompute": "none"}
    base |= {"micro_batch": 1, "seq_len": 1024}
    placed = make_request(model, "2x8xH100", **{**base, **words}).placed
    assert placed is not None
    return placed.tensor


def test_tensor_ranks_by_hand() -> None:
    """1024 tokens of 4096 in bf16: two sums forward, two backward; with a cut sequence both are
    halves, and backward gathers both inputs again."""
    whole = _ranks("llama3-8b", {"tp": 4, "sequence_parallel": False})
    assert whole.sample_bytes == 1024 * 4096 * 2
    assert whole.passes == (2.0, 2.0)
    assert dict(whole.layer_times) == {"all_reduce": 4.0}
    assert dict(whole.collectives) == {"all_reduce": 1.0}
    assert _ranks("llama3-8b", {"tp": 2}).passes == (2.0, 3.0)
    cut = _ranks("llama3-8b", {"tp": 4})
    assert cut.passes == (2.0, 3.0)
    assert dict(cut.layer_times) == {"reduce_scatter": 4.0, "all_gather": 6.0}
    again = _ranks("llama3-8b", {"tp": 4, "recompute": "full"})
    assert again.passes == (2.0, 5.0)
    narrow = _ranks("llama3-8b", {"tp": 4, "precision": "fp8"})
    assert dict(narrow.collectives) == {"reduce_scatter": 1.0, "all_gather": 0.5}


def test_gradients_of_weights_hide_the_sums_of_inputs_gradients() -> None:
    """Two sums of four of a layer. With a cut sequence they are two of four scatters, of which
    gathers of inputs are again two: of 4 and 6, 2 and 2."""
    whole = _ranks("llama3-8b", {"tp": 4, "overlap": "dgrad", "sequence_parallel": False})
    assert [pair.exchanged_frac for pair in whole.pairs] == [2 / 4]
    cut = _ranks("llama3-8b", {"tp": 4, "overlap": "dgrad"})
    assert [pair.exchanged_frac for pair in cut.pairs] == pytest.approx([(2 + 2) / (4 + 6)])


def test_weight_gradients_are_a_smaller_share_where_forward_runs_again() -> None:
    """Twice the weights' FLOP in backward: of 3 parts, with recompute of 4."""
    none, full = (
        _ranks("llama3-8b", {"tp": 4, "overlap": "dgrad", "recompute": r}).pairs[0].covering_frac
        for r in ("none", "full")
    )
    assert full / none == pytest.approx(3 / 4, rel=0.03)


def _joined_by_torch(dim: int) -> list[int]:
    """Elements of every copy that torch makes around a gather and a reduce-scatter of 16,384."""
    torch = pytest.importorskip("torch")
    import torch.distributed as dist
    from torch.distributed import _functional_collectives as collectives
    from torch.testing._internal.distributed.fake_pg import FakeStore
    from torch.utils._python_dispatch import TorchDispatchMode

    found: list[int] = []

    class Copies(TorchDispatchMode):  # type: ignore[misc]
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            out = func(*args, **(kwargs or {}))
            if func is torch.ops.aten.cat.default:
                found.append(out.numel())
            return out

    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=4)
    try:
        with Copies():
            part = [8, 64, 32]
            part[dim] //= 4
            gathered = collectives.all_gather_tensor(torch.rand(part), dim, dist.group.WORLD)
            summed = collectives.reduce_scatter_tensor(
                torch.rand(8, 64, 32), "sum", dim, dist.group.WORLD
            )
            _ = gathered + 0, summed + 0  # waits
    finally:
        dist.destroy_process_group()
    return found


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_collectives_along_the_sequence_copy_the_whole_tensor() -> None:
    """torchtitan's layers are cut along their second dimension, which torch joins in a copy."""
    whole = 8 * 64 * 32
    assert _joined_by_torch(0) == []
    assert _joined_by_torch(1) == [whole, whole]
    words = {"tp": 4, "strategy": "zero3", "recompute": "none", "micro_batch": 1, "seq_len": 1024}
    with_copies, megatron = (
        make_request("llama3-8b", "8xH100", software=name, precision="bf16", **words).placed
        for name in ("torchtitan", "megatron")
    )
    assert with_copies is not None and megatron is not None
    layer = next(b for b in with_copies.part.blocks if b.recomputable)
    copies = [op for op in layer.ops if op.name.startswith("tensor.")]
    # two sums each way, of a reduce-scatter and a gather: read and written
    for kernels in ([k for op in copies for k in op.fwd], [k for op in copies for k in op.bwd]):
        assert sum(k.low for k in kernels) == 2 * 2 * 2 * 1024 * 4096
        assert sum(k.launches for k in kernels) == 4
    other = next(b for b in megatron.part.blocks if b.recomputable)
    assert not any(op.name.startswith("tensor.") for op in other.ops)


def test_recompute_that_stops_early_leaves_out_the_last_sum() -> None:
    """Of two sums of a layer, one; with a cut sequence the gather of that one has been repeated."""
    for cut, backward in ((False, 2 + 1), (True, 3 + 1.5)):
        words = {"tp": 4, "recompute": "full", "software": "torchtune", "sequence_parallel": cut}
        assert _ranks("llama3-8b", words).passes == (2.0, backward)


def test_only_pieces_of_products_are_exchanged_in_forward_too_while_these_compute() -> None:
    """Gradients of inputs are summed up in backward alone; of pieces three of five sums are there:
    two in forward, two in backward and two halves of gathers again."""
    for overlap in ("none", "dgrad"):
        assert _ranks("llama3-8b", {"tp": 4, "overlap": overlap}).hidden_backward_frac == 1.0
    assert _ranks("llama3-8b", {"tp": 4, "overlap": "tensor"}).hidden_backward_frac == 3 / 5


def test_ranks_of_one_copy_no_tensor_and_sum_nothing_up() -> None:
    """torchtitan's copies belong to its collectives; each layer states how many it issues."""
    words = {"strategy": "zero3", "software": "torchtitan", "pp": 2}
    for tp, issued in ((1, 0), (4, 4)):
        placed = make_request(
            "llama3-8b", "8xH100", tp=tp, precision="bf16", micro_batch=1, seq_len=1024,
            recompute="none", **words,
        ).placed  # fmt: skip
        assert placed is not None
        layers = [b for b in placed.part.blocks if b.recomputable]
        assert {b.exchanges for b in layers} == {issued}
        assert {b.exchanges for b in placed.part.blocks if not b.recomputable} == {0}
        copied = any(op.name.startswith("tensor.") for b in layers for op in b.ops)
        assert copied == (tp > 1)
    assert _ranks("llama3-8b", {"pp": 2}).passes == (2.0, 2.0)  # of one nothing is gathered again
    whole = make_request(
        "llama3-8b", "8xH100", tp=4, precision="bf16", micro_batch=1, strategy="zero1",
        sequence_parallel=False,
    )  # fmt: skip
    assert whole.placed is not None
    assert {b.exchanges for b in whole.placed.part.blocks if b.recomputable} == {2}


@pytest.mark.parametrize("tp", [2, 4])
def test_two_ranks_gather_again_as_eight_do(tp: int) -> None:
    request = make_request("llama3-8b", f"1x{tp}xA100-SXM-80GB", tp=tp, strategy="zero1")
    assert request.placed is not None and request.placed.tensor.passes == (2, 3)


@pytest.mark.parametrize("tp", [2, 8])
def test_of_unknown_products_all_pieces_but_the_first_hide(
    tp: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tensor, "_own_products", lambda *_: ())
    request = make_request("llama3-8b", "1x8xA100-SXM-80GB", tp=tp, strategy="zero1",
                           overlap="grads,tensor")  # fmt: skip
    assert request.placed is not None
    (pair,) = request.placed.tensor.pairs
    assert (pair.exchanged_frac, pair.covering_frac) == (pytest.approx(1 - 1 / tp), 1.0)
