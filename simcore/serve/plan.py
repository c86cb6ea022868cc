"""Plans a run for the page: which GPUs, for how long, at what cost."""

# No "from __future__ import annotations" here: the types of queries are made at run time.

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, StringConstraints

from simcore import api
from simcore.base.errors import InvalidConfig
from simcore.base.units import format_seconds
from simcore.planning.planner import Option, Plan
from simcore.report.formatting import days, gigabytes, money, odds
from simcore.report.plan import how
from simcore.report.text_of import text_of
from simcore.serve.query import Name, length, set_up
from simcore.serve.uploads import PREFIX

#: Most GPUs of a plan where none is said, and at all; most types of GPU in one plan.
FEW_GPUS, MOST_GPUS, MOST_TYPES = 512, 4096, 3
#: Options that are listed, and points of the Pareto front at most.
LISTED, MOST_FRONT = 6, 40
Text = Annotated[str, StringConstraints(min_length=1, max_length=100)]


class PlanQuery(BaseModel, extra="forbid", frozen=True):
    """A run to plan: a model, its length, and limits, with the words of ``simcore plan``."""

    model: Name = Field(description="A name of models_db")
    gpus: Text = Field(description=f"Types of GPUs, at most {MOST_TYPES}", examples=["H100,H200"])
    tokens: length("tokens", 1e17) | None = Field(  # type: ignore[valid-type]
        default=None, description="Length of the run in tokens: 300B", examples=[300_000_000_000]
    )
    epochs: length("epochs", 1e11) | None = Field(  # type: ignore[valid-type]
        default=None, description="Length in epochs of its data set"
    )
    steps: length("steps", 1e11) | None = Field(  # type: ignore[valid-type]
        default=None, description="Length in steps, with global_batch"
    )
    global_batch: int | None = Field(default=None, ge=1, le=10**7, description="Samples per step")
    seq_len: int | None = Field(default=None, ge=1, le=10**7, description="Tokens of a sequence")
    deadline: Text | None = Field(
        default=None, description="Limit on the time: 30d, 12h or a date", examples=["30d"]
    )
    budget: float | None = Field(
        default=None, gt=0, le=1e11, allow_inf_nan=False, description="Limit on the cost in dollars"
    )
    max_gpus: int = Field(
        default=FEW_GPUS, ge=1, le=MOST_GPUS, description="Limit on the number of GPUs"
    )
    objective: Literal["cost", "time", "energy", "gpus"] = Field(
        default="cost", description="What to minimise"
    )


class Way(BaseModel):
    """One way to do the run; ``set_up``: the words that predict its step."""

    cluster: str
    how: str
    step: str
    time: str
    cost: str
    memory: str
    odds: str = Field(description="probability of meeting the limits, empty without them")
    why: str
    time_s: float
    cost_usd: float | None
    gpus: int
    set_up: dict[str, str] = Field(description="options of `simcore predict` for its step")


class PlanView(BaseModel):
    """The best ways to do a run, and the Pareto front of time and cost (of GPUs without prices)."""

    feasible: bool
    text: str = Field(description="the text that `simcore plan` prints")
    best: list[Way]
    front: list[Way]


def plan_view(asked: PlanQuery) -> PlanView:
    """The plan. Raises SimcoreError where the request is wrong."""
    types = [t.strip() for t in asked.gpus.split(",") if t.strip()]
    if len(types) > MOST_TYPES:
        raise InvalidConfig([f"--gpus names {len(types)} types, more than {MOST_TYPES}"])
    if asked.model.startswith(PREFIX):
        raise InvalidConfig(["plans take models by name: predict with an uploaded one"])
    api.model_named(asked.model)  # a name, never a path or code
    limits = asked.model_dump(exclude_none=True, exclude={"model", "gpus"})
    found = api.plan(asked.model, asked.gpus, top=LISTED, **limits)
    return PlanView(
        feasible=found.feasible,
        text=text_of(found),
        best=[_way(o, found, asked) for o in found.best],
        front=[_way(o, found, asked) for o in found.front[:MOST_FRONT]],
    )


def _way(o: Option, found: Plan, asked: PlanQuery) -> Way:
    """One option as texts, and as the set-up of the page that predicts its step."""
    words: dict[str, Any] = {"model": asked.model, "gpus": o.cluster, **o.words}
    if asked.seq_len is not None:
        words["seq_len"] = asked.seq_len
    known = set_up().model_fields
    return Way(
        cluster=o.cluster,
        how=how(o),
        step=format_seconds(o.step_time_s),
        time=days(o.time_s),
        cost="-" if o.cost_usd is None else money(o.cost_usd),
        memory=f"{gigabytes(o.memory_bytes)} of {gigabytes(o.capacity_bytes)} GB",
        odds=odds(o.odds) if found.goal.limits_time_or_cost else "",
        why=o.why,
        time_s=o.time_s,
        cost_usd=o.cost_usd,
        gpus=o.n_gpus,
        set_up={k: str(v) for k, v in words.items() if k in known and v is not None},
    )
