"""From plain words to a plan: every violation at once, every default told."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import date, timedelta
from typing import Any

from simcore.base.errors import InvalidConfig, SimcoreError
from simcore.base.units import parse_quantity
from simcore.engine.training_library import AUTO, assumed_of
from simcore.hardware.prices import PriceBook, price_book
from simcore.planning.chunks import can_have_chunks
from simcore.planning.defaults import default_words, gpu_grids
from simcore.planning.goal import Goal, available_gpus
from simcore.planning.goodput import Reliability
from simcore.planning.larger_batch import larger_batch
from simcore.planning.moments import Deadline, deadline_of, start_of
from simcore.planning.planner import Plan, make_plan
from simcore.planning.space import DEGREES, Space, make_space
from simcore.strategy.software import PLAIN
from simcore.workload.models import ModelRecord
from simcore.workload.resolve import ModelSource, resolve_model

#: Of a parameter that Adam trains in mixed precision (Rajbhandari et al. 2020, section 3.1).
_STATE_BYTES = 16.0


def ask_plan(
    model: str,
    gpus: list[str],
    *,
    length: dict[str, float | None],
    deadline: str | date | timedelta | None,
    start: str | date | None,
    budget: float | None,
    power: str | None,
    margin_frac: float,
    available: list[str],
    max_gpus: int | None,
    confidence: float | None,
    objective: str,
    price: list[str],
    prices: str | None,
    reliability: Reliability | None,
    top: int,
    jobs: int,
    progress: Callable[[int, int], None] | None,
    words: dict[str, Any],
) -> Plan:
    """Resolve words and plan; see ``api.plan``. Raises InvalidConfig with everything wrong."""
    problems: list[str] = []
    if power is not None and not isinstance(power, str):
        problems.append(f"power must be text with a unit, not {power!r}")
    if isinstance(deadline, timedelta):
        deadline = f"{deadline.total_seconds():g}s"
    elif isinstance(deadline, date):  # a datetime too
        deadline = deadline.isoformat()
    elif deadline is not None and not isinstance(deadline, str):
        problems.append(f"deadline must be text with a unit, or a date, not {deadline!r}")
    for word, value in (("budget", budget), ("max_gpus", max_gpus), *length.items()):
        if value is not None and not isinstance(value, int | float):
            problems.append(f"{word} must be a number, not {value!r}")
    if problems:
        raise InvalidConfig(problems)

    def attempt(make: Callable[[], Any]) -> Any:
        try:
            return make()
        except InvalidConfig as err:
            problems.extend(err.violations)
        except SimcoreError as err:
            problems.append(str(err))
        return None

    source: ModelSource | None = attempt(
        lambda: resolve_model(
            model, inputs=tuple(words.get("inputs") or ()), settings=words.get("settings")
        )
    )
    book: PriceBook | None = attempt(lambda: price_book(price, prices))
    there = attempt(lambda: available_gpus(tuple(available))) or ()
    if isinstance(start, str) and deadline is None:
        problems.append("--start is from when a --deadline counts: give one")
    begins = attempt(lambda: start_of(start))
    until: Deadline | None = None
    if deadline is not None and begins is not None:
        until = attempt(lambda: deadline_of(deadline, begins))
    told = until is not None and (until.dated or start is not None)
    watts = attempt(lambda: parse_quantity(power, "watts")) if power is not None else None
    counts = {k: words.get(k) for k in ("nnodes", "nproc_per_node")}
    words = {k: v for k, v in words.items() if k not in counts}
    grids = attempt(
        lambda: gpu_grids(gpus, available=dict(there), max_gpus=max_gpus, **counts)
    ) or []  # fmt: skip
    if words.get("micro_batch") == "max":
        problems.append("a plan looks through micro-batches itself: give --micro-batch a grid")
    chosen: dict[str, Any] = {}
    if source is not None:
        found = source
        chosen = attempt(lambda: default_words(found, words, length["tokens"] is not None)) or {}
    space: Space | None = None
    if grids:
        space = attempt(lambda: make_space(model, grids, **{**words, **chosen}))
    if space is not None and source is not None and _held_by_one(source, words, space):
        # nobody cuts by hand what one GPU holds: PyTorch's own modules run it in every layout
        space = replace(space, fixed=(*(f for f in space.fixed if f[0] != "software"),
                                      ("software", PLAIN.name)))  # fmt: skip
    asked = {g.gpu.name for c in space.clusters for g in c.groups} if space is not None else set()
    problems += [f"--available {name}: --gpus asks for none of it" for name, _ in there
                 if space is not None and name not in asked]  # fmt: skip
    samples = length["samples"]
    if length["epochs"] is not None and source is not None:
        if source.dataset is None:
            problems.append(f"{source.name} has no data set: say --samples (epochs x samples of "
                            "yours) or --tokens")  # fmt: skip
            samples = 1.0  # a length was asked for
        else:
            samples = length["epochs"] * source.dataset.samples.value
    if space is not None and length["steps"] is not None and not space.global_batches:
        problems.append("--steps needs --global-batch: a step must mean the same on every cluster")
    both = length["epochs"] is not None and length["samples"] is not None
    goal: Goal | None = attempt(
        lambda: Goal(
            samples=samples,
            tokens=1.0 if both else length["tokens"],  # both given: the goal says so
            steps=length["steps"],
            deadline_s=until.seconds if until else None,
            begins=until.start if until and told else None,
            ends=until.at if until and told else None,
            budget_usd=budget,
            power_w=watts,
            margin_frac=margin_frac,
            max_gpus=max_gpus,
            available=there,
            confidence=confidence,
            objective=objective,
            prices=book or PriceBook({}, ()),
            reliability=reliability or Reliability(),
        )
    )
    if problems or space is None or goal is None:
        raise InvalidConfig(list(dict.fromkeys(problems)))
    if not any(goal.prices.of(g.gpu.name) for c in space.clusters for g in c.groups):
        missing = goal.budget_usd is not None or goal.objective == "cost"
        if missing:
            raise InvalidConfig([
                "no GPU asked for has a known price: give --price GPU=DOLLARS, or --objective time"
            ])  # fmt: skip
    plan = make_plan(
        space,
        goal,
        top=top,
        jobs=jobs,
        progress=progress,
        assumptions=tuple(_told(space, chosen)),
    )
    if plan.relaxations and "global_batch" in chosen:
        larger = larger_batch(space, goal, jobs=jobs)
        if larger is not None:
            plan = replace(plan, relaxations=(*plan.relaxations, larger))
    return plan


def _held_by_one(source: ModelSource, words: dict[str, Any], space: Space) -> bool:
    """Whether one GPU holds a model's state, where neither a cut nor a library was asked for."""
    if words.get("software") or any(words.get(k) for k in DEGREES):
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
