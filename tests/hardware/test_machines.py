"""Clusters by the names of whole machines, and what each of the clouds' instances is."""

from __future__ import annotations

import pytest

from simcore.base.errors import InvalidConfig, UnknownName
from simcore.hardware.cluster import nic_bytes_per_s, parse_cluster
from simcore.hardware.machines import CLOUDS, machine_named
from simcore.hardware.spec import GPUS, NODES

INSTANCES = [(cloud.name, name) for cloud in CLOUDS.all() for name in cloud.instances]


@pytest.mark.parametrize(
    ("text", "nodes", "gpus", "gpu", "node"),
    [
        ("DGX H100", 1, 8, "H100-SXM-80GB", "dgx-h100"),
        ("4xHGX H200", 4, 8, "H200-SXM", "hgx-h200"),
        ("2x4xdgx-a100", 2, 4, "A100-SXM-80GB", "dgx-a100"),
        ("3x p4d.24xlarge", 3, 8, "A100-SXM-40GB", "p4d-aws"),
        ("2xp5en.48xlarge", 2, 8, "H200-SXM", "hgx-h200"),
        ("a3-megagpu-8g", 1, 8, "H100-SXM-80GB", "hgx-h100"),
        ("ND H100 v5", 1, 8, "H100-SXM-80GB", "hgx-h100"),
        ("Standard_ND96isr_H100_v5", 1, 8, "H100-SXM-80GB", "hgx-h100"),
        ("GB200 NVL4", 1, 4, "GB200", "gb200-tray"),  # no GPU has it as its default
        ("g5.2xlarge", 1, 1, "A10G", "generic-pcie"),
        ("2xa4x-highgpu-4g", 1, 8, "GB200", "gb200-nvl72"),  # two trays of one rack
        ("16xct5p-hightpu-4t", 1, 64, "TPU-v5p", "tpu-v5p-slice"),
        ("2xDGX Spark", 2, 1, "GB10", "dgx-spark"),  # no machine has two
    ],
)
def test_a_machine_counts_as_the_devices_it_has(text, nodes, gpus, gpu, node):
    (group,) = parse_cluster(text).groups
    assert (group.n_nodes, group.gpus_per_node) == (nodes, gpus)
    assert (group.gpu.name, group.node.name) == (gpu, node)


@pytest.mark.parametrize(
    ("text", "gbit"),
    [
        ("2xp5en.48xlarge", 3200), ("2xp4de.24xlarge", 400), ("2xp3dn.24xlarge", 100),
        ("2xa3-highgpu-8g", 800), ("2xa3-megagpu-8g", 1600), ("2xND H100 v5", 3200),
    ],
)  # fmt: skip
def test_an_instance_has_the_network_that_its_cloud_states(text, gbit):
    cluster = parse_cluster(text)
    nics = cluster.groups[0].node.nics
    assert cluster.network_stated
    assert sum(nic_bytes_per_s(n) for n in nics) * 8e-9 == pytest.approx(gbit, rel=0.1)


def test_what_the_user_says_comes_first():
    given = parse_cluster("2xp5en.48xlarge", network="4xib-hdr")
    assert given.network == "4xib-hdr"
    assert parse_cluster("2xDGX H100", node="hgx-h100").groups[0].node.name == "hgx-h100"
    changed = parse_cluster("2xp4d.24xlarge", node="no-p2p:vm")
    assert changed.groups[0].node.name == "p4d-aws:no-p2p:vm"
    with pytest.raises(UnknownName, match="suffix of a node 'vn': known are no-p2p, vm"):
        parse_cluster("2xp4d.24xlarge", node="no-p2p:vn")
    assert changed.network == parse_cluster("2xp4d.24xlarge").network
    assert str(parse_cluster("p5.48xlarge", nnodes=2, nproc_per_node=4)) == "2x4xH100-SXM-80GB"
    assert str(parse_cluster("p5.48xlarge", nnodes=3)) == "3x8xH100-SXM-80GB"


@pytest.mark.parametrize(
    ("text", "network"),
    [
        ("2xp3.16xlarge", "eth-25"), ("2xg5.xlarge", "eth-2.5"), ("2xg5.24xlarge", "eth-50"),
        ("2xg6.48xlarge", "eth-100"), ("2xg6e.4xlarge", "20 Gbit/s"),
    ],
)  # fmt: skip
def test_no_machine_of_aws_has_the_infiniband_of_a_server_of_its_kind(text, network):
    assert parse_cluster(text).network == network


@pytest.mark.parametrize(("cloud", "name"), INSTANCES)
def test_every_instance_names_records_and_fits_its_node(cloud, name):
    instance = CLOUDS[cloud].instances[name]
    for called in (name, *instance.called):
        machine = machine_named(called)
        assert machine.gpu.name == instance.gpu in GPUS.files()
        assert machine.gpus <= NODES[instance.node].max_gpus
        assert parse_cluster(f"2x{called}").n_gpus == 2 * instance.gpus


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("p5.24xlarge", "p5.48xlarge"),
        ("a3-megagpu-16g", "a3-megagpu-8g"),
        ("NC80adis_H100_v5", "did you mean 'H100'"),  # another family: no instance is proposed
        ("A100 80GB x8", "did you mean '8xA100 80GB'"),
        ("Inferentia2", "none of"),
    ],
)
def test_a_name_near_none_is_refused_in_one_sentence(text, meant):
    with pytest.raises(InvalidConfig, match=meant) as told:
        parse_cluster(text)
    assert len(told.value.violations) == 1
