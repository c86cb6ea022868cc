"""Prepares an answer for the page: the report's sentences and figures as text, shares for bars.

The page formats no numbers. It shows the same texts that ``simcore predict`` prints.
"""

from __future__ import annotations

import shlex
from typing import Any

from pydantic import BaseModel, Field

from simcore.api import Prediction
from simcore.base.units import format_seconds
from simcore.report import sentences as say
from simcore.report.formatting import gigabytes, percent
from simcore.report.jsonout import finite
from simcore.report.text import by_influence, render
from simcore.serve.query import SetUp
from simcore.strategy.options.values import command_words


class Fact(BaseModel):
    """A labelled sentence."""

    label: str
    text: str


class Line(BaseModel):
    """One term of a breakdown."""

    key: str
    label: str
    text: str = Field(description="the figure with its unit")
    share: str = Field(description="its share of the whole as text")
    frac: float = Field(description="its share of the whole as a number")
    part: bool = Field(description="whether it is a part of the term before it")


class Step(BaseModel):
    """The step time, as texts and in seconds."""

    text: str
    interval: str
    origin: str
    value_s: float
    low_s: float
    high_s: float


class MemoryView(BaseModel):
    """Memory of the fullest GPU at its peak, and the device's capacity."""

    moment: str
    text: str
    limit: str
    device_frac: float = Field(description="share of the device's capacity, like the next two")
    low_frac: float
    high_frac: float
    terms: list[Line]


class Gain(BaseModel):
    """The step time with twice of a resource."""

    resource: str
    step: str
    change: str
    gain_frac: float
    worth: bool = Field(description="whether the report would mention it")


class Answer(BaseModel):
    """The answer for one set-up."""

    what: str
    cluster: str
    settings: str
    batch: str
    micro_batch: int
    fits: bool
    verdict: Fact
    fixes: str
    elsewhere: str
    step: Step
    facts: list[Fact]
    time: list[Line]
    memory: MemoryView
    bound_by: str
    what_if: list[Gain]
    measured: list[str]
    assumptions: list[str]
    defaults: list[str]
    command: str = Field(description="the command that predicts the same job")
    text: str = Field(description="the text that this command prints")


def answer(p: Prediction, asked: SetUp) -> Answer:
    """Everything that the page shows about a prediction."""
    t, m = p.step_time_s, p.memory
    shown = (*say.FACTS[1:], say.LIMITS[-1])  # the step and what binds it are shown apart
    facts = [(label.upper(), sentence(p)) for label, sentence, _ in shown]
    word, fits = say.verdict(p.memory, say.noun(p))
    data: dict[str, Any] = {
        "what": say.what(p),
        "cluster": p.cluster,
        "settings": ", ".join(say.settings(p)),
        "batch": say.batch(p),
        "micro_batch": p.micro_batch,
        "fits": p.fits,
        "verdict": {"label": word, "text": fits},
        "fixes": "; ".join(say.advice(p)),
        "elsewhere": say.elsewhere(p),
        "step": {
            "text": format_seconds(t.value),
            "interval": say.interval(p),
            "origin": t.origin,
            "value_s": t.value,
            "low_s": t.low,
            "high_s": t.high,
        },
        "facts": [{"label": k, "text": v} for k, v in facts if v],
        "time": [x._asdict() for x in say.time_lines(p)],
        "memory": {
            "moment": m.moment,
            "text": f"{gigabytes(m.device_bytes)} GB",
            "limit": f"{gigabytes(m.capacity_bytes)} GB",
            "device_frac": m.device_bytes / m.capacity_bytes,
            "low_frac": m.low_bytes / m.capacity_bytes,
            "high_frac": m.high_bytes / m.capacity_bytes,
            "terms": [x._asdict() for x in say.memory_lines(p)],
        },
        "bound_by": p.bound_by,
        "what_if": [
            {
                "resource": w.resource,
                "step": format_seconds(w.step_time_s),
                "change": percent(-w.gain_frac, signed=True),
                "gain_frac": w.gain_frac,
                "worth": w.gain_frac >= say.WORTH_FRAC,
            }
            for w in p.what_if
        ],
        "measured": [say.measured(r) for r in p.measured],
        "assumptions": by_influence(p.assumptions),
        "defaults": list(p.defaults),
        "command": command(asked),
        "text": render(p),
    }
    return Answer.model_validate(finite(data))


def command(asked: SetUp) -> str:
    """The command, as a line for a shell, that predicts the set-up."""
    return f"simcore predict {shlex.join(command_words(asked.words()))}"
