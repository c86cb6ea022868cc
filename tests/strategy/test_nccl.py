"""The words of NCCL's variables."""

from __future__ import annotations

import pytest

from simcore.base.errors import InvalidConfig, UnknownName
from simcore.strategy.nccl import ALGORITHMS, Held, parse_algorithms, parse_protocols


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
    assert parse_algorithms(text) == Held(found)


def test_protocols_and_what_is_none() -> None:
    assert parse_protocols("^ll128").every == ("LL", "Simple")
    with pytest.raises(UnknownName, match="did you mean 'Simple'"):
        parse_protocols("simpl")
    with pytest.raises(UnknownName, match="nccl-algo 'rong'"):
        parse_algorithms("rong")


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
    held = parse_algorithms(text)
    assert set(held.every) == every
    assert {op: set(names) for op, names in held.by_function} == of
    assert parse_algorithms(str(held)) == held


def test_protocols_of_a_function() -> None:
    held = parse_protocols("LL,Simple;allreduce:^LL")
    assert held == Held(("LL", "Simple"), (("all_reduce", ("LL128", "Simple")),))


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
        parse_algorithms(text)
