"""Rules of a layout with its stages and its schedule, each told once."""

from __future__ import annotations

import pytest

from simcore.step.schedules import layout_violations, schedule_of
from simcore.strategy.layout import Layout


@pytest.mark.parametrize(
    ("layout", "gpus", "layers", "told"),
    [
        (Layout(), 1, 0, []),
        (Layout(pp=4, stages="2,2,2,2"), 4, 8, []),
        (Layout(pp=8, stages="8x1"), 8, 8, []),
        # without stages nothing divides layers: their text is not read
        (Layout(stages="9"), 4, 8, ["stages 9 need pp above 1"]),
        (Layout(pp=4, stages="3,3"), 4, 8,
         ["stages 3,3 are 2, not pp=4", "stages 3,3 have 6 layers, not the model's 8"]),
        # more stages than layers: what they hold is not looked at
        (Layout(pp=9, stages="9x1"), 9, 8, ["pp=9 is more than the 8 layers of the model"]),
        (Layout(pp=0, stages="3,3"), 4, 8, ["pp must be at least 1, not 0"]),
        (Layout(pp=2, vpp=0), 4, 8, ["vpp must be at least 1, not 0"]),
        (Layout(pp=2, vpp=2, schedule="gpipe"), 2, 8,
         ["schedule gpipe has no chunks: vpp=2 needs 1f1b"]),
    ],
)  # fmt: skip
def test_what_a_layout_breaks(layout: Layout, gpus: int, layers: int, told: list[str]) -> None:
    assert layout_violations(layout, gpus, layers) == told


def test_chunks_have_their_own_form_of_a_schedule() -> None:
    one, two = (schedule_of(Layout(pp=2, vpp=vpp)) for vpp in (1, 2))
    assert type(one) is not type(two)
    zero = [schedule_of(Layout(pp=2, vpp=vpp, schedule="zb-1p")) for vpp in (1, 2)]
    assert zero[0] is zero[1]
