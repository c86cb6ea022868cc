"""What tensor, context and expert ranks keep alike, and their exchanges of one layer by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from strategies import group, on_by_default

from simcore.answer.request import make_request
from simcore.physics.collectives import Collective, collective_time_s
from simcore.request.placed import Placed
from simcore.step.parallel.layer_ranks import LayerRanks, Pair
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
        assert 0 <= sum(pair.exchanged_frac for pair in ranks.pairs) <= 1
        assert all(0 < pair.covering_frac <= 1 for pair in ranks.pairs)
        assert 0 <= ranks.hidden_backward_frac <= 1
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
    assert [r.word for r in placed.dimensions] == ["tensor", "context", "expert"]
    whole = _placed("mixtral-8x7b", {"tp": 2, "ep": 4, "expert_tp": 2})
    assert (whole.expert.stride, whole.expert.nic_ranks) == (2.0, 8)
    assert (whole.tensor.nic_ranks, whole.context.nic_ranks) == (2, 0)


def test_recompute_of_some_layers_repeats_their_exchanges() -> None:
    """8 of 32 layers run forward again: a quarter of two sums, and of a ring's exchange."""
    words = {"recompute": "selective", "recompute_modules": "layer", "recompute_layers": 8}
    assert _placed("llama3-8b", {"tp": 4, **words}).tensor.passes == (2.0, 3.0 + 0.25 * 2)
    assert _placed("llama3-8b", {"cp": 4, **words}).context.passes == (1.0, 2.0 + 0.25)
    whole = {**words, "recompute_layers": 32}
    assert _placed("llama3-8b", {"tp": 4, **whole}).tensor.passes == (2.0, 5.0)


class Halves(LayerRanks):
    """Two ranks that gather half of what a quarter of the layers has."""

    name = "halves parallel"

    @property
    def collectives(self) -> dict[Collective, float]:
        return {"all_gather": 0.5, "all_reduce": 1.0}


def test_some_layers_exchange_as_often_as_they_are_many() -> None:
    """Three passes of a quarter of the layers; by default of all, exposed, beside nothing."""
    base = {"ranks": 2, "stride": 1.0, "sample_bytes": 8.0, "forward": 1.0, "backward": 2.0}
    some = Halves(**base, layers_frac=0.25)
    assert some.layer_times == {"all_gather": 0.75, "all_reduce": 0.75}
    every = Halves(**base)
    assert every.layer_times == {"all_gather": 3.0, "all_reduce": 3.0} and every.word == "halves"
    assert (every.seen_frac, every.pairs) == (1.0, ())
    assert (every.nic_ranks, every.hidden_backward_frac) == (0, 0.0)
    on, n_bytes = group(8.0), np.array([2e8])
    once, half = some.once_s(n_bytes, on), n_bytes[None, :] / 2.0
    assert once["all_gather"] == collective_time_s("all_gather", half, on)[0]
    assert once["all_reduce"] == collective_time_s("all_reduce", n_bytes[None, :], on)[0]


def test_exchanges_of_layer_ranks_are_whole_and_nothing_hides_them_by_default() -> None:
    assert on_by_default(LayerRanks) == {"layers_frac": 1.0, "seen_frac": 1.0}
    assert on_by_default(Pair) == {"covering_frac": 1.0}
