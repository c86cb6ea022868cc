"""Attention to compressed keys and several residual streams: FLOP, pairs and parameters by hand."""

from __future__ import annotations

from typing import Any

import pytest

from simcore.answer.request import make_request
from simcore.base.errors import InvalidConfig
from simcore.workload.archs import lm_compressed
from simcore.workload.archs.transformer import build
from simcore.workload.graph import Op
from simcore.workload.models import MODELS

SEQ, HIDDEN, HEADS, DIM, RANK = 32, 24, 4, 8, 6
SMALL: dict[str, Any] = {
    "name": "small", "layers": 3, "hidden": HIDDEN, "heads": HEADS, "kv_heads": 1,
    "head_dim": DIM, "q_rank": RANK, "vocab": 50, "seq_len": SEQ, "positions": "rope",
    "rotary_share": 0.5, "mlp": "swiglu_limited", "ffn": 16, "norm": "rmsnorm", "bias": False,
    "window": 8, "compress_pattern": "whs", "sparse_rate": 4, "heavy_rate": 16,
    "out_groups": 2, "out_rank": 5, "index_heads": 2, "index_dim": 4, "index_top": 3,
}  # fmt: skip


def _ops(**more: Any) -> list[dict[str, Op]]:
    return [{op.name: op for op in b.ops} for b in list(build(**SMALL, **more).instances())[1:-1]]


def _seen(place: int, rate: int, selected: int) -> int:
    """Keys and entries that a query at ``place`` sees."""
    near = min(place + 1, SMALL["window"])
    return near + min((place + 1) // rate if rate else 0, selected)


@pytest.mark.parametrize(
    ("layer", "rate", "selected"), [(0, 0, 0), (1, 16, SEQ), (2, 4, 3)], ids=("w", "h", "s")
)
def test_attention_computes_the_pairs_that_it_sees(layer: int, rate: int, selected: int) -> None:
    pairs = sum(_seen(place, rate, selected) for place in range(SEQ))
    flop = _ops()[layer]["attention"].fwd[0].flop
    # the closed form counts half of the edge of a window and of an entry, and a whole window
    assert flop == pytest.approx(4 * HEADS * DIM * pairs, rel=0.12)


@pytest.mark.parametrize(("seq", "pairs"), [(4096, 0.0), (4096, 100_000.0), (4096, 4096**2 / 2)])
def test_a_window_of_as_many_pairs(seq: int, pairs: float) -> None:
    window = lm_compressed._as_window(seq, pairs)
    assert window * (seq - window / 2) == pytest.approx(pairs, abs=seq)


def test_output_products_are_in_groups() -> None:
    first, last = (_ops()[0][name].fwd[0].flop for name in ("attention.group_out", "attention.out"))
    assert first == 2 * SEQ * HEADS * DIM * 5 and last == 2 * SEQ * 2 * 5 * HIDDEN


def test_the_indexer_has_no_backward() -> None:
    indexed = {name: op for name, op in _ops()[2].items() if name.startswith("index.")}
    assert len(indexed) == 8 and not any(op.bwd for op in indexed.values())
    # the causal half of queries with a quarter of as many entries
    assert indexed["index.scores"].fwd[0].flop == SEQ * (SEQ // 4) * 2 * 4


def test_streams_are_mixed_by_a_matrix_a_token() -> None:
    plain, four = build(**SMALL), build(**SMALL, streams=4, stream_rounds=20)
    ops = {op.name: op for op in four.blocks[1].ops}
    assert ops["mlp.streams.weights"].fwd[0].flop == 2 * SEQ * 4 * HIDDEN * 6 * 4
    assert ops["mlp.streams.mixed"].fwd[0].flop == 2 * SEQ * 4 * 4 * HIDDEN
    weights = 6 * 4 * (4 * HIDDEN + 1) + 3  # of one half of a layer: product, base, scales
    at_the_end = 4 * (4 * HIDDEN + 1) + 1
    assert four.trainable_numel - plain.trainable_numel == 3 * 2 * weights + at_the_end
    assert four.blocks[1].boundary.high == 4 * plain.blocks[1].boundary.high
    unmixed = build(**SMALL, streams=4)
    assert "mlp.streams.mixed" not in {op.name for op in unmixed.blocks[1].ops}


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"next_tokens": 1, "streams": 4}, "without further tokens"),
        ({"residual": "sandwich", "streams": 4}, "replace the residual"),
        ({"q_rank": 0}, "come from q_rank"),
        ({"compress_pattern": "x"}, "compress_pattern 'x' must consist of"),
    ],
)
def test_what_does_not_fit_is_refused(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        build(**SMALL | wrong)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"inner_norms": True}, "over all heads"),
        ({"compress_pattern": "h"}, "tp must be 1: every rank"),
    ],
)
def test_tensor_ranks_do_not_divide_them(settings: dict[str, Any], said: str) -> None:
    record = MODELS["llama3-8b"]
    own = record.model_copy(update={"config": {**record.config, "q_rank": 64, **settings}})
    with pytest.raises(InvalidConfig, match=said):
        make_request(own, "1x8xH100", tp=2)
