"""A question for a plan, resolved: all mistakes are reported at once, all assumptions stated."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import date, timedelta
from typing import Any

from simcore.base.errors import InvalidConfig
from simcore.base.units import parse_quantity
from simcore.engine.attempts import Attempts
from simcore.engine.training_library import AUTO, assumed_of
from simcore.hardware.prices import PriceBook, price_book
from simcore.planning.chunks import can_have_chunks
from simcore.planning.defaults import default_words, gpu_grids
from simcore.planning.goal import Goal, available_gpus
from simcore.planning.goodput import Reliability
from simcore.planning.larger_batch import larger_batch
from simcore.planning.moments import Deadline, deadline_of, start_of
from simcore.planning.planner import Plan, make_plan
from simcore.planning.space import CUTS, Space, make_space
from simcore.strategy.programs import PLAIN
from simcore.workload.models import ModelRecord
from simcore.workload.resolve import ModelSource, resolve_model

#: Of a parameter that Adam trains in mixed precision (Rajbhandari et al. 2020, section 3.1).
_STATE_BYTES = 16.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanQuestion:
    """What a plan is asked for, as the caller wrote it.

    ``length``: tokens, samples, epochs and steps of the run, of which one is given. ``deadline``
    and ``start``: text, dates or durations. ``budget``: dollars. ``power``: rated power with its
    unit ("200 kW"). ``margin_frac``: share of memory to leave free. ``available``: "H100=512".
    ``confidence``: probability with which deadline and budget are to be met. ``price``: "H100=2.5";
    ``prices``: name of a price list. ``words``: options and axes of the job.
    """

    model: str
    gpus: tuple[str, ...]
    length: Mapping[str, float | None]
    deadline: str | date | timedelta | None = None
    start: str | date | None = None
    budget: float | None = None
    power: str | None = None
    margin_frac: float = 0.0
    available: tuple[str, ...] = ()
    max_gpus: int | None = None
    confidence: float | None = None
    objective: str = "cost"
    price: tuple[str, ...] = ()
    prices: str | None = None
    reliability: Reliability | None = None
    words: Mapping[str, Any] = field(default_factory=dict)


def ask_plan(
    question: PlanQuestion,
    *,
    top: int,
    jobs: int,
    progress: Callable[[int, int], None] | None,
) -> Plan:
    """The plan that answers ``question``; see ``api.plan``.

    ``top``: options to return; ``jobs``: processes that share the work; ``progress``: called with
    the points done and the points in all. Raises InvalidConfig with everything that is wrong.
    """
    _refuse_wrong_kinds(question)
    attempts = Attempts()
    space, assumed = _space(question, attempts)
    goal = _goal(question, attempts, space)
    attempts.stop()
    assert space is not None
    assert goal is not None
    _refuse_unpriced(space, goal)
    plan = make_plan(
        space,
        goal,
        top=top,
        jobs=jobs,
        progress=progress,
        assumptions=tuple(_told(space, assumed)),
    )
    if plan.relaxations and "global_batch" in assumed:
        larger = larger_batch(space, goal, jobs=jobs)
        if larger is not None:
            plan = replace(plan, relaxations=(*plan.relaxations, larger))
    return plan


def _refuse_wrong_kinds(question: PlanQuestion) -> None:
    """Raises InvalidConfig for values of another type than the question needs."""
    problems: list[str] = []
    if question.power is not None and not isinstance(question.power, str):
        problems.append(f"power must be text with a unit, not {question.power!r}")
    if question.deadline is not None and not isinstance(question.deadline, str | date | timedelta):
        problems.append(f"deadline must be text with a unit, or a date, not {question.deadline!r}")
    numbers = {"budget": question.budget, "max_gpus": question.max_gpus, **question.length}
    problems += [
        f"{word} must be a number, not {value!r}"
        for word, value in numbers.items()
        if value is not None and not isinstance(value, int | float)
    ]
    if problems:
        raise InvalidConfig(problems)


def _space(question: PlanQuestion, attempts: Attempts) -> tuple[Space | None, dict[str, Any]]:
    """The clusters and strategies to look through, and the axes that nobody gave.

    None where words of the question are wrong; ``attempts`` then holds the sentences.
    """
    words = dict(question.words)
    if words.get("micro_batch") == "max":
        attempts.problems.append(
            "a plan looks through micro-batches itself: give --micro-batch a grid"
        )
    counts = {k: words.pop(k, None) for k in ("nnodes", "nproc_per_node")}
    attempts.make(
        "model",
        lambda: resolve_model(
            question.model,
            inputs=tuple(words.get("inputs") or ()),
            settings=words.get("settings"),
        ),
    )
    attempts.make("available", lambda: available_gpus(question.available))
    attempts.make(
        "grids",
        lambda: gpu_grids(
            question.gpus,
            available=dict(attempts.get("available", ())),
            max_gpus=question.max_gpus,
            **counts,
        ),
    )
    source: ModelSource | None = attempts.get("model")
    if source is not None:
        has_tokens = question.length["tokens"] is not None
        attempts.make("assumed", lambda: default_words(source, words, has_tokens))
    assumed: dict[str, Any] = attempts.get("assumed", {})
    if attempts.get("grids"):
        attempts.make(
            "space", lambda: make_space(question.model, attempts["grids"], **{**words, **assumed})
        )
    space: Space | None = attempts.get("space")
    if space is None:
        return None, assumed
    if source is not None and _held_by_one(source, words, space):
        # nobody cuts by hand what one GPU holds: PyTorch's own modules run it in every layout
        space = replace(space, fixed=(*(f for f in space.fixed if f[0] != "software"),
                                      ("software", PLAIN.name)))  # fmt: skip
    asked = {g.gpu.name for c in space.clusters for g in c.groups}
    attempts.problems += [
        f"--available {name}: --gpus asks for none of it"
        for name, _ in attempts.get("available", ())
        if name not in asked
    ]
    return space, assumed


def _goal(question: PlanQuestion, attempts: Attempts, space: Space | None) -> Goal | None:
    """The run's length, limits and prices; None where they are wrong, which ``attempts`` says."""
    if isinstance(question.start, str) and question.deadline is None:
        attempts.problems.append("--start is from when a --deadline counts: give one")
    attempts.make("start", lambda: start_of(question.start))
    if question.deadline is not None and "start" in attempts:
        deadline = _deadline_text(question.deadline)
        attempts.make("deadline", lambda: deadline_of(deadline, attempts["start"]))
    until: Deadline | None = attempts.get("deadline")
    dated = until is not None and (until.dated or question.start is not None)
    if question.power is not None:
        power = question.power
        attempts.make("power", lambda: parse_quantity(power, "watts"))
    attempts.make("prices", lambda: price_book(list(question.price), question.prices))
    length = question.length
    steps_vary = space is not None and not space.global_batches
    if length["steps"] is not None and steps_vary:
        attempts.problems.append(
            "--steps needs --global-batch: a step must mean the same on every cluster"
        )
    samples = _samples(question, attempts)
    both = length["epochs"] is not None and length["samples"] is not None
    attempts.make(
        "goal",
        lambda: Goal(
            samples=samples,
            tokens=1.0 if both else length["tokens"],  # both given: the goal says so
            steps=length["steps"],
            deadline_s=until.seconds if until else None,
            begins=until.start if until and dated else None,
            ends=until.at if until and dated else None,
            budget_usd=question.budget,
            power_w=attempts.get("power"),
            margin_frac=question.margin_frac,
            max_gpus=question.max_gpus,
            available=attempts.get("available", ()),
            confidence=question.confidence,
            objective=question.objective,
            prices=attempts.get("prices") or PriceBook({}, ()),
            reliability=question.reliability or Reliability(),
        ),
    )
    goal: Goal | None = attempts.get("goal")
    return goal


def _deadline_text(deadline: str | date | timedelta) -> str:
    """A deadline as the command line writes it: a duration in seconds, or an ISO date."""
    if isinstance(deadline, timedelta):
        return f"{deadline.total_seconds():g}s"
    return deadline.isoformat() if isinstance(deadline, date) else deadline  # a datetime too


def _samples(question: PlanQuestion, attempts: Attempts) -> float | None:
    """Samples of the run: as given, or epochs times the samples of the model's data set."""
    epochs, source = question.length["epochs"], attempts.get("model")
    if epochs is None or source is None:
        return question.length["samples"]
    if source.dataset is None:
        attempts.problems.append(
            f"{source.name} has no data set: say --samples (epochs x samples of yours) or --tokens"
        )
        return 1.0  # a length was asked for
    return float(epochs * source.dataset.samples.value)


def _refuse_unpriced(space: Space, goal: Goal) -> None:
    """Raises InvalidConfig where money matters and no GPU of the space has a price."""
    if goal.budget_usd is None and goal.objective != "cost":
        return
    if not any(goal.prices.of(g.gpu.name) for c in space.clusters for g in c.groups):
        raise InvalidConfig([
            "no GPU asked for has a known price: give --price GPU=DOLLARS, or --objective time"
        ])  # fmt: skip


def _held_by_one(source: ModelSource, words: Mapping[str, Any], space: Space) -> bool:
    """Whether one GPU holds a model's state, where neither a cut nor a library was asked for."""
    if words.get("software") or any(words.get(k) for k in CUTS):
        return False
    if not isinstance(source, ModelRecord):
        return False
    most = max(g.gpu.usable_memory_bytes for c in space.clusters for g in c.groups)
    numel = source.params.value or source.build().trainable_numel
    return numel * _STATE_BYTES <= most


def _told(space: Space, chosen: dict[str, Any]) -> list[str]:
    """What was looked through though nobody said so."""
    names = [
        f"{name.replace('_', '-')} {value}"
        for name, value in chosen.items()
        if name != "global_batch"
    ]
    out = [f"looked through {'; '.join(names)}"] if names else []
    if dict(space.fixed).get("software") == AUTO:
        out.insert(0, assumed_of())
    if can_have_chunks(space):
        out.append("looked through vpp 2..8 (chunks of layers) of the promising pipelines")
    if "global_batch" in chosen:
        batches = " or ".join(map(str, space.global_batches))
        out.append(f"{batches} samples a step, near 4 million tokens (--global-batch)")
    if not space.global_batches:
        out.append("each option has its own global batch: micro-batch x accumulation x replicas")
    return out
