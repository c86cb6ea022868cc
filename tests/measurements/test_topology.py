"""Matrices of real machines against what is known of these machines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import topologies as printed

from simcore.base.errors import DataError, InvalidConfig
from simcore.hardware.spec import GPUS, NODES, NodeSpec
from simcore.measurements.topology_node import (
    TopologyMatrix,
    mesh_rings,
    n_cpus,
    node_of_topology,
    read_topology,
)

FILE = Path("topo.txt")


def matrix(text: str) -> TopologyMatrix:
    return read_topology(FILE, text)


def node(text: str, gpu: str, **more: Any) -> NodeSpec:
    return node_of_topology(matrix(text), GPUS[gpu], name="mine", **more).node


def test_rings_of_dgx1_are_those_that_its_all_reduces_show() -> None:
    """The preset's rings were read off measured all-reduces; here they follow from the links."""
    found = node(printed.DGX1, "V100-SXM-16GB")
    assert found.fabric == "nvlink-mesh"
    assert found.mesh_rings == NODES["dgx-1"].mesh_rings
    assert found.gpus_per_pcie_root == 2 and found.cpu.cores_per_socket == 12


@pytest.mark.parametrize(
    ("links", "rings"),
    [
        ([[0, 4], [4, 0]], (4,)),
        ([[0 if i == j else 4 for i in range(4)] for j in range(4)], (4, 8, 12)),  # all links used
        ([[0, 1, 0], [1, 0, 1], [0, 1, 0]], (1, 2)),  # a chain: through the middle twice
        ([[0, 1, 0], [1, 0, 0], [0, 0, 0]], (1, 0)),
    ],
)
def test_rings_of_small_meshes(links: list[list[int]], rings: tuple[int, ...]) -> None:
    assert mesh_rings(links) == rings


@pytest.mark.parametrize(
    ("text", "gpu", "said"),
    [
        (printed.switched(18), "H100-SXM", {"fabric": "nvswitch", "gpus_per_pcie_root": 1}),
        (printed.switched(12, far_nics=4, shared=2), "A100-SXM-80GB",
         {"fabric": "nvswitch", "gpus_per_pcie_root": 2, "mesh_rings": ()}),
        (printed.switched(8), "A800-SXM-80GB", {"fabric": "nvswitch"}),
        (printed.switched(6), "V100-SXM-32GB", {"fabric": "nvswitch"}),
        (printed.POLARIS, "A100-SXM-40GB", {"fabric": "nvlink-mesh", "mesh_rings": (4, 8, 12)}),
        (printed.A6000, "A6000",
         {"fabric": "nvlink-pairs", "gpus_per_pcie_root": 2, "pcie_link": "pcie4-x16"}),
        (printed.RTX4090, "RTX4090", {"fabric": "pcie", "gpus_per_pcie_root": 1}),
        (printed.PCIE_ONLY, "A40", {"fabric": "pcie", "gpus_per_pcie_root": 2}),
    ],
)  # fmt: skip
def test_machines(text: str, gpu: str, said: dict[str, Any]) -> None:
    found = node(text, gpu)
    assert {k: getattr(found, k) for k in said} == said
    assert found.cpu.sockets == 2


def test_ports_near_gpus_count_and_others_do_not() -> None:
    def ports(text: str, gpu: str, **more: Any) -> list[tuple[str, int]]:
        return [(n.link, n.count) for n in node(text, gpu, **more).nics]

    assert ports(printed.switched(12, far_nics=4, shared=2), "A100-SXM-80GB") == [("ib-hdr", 8)]
    assert ports(printed.A6000, "A6000", nics="2xeth-100") == [("eth-100", 2)]
    assert ports(printed.RTX4090, "RTX4090")[0][1] == 2  # PHB of one GPU, none nearer


def test_what_is_not_told_is_said() -> None:
    found = node_of_topology(matrix(printed.POLARIS), GPUS["A100-SXM-40GB"], name="polaris")
    assert any("2 sockets" in a for a in found.assumptions)
    assert any("pcie4-x16" in a for a in found.assumptions)
    alone = node_of_topology(
        matrix(printed.POLARIS), GPUS["A100-SXM-40GB"], name="polaris", sockets=1
    )
    assert not any("sockets" in a for a in alone.assumptions)
    assert alone.node.cpu.sockets == 1 and alone.node.socket_link is None


def test_names_and_affinities() -> None:
    found = matrix(printed.A6000)
    assert set(found.listed) == {"NVIDIA RTX A6000"}
    assert found.nics == ("NIC0",)
    assert found.numa == {"GPU0": "0", "GPU1": "0", "GPU2": "1", "GPU3": "1"}
    assert n_cpus("0-23,48-71") == 48 and n_cpus("5") == 1


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("GPU3    SYS     SYS     NV4      X      PIX", "GPU3    SYS     SYS", "GPU3 has"),
        ("GPU1    NV4      X", "GPU1    NV2      X", "GPU0 to GPU1 is NV4"),
        ("GPU1    NV4      X", "GPU1    QPI      X", "'QPI' is not a kind of link"),
        ("GPU1    NV4      X      SYS", "GPU1    NV4      SYS    SYS", "diagonal"),
        ("GPU2    SYS     SYS      X", "GPU1    SYS     SYS      X", "GPU1 is in line 7"),
        ("GPU3    SYS     SYS     NV4      X ", "# ", "has no row for GPU3"),
    ],
)
def test_what_cannot_be_is_named_by_line(old: str, new: str, said: str) -> None:
    assert old in printed.A6000
    with pytest.raises(DataError, match=said) as raised:
        matrix(printed.A6000.replace(old, new, 1))
    assert raised.value.line is not None and str(raised.value).startswith("topo.txt:")


def test_another_gpu_than_the_matrix_shows() -> None:
    with pytest.raises(InvalidConfig, match="has no NVLink in its record"):
        node(printed.A6000, "RTX4090")
    with pytest.raises(DataError, match="has no matrix"):
        matrix("Sun Nov 22\n")
