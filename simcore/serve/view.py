"""Prepares an answer for the page: the report's sentences and figures as text, shares for bars.

The page formats no numbers. It shows the same texts that ``simcore predict`` prints.
"""

from __future__ import annotations

import shlex
from typing import Any

from pydantic import BaseModel, Field

from simcore.api import Prediction
from simcore.base.units import format_seconds
from simcore.hardware.prices import price_book
from simcore.planning.run import cost_of
from simcore.report import sentences as say
from simcore.report.formatting import counted, days, figure, gigabytes, money, percent
from simcore.report.jsonout import finite
from simcore.report.text import by_influence, render
from simcore.serve.query import SetUp
from simcore.strategy.options import command_words


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


class Tile(BaseModel):
    """One main result of a set-up: what the page shows first, and compares."""

    label: str
    text: str
    more: str
    value: float | None = Field(default=None, description="what is compared; None: nothing")
    unit: str = Field(default="", description="values are compared with those of this unit")
    most: bool = Field(default=False, description="whether more is better")


class MemoryView(BaseModel):
    """Memory of the fullest GPU at its peak, and the device's capacity.

    ``text`` is the figure of every sentence, bar and table; fragmentation stands beside it.
    """

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
    tiles: list[Tile]
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
    apart = ("step", "bound by")
    facts = [
        (k.upper(), sentence(p)) for k, sentence, _ in say.FACTS + say.LIMITS if k not in apart
    ]
    word, fits = say.verdict(p.memory, say.noun(p))
    data: dict[str, Any] = {
        "what": say.what(p),
        "cluster": p.cluster,
        "tiles": tiles(p),
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


def tiles(p: Prediction) -> list[dict[str, Any]]:
    """The main results as ``Tile``s, each with the figure by which set-ups are compared."""
    t, m, unit = p.step_time_s, p.memory, say.work_unit(p)
    cost = p.cost or cost_of(p, price_book((), None))
    per, usd, hourly = unit.removesuffix("/s"), cost.usd_per_million, cost.usd_per_h
    low, high = format_seconds(t.low), format_seconds(t.high)
    accum = f"accumulation {p.grad_accum:,} x " if p.grad_accum > 1 else ""
    found: list[tuple[Any, ...]] = [
        ("step time", format_seconds(t.value), f"80 %: {low} to {high}", t.value, "s"),
        ("throughput", f"{figure(p.work_per_s)} {unit}", f"MFU {percent(p.mfu_frac)}",
         p.work_per_s, unit, True),
        ("memory a GPU", f"{gigabytes(m.device_bytes)} GB",
         f"of {gigabytes(m.capacity_bytes)} GB", m.device_bytes, "B"),
        ("cost", "unknown" if usd is None else money(usd),
         f"no price of {p.single_gpu}" if usd is None or hourly is None
         else f"a million {per}; {money(hourly)} an hour", usd, per),
        (f"{say.noun(p)}s", f"{p.n_gpus:,}", p.cluster),
        ("batch", counted(p.global_batch, p.sample_unit), f"a step: micro-batch {p.micro_batch:,} "
         f"x {accum}{counted(p.data_ranks, 'replica')}"),
    ]  # fmt: skip
    if (r := p.run) is not None:
        spent = "" if r.cost_usd is None else money(r.cost_usd)
        found.append(("whole run", days(r.time_s.value), spent, r.time_s.value, "run"))
    names = tuple(Tile.model_fields)
    return [dict(zip(names, tile, strict=False)) for tile in found]


def counted_memory(p: Prediction) -> list[Fact]:
    """The peak as PyTorch and nvidia-smi count it; a replay of the allocator takes some 0.1 s."""
    m = p.memory
    figures = {
        "allocated by tensors (max_memory_allocated)": m.allocated_bytes,
        "reserved by the allocator, with its holes (max_memory_reserved)": m.segments_bytes,
        "on the device, with CUDA and NCCL too (nvidia-smi)": m.shown_bytes,
    }
    return [Fact(label=k, text=f"{gigabytes(v)} GB") for k, v in figures.items()]


def command(asked: SetUp) -> str:
    """The command, as a line for a shell, that predicts the set-up."""
    return f"simcore predict {shlex.join(command_words(asked.words()))}"
