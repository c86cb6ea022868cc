"""Closed-form paths against the topology graph, and by hand where both might be wrong."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from simcore.base.errors import UnknownName
from simcore.hardware.cluster import ClusterSpec, NodeGroup, link_named, parse_cluster
from simcore.hardware.paths import (
    LOOPBACK,
    NVLINK_HOP_S,
    STAGING_BYTES_PER_S,
    cluster_paths,
    intra_node_path,
    node_network_path,
)
from simcore.hardware.profile import load_profile
from simcore.hardware.spec import GPUS, NODES, NodeSpec
from tests.cluster_graph import bottleneck, build_graph

#: A device for presets that name none.
STAND_INS = {
    "8xS4000-pcie": "MTT-S4000",
    "gb200-tray": "GB200",
    "h200-nvl-4way": "H200-NVL",
    "as-4124gs-tnr": "RTX3070",
    "generic-nvlink-pairs": "A40",
    "generic-nvswitch": "H800-SXM-80GB",
    "generic-pcie3": "A40",
    "generic-pcie5": "H100-PCIe-80GB",
    "generic-pcie": "L40S",
    "pcie-switch-8gpu": "A40",
    "xeon-pcie5": "RTX5090",
}


def _sizes(node: NodeSpec) -> Iterable[int]:
    """Numbers of devices to try: all of a rack, some of a larger node, none of a torus."""
    if node.torus:  # its collectives use several axes at a time: test_torus.py
        return ()
    most = node.max_gpus
    return range(2, most + 1) if most <= 72 else (2, 8, most)


SHAPES = [
    (name, gpu, n)
    for name in NODES.names()
    for gpu in (NODES[name].gpu_types or (STAND_INS[name],))
    for n in _sizes(NODES[name])
]


@pytest.mark.parametrize(("node", "gpu", "n"), SHAPES)
def test_closed_form_equals_the_graph(node: str, gpu: str, n: int) -> None:
    """A ring in device order over the first n devices of every preset."""
    group = NodeGroup(1, n, GPUS[gpu], NODES[node])
    path = intra_node_path(group)
    graph = build_graph(ClusterSpec((group,)))
    rate, link, _ = bottleneck(graph, [f"g0n0gpu{i}" for i in range(n)])
    if path.route.startswith("pcie_host"):
        # The graph has the wires, not the DRAM behind them; and its rate between sockets is what
        # peer-to-peer traffic gets, which traffic through host memory is not.
        dram = group.node.cpu.dram_bw_per_socket.value * group.node.cpu.sockets / (2 * n)
        if link == group.node.socket_link:
            port = link_named(group.node.pcie_link)
            rate = port.bw.value * port.payload_frac.value
        rate = min(rate, dram)
    if path.route == "pcie_host_gen3":  # what NCCL's copies pass, if a port carries more
        rate = min(rate, STAGING_BYTES_PER_S)
    assert path.bw_bytes_per_s == pytest.approx(rate)


def test_one_device_meets_no_wire() -> None:
    assert intra_node_path(parse_cluster("4x1xA100").groups[0]) is LOOPBACK
    assert cluster_paths(parse_cluster("1x1xA100")) == (LOOPBACK, LOOPBACK)


def test_nvlink_switch_gives_every_device_its_own_rate() -> None:
    path = intra_node_path(parse_cluster("8xA100-SXM-80GB").groups[0])
    assert (path.route, path.bw_bytes_per_s, path.hop_s) == ("nvlink", 300e9, NVLINK_HOP_S)


def test_a_card_without_nvlink_never_takes_the_switch() -> None:
    group = parse_cluster("2xA40", node="generic-nvswitch").groups[0]
    assert intra_node_path(group).route != "nvlink" or group.gpu.nvlink_bw is not None


def test_geforce_goes_through_host_memory() -> None:
    """No peer-to-peer: twice the port's latency, and the rate of the shared root."""
    path = intra_node_path(parse_cluster("8xRTX4090").groups[0])
    port = link_named("pcie4-x16")
    assert path.route == "pcie_host"
    assert path.hop_s == 2 * port.latency.value
    rate = port.bw.value * port.payload_frac.value
    dram = 2 * NODES["8x4090-pcie"].cpu.dram_bw_per_socket.value / 16
    assert path.bw_bytes_per_s == pytest.approx(min(rate, dram))


def test_nics_of_a_node_add_up() -> None:
    group = parse_cluster("2x8xA100-SXM-80GB").groups[0]
    link = link_named("ib-hdr")
    path = node_network_path(group)
    assert path.bw_bytes_per_s == pytest.approx(8 * link.bw.value * link.payload_frac.value)
    assert path.route == "network_rdma"
    assert node_network_path(parse_cluster("2x1xA2000").groups[0]).route == "network_tcp"


def test_a_mixed_cluster_is_as_fast_as_its_slowest_group() -> None:
    mixed = parse_cluster("1x2xA100+1x3xT4")
    paths = cluster_paths(mixed)
    a100, t4 = mixed.groups
    assert paths == (intra_node_path(t4), node_network_path(t4))
    assert paths[0].bw_bytes_per_s < intra_node_path(a100).bw_bytes_per_s


@pytest.mark.parametrize(
    ("n", "busbw"),
    [(2, 22.6e9), (3, 45.2e9), (4, 85.4e9), (5, 37.2e9), (6, 45.7e9), (7, 87.0e9), (8, 134.5e9)],
)
def test_a_cube_mesh_has_the_links_that_its_rings_find(n: int, busbw: float) -> None:
    """All-reduces of 1 GiB over the first n GPUs of a DGX-1: 2(n-1)/n of the bytes over the time
    (vTrain's traces, hardware_db/calibrations/collectives.yaml); a ring reaches 0.74 to 0.92 of
    its links."""
    path = intra_node_path(NodeGroup(1, n, GPUS["V100-SXM-32GB"], NODES["dgx-1"]))
    assert 0.73 <= busbw / path.bw_bytes_per_s <= 0.93


def test_a_mesh_names_rings_of_every_size() -> None:
    dgx = NODES["dgx-1"]
    wrong = dgx.model_copy(update={"mesh_rings": (1, 2)})
    with pytest.raises(ValueError, match="rings of 2 to 8"):
        wrong.check()


@pytest.mark.parametrize("asked", ["no-p2p", "dgx-a100-40:no-p2p"])
def test_devices_kept_from_each_other_exchange_through_host_memory(asked: str) -> None:
    (group,) = parse_cluster("1x8xA100-SXM4-40GB", node=asked).groups
    path, direct = intra_node_path(group), parse_cluster("1x8xA100-SXM4-40GB").groups[0]
    assert group.node.name == f"{direct.node.name}:no-p2p"
    assert path.route.startswith("pcie_host")
    assert path.bw_bytes_per_s < intra_node_path(direct).bw_bytes_per_s
    assert intra_node_path(parse_cluster("A100-SXM4-40GB", node=asked).groups[0]) is LOOPBACK


@pytest.mark.parametrize("n", [2, 4, 8])
def test_a_virtual_machine_that_hides_sockets_crosses_them_at_every_second_hop(n: int) -> None:
    """Each hop's buffer lies on either socket: n/2 exchanges cross each way where a ring over both
    sockets with buffers in place crosses once."""
    hidden = parse_cluster(f"1x{n}xA100-SXM4-40GB", node="no-p2p:vm").groups[0]
    placed = parse_cluster("1x8xA100-SXM4-40GB", node="no-p2p").groups[0]
    ours, theirs = intra_node_path(hidden), intra_node_path(placed)
    assert ours.route == theirs.route == "pcie_host_far"
    assert ours.bw_bytes_per_s == pytest.approx(theirs.bw_bytes_per_s / (n / 2))


def test_own_ports_far_from_few_memory_domains_pass_the_share_that_shared_ports_do() -> None:
    """0.13 of a root port's rate over both sockets; with four domains a socket, or within one, what
    hosts with ports of their own pass on average."""
    few = NODES["as-4124gs-tnr"]
    many = few.model_copy(update={"memory_domains": 4})
    routes = [
        intra_node_path(NodeGroup(1, n, GPUS["RTX3070"], node)).route
        for n, node in ((8, few), (4, few), (8, many))
    ]
    assert routes == ["pcie_host_far", "pcie_host", "pcie_host"]
    dram = 2 * few.cpu.dram_bw_per_socket.value / 16
    assert intra_node_path(NodeGroup(1, 8, GPUS["RTX3070"], few)).bw_bytes_per_s == dram


@pytest.mark.parametrize(
    ("gpus", "node"),
    [
        ("1x8xA100-SXM4-40GB", "vm"),  # NVLink needs no host memory
        ("1x2xRTX3090", "vm"),  # one socket
        ("1x4xGTX1080Ti", "server-pcie:vm"),  # Intel's sockets do not slow such exchanges down
    ],
)
def test_hidden_sockets_change_nothing_where_no_buffer_can_be_far(gpus: str, node: str) -> None:
    seen = parse_cluster(gpus, node=node.removesuffix("vm").removesuffix(":") or None).groups[0]
    hidden = parse_cluster(gpus, node=node).groups[0]
    assert hidden.node.name == f"{seen.node.name}:vm"
    assert intra_node_path(hidden) == intra_node_path(seen)


@pytest.mark.parametrize("asked", ["vm", "no-p2p", "no-p2p:vm"])
def test_a_node_named_by_suffixes_alone_keeps_its_assumed_network(asked: str) -> None:
    assert not parse_cluster("2x8xA100-SXM4-40GB", node=asked).network_stated
    assert parse_cluster("2x8xA100-SXM4-40GB", node=f"dgx-a100-40:{asked}").network_stated


def test_no_p2p_of_an_unknown_node_names_the_nearest() -> None:
    with pytest.raises(UnknownName, match="dgx-a100"):
        parse_cluster("1x8xA100-SXM4-40GB", node="dgx-a10:no-p2p")


def test_a_record_may_keep_devices_from_each_other() -> None:
    node = NODES["dgx-1"].model_copy(update={"peer_to_peer": False})
    path = intra_node_path(NodeGroup(1, 8, GPUS["V100-SXM-32GB"], node))
    assert path.route == "pcie_host_gen3"


def test_staging_over_pcie_3_is_bound_by_itself_or_by_a_shared_port() -> None:
    """5.16 GB/s over 0.78 on a root of its own; half of 15.75 GB/s x 0.80 on one of two."""
    own = intra_node_path(NodeGroup(1, 2, GPUS["GTX1080Ti"], NODES["server-pcie"]))
    pair = intra_node_path(NodeGroup(1, 4, GPUS["GTX1080Ti"], NODES["generic-pcie3"]))
    assert own.bw_bytes_per_s == pytest.approx(5.16e9 / 0.78)
    assert pair.bw_bytes_per_s == pytest.approx(15.75e9 * 0.80 / 2, rel=0.01)


def test_an_older_card_stages_in_a_newer_host_as_its_port_allows() -> None:
    """Staging passes 5.16 GB/s from cards of PCIe 4; a port of PCIe 3 carries more than that."""
    old, new = (intra_node_path(NodeGroup(1, 2, GPUS["GTX1080Ti"], NODES[name]))
                for name in ("server-pcie", "workstation-2gpu"))  # fmt: skip
    assert new.bw_bytes_per_s == pytest.approx(old.bw_bytes_per_s)


#: NVIDIA/nccl issue 1639: all_reduce_perf of 1 to 8 GB on RTX 5090 in a server of two Xeon 8480+,
#: bus bandwidth [GB/s] by number of cards.
MEASURED_5090 = {8: 28.0, 4: 35.0}


@pytest.mark.parametrize(("n", "measured"), MEASURED_5090.items())
def test_geforce_stages_as_fast_as_port_and_host_memory_allow(n: int, measured: float) -> None:
    path = intra_node_path(NodeGroup(1, n, GPUS["RTX5090"], NODES["xeon-pcie5"]))
    share = load_profile().route_efficiency(path.route, node="xeon-pcie5")
    assert path.bw_bytes_per_s * share.value / 1e9 == pytest.approx(measured, rel=0.1)
    assert path.bottleneck == ("host memory" if n == 8 else "PCI Express 5.0 x16 to host memory")


def test_hosts_of_pcie_5_stage_at_nearly_the_rate_of_the_port() -> None:
    gpu = GPUS["H100-PCIe-80GB"]
    path = intra_node_path(
        NodeGroup(1, 4, gpu, NODES["generic-pcie5"].model_copy(update={"peer_to_peer": False}))
    )
    assert path.route == "pcie_host_gen5"
    assert path.bw_bytes_per_s == pytest.approx(63.02e9 * 0.85)
