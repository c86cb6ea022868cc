"""A schedule that only this file knows: priced, drawn, explained, listed, swept and refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from simcore import api
from simcore.base.errors import InvalidConfig, UnknownName
from simcore.planning.evaluator import batches
from simcore.planning.space import make_space
from simcore.report.trace import to_trace
from simcore.step.schedules import SCHEDULES, schedule_of
from simcore.step.schedules.base import Cell, Schedule, StageTimes, works
from simcore.strategy.layout import Layout
from simcore.strategy.options import OPTIONS

JOB: dict[str, Any] = {"pp": 4, "strategy": "zero1", "micro_batch": 1, "seq_len": 2048}


class LastFirst(Schedule):
    """All forwards, then all backwards from the last micro-batch back to the first."""

    name = "last-first"
    meaning = "all forwards, then backwards from the last micro-batch on"
    multiple_of = 3

    def order(self, layout: Layout, stage: int, micro_batches: int) -> list[Cell]:
        backward = works("backward", micro_batches)[::-1]
        return [(w,) for w in works("forward", micro_batches) + backward]

    def refused(self, layout: Layout) -> list[str]:
        several = [f"schedule {self.name} needs pp of at most 8"] if layout.pp > 8 else []
        return super().refused(layout) + several


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    with SCHEDULES.registered(LastFirst.name, LastFirst()):
        yield


def _predicted(schedule: str, accum: int = 6, **more: Any) -> api.Prediction:
    return api.predict(
        "llama3.2-1b", "1x4xH100", schedule=schedule, grad_accum=accum, **(JOB | more)
    )


def test_its_waiting_is_that_of_its_order() -> None:
    """The first micro-batch's backward comes last: 2 x 3 forwards and backwards of other stages, as
    GPipe, since the last stage turns round at once."""
    layout, ones = Layout(pp=4, schedule="last-first"), np.ones((1, 3))
    count = np.array([3.0, 6.0, 3.0])
    waits = schedule_of(layout).bubble_s(layout, ones, 2 * ones, [4], count)
    rows = schedule_of(layout).play(layout, [StageTimes(1.0, 2.0)] * 4, 3)
    longest = max(row[-1].finish_s - row[0].start_s for row in rows)
    assert waits[0].tolist() == pytest.approx([9.0, 9.0, 9.0])
    assert longest == pytest.approx(3 * 3.0 + 9.0)


def test_it_is_priced() -> None:
    """A stage waits as under GPipe and holds as much: every micro-batch of a step."""
    own, gpipe = _predicted("last-first"), _predicted("gpipe")
    assert own.time_s["pipeline_bubble"] > 0
    assert own.step_time_s.value == pytest.approx(gpipe.step_time_s.value, rel=0.02)
    assert own.memory.terms["activations"] == gpipe.memory.terms["activations"]
    assert "last-first" in own.layout.split()


def test_it_is_drawn() -> None:
    p = _predicted("last-first", keep_timeline=True)
    assert p.pipeline is not None
    backwards = [
        s.work.micro_batch for s in p.pipeline.stages[0].slots if s.work.kind == "backward"
    ]
    assert backwards == [5, 4, 3, 2, 1, 0]
    names = {e["name"] for e in to_trace(p)["traceEvents"] if e["ph"] == "X"}
    assert {"forward 0", "backward 5"} <= names
    (axes,) = p.plot("timeline").axes
    assert len(axes.get_yticklabels()) == 4
    assert p.pipeline.finish_s == pytest.approx(p.step_time_s.value, rel=0.02)


def test_it_is_explained() -> None:
    told = api.explain("llama3.2-1b", "1x4xH100", "pipeline_bubble", schedule="last-first",
                       grad_accum=6, **JOB)  # fmt: skip
    text = str(told)
    assert Schedule.formula in " ".join(text.split()) and "last-first" in text


def test_it_is_listed_and_suggested() -> None:
    option = OPTIONS.options()["schedule"]
    assert option.names() == (*(n for n in SCHEDULES if n != "last-first"), "last-first")
    assert "last-first" in option.help_text and "{" not in option.help_text
    with pytest.raises(UnknownName, match="did you mean 'last-first'"):
        SCHEDULES["last-frist"]
    with pytest.raises(InvalidConfig, match="did you mean 'last-first'"):
        _predicted("last-frist")


def test_it_is_swept() -> None:
    """Each point is the prediction of its job, whatever the number of micro-batches."""
    words = {k: v for k, v in JOB.items() if k not in ("micro_batch", "seq_len")}
    space = make_space("llama3.2-1b", "1x4xH100", schedule="gpipe,last-first", grad_accum="1..24",
                       micro_batch=1, seq_len=2048, **words)  # fmt: skip
    found = list(batches(space))
    invalid = {reason: n for b in found for reason, n in b.invalid.items()}
    assert invalid == {"schedule last-first needs a multiple of 3 as grad-accum": 16}
    own = next(b for b in found if b.invalid)
    assert own.grad_accum is not None and own.step_time_s is not None
    assert own.grad_accum.tolist() == [3, 6, 9, 12, 15, 18, 21, 24]
    for accum, step_s in zip(own.grad_accum, own.step_time_s, strict=True):
        alone = _predicted("last-first", int(accum)).step_time_s.value
        assert step_s == pytest.approx(alone, rel=1e-9)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"accum": 4}, "schedule last-first needs a multiple of 3 as grad-accum, not 4"),
        ({"pp": 1}, "schedule last-first needs pp above 1"),
        ({"vpp": 2}, "schedule last-first has no chunks: vpp=2 needs 1f1b"),
        ({"pp": 16, "gpus": "2x8xH100"}, "schedule last-first needs pp of at most 8"),
    ],
)
def test_it_is_refused_where_it_must_be(changes: dict[str, Any], words: str) -> None:
    gpus = changes.pop("gpus", "1x4xH100")
    accum = changes.pop("accum", 6)
    with pytest.raises(InvalidConfig, match=words):
        api.predict("llama3.2-1b", gpus, schedule="last-first", grad_accum=accum, **(JOB | changes))
