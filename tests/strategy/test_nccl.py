"""The words of NCCL's variables."""

from __future__ import annotations

import pytest

from simcore.base.errors import UnknownName
from simcore.strategy.nccl import ALGORITHMS, parse_algorithms, parse_protocols


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
    assert parse_algorithms(text) == found


def test_protocols_and_what_is_none() -> None:
    assert parse_protocols("^ll128") == ("LL", "Simple")
    with pytest.raises(UnknownName, match="did you mean 'Simple'"):
        parse_protocols("simpl")
    with pytest.raises(UnknownName, match="nccl-algo 'rong'"):
        parse_algorithms("rong")
