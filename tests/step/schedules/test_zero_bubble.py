"""Zero-bubble schedules: their orders by hand, published waiting, and what a stage holds."""

from __future__ import annotations

import numpy as np
import pytest

from simcore.step.schedules import SCHEDULES
from simcore.step.schedules.base import StageTimes
from simcore.strategy.layout import Layout


def _order(schedule: str, stage: int, micro: int, pp: int = 3) -> str:
    order = SCHEDULES[schedule].order(Layout(pp=pp, schedule=schedule), stage, micro)
    return " ".join(f"{w.kind[0]}{w.micro_batch}" for (w,) in order)


def test_the_order_of_zb_1p_by_hand() -> None:
    """Qi et al. 2023, figure 2: the last of 3 stages keeps two weight gradients for the end."""
    assert _order("zb-1p", 0, 4) == "f0 f1 f2 b0 w0 f3 b1 w1 b2 w2 b3 w3"
    assert _order("zb-1p", 2, 4) == "f0 b0 f1 b1 f2 b2 w0 f3 b3 w1 w2 w3"


def test_the_order_of_zb_2p_by_hand() -> None:
    """Figure 3: twice as many forwards ahead, and weight gradients twice as late."""
    assert _order("zb-2p", 0, 5) == "f0 f1 f2 f3 f4 b0 w0 b1 w1 b2 w2 b3 w3 b4 w4"
    assert _order("zb-2p", 1, 4) == "f0 f1 f2 b0 f3 b1 b2 w0 b3 w1 w2 w3"


def test_fewer_micro_batches_than_wait() -> None:
    """Stage 3 of 4 would keep six weight gradients of ZB-2p; with two micro-batches it has two."""
    assert _order("zb-2p", 3, 2, pp=4) == "f0 b0 f1 b1 w0 w1"


@pytest.mark.parametrize(("schedule", "held"), [("zb-1p", 8.0), ("zb-2p", 16.0)])
def test_every_stage_holds_what_it_is_allowed(schedule: str, held: float) -> None:
    """Section 4: ZB-1p and ZB-2p let every stage hold p or 2 p micro-batches."""
    layout = Layout(pp=8, schedule=schedule)
    for position in range(8):
        found = SCHEDULES[schedule].in_flight(layout, position, np.array([64.0, 4.0]))
        assert found.tolist() == [held, 4.0]


@pytest.mark.parametrize(("schedule", "bubble"), [("zb-1p", 3 * 2.5), ("zb-2p", 3 * 0.5)])
def test_waiting_by_hand(schedule: str, bubble: float) -> None:
    """3 (F + B - W) and 3 (F + B - 2 W) of the mean stage: F = (1 + 4)/2, B = W = 2."""
    layout = Layout(pp=4, schedule=schedule)
    waits = SCHEDULES[schedule].bubble_s(
        layout, np.array([[1.0], [4.0]]), np.array([[4.0], [4.0]]), [2, 2], np.array([16.0])
    )
    assert waits[:, 0].tolist() == pytest.approx([bubble, bubble])


def test_no_waiting_below_zero() -> None:
    """Forwards of nothing: B - 2 W would be below zero."""
    waits = SCHEDULES["zb-2p"].bubble_s(
        Layout(pp=4, schedule="zb-2p"), np.zeros((1, 1)), np.ones((1, 1)), [4], np.array([16.0])
    )
    assert waits.tolist() == [[0.0]]


@pytest.mark.parametrize(("schedule", "limit"), [("zb-1p", 1), ("zb-2p", 2)])
@pytest.mark.parametrize("backward", [1.0, 1.2])
def test_its_order_waits_as_published_where_inputs_take_longer(
    schedule: str, limit: int, backward: float
) -> None:
    """Table 1, for B of 1.2 W too: (p - 1)(F + B - limit W) from a stage's first to last work."""
    pp, micro = 4, 16
    layout, times = Layout(pp=pp, schedule=schedule), [StageTimes(1.0, backward, 1.0)] * pp
    rows = SCHEDULES[schedule].play(layout, times, micro)
    busy = micro * (2.0 + backward)
    idle = [row[-1].finish_s - row[0].start_s - busy for row in rows]
    assert max(idle) == pytest.approx((pp - 1) * (1.0 + backward - limit))
    assert idle[-1] == pytest.approx(0.0)


def test_it_fills_most_of_the_bubble() -> None:
    """ZB-2p leaves the first forwards' ramp; ZB-1p less than 1F1B of the same work."""
    pp, micro = 4, 16

    def end(schedule: str, times: StageTimes) -> float:
        rows = SCHEDULES[schedule].play(Layout(pp=pp, schedule=schedule), [times] * pp, micro)
        return float(max(s.finish_s for row in rows for s in row))

    plain = end("1f1b", StageTimes(1.0, 2.0))
    split = StageTimes(1.0, 1.0, 1.0)
    assert plain - 3 * micro == pytest.approx(9.0)
    assert end("zb-1p", split) - 3 * micro == pytest.approx(3.0)
    assert end("zb-2p", split) - 3 * micro == pytest.approx(3.0)  # the last stage starts 3 s late


def test_it_neither_fills_nor_drains_and_keeps_a_gradient_of_the_head() -> None:
    for schedule in (SCHEDULES["zb-1p"], SCHEDULES["zb-2p"]):
        assert schedule.splits_backward and schedule.waiting_head == "gradient"
        least = schedule.least_step_s(Layout(pp=4), np.array([8.0]), np.array([10.0]))
        assert least.tolist() == [20.0]  # 10 micro-batches of 8 s on 4 stages
