"""Memory over a step as a picture: every term, below the limit, legible without colour."""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise

import numpy as np
import pytest

from simcore import api
from simcore.report.plots import draw
from simcore.report.terms import memory_label


@lru_cache(maxsize=4)
def timeline(
    model: str = "gpt2", gpus: str = "1x8xA100-SXM-80GB", batch: int = 2
) -> api.MemoryTimeline:
    return api.memory_timeline(model, gpus, micro_batch=batch)


def test_the_plot_stacks_every_term_below_the_limit() -> None:
    seen = timeline("latte-l", "1x8xA6000ada", 1)
    (axes,) = draw("memory-over-step", seen).axes
    labels = [t.get_text() for t in axes.get_legend().get_texts()]
    assert {memory_label(k) for k in seen.terms} <= set(labels)
    assert "device limit, 51.0 GB" in labels
    assert axes.get_ylim()[1] > 47.7
    fills = [
        (tuple(c.get_facecolor()[0]), c.get_hatch()) for c in axes.collections if c.get_label()
    ]
    assert len(fills) == len(seen.terms) + 1
    assert all(a[1] != b[1] for a, b in pairwise(fills)), "neighbours differ on grey paper"


def test_areas_are_what_is_held() -> None:
    """The highest corner of the stack is the most that was held at once, in GB."""
    seen = timeline()
    (axes,) = draw("memory-over-step", seen).axes
    top = max(float(np.max(c.get_paths()[0].vertices[:, 1])) for c in axes.collections)
    held = sum(seen.terms.values(), np.zeros(len(seen.reserved))).max() + seen.outside_bytes
    assert top == pytest.approx(held / 1e9)
    reserved = axes.get_lines()[0].get_ydata()
    assert np.max(reserved) == pytest.approx((seen.reserved.max() + seen.outside_bytes) / 1e9)


def test_a_limit_far_above_is_left_to_the_legend() -> None:
    (axes,) = draw("memory-over-step", timeline()).axes
    assert axes.get_ylim()[1] < 40
    assert any("device limit, 85.1 GB" in t.get_text() for t in axes.get_legend().get_texts())
