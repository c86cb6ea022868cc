"""What of a pipeline's messages is seen, against schedules that are played."""

from __future__ import annotations

from itertools import takewhile

import numpy as np
import pytest

from simcore.physics.pipeline import bubble_s
from simcore.strategy.layout import Layout
from simcore.timing.messages import bare_frac, seen_s
from simcore.timing.pipeline import order_of
from simcore.timing.pipeline_order import Work, last_place, place_of

SHAPES = [(4, 2, 8), (4, 3, 12), (8, 2, 32), (2, 4, 16)]


def _ahead(order: list[Work]) -> int:
    """Forwards before the one that a backward follows."""
    return len(list(takewhile(lambda w: w.kind == "forward", order))) - 1


@pytest.mark.parametrize(("pp", "vpp", "micro_batches"), SHAPES)
def test_bare_are_those_of_filling_and_emptying(pp: int, vpp: int, micro_batches: int) -> None:
    layout = Layout(pp=pp, vpp=vpp)
    for stage in range(pp):
        ahead = _ahead(order_of(layout, stage, micro_batches))
        found = bare_frac(layout, pp - 1 - stage, np.array([float(micro_batches)]))
        assert found[0] * micro_batches * vpp == pytest.approx(ahead)


def test_a_short_step_hides_nothing() -> None:
    assert bare_frac(Layout(pp=8, vpp=4), 7, np.array([4.0]))[0] == 1.0


def test_hidden_by_hand() -> None:
    """Half of 4 s go forward: 2 s under 10 of backward; 2 s back under 1.5 of forward."""
    layout, many = Layout(pp=2, vpp=2), np.array([1e9])
    busy = np.array([1.5]), np.array([10.0])

    def seen(slowdown: float) -> float:
        found = seen_s(layout, 0, many, np.array([4.0]), busy, np.array([slowdown]))
        return float(found[0])

    assert seen(0.0) == pytest.approx(4.0 - 2.0 - 1.5)
    assert seen(0.1) == pytest.approx(4.0 - 0.9 * 3.5)
    assert seen(1.0) == pytest.approx(4.0)


def _played_s(layout: Layout, micro_batches: int, times: dict[str, float], message: float) -> float:
    """The end of a step, chunk by chunk: a message takes ``message`` seconds to arrive.

    While forwards or backwards follow each other a stage waits for its own message as well.
    """
    orders = [order_of(layout, s, micro_batches) for s in range(layout.pp)]
    arrives: dict[tuple[str, int, int], float] = {}
    free, at, last = [0.0] * layout.pp, [0] * layout.pp, last_place(layout)
    while any(n < len(order) for n, order in zip(at, orders, strict=True)):
        for s, order in enumerate(orders):
            ahead = _ahead(order)
            while at[s] < len(order):
                work = order[at[s]]
                place = place_of(layout, s, work.chunk)
                if work.kind == "forward":
                    key = ("forward", work.micro_batch, place - 1)
                else:
                    behind = ("backward", work.micro_batch, place + 1)
                    key = behind if place < last else ("forward", work.micro_batch, place)
                if place > 0 or work.kind == "backward":
                    if key not in arrives:
                        break
                    free[s] = max(free[s], arrives[key])
                free[s] += times[work.kind]
                turns = work.kind == "forward" and place == last  # its backward is on this stage
                arrives[work.kind, work.micro_batch, place] = free[s] + message * (not turns)
                if at[s] < ahead or at[s] >= len(order) - ahead:
                    free[s] += message
                at[s] += 1
    return max(free)


@pytest.mark.parametrize("message", [0.05, 0.2, 0.5])
@pytest.mark.parametrize(("pp", "vpp", "micro_batches"), SHAPES)
def test_a_step_lasts_as_long_as_when_it_is_played(
    pp: int, vpp: int, micro_batches: int, message: float
) -> None:
    """Within one message of the 2 A v that a stage sends."""
    layout = Layout(pp=pp, vpp=vpp)
    forward, backward, count = 1.0, 2.0, np.array([float(micro_batches)])
    played = _played_s(layout, micro_batches, {"forward": forward, "backward": backward}, message)
    busy = np.array([vpp * forward]), np.array([vpp * backward])
    sent, none = np.array([2.0 * vpp * message]), np.zeros(1)
    seen = seen_s(layout, 0, count, sent, busy, none)
    each = [(x + sent / 2)[None, :] for x in busy]
    waits = bubble_s("1f1b", each[0], each[1], [pp], count, vpp)[0]
    step = micro_batches * (busy[0] + busy[1] + seen) + waits
    bare = micro_batches * (busy[0] + busy[1] + sent) + waits
    assert step[0] == pytest.approx(played, abs=1.01 * message)
    assert step[0] < bare[0]
