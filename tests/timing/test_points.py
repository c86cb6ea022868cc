"""The configuration axis: broadcasting, parts of it, multipliers, communicators on its links."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest

from simcore.physics.collectives import PLAIN, Library
from simcore.timing.points import COLLECTIVE_BASE_S, Points


def test_what_is_not_given_is_one_and_ramps_are_zero() -> None:
    found = Points.of({"micro_batch": 4.0, "grad_accum": np.array([1.0, 2.0, 3.0])}, 3)
    assert len(found) == 3
    assert found.micro_batch.tolist() == [4.0, 4.0, 4.0]
    assert found.grad_accum.tolist() == [1.0, 2.0, 3.0]
    given = ("micro_batch", "grad_accum", "intra_ramp", "inter_ramp", "class_compute",
             "class_host", "library")  # fmt: skip
    for name in (f.name for f in fields(Points) if f.name not in given):
        assert getattr(found, name).tolist() == [1.0, 1.0, 1.0], name
    assert found.intra_ramp.tolist() == found.inter_ramp.tolist() == [0.0, 0.0, 0.0]
    assert found.class_compute is None and found.class_host is None and found.library is PLAIN


def test_an_axis_of_one() -> None:
    found = Points.of({"micro_batch": 4.0, "grad_accum": np.array(2.0), "n_ranks": [8.0]}, 1)
    assert len(found) == 1
    assert [found.micro_batch.tolist(), found.grad_accum.tolist(), found.n_ranks.tolist()] == [
        [4.0], [2.0], [8.0]
    ]  # fmt: skip
    assert found.n_nodes.tolist() == [1.0]


def classes() -> Points:
    """Two rank classes on an axis of three; the second is slower."""
    return Points.of(
        {
            "compute": np.array([1.0, 2.0, 4.0]), "host": np.array([1.0, 3.0, 5.0]),
            "class_compute": np.array([[1.0, 1.0, 1.0], [0.5, 0.25, 0.125]]),
            "class_host": np.array([[2.0, 2.0, 2.0], [10.0, 10.0, 10.0]]),
        },
        3,
    )  # fmt: skip


def test_multipliers_of_a_rank_class() -> None:
    found = classes()
    assert found.compute_of(0).tolist() == [1.0, 2.0, 4.0]
    assert found.compute_of(1).tolist() == [0.5, 0.5, 0.5]
    assert found.host_of(0).tolist() == [2.0, 6.0, 10.0]
    assert found.host_of(1).tolist() == [10.0, 30.0, 50.0]
    alike = Points.of({"compute": 2.0, "host": 3.0}, 1)
    assert alike.compute_of(1).tolist() == [2.0] and alike.host_of(1).tolist() == [3.0]


def test_a_part_of_the_axis() -> None:
    found = classes().take(np.array([2, 0]))
    assert len(found) == 2 and found.compute.tolist() == [4.0, 1.0]
    assert found.class_compute is not None
    assert found.class_compute.tolist() == [[1.0, 1.0], [0.125, 0.5]]
    assert found.host_of(1).tolist() == [50.0, 10.0]
    alike = Points.of({"micro_batch": np.array([1.0, 2.0])}, 2).take(slice(1, 2))
    assert alike.micro_batch.tolist() == [2.0] and alike.class_compute is None


def test_other_values_of_one_configuration() -> None:
    before = Points.of({"micro_batch": 1.0}, 3)
    after = before.with_columns(1, micro_batch=5.0, intra=0.5)
    assert after.micro_batch.tolist() == [1.0, 5.0, 1.0]
    assert after.intra.tolist() == [1.0, 0.5, 1.0] and after.inter is before.inter
    assert before.micro_batch.tolist() == [1.0, 1.0, 1.0]


def test_kernel_times_are_computed_once_for_equal_rates() -> None:
    """Configurations 0 and 2 differ in their accumulation alone."""
    found = Points.of(
        {"micro_batch": np.array([1.0, 2, 1, 1, 1]), "grad_accum": np.array([1.0, 1, 7, 1, 1]),
         "memory": np.array([1.0, 1, 1, 2, 1]), "compute": np.array([1.0, 1, 1, 1, 3])}, 5,
    )  # fmt: skip
    first, number = found.distinct_rates
    assert first.tolist() == [0, 1, 3, 4] and number.tolist() == [0, 1, 0, 2, 3]


def test_what_was_computed_on_an_axis_is_kept_by_its_key() -> None:
    one, other, calls = Points.of({}, 1), Points.of({}, 1), []

    def computed() -> int:
        calls.append(1)
        return len(calls)

    assert [one.keeps(key, computed) for key in ("a", "b", "a")] == [1, 2, 1]
    assert other.keeps("a", computed) == 3


def test_short_axes_with_equal_values_are_one_object() -> None:
    library = Library()
    values = {"micro_batch": np.array([1.0, 2.0]), "n_ranks": np.array([8.0, 16.0])}
    one = Points.shared({**values, "library": library}, 2)
    assert Points.shared({**{k: v.copy() for k, v in values.items()}, "library": library}, 2) is one
    others = (
        {**values, "n_ranks": np.array([8.0, 8.0]), "library": library},
        {"grad_accum": values["micro_batch"], "n_ranks": values["n_ranks"], "library": library},
        {**values, "library": replace(library, release=(2, 19))},
    )
    for changed in others:
        found, alone = Points.shared(changed, 2), Points.of(changed, 2)
        assert found is not one and found.library is changed["library"]
        for field in ("micro_batch", "n_ranks", "grad_accum", "intra_ramp"):
            assert getattr(found, field).tolist() == getattr(alone, field).tolist()
    long = {"micro_batch": np.arange(1000.0)}
    assert Points.shared(long, 1000) is not Points.shared(long, 1000)


def test_a_communicator_on_the_links() -> None:
    """Rates times their multipliers; a share of the NICs; the ramp of the slower kind of link."""
    library = Library(nvls_bw_bytes_per_s=100.0)
    axis = Points.of(
        {"intra_bw_bytes_per_s": 10.0, "inter_bw_bytes_per_s": 6.0, "intra": 0.5, "inter": 2.0,
         "intra_hop_s": 1e-6, "inter_hop_s": 3e-6, "intra_ramp": 0.1, "inter_ramp": 0.7,
         "library": library}, 2,
    )  # fmt: skip
    ranks, nodes = np.array([8.0, 8.0]), np.array([1.0, 2.0])
    group = axis.group(ranks, nodes, nic_share=0.25, node_stride=3.0)
    assert group.n_ranks is ranks and group.n_nodes is nodes
    assert group.intra_bw_bytes_per_s.tolist() == [5.0, 5.0]
    assert group.inter_bw_bytes_per_s.tolist() == [3.0, 3.0]
    assert group.intra_hop_s.tolist() == [1e-6, 1e-6]
    assert group.inter_hop_s.tolist() == [3e-6, 3e-6]
    assert group.base_s.tolist() == [COLLECTIVE_BASE_S] * 2
    assert pytest.approx(8.4e-6) == COLLECTIVE_BASE_S  # NCCL's table: ring, Simple
    assert np.asarray(group.ramp).tolist() == [0.1, 0.7]
    assert np.asarray(group.nvls_bw_bytes_per_s).tolist() == [50.0, 50.0]
    assert group.node_stride == 3.0 and group.library is library
    whole = axis.group(ranks, nodes)
    assert whole.inter_bw_bytes_per_s.tolist() == [12.0, 12.0] and whole.node_stride == 1.0


def test_neighbours_on_a_long_axis_share_their_links() -> None:
    """Of 3,000 configurations in runs of 1,000 three differ in links; each knows its own."""
    ranks = np.repeat([2.0, 4.0, 2.0], 1000)
    long = Points.of({"n_ranks": ranks, "micro_batch": np.arange(3000.0)}, 3000)
    links, which = long.by_links
    assert links.n_ranks.tolist() == [2.0, 4.0, 2.0]
    assert np.array_equal(which, np.repeat([0, 1, 2], 1000))
    short, every = long.take(np.arange(2)).by_links
    assert len(short) == 2 and every == slice(None)


def test_an_axis_keeps_its_newest_results() -> None:
    axis, computed = Points.of({}, 3), list[int]()

    def kept(key: int) -> int:
        def compute() -> int:
            computed.append(key)
            return -key

        return axis.keeps(key, compute)

    assert [kept(key) for key in range(500)] == [-key for key in range(500)]
    computed.clear()
    assert kept(499) == -499 and not computed
    assert kept(0) == 0 and computed == [0]
