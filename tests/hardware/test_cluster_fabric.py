"""Words on the switches between nodes, and racks counted in trays."""

from __future__ import annotations

import pytest

from simcore.base.errors import InvalidConfig
from simcore.hardware.cluster import parse_cluster
from simcore.hardware.paths import cluster_paths, library_values
from simcore.hardware.profile import load_profile
from simcore.hardware.spec import FLAT, NODES, Fabric, parse_fabric


def test_words_of_a_network() -> None:
    cluster = parse_cluster("64x8xH100", network="8xib-ndr 4:1 leaf=16 rails sharp")
    assert cluster.fabric == Fabric(4.0, 16, rails=True, sharp=True)
    assert cluster.groups[0].node.nics[0].link == "ib-ndr"
    assert parse_cluster("64x8xH100", network=cluster.network) == cluster
    assert parse_cluster("2x8xH100", network="25 Gbit/s").fabric == FLAT
    own = parse_cluster("64x8xH100", network="2:1")
    assert own.groups[0].node.nics == parse_cluster("64x8xH100").groups[0].node.nics


@pytest.mark.parametrize("text", ["8xib-ndr 0.5:1", "8xib-ndr 99:1", "lef=3", "leaf=0 2:1"])
def test_what_is_no_fabric_is_told(text: str) -> None:
    with pytest.raises(InvalidConfig):
        parse_cluster("2x8xH100", network=text)


def test_nodes_of_a_leaf_follow_from_its_ports() -> None:
    """64 ports 3:1 are 48 down: 6 nodes of 8 ports, or 48 of one each on rails."""
    assert parse_fabric(["3:1"]).nodes_of_leaf(8) == 6
    assert parse_fabric(["3:1", "rails"]).nodes_of_leaf(8) == 48
    assert parse_fabric(["3:1", "leaf=10"]).nodes_of_leaf(8) == 10
    assert FLAT.nodes_of_leaf(8) == float("inf")


@pytest.mark.parametrize(
    ("text", "racks", "each", "ports"),
    [
        ("2x4xGB200", 1, 8, 8), ("18x4xGB200", 1, 72, 72), ("32x4xGB200", 2, 64, 64),
        ("19x4xGB200", 19, 4, 4), ("8xGB200", 1, 8, 72), ("2x72xGB300", 2, 72, 72),
    ],
)  # fmt: skip
def test_trays_of_a_rack_are_one_domain(text: str, racks: int, each: int, ports: int) -> None:
    """18 trays at most, dealt out evenly: 19 have no divisor but themselves."""
    group = parse_cluster(text).groups[0]
    assert (group.n_nodes, group.gpus_per_node) == (racks, each)
    assert sum(n.count for n in group.node.nics) == ports


def test_a_network_given_for_trays_is_that_of_each() -> None:
    group = parse_cluster("32x4xGB200", network="4xib-xdr").groups[0]
    assert [(n.link, n.count) for n in group.node.nics] == [("ib-xdr", 64)]
    apart = parse_cluster("2x4xGB200", node="gb200-tray").groups[0]
    assert (apart.n_nodes, apart.gpus_per_node) == (2, 4)
    assert NODES["gb200-nvl72"].tray_gpus == 4


def test_what_nccl_sees_of_a_cluster() -> None:
    def seen(gpus: str, **words: str) -> dict[str, object]:
        cluster = parse_cluster(gpus, **words)
        return library_values(cluster, load_profile(), *cluster_paths(cluster))

    hopper = seen("4x8xH100")
    assert (hopper["generation"], hopper["nvlink"]) == (2, True)
    assert hopper["nvls_bw_bytes_per_s"] == pytest.approx(1.21 * 450e9)
    assert hopper["nic_latency_s"] == 0.0
    assert seen("2x8xA100")["nvls_bw_bytes_per_s"] == 0.0
    assert seen("8xMI300X")["generation"] == -1
    assert seen("8xL40S")["nvlink"] is False
    assert seen("2x8xH100", network="efa-400")["nic_latency_s"] == pytest.approx(75e-6)
    assert seen("2x8xB200", network="efa-v4-400")["nic_latency_s"] == pytest.approx(35e-6)
