"""GPipe: its order, and waiting that is exact for unequal stages."""

from __future__ import annotations

import numpy as np
import pytest

from simcore.step.schedules import SCHEDULES
from simcore.step.schedules.base import StageTimes
from simcore.strategy.layout import Layout

GPIPE = SCHEDULES["gpipe"]


def test_its_order_by_hand() -> None:
    order = GPIPE.order(Layout(pp=2, schedule="gpipe"), 1, 2)
    assert [f"{w.kind[0]}{w.micro_batch}" for (w,) in order] == ["f0", "f1", "b0", "b1"]


def test_a_stage_holds_every_micro_batch() -> None:
    layout = Layout(pp=8, schedule="gpipe")
    assert GPIPE.in_flight(layout, 7, np.array([64.0, 3.0])).tolist() == [64.0, 3.0]


@pytest.mark.parametrize("micro", [1, 2, 5, 16])
def test_waiting_is_exact_for_unequal_stages(micro: int) -> None:
    stages = [(1.0, 2.5), (1.5, 2.0), (0.7, 3.0), (1.2, 1.1)]
    layout = Layout(pp=4, schedule="gpipe")
    rows = GPIPE.play(layout, [StageTimes(f, b) for f, b in stages], micro)
    forward, backward = (np.array([[s[i]] for s in stages]) for i in (0, 1))
    waits = GPIPE.bubble_s(layout, forward, backward, [1] * 4, np.array([float(micro)]))
    whole = micro * (forward + backward) + waits
    assert whole[:, 0] == pytest.approx(max(s.finish_s for row in rows for s in row))


def test_equal_neighbours_are_one_run() -> None:
    """3 stages of 1 + 2 s and one of 2 + 4: 15 s through all, then 7 times 6 s."""
    layout = Layout(pp=4, schedule="gpipe")
    waits = GPIPE.bubble_s(
        layout, np.array([[1.0], [2.0]]), np.array([[2.0], [4.0]]), [3, 1], np.array([8.0])
    )
    assert waits[:, 0].tolist() == pytest.approx([15 + 7 * 6 - 8 * 3, 15 + 7 * 6 - 8 * 6])
