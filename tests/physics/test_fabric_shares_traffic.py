"""Flows of collectives: NCCL's trees as its source draws them, totals of every pattern."""

from __future__ import annotations

import numpy as np
import pytest

from simcore.physics import fabric_shares
from simcore.physics.fabric_shares import PATTERNS, groups_of, tree_parents


def test_groups_fill_a_job_block_by_block() -> None:
    assert groups_of(8, 4, 2).tolist() == [[0, 2, 4, 6], [1, 3, 5, 7]]
    assert groups_of(8, 2, 2).tolist() == [[0, 2], [1, 3], [4, 6], [5, 7]]
    assert groups_of(7, 2, 1).tolist() == [[0, 1], [2, 3], [4, 5]]
    assert groups_of(4, 8, 1).tolist() == [[0, 1, 2, 3]]
    assert groups_of(4, 8, 2).tolist() == [[0, 2], [1, 3]]
    assert groups_of(4, 2, 9).tolist() == [[0], [1], [2], [3]]


def test_the_tree_of_14_ranks_is_that_of_ncclgetbtree() -> None:
    """src/graph/trees.cc draws it: 8 over 4 and 12, 4 over 2 and 6, 12 over 10 and 13, 0 on top."""
    parents = dict(zip(range(1, 14), tree_parents(14).tolist(), strict=True))
    assert parents == {
        8: 0, 4: 8, 12: 8, 2: 4, 6: 4, 10: 12, 13: 12, 1: 2, 3: 2, 5: 6, 7: 6, 9: 10, 11: 10,
    }  # fmt: skip


@pytest.mark.parametrize("n", [2, 5, 8, 13, 16])
def test_no_node_of_a_tree_sends_more_than_its_rate(n: int) -> None:
    """Every node but a root has a parent in each tree: 2(n - 1) edges, used both ways."""
    flows = fabric_shares.tree(groups_of(n, n, 1))
    assert len(flows.source) == 4 * (n - 1)
    sent = np.bincount(flows.source, flows.need, n)
    assert sent.max() <= 1.0
    assert set(flows.need) == {0.25}
    assert np.array_equal(sent, np.bincount(flows.target, flows.need, n))


def test_a_ring_and_all_to_all_use_the_whole_rate() -> None:
    groups = groups_of(12, 6, 2)
    for name in ("ring", "all-to-all"):
        flows = PATTERNS[name](groups)
        assert np.bincount(flows.source, flows.need) == pytest.approx(np.ones(12))
        assert np.bincount(flows.target, flows.need) == pytest.approx(np.ones(12))
        assert (flows.source % 2 == flows.target % 2).all()


def test_many_nodes_are_sampled_at_equal_distances(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fabric_shares, "MOST_FLOWS", 300)
    flows = fabric_shares.all_to_all(groups_of(100, 100, 1))
    assert len(flows.source) == 300
    assert set((flows.target - flows.source) % 100) == {1, 50, 99}
    assert np.bincount(flows.source, flows.need) == pytest.approx(np.ones(100))


def test_stages_send_to_the_next() -> None:
    flows = fabric_shares.chain(groups_of(6, 3, 2))
    pairs = sorted(zip(flows.source.tolist(), flows.target.tolist(), strict=True))
    assert pairs == [(0, 2), (1, 3), (2, 4), (3, 5)]


def test_a_ring_goes_round_every_group() -> None:
    """Two groups of three, two nodes apart: 0, 2, 4 and 1, 3, 5."""
    found = fabric_shares.ring(groups_of(6, 3, 2))
    pairs = sorted(zip(found.source.tolist(), found.target.tolist(), strict=True))
    assert pairs == [(0, 2), (1, 3), (2, 4), (3, 5), (4, 0), (5, 1)]
    assert found.need.tolist() == [1.0] * 6
