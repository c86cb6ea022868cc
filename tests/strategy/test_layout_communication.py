"""The words of NCCL's variables."""

from __future__ import annotations

import pytest
from strategies import on_by_default

from simcore import api
from simcore.base.errors import InvalidConfig, UnknownName
from simcore.physics.collectives import names_in_nccl_algo
from simcore.request.inputs import nccl_algorithms, nccl_protocols, nccl_release
from simcore.strategy.layout import Allowed, Overlap

ALGORITHMS = names_in_nccl_algo()


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (None, ()),
        ("", ()),
        ("ring,tree", ("Tree", "Ring")),
        ("^NVLS", tuple(a for a in ALGORITHMS if a != "NVLS")),
        ("CollNet", ("CollNetDirect", "CollNetChain")),
        (" NVLSTREE ", ("NVLSTree",)),
    ],
)
def test_as_nccl_reads_them(text: str | None, found: tuple[str, ...]) -> None:
    assert nccl_algorithms(text) == Allowed(found)


def test_protocols_and_what_is_none() -> None:
    assert nccl_protocols("^ll128").every == ("LL", "Simple")
    with pytest.raises(UnknownName, match="did you mean 'Simple'"):
        nccl_protocols("simpl")
    with pytest.raises(UnknownName, match="nccl-algo 'rong'"):
        nccl_algorithms("rong")


@pytest.mark.parametrize(
    ("text", "every", "of"),
    [  # the first three from the comment of parseList, NCCL 2.24's src/graph/tuning.cc
        ("ring,collnetdirect;allreduce:tree,collnetdirect;broadcast:ring",
         {"Ring", "CollNetDirect"},
         {"all_reduce": {"Tree", "CollNetDirect"}, "broadcast": {"Ring"}}),
        ("allreduce:^tree", set(), {"all_reduce": {*ALGORITHMS} - {"Tree"}}),
        ("^NVLS;AllReduce:nvls", {*ALGORITHMS} - {"NVLS"}, {"all_reduce": {"NVLS"}}),
        ("allgather:pat;reducescatter: Ring , PAT", set(),
         {"all_gather": {"PAT"}, "reduce_scatter": {"Ring", "PAT"}}),
    ],
)  # fmt: skip
def test_lists_of_single_functions(text: str, every: set[str], of: dict[str, set[str]]) -> None:
    held = nccl_algorithms(text)
    assert set(held.every) == every
    assert {op: set(names) for op, names in held.by_function} == of
    assert nccl_algorithms(str(held)) == held


def test_protocols_of_a_function() -> None:
    held = nccl_protocols("LL,Simple;allreduce:^LL")
    assert held == Allowed(("LL", "Simple"), (("all_reduce", ("LL128", "Simple")),))


@pytest.mark.parametrize(
    ("text", "error", "said"),
    [
        ("allreduse:tree", UnknownName, "did you mean 'allreduce'"),
        ("alltoall:ring", UnknownName, "known are|did you mean"),
        ("ring;tree", InvalidConfig, "only the first list"),
        ("allreduce:", InvalidConfig, "names nothing for allreduce"),
        ("allreduce:rong", UnknownName, "nccl-algo 'rong'"),
    ],
)
def test_what_nccl_does_not_read(text: str, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        nccl_algorithms(text)


def test_names_in_the_order_of_nccl() -> None:
    """init.cc, ncclAlgoStr; exchanges by send and receive are no algorithm of NCCL_ALGO."""
    collnet = ("CollNetDirect", "CollNetChain")
    assert names_in_nccl_algo() == ("Tree", "Ring", *collnet, "NVLS", "NVLSTree", "PAT")


def test_a_release_is_numbers_with_dots() -> None:
    assert nccl_release("2.32.3") == (2, 32, 3)
    assert nccl_release(None) == ()
    for wrong in ("2", "two", "2.x", "", "2.32.99999"):
        with pytest.raises(InvalidConfig, match="is no release such as"):
            nccl_release(wrong)


def test_the_release_reaches_the_price() -> None:
    """On two nodes of B200 the trees of 2.32 are no slower, and on H100 nothing changes."""
    job = {"strategy": "ddp", "nccl_algo": "Tree", "nccl_proto": "LL128", "overlap": "none"}
    for gpus, faster in (("2x8xB200", True), ("2x8xH100", False)):
        old, new = (
            api.predict("gpt2-xl", gpus, nccl_version=v, **job).step_time_s.value
            for v in ("2.30", "2.32")
        )
        assert (new < old) == faster
        assert faster or new == old


def test_gradients_alone_are_hidden_by_default() -> None:
    """DistributedDataParallel reduces buckets while backward runs; other traffic is waited for."""
    assert on_by_default(Overlap) == {"grads": True}
