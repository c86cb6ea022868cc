"""Interleaved 1F1B: its order by hand, hidden messages against a step that is played."""

from __future__ import annotations

from itertools import takewhile

import numpy as np
import pytest

from simcore.step.schedules import IN_CHUNKS, schedule_of
from simcore.step.schedules.base import Work, last_place
from simcore.step.schedules.interleaved import filling_frac
from simcore.step.schedules.one_f_one_b import waiting_s
from simcore.strategy.layout import Layout

INTERLEAVED = IN_CHUNKS["1f1b"]
SHAPES = [(4, 2, 8), (4, 3, 12), (8, 2, 32), (2, 4, 16)]


def _order(layout: Layout, stage: int, micro_batches: int) -> list[Work]:
    return [work for (work,) in INTERLEAVED.order(layout, stage, micro_batches)]


def _ahead(order: list[Work]) -> int:
    """Forwards before the one that a backward follows."""
    return len(list(takewhile(lambda w: w.kind == "forward", order))) - 1


@pytest.mark.parametrize(("pp", "vpp", "micro_batches"), SHAPES)
def test_bare_are_those_of_filling_and_emptying(pp: int, vpp: int, micro_batches: int) -> None:
    layout = Layout(pp=pp, vpp=vpp)
    for stage in range(pp):
        ahead = _ahead(_order(layout, stage, micro_batches))
        found = filling_frac(layout, pp - 1 - stage, np.array([float(micro_batches)]))
        assert found[0] * micro_batches * vpp == pytest.approx(ahead)


def test_longer_rounds_keep_more_in_flight() -> None:
    """Megatron-LM's num_warmup_microbatches for 4 stages of 3 chunks, rounds of 5: 2 x 5 ahead."""
    layout = Layout(pp=4, vpp=3, vpp_group=5)
    order = _order(layout, 3, 10)
    assert [(w.micro_batch, w.chunk) for w in order[:7]] == [
        (0, 0), (1, 0), (2, 0), (3, 0), (4, 0), (0, 1), (1, 1),
    ]  # fmt: skip
    assert _ahead(order) == 10
    assert INTERLEAVED.most_in_flight(layout, 3) == pytest.approx(11 / 3)
    assert INTERLEAVED.most_in_flight(Layout(pp=4, vpp=3), 3) == pytest.approx(9 / 3)


def test_a_short_step_hides_nothing() -> None:
    assert filling_frac(Layout(pp=8, vpp=4), 7, np.array([4.0]))[0] == 1.0


def test_hidden_by_hand() -> None:
    """Half of 4 s go forward: 2 s under 10 of backward; 2 s back under 1.5 of forward."""
    layout, many = Layout(pp=2, vpp=2), np.array([1e9])
    busy = np.array([1.5]), np.array([10.0])

    def seen(slowdown: float) -> float:
        found = INTERLEAVED.exposed_messages_s(
            layout, 0, many, np.array([4.0]), busy, np.array([slowdown])
        )
        return float(found[0])

    assert seen(0.0) == pytest.approx(4.0 - 2.0 - 1.5)
    assert seen(0.1) == pytest.approx(4.0 - 0.9 * 3.5)
    assert seen(1.0) == pytest.approx(4.0)


def _played_s(layout: Layout, micro_batches: int, times: dict[str, float], message: float) -> float:
    """The end of a step, chunk by chunk: a message takes ``message`` seconds to arrive.

    While forwards or backwards follow each other a stage waits for its own message as well.
    """
    orders = [_order(layout, s, micro_batches) for s in range(layout.pp)]
    arrives: dict[tuple[str, int, int], float] = {}
    free, at, last = [0.0] * layout.pp, [0] * layout.pp, last_place(layout)
    while any(n < len(order) for n, order in zip(at, orders, strict=True)):
        for s, order in enumerate(orders):
            ahead = _ahead(order)
            while at[s] < len(order):
                work = order[at[s]]
                place = INTERLEAVED.place_of(layout, s, work.chunk)
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
    seen = INTERLEAVED.exposed_messages_s(layout, 0, count, sent, busy, none)
    each = [(x + sent / 2)[None, :] for x in busy]
    waits = waiting_s(each[0], each[1], [pp], count, vpp)[0]
    step = micro_batches * (busy[0] + busy[1] + seen) + waits
    bare = micro_batches * (busy[0] + busy[1] + sent) + waits
    assert step[0] == pytest.approx(played, abs=1.01 * message)
    assert step[0] < bare[0]


def test_its_order_by_hand() -> None:
    """2 stages of 2 chunks, 4 micro-batches: stage 1 runs one round of 2 in its first chunk and is
    one forward into the second chunk when the first backward follows."""
    order = _order(Layout(pp=2, vpp=2), 1, 4)
    assert [f"{w.kind[0]}{w.micro_batch}{w.chunk}" for w in order] == [
        "f00", "f10", "f01", "b01", "f11", "b11", "f20", "b00", "f30", "b10", "f21", "b21", "f31",
        "b31", "b20", "b30",
    ]  # fmt: skip


def test_micro_batches_beyond_whole_rounds_join_the_first() -> None:
    """5 micro-batches of 2 stages: a first round of 3, then one of 2."""
    forwards = [w for w in _order(Layout(pp=2, vpp=2), 0, 5) if w.kind == "forward"]
    assert [(w.micro_batch, w.chunk) for w in forwards] == [
        (0, 0), (1, 0), (2, 0), (0, 1), (1, 1), (2, 1), (3, 0), (4, 0), (3, 1), (4, 1),
    ]  # fmt: skip


def test_activations_in_flight() -> None:
    """The chunks ahead, 2 x 3 + 4 of stage 0 of 4, and the one in work, each half a stage."""
    layout, many = Layout(pp=4, vpp=2), np.array([64.0])
    assert INTERLEAVED.in_flight(layout, 0, many)[0] == pytest.approx((2 * 3 + 4 + 1) / 2)
    assert INTERLEAVED.in_flight(layout, 3, many)[0] == pytest.approx((4 + 1) / 2)
    assert INTERLEAVED.in_flight(layout, 0, np.array([2.0]))[0] == 2


@pytest.mark.parametrize(
    ("position", "held"),
    [
        (0, 15 * 1 + 7 * 8 * 2),  # 15 micro-batches in the first chunk, of one layer, 8 in others
        (7, 7 * 8 * 2 + 1 * 1),  # and one in the last stage's last chunk
        (3, None),
    ],
)
def test_a_short_chunk_holds_fewer_layers(position: int, held: int | None) -> None:
    """126 layers, embedding and loss in 8 x 8 chunks of two: the ends have 15 layers of 16."""
    layout = Layout(pp=8, vpp=8)
    layers = 16 if held is None else 15
    chunks = 2 * (8 - position - 1) + 7 * 8 + 1
    expected = chunks * layers / 8 if held is None else held
    share = INTERLEAVED.chunk_share(layout, position, layers, 16)
    assert share * chunks * layers / 8 == pytest.approx(expected)
    assert INTERLEAVED.chunk_share(layout, position, 16, 16) == 1.0
    assert schedule_of(Layout(pp=8)).chunk_share(Layout(pp=8), position, 15, 16) == 1.0


@pytest.mark.parametrize(("layers", "longest"), [(15, 17), (13, 16)])
def test_chunks_of_unknown_length_hold_what_equal_ones_do(layers: int, longest: int) -> None:
    """17 layers are no 8 equal chunks; 3 layers less are more than one chunk of two."""
    assert INTERLEAVED.chunk_share(Layout(pp=8, vpp=8), 0, layers, longest) == 1.0


def test_a_whole_chunk_may_be_missing() -> None:
    """Stage 0 of 2 with 2 chunks of 2 layers, the first empty: 5 chunks held, of which 3 empty."""
    share = INTERLEAVED.chunk_share(Layout(pp=2, vpp=2), 0, 2, 4)
    assert share == pytest.approx((3 * 0 + 2 * 2) / (5 * 2 / 2))


def test_few_micro_batches_are_refused_by_programs_with_whole_rounds() -> None:
    layout = Layout(pp=4, vpp=2)
    assert INTERLEAVED.least_micro_batches(layout) == 4
    assert INTERLEAVED.rounds_refused(layout, 4) == ""
    assert INTERLEAVED.rounds_refused(layout, 3) == (
        "vpp=2 needs as many micro-batches as stages or more (pp=4), not grad-accum 3: try "
        "grad-accum 4"
    )
    assert INTERLEAVED.whole_rounds and INTERLEAVED.waiting_head == "absent"
