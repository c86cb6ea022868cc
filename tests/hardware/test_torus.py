"""Slices of a torus: shapes that Google offers, links in use, and clusters written in many ways."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from simcore.base.errors import InvalidConfig
from simcore.hardware.cluster import nic_bytes_per_s, parse_cluster
from simcore.hardware.paths import cluster_paths, library_values
from simcore.hardware.profile import load_profile
from simcore.hardware.torus import exchange_load, is_ring, links_in_use, longest_way, slice_shape

#: docs.cloud.google.com/tpu/docs/v6e and /tpu7x: topologies of slices, by number of chips.
OFFERED_2D = {4: (2, 2), 8: (2, 4), 16: (4, 4), 32: (4, 8), 64: (8, 8), 128: (8, 16), 256: (16, 16)}
OFFERED_3D = {
    4: (1, 2, 2), 8: (2, 2, 2), 16: (2, 2, 4), 32: (2, 4, 4), 64: (4, 4, 4), 128: (4, 4, 8),
    256: (4, 8, 8), 512: (8, 8, 8), 1024: (8, 8, 16), 2048: (8, 16, 16),
}  # fmt: skip


@pytest.mark.parametrize(("axes", "offered"), [(2, OFFERED_2D), (3, OFFERED_3D)], ids=["2D", "3D"])
def test_shapes_are_those_that_google_offers(axes: int, offered: dict[int, tuple]) -> None:  # type: ignore[type-arg]
    assert {n: slice_shape(n, axes) for n in offered} == offered


def test_rings_close_where_the_scaling_book_has_them() -> None:
    """On v5e an axis of 16 only; on v5p an axis of a multiple of 4."""
    assert is_ring(16, 16) and not is_ring(8, 16)
    assert is_ring(4, 4) and is_ring(12, 4) and not is_ring(2, 4)
    assert links_in_use(16, 2, 16) == 2  # 4x4 of v5e: two lines
    assert links_in_use(256, 2, 16) == 4  # 16x16: two rings
    assert links_in_use(64, 3, 4) == 6


def _graph_distances(shape: tuple[int, ...], rings: tuple[bool, ...]) -> np.ndarray:  # type: ignore[type-arg]
    """Hops between all pairs of chips of a torus, counted along each axis."""
    chips = list(product(*(range(n) for n in shape)))

    def along(a: int, b: int, n: int, ring: bool) -> int:
        return min(abs(a - b), n - abs(a - b)) if ring else abs(a - b)

    return np.array([
        [sum(along(*pair, n, r) for *pair, n, r in zip(a, b, shape, rings, strict=True))
         for b in chips] for a in chips
    ])  # fmt: skip


@pytest.mark.parametrize(
    ("chips", "axes", "ring"), [(8, 2, 16), (16, 2, 4), (16, 3, 4), (64, 3, 4)]
)
def test_longest_way_is_the_diameter(chips: int, axes: int, ring: int) -> None:
    shape = slice_shape(chips, axes)
    hops = _graph_distances(shape, tuple(is_ring(n, ring) for n in shape))
    assert longest_way(chips, axes, ring) == hops.max()


def test_busiest_link_of_an_exchange() -> None:
    """Ring of 4: mean distance 1, over two links of a chip 1/2. Line of 4: once, in its middle."""
    assert exchange_load(4, 2, 4) == pytest.approx(0.5)  # 2x2: lines of two
    assert exchange_load(16, 2, 4) == pytest.approx(4 / 8)  # 4x4, rings
    assert exchange_load(16, 2, 16) == pytest.approx(4 / 4)  # 4x4, lines


@pytest.mark.parametrize("text", ["16x4xTPU-v7x", "1x64xTPU-v7x", "TPU7x-128", "64xIronwood"])
def test_a_slice_may_be_written_as_hosts_as_chips_or_by_its_cloud_name(text: str) -> None:
    cluster = parse_cluster(text)
    assert (cluster.n_nodes, cluster.n_gpus) == (1, 64)
    assert any("torus of 4x4x4" in told for told in cluster.assumptions)


@pytest.mark.parametrize(
    ("text", "slices", "chips"),
    [("v5p-256", 1, 128), ("v6e-256", 1, 256), ("4xv6e-256", 4, 1024), ("v5litepod-16", 1, 16),
     ("tpu7x-4x4x8", 1, 128), ("v4-8", 1, 4), ("64x8xTPU-v6e", 2, 512)],
)  # fmt: skip
def test_cloud_names_count_cores_or_chips(text: str, slices: int, chips: int) -> None:
    """v4, v5p and TPU7x count TensorCores, two a chip; v5e and v6e count chips."""
    cluster = parse_cluster(text)
    assert (cluster.n_nodes, cluster.n_gpus) == (slices, chips)


def test_what_no_pod_holds_is_refused() -> None:
    with pytest.raises(InvalidConfig, match="holds 256 GPUs, not 512"):
        parse_cluster("1x512xTPU-v6e")
    with pytest.raises(InvalidConfig, match="4x4x8"):
        parse_cluster("tpu7x-2x8x8")
    with pytest.raises(InvalidConfig, match="whole number of chips"):
        parse_cluster("v5p-255")
    with pytest.raises(InvalidConfig, match="mean 2xv5e-256"):
        parse_cluster("v5e-512")
    with pytest.raises(InvalidConfig, match="not whole hosts of 8: did you mean v6e-256"):
        parse_cluster("v6e-255")


def test_a_misspelt_chip_is_proposed_with_its_count() -> None:
    with pytest.raises(InvalidConfig, match="did you mean 'v5p-256' or 'v5e-256'"):
        parse_cluster("v5q-256")


def test_a_slice_has_the_network_of_its_hosts() -> None:
    """64 hosts of 8 v6e in two slices: 32 x 2 x 400 Gbit/s each, of which hosts pass 0.39; ICI
    400 GB/s a chip.
    """
    cluster = parse_cluster("64x8xTPU-v6e")
    intra, inter = cluster_paths(cluster)
    assert intra.bw_bytes_per_s == 400e9
    assert inter.bw_bytes_per_s == pytest.approx(0.39 * 32 * 100e9)
    assert library_values(cluster, load_profile(), intra, inter)["torus"] == (2, 16)
    assert cluster.groups[0].node.cpu.sockets == 64


def test_slices_reach_each_other_through_their_hosts():
    """4.11 GB/s a chip of v6e over two slices of 256 (tpu-recipes, psum_dcn), of 12.5 on the NICs.

    The share of sockets is that of all of them (``runtime.yaml``, network_tcp).
    """
    (group,) = parse_cluster("2xv6e-256").groups
    payload = sum(nic_bytes_per_s(nic) for nic in group.node.nics) / group.gpus_per_node
    share = load_profile().runtime["route_efficiency"]["network_tcp"]["value"]
    assert payload * float(share) == pytest.approx(4.11e9, rel=0.02)
