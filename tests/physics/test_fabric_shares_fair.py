"""Max-min fair rates against textbook examples and plain progressive filling."""

from __future__ import annotations

import numpy as np
import pytest

from simcore.physics.fabric_shares import max_min_rates


def rates(paths: list[list[int]], limits: list[float], frac: float = 1.0) -> list[float]:
    flow = np.array([f for f, path in enumerate(paths) for _ in path], dtype=np.intp)
    link = np.array([k for path in paths for k in path], dtype=np.intp)
    found = max_min_rates(len(paths), flow, link, np.full(len(flow), frac), np.array(limits))
    return list(found)


def test_one_link_is_shared_equally() -> None:
    assert rates([[0], [0], [0]], [9.0]) == pytest.approx([3.0] * 3)


def test_what_a_stopped_flow_leaves_goes_to_others() -> None:
    """Bertsekas & Gallager: flow 0 over both links, 1 and 2 on the first, 3 on the second."""
    assert rates([[0, 1], [0], [0], [1]], [3.0, 5.0]) == pytest.approx([1.0, 1.0, 1.0, 4.0])


def test_flows_stop_one_link_after_the_other() -> None:
    """Links of 1, 2 and 3: 0.5 each on the first; 1.5 are left on the second, 2.5 on the third."""
    found = rates([[0, 1, 2], [0], [1], [2]], [1.0, 2.0, 3.0])
    assert found == pytest.approx([0.5, 0.5, 1.5, 2.5])


def test_halves_of_a_flow_count_half() -> None:
    """One flow over two links with half of its traffic on each, another on the first alone."""
    found = max_min_rates(
        2, np.array([0, 0, 1]), np.array([0, 1, 0]), np.array([0.5, 0.5, 1.0]), np.array([3.0, 0.5])
    )
    assert found == pytest.approx([1.0, 2.5])


def test_a_flow_without_links_is_not_limited() -> None:
    assert rates([[], [0]], [1.0]) == [np.inf, 1.0]


def test_the_same_as_stopping_one_link_at_a_time() -> None:
    """Random flows with random shares against the textbook's loop."""
    rng = np.random.default_rng(3)
    for _ in range(20):
        n_flows, n_links = 30, 12
        use = (rng.random((n_flows, n_links)) < 0.25) * rng.uniform(0.2, 1.0, (n_flows, n_links))
        limits = rng.uniform(1.0, 10.0, n_links)
        flow, link = np.nonzero(use)
        found = max_min_rates(n_flows, flow, link, use[flow, link], limits)
        assert found == pytest.approx(one_by_one(use, limits))
        # no link is overfull, and each flow has a full link on which none is faster
        finite = np.where(np.isfinite(found), found, 0.0)
        used = finite @ use
        assert (used <= limits * (1 + 1e-9)).all()
        for f in range(n_flows):
            mine = np.flatnonzero(use[f])
            if len(mine):
                assert any(
                    used[k] > limits[k] * (1 - 1e-9)
                    and found[f] >= finite[use[:, k] > 0].max() * (1 - 1e-9)
                    for k in mine
                )


def one_by_one(use: np.ndarray, limits: np.ndarray) -> np.ndarray:
    rate, left = np.full(len(use), np.inf), limits.copy()
    going = use.any(axis=1)
    while going.any():
        weight = use[going].sum(axis=0)
        share = np.where(weight > 0, left / np.where(weight > 0, weight, 1.0), np.inf)
        narrow = int(np.argmin(share))
        stopped = going & (use[:, narrow] > 0)
        rate[stopped] = share[narrow]
        left = left - share[narrow] * use[stopped].sum(axis=0)
        going &= ~stopped
    return rate
