"""Grids: what they stand for, and what is said of a wrong one."""

from __future__ import annotations

import re

import pytest

from simcore.base.errors import InvalidConfig
from simcore.planning.grid import cluster_texts, clusters, named_values, whole_values


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("4", (4,)),
        ("1,2,4", (1, 2, 4)),
        ("1..4", (1, 2, 3, 4)),
        ("8..32:8", (8, 16, 24, 32)),
        ("1..9*2", (1, 2, 4, 8)),
        ("3..30*3", (3, 9, 27)),
        ("1..2, 8 , 2", (1, 2, 8)),
    ],
)
def test_values(text: str, values: tuple[int, ...]) -> None:
    assert whole_values("--tp", text) == values


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x", "is not a number, a list (1,2,4) or a range"),
        ("8..1", "write 1..8"),
        ("1..8*1", "a factor of 2 or more"),
        ("0", "must be at least 1"),
        ("1..9999999", "more than"),
        ("", "is not a number"),
    ],
)
def test_a_wrong_grid_is_one_sentence(text: str, said: str) -> None:
    with pytest.raises(InvalidConfig) as err:
        whole_values("--tp", text)
    assert said in str(err.value)
    assert "--tp" in str(err.value)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("4x8xA6000ada", ["4x8xA6000ada"]),
        ("H100", ["H100"]),
        ("A6000ada:1..3x8", ["1x8xA6000ada", "2x8xA6000ada", "3x8xA6000ada"]),
        ("H100:1,2x8,4x8xA100", ["1x8xH100", "2x8xH100", "4x8xA100"]),
        ("H100:2x4,8", ["2x4xH100", "2x8xH100"]),
        ("H100:1..4*2x8,H200:1x8", ["1x8xH100", "2x8xH100", "4x8xH100", "1x8xH200"]),
        ("A100:1,2x4+1x2xT4", ["1x4xA100+1x2xT4", "2x4xA100+1x2xT4"]),
        ("1x8xH100,H100:1x8", ["1x8xH100"]),
    ],
)
def test_clusters_of_a_grid(text: str, found: list[str]) -> None:
    assert cluster_texts(text) == found


@pytest.mark.parametrize("text", ["H100:8", "H100:x8", ":1x8", "H100:1x2x3", "1x8xH100,,H200"])
def test_a_wrong_cluster_grid_says_how_to_write_one(text: str) -> None:
    with pytest.raises(InvalidConfig) as err:
        clusters([text])
    assert "TYPE:NODESxGPUS" in str(err.value) or "empty item" in str(err.value)


@pytest.mark.parametrize(
    ("text", "meant"),
    [("1..4x8xH100", "H100:1..4x8"), ("2x1..8xRTX4090", "RTX4090:2x1..8"),
     ("1..8*2x8xA100-SXM-80GB", "A100-SXM-80GB:1..8*2x8")],
)  # fmt: skip
def test_a_range_where_a_count_stands_is_told_the_grid(text: str, meant: str) -> None:
    with pytest.raises(InvalidConfig, match=f"did you mean '{re.escape(meant)}'"):
        cluster_texts(text)
    assert len(cluster_texts(meant)) > 1


def test_an_unknown_gpu_of_a_grid_is_said_once_with_the_nearest() -> None:
    with pytest.raises(InvalidConfig) as err:
        clusters(["A6000ad:1..64x8"])
    assert err.value.violations == tuple(dict.fromkeys(err.value.violations))
    assert len(err.value.violations) == 1
    assert "A6000ada" in str(err.value)


def test_every_network_gives_its_own_clusters() -> None:
    found = clusters(["H100:1..2x8"], networks=["ib-hdr", "ib-ndr"])
    assert [c.n_nodes for c in found] == [1, 1, 2, 2]
    assert {c.groups[0].node.nics[0].link for c in found} == {"ib-hdr", "ib-ndr"}


def test_names() -> None:
    assert named_values("strategy", "all", ["ddp", "zero1"]) == ("ddp", "zero1")
    assert named_values("strategy", "FSDP,ddp", ["ddp", "zero3"], {"fsdp": "zero3"}) == (
        "zero3", "ddp")  # fmt: skip
    assert named_values("precision", "AMP_BF16, fp32", ["fp32", "amp-bf16"]) == ("amp-bf16", "fp32")
    with pytest.raises(InvalidConfig, match="did you mean 'zero1'"):
        named_values("strategy", "ddp,zero", ["ddp", "zero1"])
