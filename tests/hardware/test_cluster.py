"""The cluster grammar: what it takes, what it refuses, which node it assumes."""

from __future__ import annotations

from typing import Any

import pytest

from simcore.base.errors import InvalidConfig, UnknownName, UsageError
from simcore.hardware.cluster import parse_cluster, parse_network
from simcore.hardware.paths import node_network_path
from simcore.hardware.spec import GPUS, NODES


@pytest.mark.parametrize(
    ("text", "shapes"),
    [
        ("4x8xA6000ada", [(4, 8, "A6000ada")]),
        ("8xA6000ada", [(1, 8, "A6000ada")]),
        ("A6000ada", [(1, 1, "A6000ada")]),
        (" 4 x 8 x A6000ada ", [(4, 8, "A6000ada")]),
        ("4×8×A6000ada", [(4, 8, "A6000ada")]),
        ("4*8*a6000ADA", [(4, 8, "A6000ada")]),
        ("1x2xA100+1x3xT4", [(1, 2, "A100-SXM-80GB"), (1, 3, "T4")]),
        ("2xT4 + T4", [(1, 2, "T4"), (1, 1, "T4")]),
        ("10000x8xH100", [(10000, 8, "H100-SXM-80GB")]),
        ("8xRTX4090", [(1, 8, "RTX4090")]),
        ("8x4090", [(1, 8, "RTX4090")]),
    ],
)
def test_valid_clusters(text: str, shapes: list[tuple[int, int, str]]) -> None:
    cluster = parse_cluster(text)
    assert [(g.n_nodes, g.gpus_per_node, g.gpu.name) for g in cluster.as_written] == shapes
    assert cluster.n_gpus == sum(n * g for n, g, _ in shapes)
    assert cluster.n_nodes == sum(n for n, _, _ in shapes)
    assert parse_cluster(str(cluster)) == cluster


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "no GPUs given"),
        ("   ", "no GPUs given"),
        ("0x8xA100", "node count"),
        ("4x0xA100", "GPUs a node"),
        ("-1x8xA100", "not NODESxGPUSxTYPE"),
        ("x8xA100", "not NODESxGPUSxTYPE"),
        ("4x8", "no GPU type"),
        ("8", "no GPU type"),
        ("A100+", "not NODESxGPUSxTYPE"),
        ("+A100", "not NODESxGPUSxTYPE"),
        ("4x8xA100x", "unknown gpu"),
        ("4x8xA60000ada", "did you mean 'A6000ada'"),
        ("1x9xA6000ada+0xT4", "GPUs a node"),
        ("2000000x8xA100", "above a million"),
        (f"{10**30}xA100", "above a million"),
        ("1x64xT4", "holds 16 GPUs, not 64"),
        ("4.5x8xA100", ""),
        ("2x2x2xA100", ""),
    ],
)
def test_invalid_clusters(text: str, says: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_cluster(text)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_all_violations_come_at_once() -> None:
    with pytest.raises(InvalidConfig) as caught:
        parse_cluster("0x8xA100+4x0xT4")
    assert len(caught.value.violations) == 2


@pytest.mark.parametrize(
    ("words", "shape"),
    [
        ({"nnodes": 4, "nproc_per_node": 8}, (4, 8)),
        ({"nnodes": 4}, (4, 1)),
        ({"nproc_per_node": 8}, (1, 8)),
    ],
)
def test_torchrun_words_stand_in_for_counts(words: dict[str, Any], shape: Any) -> None:
    group = parse_cluster("A6000ada", **words).groups[0]
    assert (group.n_nodes, group.gpus_per_node) == shape


@pytest.mark.parametrize("words", [{"nnodes": 0}, {"nproc_per_node": 0}, {"nnodes": -1}])
def test_torchrun_words_are_checked(words: dict[str, Any]) -> None:
    with pytest.raises(InvalidConfig, match="at least 1"):
        parse_cluster("A6000ada", **words)


def test_counts_are_not_given_twice() -> None:
    with pytest.raises(InvalidConfig, match="counts already"):
        parse_cluster("4x8xA6000ada", nnodes=2)


@pytest.mark.parametrize(
    ("text", "bytes_per_s"),
    [
        ("25 Gbit/s", 25e9 / 8),
        ("4x25 Gbit/s", 100e9 / 8),
        ("4 × 25Gbps", 100e9 / 8),
        ("12.5 GB/s", 12.5e9),
        ("ib-hdr", 25e9),
        ("8xib-hdr", 200e9),
    ],
)
def test_network_overrides(text: str, bytes_per_s: float) -> None:
    """A bare rate is what payload gets; a named link keeps its own payload share."""
    cluster = parse_cluster("2x8xA6000ada", network=text)
    path = node_network_path(cluster.groups[0])
    nics = cluster.groups[0].node.nics
    assert len(nics) == 1
    if "ib" in text:
        assert 0.8 * bytes_per_s < path.bw_bytes_per_s <= bytes_per_s
    else:
        assert path.bw_bytes_per_s == pytest.approx(bytes_per_s)
    assert not any("as preset" in a and "network" in a for a in cluster.assumptions)


@pytest.mark.parametrize("text", ["nvlink4", "pcie4-x16", "0xib-hdr", "65xib-hdr", "25", "ib-hrd",
                                  "25 Gb", "25 parsec/s"])  # fmt: skip
def test_networks_that_are_none(text: str) -> None:
    with pytest.raises(UsageError):
        parse_network(text)


def test_a_mixed_network_override_reaches_every_group() -> None:
    cluster = parse_cluster("1x2xA100+1x3xT4", network="100 Gbit/s")
    rates = {node_network_path(g).bw_bytes_per_s for g in cluster.groups}
    assert rates == {12.5e9}


#: What a reader of the name expects: own systems, no cloud instance, the smallest that holds it.
DEFAULT_NODES = {
    "8xA100-SXM-80GB": {"hgx-a100-80", "dgx-a100"},
    "8xA100-SXM-40GB": {"hgx-a100-40", "dgx-a100-40"},
    "8xH100-SXM-80GB": {"hgx-h100", "dgx-h100"},
    "8xV100-SXM-32GB": {"dgx-1"},
    "16xV100-SXM3-32GB": {"dgx-2"},
    "16xV100-SXM3-32GB-H": {"dgx-2h"},
    "8xA6000ada": {"8xA6000ada-pcie"},
    "8xRTX4090": {"8x4090-pcie"},
    "8xMTT-S4000": {"8xS4000"},
    "2xA100-PCIE-80GB": {"a100-pcie-2gpu"},
    "2xRTX3090": {"workstation-2gpu"},
    "3xRTX3090": {"workstation-4gpu"},
    "8xRTX3090": {"generic-pcie"},
    "1xRTX-A2000-12GB": {"vm-2.5gbe"},
    "4xT4": {"server-pcie"},
    "2xRTX5090": {"workstation-2gpu-pcie5"},
    # no preset: the generic node of the card's PCIe generation and year, if it holds so many
    "8xT4": {"generic-pcie3"},
    "16xT4": {"generic-pcie"},
    "8xL40S": {"generic-pcie"},
    "8xRTX5090": {"generic-pcie5"},
    "4xH100-PCIe-80GB": {"generic-pcie"},  # of 2022, before servers with PCIe 5
    "4xH100-NVL": {"generic-pcie5"},
    "4xMI50": {"generic-pcie3"},  # PCIe 4 of 2018
    "8xB300-SXM": {"dgx-b300"},
}


@pytest.mark.parametrize(("text", "expected"), DEFAULT_NODES.items())
def test_default_nodes(text: str, expected: set[str]) -> None:
    names = {parse_cluster(text).groups[0].node.name for _ in range(3)}
    assert len(names) == 1
    assert names <= expected


@pytest.mark.parametrize("gpu", GPUS.names())
def test_every_gpu_has_a_default_node_that_is_no_cloud_instance(gpu: str) -> None:
    cluster = parse_cluster(f"1x1x{gpu}")
    node = cluster.groups[0].node
    assert not node.name.endswith("-aws")
    assert any(node.name in a for a in cluster.assumptions)


def test_a_named_node_is_taken_and_checked() -> None:
    cluster = parse_cluster("2x8xA100-SXM-40GB", node="p4d-aws")
    assert cluster.groups[0].node == NODES["p4d-aws"]
    assert not any("preset" in a and a.startswith("node") for a in cluster.assumptions)
    with pytest.raises(InvalidConfig, match="holds 8 GPUs, not 9"):
        parse_cluster("1x9xA100", node="dgx-a100")
    with pytest.raises(UnknownName, match="did you mean"):
        parse_cluster("1x8xA100", node="dgx-a1000")


@pytest.mark.parametrize(
    ("text", "same"),
    [("256xH100", "32x8xH100"), ("256xGB200", "64x4xGB200"), ("12xGH200", "12x1xGH200"),
     ("16xH100+2xT4", "2x8xH100+1x2xT4"), ("16xL40S", "1x16xL40S")],
)  # fmt: skip
def test_more_gpus_than_a_node_holds_are_full_nodes(text: str, same: str) -> None:
    found, alike = parse_cluster(text), parse_cluster(same)
    assert found.groups == alike.groups
    assert set(alike.assumptions) <= set(found.assumptions)
    said = {a for a in found.assumptions if " GPUs are " in a and "NVLink" not in a}
    assert len(said) == (text != "16xL40S")  # which one node holds


def test_full_trays_are_proposed_of_a_rack() -> None:
    with pytest.raises(InvalidConfig, match="did you mean 64x4xGB200 or 65x4xGB200"):
        parse_cluster("257xGB200")


def test_one_device_alone_stays_in_its_node() -> None:
    alone = parse_cluster("4x8xA6000ada").alone(0)
    assert (alone.n_nodes, alone.n_gpus) == (1, 1)
    assert alone.groups[0].node.name == "8xA6000ada-pcie"
