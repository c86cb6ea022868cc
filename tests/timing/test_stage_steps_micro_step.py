"""A micro-step's compute from the lines of a step, and the lines of the slowest stage."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
from strategies import points

from simcore.timing.stage_steps import forward_share, micro_step_s, of_slowest


def steps(**terms: list[float]) -> Any:
    return SimpleNamespace(terms_s={name: np.array(x) for name, x in terms.items()})


def test_one_micro_step_of_several() -> None:
    """Alone it is forward and backward, 1 + 3; else a share of those before the last: 12 / n."""
    axis = points(3, grad_accum=np.array([1.0, 2.0, 4.0]))
    found = steps(forward=[1.0] * 3, backward=[3.0] * 3, accumulation=[99.0, 12.0, 12.0])
    assert micro_step_s(found, axis).tolist() == [4.0, 12.0, 4.0]


def test_share_of_forward() -> None:
    found = steps(forward=[1.0, 0.0, 2.0], backward=[3.0, 0.0, 0.0])
    assert forward_share(found).tolist() == [0.25, 0.0, 1.0]


def test_lines_of_the_slowest_stage() -> None:
    """The second configuration is held up by the other stage, which alone has an update."""
    lines = {
        "forward": np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]),
        "update": np.array([[0.0, 0.0, 0.0], [0.1, 0.2, 0.3]]),
    }
    for slowest, expected in (
        ([0, 1, 0], {"forward": [1.0, 5.0, 3.0], "update": [0.0, 0.2, 0.0]}),
        ([1, 1, 1], {"forward": [4.0, 5.0, 6.0], "update": [0.1, 0.2, 0.3]}),
    ):
        found = of_slowest(lines, np.array(slowest))
        assert {name: x.tolist() for name, x in found.items()} == expected
    assert of_slowest({}, np.array([0, 1])) == {}
