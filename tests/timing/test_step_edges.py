"""Begin and end of a step, read off a timeline of which every time is written down."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from simcore.step.graph import StepGraph, Task, Timeline
from simcore.timing.step_edges import StepEdges, Sync, step_edges

#: (name, stream, term, start, finish); the phases that compute are on "compute".
GATHER = ("gather", "net", "gather", 0.0, 2.0)
EARLY = ("first forward", "compute", "forward", 2.0, 5.0)
BEGIN = [
    GATHER,
    ("issue", "host", "host", 0.0, 1.0),
    EARLY,
    ("copy", "copies", "input copy", 1.0, 1.0),  # takes no time
]
MIDDLE = [
    ("sum", "compute", "accumulation", 6.0, 10.0),
    ("forward", "compute", "forward", 10.0, 13.0),
    ("backward", "compute", "backward", 13.0, 20.0),
    ("backward 1", "compute 1", "backward", 13.0, 19.0),
    ("reduce", "net", "reduce", 15.0, 24.0),
]
UPDATE = ("update", "compute", "optimizer", 24.0, 26.0)
EMA = ("average", "compute", "ema", 26.0, 27.0)
ON_HOST = ("host update", "host cpu", "offload", 22.0, 23.0)
Row = tuple[str, str, str, float, float]


def edges(
    rows: list[Row], forward_s: float = 3.0, micro_steps: float = 1.0, **terms: float
) -> StepEdges:
    # A second configuration, of which nothing may be read, has other times.
    graph = StepGraph(tuple(Task(name, stream, term) for name, stream, term, *_ in rows))
    start, finish = (np.array([[row[k], 50.0 * k] for row in rows]) for k in (3, 4))
    steps: Any = SimpleNamespace(
        timeline=Timeline(graph, start, finish),
        terms_s={name: np.array([s, 9.0]) for name, s in terms.items()},
    )
    computed = ("forward", "backward", "accumulation")
    phases = np.array([i for i, row in enumerate(rows) if row[2] in computed])
    job: Any = SimpleNamespace(program=SimpleNamespace(compute_tasks=phases))
    return step_edges(job, steps, forward_s, micro_steps)


def test_what_is_shown_before_and_after_the_micro_batches() -> None:
    """From the step's begin, and from the end of the last backward at 20 s."""
    found = edges([*BEGIN, *MIDDLE, UPDATE, EMA, ON_HOST])
    assert found.begins == (Sync("gather", "net", "gather", 0.0, 2.0),)
    assert found.ends == (
        Sync("reduce", "net", "reduce", -5.0, 4.0),
        Sync("update", "compute", "optimizer", 4.0, 6.0),
        Sync("average", "compute", "ema", 6.0, 7.0),
        Sync("host update", "host cpu", "offload", 2.0, 3.0),
    )
    assert found.end_s == 7.0


def test_delay_of_the_first_micro_batch() -> None:
    """Micro-batches begin at 6 s, of which a first forward takes 3 and frozen networks 0.5."""
    rows = [*BEGIN, *MIDDLE, UPDATE]
    assert edges(rows).begin_s == 3.0
    assert edges(rows, frozen=0.5).begin_s == 3.0  # a single micro-batch runs them by itself
    assert edges(rows, micro_steps=2.0, frozen=0.5).begin_s == 2.5
    assert edges(rows, micro_steps=2.0).begin_s == 3.0
    assert edges(rows, forward_s=7.0).begin_s == 0.0
    # Without a first forward of its own nothing is taken off.
    assert edges([GATHER, *MIDDLE, UPDATE]).begin_s == 6.0
    # A frozen network's phase before it is no forward; a forward's collective is no phase.
    frozen = ("encoder", "compute", "backward", 2.0, 5.0)
    assert edges([frozen, *MIDDLE, UPDATE]).begin_s == 6.0


def test_begin_of_the_update() -> None:
    """The first of its terms or of the host's own tasks, after the last backward."""
    assert edges([*BEGIN, *MIDDLE, UPDATE, EMA]).update_at_s == 4.0
    assert edges([*BEGIN, *MIDDLE, EMA]).update_at_s == 6.0
    assert edges([*BEGIN, *MIDDLE, UPDATE, ON_HOST]).update_at_s == 2.0
    assert edges([*BEGIN, *MIDDLE]).update_at_s == 0.0
    earlier = ("prefetch", "host cpu", "offload", 3.0, 4.0)
    assert edges([*BEGIN, earlier, *MIDDLE, UPDATE]).update_at_s == 4.0
