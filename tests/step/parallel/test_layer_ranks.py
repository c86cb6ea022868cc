"""What tensor, context and expert ranks keep alike, and their exchanges of one layer by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from strategies import group

from simcore.answer.request import make_request
from simcore.request.placed import Placed
from simcore.step.parallel.layer_ranks import LayerRanks
from simcore.timing.exchanges import exchange_bytes

BASE: dict[str, Any] = {"precision": "bf16", "strategy": "zero1", "recompute": "none",
                        "micro_batch": 1, "seq_len": 1024}  # fmt: skip
LAYOUTS: list[tuple[str, dict[str, Any]]] = [
    ("llama3-8b", {"tp": 4}),
    ("llama3-8b", {"tp": 4, "sequence_parallel": False}),
    ("llama3-8b", {"tp": 4, "precision": "fp8", "overlap": "dgrad"}),
    ("llama3-8b", {"cp": 4}),
    ("llama3-8b", {"cp": 4, "tp": 2, "cp_comm": "ulysses", "recompute": "full"}),
    ("mixtral-8x7b", {"ep": 8, "overlap": "experts"}),
    ("mixtral-8x7b", {"ep": 4, "tp": 2, "dispatcher": "deepep", "recompute": "full"}),
    ("qwen3-30b-a3b", {"ep": 8, "tp": 2, "expert_tp": 2, "software": "megatron"}),
]
EVERY = pytest.mark.parametrize(("model", "words"), LAYOUTS)


def _placed(model: str, words: dict[str, Any]) -> Placed:
    found = make_request(model, "2x8xH100", **{**BASE, **words}).placed
    assert found is not None
    return found


def _of(placed: Placed, word: str) -> LayerRanks:
    return next(ranks for ranks in placed.dimensions if ranks.word == word)


@EVERY
def test_what_a_layer_runs_has_a_price(model: str, words: dict[str, Any]) -> None:
    """The same operations, which take longer for more bytes and nothing among one rank."""
    for ranks in _placed(model, words).dimensions:
        few, many = (ranks.once_s(np.array([b]), group(8.0)) for b in (1e8, 2e8))
        assert few.keys() == many.keys() == ranks.layer_times.keys()
        assert all(0 < few[op][0] < many[op][0] < 2.01 * few[op][0] for op in few)
        assert all(s[0] == 0 for s in ranks.once_s(np.array([1e8]), group(1.0)).values())


@EVERY
def test_shares_are_shares_and_backward_exchanges_no_less(
    model: str, words: dict[str, Any]
) -> None:
    for ranks in _placed(model, words).dimensions:
        assert 0 <= ranks.layers_frac <= 1 and 0 < ranks.seen_frac <= 1
        assert 0 <= ranks.hidden_frac <= 1 and 0 <= ranks.hidden_backward_frac <= 1
        assert 0 < ranks.forward <= ranks.backward
        assert ranks.passes == (ranks.forward, ranks.backward)
        assert all(0 < share <= 1 for share in ranks.collectives.values())


@EVERY
def test_bytes_grow_with_the_micro_batch(model: str, words: dict[str, Any]) -> None:
    placed = _placed(model, words)
    found = exchange_bytes(placed, np.array([1.0, 3.0]))
    assert list(found) == ["tensor parallel", "context parallel", "expert parallel"]
    for ranks in placed.dimensions:
        assert found[ranks.name].tolist() == pytest.approx(
            [ranks.sample_bytes, 3 * ranks.sample_bytes]
        )


def test_where_ranks_lie() -> None:
    """Tensor ranks are neighbours, context ranks lie beside them, experts within them."""
    placed = _placed("mixtral-8x7b", {"tp": 2, "cp": 2, "ep": 4, "cp_comm": "ring"})
    assert [(r.ranks, r.stride) for r in placed.dimensions] == [(2, 1.0), (2, 2.0), (4, 1.0)]
    whole = _placed("mixtral-8x7b", {"tp": 2, "ep": 4, "expert_tp": 2})
    assert (whole.expert.stride, whole.expert.nic_ranks) == (2.0, 8)
    assert (whole.tensor.nic_ranks, whole.context.nic_ranks) == (2, 0)


def test_tensor_ranks_by_hand() -> None:
    """1024 tokens of 4096 in bf16: two sums forward, two backward; with a cut sequence both are
    halves, and backward gathers both inputs again."""
    whole = _of(_placed("llama3-8b", {"tp": 4, "sequence_parallel": False}), "tensor")
    assert whole.sample_bytes == 1024 * 4096 * 2
    assert whole.passes == (2.0, 2.0)
    assert dict(whole.layer_times) == {"all_reduce": 4.0}
    cut = _of(_placed("llama3-8b", {"tp": 4}), "tensor")
    assert cut.passes == (2.0, 3.0)
    assert dict(cut.layer_times) == {"reduce_scatter": 4.0, "all_gather": 6.0}
    again = _of(_placed("llama3-8b", {"tp": 4, "recompute": "full"}), "tensor")
    assert again.passes == (2.0, 5.0)
    narrow = _of(_placed("llama3-8b", {"tp": 4, "precision": "fp8"}), "tensor")
    assert dict(narrow.collectives) == {"reduce_scatter": 1.0, "all_gather": 0.5}


def test_context_ranks_by_hand() -> None:
    """8 key heads of 128 of 1024 tokens: k and v gathered once, and again with their gradients."""
    ring = _of(_placed("llama3-8b", {"cp": 4}), "context")
    assert ring.sample_bytes == 1024 * 2 * 8 * 128 * 2
    assert ring.passes == (1.0, 2.0) and ring.seen_frac == 0.5
    assert dict(ring.layer_times) == {"send_recv": 3.0}
    turned = _of(_placed("llama3-8b", {"cp": 4, "cp_comm": "ulysses"}), "context")
    # 32 heads of q and of the output, 8 each of k and v: a quarter of each in one of four exchanges
    assert turned.sample_bytes == 1024 / 4 * (2 * 32 + 2 * 8) * 128 * 2 / 4
    assert dict(turned.layer_times) == {"all_to_all": 8.0}


def test_expert_ranks_by_hand() -> None:
    """Two copies of 1024 tokens of 4096 in bf16: out and back, forward and backward."""
    plain = _of(_placed("mixtral-8x7b", {"ep": 8}), "expert")
    assert plain.sample_bytes == 2 * 1024 * 4096 * 2
    assert plain.passes == (2.0, 2.0) and plain.hidden_backward_frac == 0.5
    assert dict(plain.layer_times) == {"all_to_all": 4.0}
    again = _of(_placed("mixtral-8x7b", {"ep": 8, "recompute": "full"}), "expert")
    assert again.passes == (2.0, 4.0) and again.hidden_backward_frac == pytest.approx(4 / 6)
    halved = _of(_placed("mixtral-8x7b", {"ep": 8, "tp": 2, "expert_imbalance": 1.5}), "expert")
    assert halved.sample_bytes == 1.5 * 2 * 1024 * 4096 * 2 / 2
    some = _of(_placed("deepseek-v3", {"ep": 16, "strategy": "zero3"}), "expert")
    assert some.layers_frac == pytest.approx(58 / 61)  # three layers are dense


def test_a_token_that_is_sent_once_saves_the_copies() -> None:
    """Of two copies to eight ranks 8 (1 - (7/8)^2) / 2 travel."""
    link = group(8.0, intra_bw=1e11)
    plain, once = (
        _of(_placed("mixtral-8x7b", {"ep": 8, "dispatcher": d}), "expert")
        for d in ("alltoall", "hybridep")
    )
    bytes_, share = np.array([1e11]), 8 * (1 - (7 / 8) ** 2) / 2
    weights = 1 + 0.5 * 4 * 8 / (4096 * 2)  # fp32, of all eight experts, beside half of the rows
    first, second = (r.once_s(bytes_, link)["all_to_all"][0] for r in (plain, once))
    assert second / first == pytest.approx(share * weights, rel=1e-3)
