"""DualPipe: published waiting, cell by cell, what a rank holds, and what it refuses."""

from __future__ import annotations

import numpy as np
import pytest

from simcore.step.schedules import SCHEDULES
from simcore.step.schedules.base import StageTimes
from simcore.strategy.layout import Layout

DUALPIPE = SCHEDULES["dualpipe"]


def test_waiting_by_hand() -> None:
    """(PP/2 - 1)(F&B + B - 3 W), B and W of one of two stages, F&B their sum: 3 + 2 - 3."""
    waits = DUALPIPE.bubble_s(
        Layout(pp=8, schedule="dualpipe"), np.full((8, 1), 2.0), np.full((8, 1), 4.0), [1] * 8,
        np.array([32.0]),
    )  # fmt: skip
    assert waits[:, 0] == pytest.approx((8 / 2 - 1) * 2.0)


def test_unequal_ranks_wait_by_their_mean() -> None:
    """Forwards of 2 and 6 s, backwards of 4: (4/2 - 1)(4 + 2)/2."""
    waits = DUALPIPE.bubble_s(
        Layout(pp=4, schedule="dualpipe"), np.array([[2.0], [6.0]]), np.array([[4.0], [4.0]]),
        [2, 2], np.array([16.0]),
    )  # fmt: skip
    assert waits[:, 0].tolist() == pytest.approx([3.0, 3.0])


@pytest.mark.parametrize(("pp", "micro"), [(2, 4), (4, 8), (8, 20), (8, 32), (16, 64)])
def test_drawn_cell_by_cell_it_has_the_published_bubble(pp: int, micro: int) -> None:
    """A chunk's forward, backward of inputs and of weights take a second each; a rank has two."""
    layout = Layout(pp=pp, schedule="dualpipe")
    rows = DUALPIPE.play(layout, [StageTimes(2.0, 2.0, 2.0)] * pp, micro)
    idle = max(s.finish_s for row in rows for s in row) - micro / 2 * 6.0
    assert idle == pytest.approx((pp / 2 - 1) * 2.0)
    for row in rows:
        done = [s.work for s in row]
        assert len(done) == len(set(done)) == 3 * micro
        ends = [{w.micro_batch for w in done if w.chunk == end} for end in (0, 1)]
        assert ends == [set(range(micro // 2)), set(range(micro // 2, micro))]


@pytest.mark.parametrize("pp", [2, 4, 8])
def test_it_holds_what_it_is_said_to(pp: int) -> None:
    """(pp + 1)/2 micro-batches of both stages of a rank, which is pp + 1 chunks."""
    layout = Layout(pp=pp, schedule="dualpipe")
    rows = DUALPIPE.play(layout, [StageTimes(2.0, 2.0, 2.0)] * pp, 8 * pp)
    for rank, mine in enumerate(rows):
        changes = sorted(
            [(s.start_s, 1) for s in mine if s.work.kind == "forward"]
            + [(s.finish_s, -1) for s in mine if s.work.kind == "backward"]
        )
        live = np.cumsum([c for _, c in changes])
        assert live.max() <= 2 * DUALPIPE.in_flight(layout, rank, np.array([8.0 * pp]))


def test_first_half_and_second_half_enter_at_their_own_end() -> None:
    """Rank 0 of 2 with 4 micro-batches: it starts with its own end's, rank 1 with the other's."""
    layout = Layout(pp=2, schedule="dualpipe")
    first, second = (
        [(w.kind[0], w.micro_batch, w.chunk) for cell in DUALPIPE.order(layout, r, 4) for w in cell]
        for r in (0, 1)
    )
    assert first[:3] == [("f", 0, 0), ("f", 2, 1), ("f", 1, 0)]
    assert second[:3] == [("f", 2, 1), ("f", 0, 0), ("f", 3, 1)]


def test_it_needs_twice_as_many_micro_batches_as_stages() -> None:
    layout = Layout(pp=8, schedule="dualpipe")
    with pytest.raises(ValueError, match="needs 16 micro-batches for pp 8"):
        DUALPIPE.play(layout, [StageTimes(1.0, 1.0)] * 8, 14)
    assert DUALPIPE.undrawn(layout, 16) == "" != DUALPIPE.undrawn(layout, 15)


def test_what_it_refuses() -> None:
    assert DUALPIPE.refused(Layout(pp=3, vpp=2, stages="auto", schedule="dualpipe")) == [
        "schedule dualpipe has no chunks: vpp=2 needs 1f1b",
        "schedule dualpipe divides the layers evenly: it takes no stages",
        "schedule dualpipe needs an even pp, not 3",
    ]
    assert DUALPIPE.refused(Layout(pp=4, schedule="dualpipe")) == []
    assert DUALPIPE.multiple_of == DUALPIPE.least_micro_batches(Layout(pp=4)) == 2
    assert DUALPIPE.grad_accum_rule == "needs an even grad-accum"


def test_a_rank_holds_one_more_chunk_than_there_are_ranks() -> None:
    """DeepSeek-V3 (arXiv:2412.19437), table 2: activations of PP + 1 chunks of its two stages."""
    for pp in (2, 4, 8):
        layout = Layout(pp=pp, schedule="dualpipe")
        assert 2 * DUALPIPE.most_in_flight(layout, 0) == pp + 1
