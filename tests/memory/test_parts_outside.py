"""Buffers of communicators against NCCL's own constants and a published measurement."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import strategy, workload

from simcore.answer.request import make_request
from simcore.base.units import MIB
from simcore.memory.parts import (
    Group,
    beside_tensors,
    communicator_bytes,
    engine_workspaces,
    groups_of,
    nccl_bytes,
    workspace_bytes,
)
from simcore.strategy.layout import Layout, Overlap
from simcore.strategy.programs import program_named
from simcore.strategy.strategy import Strategy
from simcore.workload.graph import Block, Kernel, Op

ONE = np.ones(1)


def held(ranks: float, here: float, *, nvlink: bool = True, direct: bool = True) -> float:
    return float(
        communicator_bytes(Group(ONE * ranks, ONE * here), nvlink=nvlink, direct=direct)[0]
    )


@pytest.mark.parametrize(("ranks", "measured_mb"), [(2, 544), (3, 688), (4, 688)])
def test_of_a_node_as_measured_on_four_a100(ranks: int, measured_mb: float) -> None:
    """NVIDIA/nccl issue 964, whose figures are differences of nvidia-smi in MiB."""
    assert held(ranks, ranks) / MIB == pytest.approx(measured_mb, rel=0.2)


def test_is_channels_times_connections_times_the_protocols_buffers() -> None:
    """24 channels, three connections; 4 MiB, 120 x 640 x 8 x 8 and 8 x 512 x 8 x 16 bytes."""
    assert held(8, 8) == 24 * 3 * (4 * 2**20 + 4_915_200 + 524_288)
    assert held(8, 8, nvlink=False) == held(8, 8) / 6
    assert held(1, 1) == 0.0


def test_a_lone_rank_of_a_node_holds_more_for_the_network_than_one_of_eight() -> None:
    """On PCIe four channels leave a node; with a NIC a device each rank has two of its own."""
    alone = held(4, 1, nvlink=False)
    shared = held(32, 8, nvlink=False) - held(8, 8, nvlink=False)
    assert alone == 8 * 4 * (4 * 2**20 + 4_915_200) == 8 * shared
    assert held(32, 8) - held(8, 8) == alone / 2
    assert held(4, 1, direct=False) == 0.0, "buffers of a NIC that copies lie on the host"


@given(st.integers(2, 4096), st.sampled_from([1, 2, 4, 8]), st.booleans())
def test_more_ranks_of_equal_nodes_cost_nothing(n: int, here: int, nvlink: bool) -> None:
    assert held(n * here, here, nvlink=nvlink) == held(2 * here, here, nvlink=nvlink)


def test_a_layout_has_a_communicator_for_each_dimension() -> None:
    """tp 4, pp 3 on 48 ranks: all, tensor, data, two pipeline pairs, a replica."""
    found = groups_of(Layout(tp=4, pp=3), 48 * ONE, 8.0, copies=1)
    assert sorted(g.n_ranks[0] for g in found if g.n_ranks[0] > 1) == [2, 2, 4, 4, 12, 48]
    here = {float(g.n_ranks[0]): float(g.here[0]) for g in found}
    assert here[48.0] == 8 and here[12.0] == 8
    twice = groups_of(Layout(tp=4, pp=3), 48 * ONE, 8.0, copies=2)
    assert len(twice) == len(found) + 2
    assert len(groups_of(Layout(), 48 * ONE, 8.0, copies=2)) == 1


def test_communicators_of_a_pipeline_without_tensor_ranks() -> None:
    """pp 4 on 8 ranks of nodes of 4: all, data of two, two pairs; the replica has none of its own.

    Data ranks are neighbours; pairs are two ranks apart, so that a node has two of them.
    """
    found = groups_of(Layout(pp=4), 8 * ONE, 4.0, copies=1)
    sizes = [(float(g.n_ranks[0]), float(g.here[0])) for g in found if g.n_ranks[0] > 1]
    assert sizes == [(8, 4), (2, 2), (2, 2), (2, 2)]
    apart = groups_of(Layout(pp=2), 16 * ONE, 4.0, copies=1)
    assert [float(g.here[0]) for g in apart if g.n_ranks[0] == 2] == [1.0], "8 ranks apart"


def test_fewer_ranks_than_a_replica_needs_have_one_data_rank() -> None:
    """A plan's axis may hold such a point: a quarter of a replica is no rank."""
    found = groups_of(Layout(tp=2, pp=4), 2 * ONE, 8.0, copies=1)
    assert [g.n_ranks[0] for g in found] == [2, 2, 1, 1, 1, 2, 2, 8]


def test_an_axis_equals_its_columns() -> None:
    layout, gpus = Layout(tp=2, pp=2, cp=2), np.array([8.0, 16.0, 64.0])
    words = {"nvlink": True, "direct": True}
    many = nccl_bytes(groups_of(layout, gpus, 8.0, 1), **words)
    single = [nccl_bytes(groups_of(layout, g * ONE, 8.0, 1), **words)[0] for g in gpus]
    assert many.tolist() == single


def test_workspaces_of_products_by_architecture() -> None:
    """Two handles of 2 x 4 MiB + 8 x 16 KiB, from Hopper on 32; Transformer Engine adds 4 or 32."""
    old, new = 2 * (8 * MIB + 8 * MIB / 64), 2 * 32 * MIB
    for architecture, handles, engine in (
        ("Ampere", old, 4 * MIB), ("Ada", old, 4 * MIB), ("Hopper", new, 32 * MIB),
        ("Blackwell-GB202", new, 32 * MIB),
    ):  # fmt: skip
        assert workspace_bytes({architecture}) == handles
        assert workspace_bytes({architecture}, engine=3) == handles + 3 * engine
    assert workspace_bytes({"Ampere", "Hopper"}) == new  # the largest of the job's
    assert workspace_bytes({"TPU"}, engine=1) == workspace_bytes({"CPU"}) == 0.0


def _engine(**words: Any) -> Strategy:
    """A program with Transformer Engine's products."""
    plain = program_named("plain")
    program = replace(plain, layers=replace(plain.layers, engine_workspaces=True))
    return strategy("ddp", program=program, **words)


def test_one_workspace_of_transformer_engine_and_more_for_streams() -> None:
    """One for all; four for grouped products that C++ issues; three beside tensor exchanges."""
    grouped = Op(name="up", fwd=(Kernel(kind="gemm", issues=2),), part="experts")
    looped = Op(name="up", fwd=(Kernel(kind="gemm"),), part="experts")
    other = Op(name="up", fwd=(Kernel(kind="gemm", issues=2),))
    model, plain, outside = (
        workload([Block(name="b", ops=(op,), params=())]) for op in (grouped, looped, other)
    )
    beside = Overlap(tensor=True)
    assert engine_workspaces(strategy("ddp"), model, 2) == 0
    assert [engine_workspaces(_engine(), w) for w in (model, plain, outside)] == [5, 1, 1]
    assert [engine_workspaces(_engine(overlap=beside), plain, tp) for tp in (1, 2, 8)] == [1, 4, 4]
    assert engine_workspaces(_engine(overlap=beside), model, 2) == 8
    assert engine_workspaces(_engine(), plain, 2) == 1


def test_what_lies_beside_tensors_of_a_whole_job() -> None:
    """Eight H100 of a node: one communicator, 2 x 32 MiB of workspaces; TPUs have neither."""
    request = make_request("bert-large", "1x8xH100")
    found = beside_tensors(request, np.array([1.0, 8.0]), np.ones(2))
    assert found.communicators_bytes.tolist() == [0.0, 24 * 3 * (4 * 2**20 + 4_915_200 + 524_288)]
    assert found.nvlink and found.cublas_bytes == 2 * 32 * MIB
    gpu = request.cluster.groups[0].gpu
    assert found.context_bytes == request.profile.cuda_context_bytes(gpu, eager=False).value > 0
    assert found.repeated(2).communicators_bytes.tolist() == 2 * found.communicators_bytes.tolist()
    planned = beside_tensors(make_request("llama3-8b", "v6e-8"), 8 * ONE, ONE)
    assert planned.communicators_bytes.tolist() == [0.0] and planned.cublas_bytes == 0.0


@pytest.mark.parametrize(
    ("layout", "sizes"),
    [
        (Layout(tp=2), [8, 2, 4, 1, 1]),  # the job, tensor, data, context and expert ranks
        (Layout(cp=2), [8, 1, 4, 2, 1]),
        (Layout(ep=2), [8, 1, 8, 1, 2]),
        (Layout(pp=2), [8, 1, 4, 1, 1, 2]),  # and one pair of neighbours
        (Layout(pp=4, tp=2), [8, 2, 1, 1, 1, 2, 2, 8]),  # two pairs, and the ranks of a replica
    ],
)
def test_sizes_of_all_communicators(layout: Layout, sizes: list[int]) -> None:
    found = groups_of(layout, 8 * ONE, 8.0, copies=1)
    assert [float(g.n_ranks[0]) for g in found] == sizes
