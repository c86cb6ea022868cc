"""What a job is told of its collectives agrees with what they cost it."""

from __future__ import annotations

import pytest

from simcore.engine.collective_choice import chosen_collectives
from simcore.engine.predict import Request, predict
from simcore.engine.request import make_request


def test_every_dimension_tells_its_own() -> None:
    found = chosen_collectives(
        make_request("llama3-70b", "16x8xH100", tp=8, pp=2, strategy="zero1", micro_batch=1)
    )
    assert [(c.dimension, c.op, c.n_ranks, c.n_nodes) for c in found] == [
        ("tensor", "reduce_scatter", 8, 1), ("tensor", "all_gather", 8, 1),
        ("data", "reduce_scatter", 8, 8), ("data", "all_gather", 8, 8),
    ]  # fmt: skip
    assert {c.ways[0][0] for c in found} == {"Ring"}


def test_one_node_of_hopper_reduces_in_its_switch_and_slows_without() -> None:
    plain = make_request("gpt2-xl", "8xH100", micro_batch=1)
    data = chosen_collectives(plain)[0]
    assert data.ways[0][:2] == ("NVLS", "Simple")
    ring = make_request("gpt2-xl", "8xH100", micro_batch=1, nccl_algo="Ring")
    assert chosen_collectives(ring)[0].ways[0][0] == "Ring"

    def spent(job: Request) -> float:
        t = predict(job).time_s
        return t["communication_exposed"] + t["communication_hidden"]

    assert spent(ring) > 1.2 * spent(plain)


def test_the_told_time_is_the_priced_one() -> None:
    """One message of all gradients: its time is that of all collectives."""
    request = make_request("gpt2", "4x8xA100", strategy="zero1", overlap="none", nccl_algo="Ring")
    found = chosen_collectives(request)
    spent = predict(request).time_s
    assert sum(c.ways[0][2] for c in found) == pytest.approx(
        spent["communication_exposed"] + spent["communication_hidden"], rel=1e-6
    )


@pytest.mark.parametrize("words", ["2:1 leaf=1", "4:1 leaf=1", "8:1 leaf=1"])
def test_thinner_uplinks_never_save_time(words: str) -> None:
    def step(network: str) -> float:
        job = make_request("gpt2-xl", "16x8xH100", network=f"8xib-ndr {network}", micro_batch=1)
        return predict(job).step_time_s.value

    assert step(words) > step("")
    assert step(words.replace("leaf=1", "leaf=8")) <= step(words)
