"""What a job is told of its collectives agrees with what they cost it."""

from __future__ import annotations

from typing import Any

import pytest

from simcore import api
from simcore.answer.collective_choice import chosen_collectives
from simcore.answer.predict import predict
from simcore.answer.request import make_request
from simcore.request.resolved import Request


def test_every_dimension_tells_its_own() -> None:
    found = chosen_collectives(
        make_request(
            "llama3-70b",
            "16x8xH100",
            tp=8,
            pp=2,
            strategy="zero1",
            micro_batch=1,
            software="plain",
        )
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


def test_what_leaves_no_way_runs_over_rings_and_is_told() -> None:
    """NCCL 2.24: no algorithm/protocol available for function AllGather; before it fell back."""
    asked: dict[str, Any] = {"strategy": "zero3", "micro_batch": 1}
    tree = api.predict("gpt2-xl", "2x8xH100", nccl_algo="Tree", nccl_proto="Simple", **asked)
    assert (
        tree.assumptions[0].startswith(
            "nccl-algo Tree and nccl-proto Simple: NCCL has no such algorithm or protocol for "
        )
        and "all-gather of data ranks, reduce-scatter of data ranks" in tree.assumptions[0]
    )
    assert " WARNING     nccl-algo Tree" in " " + str(tree).split("\n", 1)[1].replace("\n", " ")
    ring = api.predict("gpt2-xl", "2x8xH100", nccl_algo="Ring", nccl_proto="Simple", **asked)
    assert tree.step_time_s == ring.step_time_s
    assert not any("nccl" in a for a in ring.assumptions)


@pytest.mark.parametrize(
    ("gpus", "words"),
    [("2x8xH100", {"nccl_algo": "Tree", "strategy": "ddp"}),  # all-reduces only
     ("8xH100", {"nccl_algo": "^NVLS", "strategy": "zero2"}),
     ("4x8xRTX4090", {"nccl_proto": "LL128", "strategy": "ddp"}),  # by default over NVLink only
     ("8xMI300X", {"nccl_proto": "Simple", "strategy": "ddp"})],
)  # fmt: skip
def test_what_leaves_a_way_is_not_told(gpus: str, words: dict[str, Any]) -> None:
    found = api.predict("gpt2", gpus, micro_batch=1, **words)
    assert not any("nccl" in a for a in found.assumptions)


def test_a_switch_that_reduces_nothing_is_told() -> None:
    found = api.predict("gpt2", "4xA6000", strategy="ddp", micro_batch=1, nccl_algo="NVLS")
    assert "all-reduce of data ranks" in found.assumptions[0]


@pytest.mark.parametrize("words", ["2:1 leaf=1", "4:1 leaf=1", "8:1 leaf=1"])
def test_thinner_uplinks_never_save_time(words: str) -> None:
    def step(network: str) -> float:
        job = make_request("gpt2-xl", "16x8xH100", network=f"8xib-ndr {network}", micro_batch=1)
        return predict(job).step_time_s.value

    assert step(words) > step("")
    assert step(words.replace("leaf=1", "leaf=8")) <= step(words)


def test_each_function_runs_as_it_is_held_to() -> None:
    """NCCL 2.24's lists of one function: what is not listed stays NCCL's choice."""
    asked: dict[str, Any] = {"strategy": "zero1", "micro_batch": 1}
    request = make_request("gpt2-xl", "2x8xH100", nccl_algo="reducescatter:ring;allgather:nvls",
                           nccl_proto="allgather:^LL;reducescatter:LL", **asked)  # fmt: skip
    ways = {c.op: c.ways for c in chosen_collectives(request)}
    assert {w[:2] for w in ways["reduce_scatter"]} == {("Ring", "LL")}
    assert {w[0] for w in ways["all_gather"]} <= {"NVLS", "Ring"}
    low, full = (
        predict(make_request("gpt2-xl", "2x8xH100", nccl_proto=f"reducescatter:{name}", **asked))
        for name in ("LL", "Simple")
    )  # a step prices the reduce-scatter on its own, though it costs what an all-gather does
    sent = [sum(p.time_s[f"communication_{part}"] for part in ("exposed", "hidden"))
            for p in (low, full)]  # fmt: skip
    assert sent[0] > 1.1 * sent[1]
    held = make_request("gpt2", "2x8xH100", strategy="ddp", nccl_algo="allgather:ring")
    free = make_request("gpt2", "2x8xH100", strategy="ddp")
    assert predict(held).step_time_s == predict(free).step_time_s  # no all-gather there
    slow = make_request("gpt2", "2x8xH100", strategy="ddp", nccl_algo="nvlstree;allreduce:ring")
    ring = make_request("gpt2", "2x8xH100", strategy="ddp", nccl_algo="ring")
    assert predict(slow).step_time_s == predict(ring).step_time_s


def test_a_function_that_no_way_is_left_for_is_told() -> None:
    found = api.predict("gpt2-xl", "2x8xH100", strategy="zero1", micro_batch=1,
                        nccl_algo="allgather:tree")  # fmt: skip
    assert found.assumptions[0].startswith(
        "nccl-algo allgather:Tree: NCCL has no such algorithm or protocol for all-gather of data "
        "ranks"
    )
