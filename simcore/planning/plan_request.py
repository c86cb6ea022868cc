"""Resolves the request for a plan: reports all mistakes at once and states all assumptions.

The plan searches the values here where the caller gives none. The global batch limits how many GPUs
can work at once: where the plan assumed the batch, a deadline that this batch cannot meet may be
possible with a larger one, and the plan says so.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field, replace
from datetime import date, timedelta
from typing import Any

from simcore.base.errors import InvalidConfig, SimcoreError
from simcore.base.record import dataclass
from simcore.base.units import parse_quantity
from simcore.hardware.cluster import parse_cluster
from simcore.hardware.prices import PriceBook, price_book
from simcore.hardware.spec import GPUS
from simcore.planning.chunks import can_have_chunks
from simcore.planning.constraints import Relaxation
from simcore.planning.goal import Goal, available_gpus
from simcore.planning.goodput import Reliability
from simcore.planning.grid import counted, whole_values
from simcore.planning.moments import Deadline, deadline_of, start_of
from simcore.planning.planner import Plan, make_plan
from simcore.planning.space import CUTS, Space, make_space
from simcore.request.inputs import Attempts
from simcore.request.model_settings import usual_length
from simcore.request.training_library import AUTO, assumed_of
from simcore.strategy.programs.mechanisms import PLAIN
from simcore.workload.models import ModelRecord
from simcore.workload.resolve import ModelSource, resolve_model
from simcore.workload.sharding import splits

#: Most GPUs of one type that a plan considers, where no number of available GPUs is given.
MAX_GPUS = 4096
#: Tokens per step, as of all Llama 2 models (Touvron et al. 2023, table 1).
TOKENS_PER_STEP = 4e6
#: Expert-parallel degrees that a plan searches, where they divide the model's experts.
_EXPERT_RANKS = (1, 2, 4, 8, 16, 32, 64)
_BARE = re.compile(r"^[^\d:+][^:+]*$")


def node_counts(most: int) -> list[int]:
    """Node counts up to ``most``: 1, 2, 3, 4, 6, 8, 12 ..., powers of two and 1.5 times these."""
    found: set[int] = set()
    n = 1
    while n <= most:
        found |= {n, n + n // 2} if n > 1 else {1}
        n *= 2
    return sorted(x for x in found if x <= most)


def gpu_grids(
    texts: Iterable[str],
    *,
    available: dict[str, int],
    max_gpus: int | None,
    nnodes: str | int | None = None,
    nproc_per_node: str | int | None = None,
    parts: bool = False,
) -> list[str]:
    """The grids of clusters; a type without numbers becomes whole nodes of it.

    available   GPUs that are available, by type
    max_gpus    most GPUs; with neither, there are at most ``MAX_GPUS`` of a type
    nnodes, nproc_per_node   nodes, and GPUs per node, of types without numbers
    parts       whether parts of a node are searched too: clouds rent GPUs one by one
    """
    found: list[str] = []
    for text in texts:
        for item in text.split(",") if ":" not in text else [text]:
            item = item.strip()
            if not _BARE.match(item) or GPUS.path(item) is None:  # a cluster, or a slice by name
                found.append(counted(item, nnodes, nproc_per_node))
                continue
            name = GPUS[item].name
            if nnodes is not None:
                found.append(counted(name, nnodes, nproc_per_node or _per_node(name)))
                continue
            per_node = _per_node(name)
            if nproc_per_node is not None:
                per_node = max(whole_values(f"{name}: GPUs per node", nproc_per_node))
            most = min(max_gpus or MAX_GPUS, available.get(name, MAX_GPUS))
            counts = node_counts(most // per_node)
            if nproc_per_node is None and (parts or not counts):  # GPUs of one node
                few = [n for n in (1, 2, 4) if n < per_node and n <= most]
                found += [f"{name}:1x{','.join(map(str, few))}"] if few else []
            if counts:
                nodes = ",".join(map(str, counts))
                found.append(f"{name}:{nodes}x{nproc_per_node or per_node}")
    return found


def _per_node(gpu: str) -> int:
    """GPUs in the default node of a type: the number in its preset, or 8."""
    for count in (8, 4, 2, 1):
        try:
            spec = parse_cluster(f"1x{count}x{gpu}")
        except SimcoreError:
            continue
        if not spec.groups[0].node.name.startswith("generic") or count in (8, 1):
            return count
    return 1


def default_words(source: ModelSource, given: dict[str, Any], tokens: bool) -> dict[str, Any]:
    """Values of the axes that the caller did not give, for a model.

    ``given``: options of the caller; ``tokens``: whether the length of the run is in tokens, so
    that a usual global batch is known.
    """
    config = source.config if isinstance(source, ModelRecord) else {}
    cut = isinstance(source, ModelRecord) and splits(source.arch)
    words: dict[str, Any] = {
        "strategy": "ddp,zero1,zero3,hsdp",
        "recompute": "all",
        "micro_batch": "1,2,4,8" if tokens else "1..64*2",
    }
    if cut:
        words |= {"tp": "1..8*2", "pp": "1..16*2"}
        if experts := int(config.get("experts", 0) or 0):
            words["ep"] = ",".join(str(n) for n in _EXPERT_RANKS if experts % n == 0)
    if tokens and not {"global_batch", "grad_accum"} & {k for k, v in given.items() if v}:
        seq_len = given.get("seq_len")
        overrides = {"seq_len": int(seq_len)} if seq_len else {}
        per_sample = source.build(**overrides).tokens_per_sample
        if per_sample:
            words["global_batch"] = tuple(_batches(TOKENS_PER_STEP / per_sample))
    return {k: v for k, v in words.items() if given.get(k) is None}


def _batches(wanted: float) -> list[int]:
    """The power of two nearest to a batch, and 1.5 times that."""
    power = 1
    while power * 2 <= wanted * 2**0.5:
        power *= 2
    return [power, power + power // 2] if power > 1 else [1]


__all__ = ["MAX_GPUS", "TOKENS_PER_STEP", "default_words", "gpu_grids", "node_counts"]


#: Bytes of model state per parameter, with Adam in mixed precision (Rajbhandari et al. 2020,
#: section 3.1).
_STATE_BYTES = 16.0


@dataclass(frozen=True, kw_only=True)
class PlanQuestion:
    """The request for a plan, as the caller wrote it.

    length       tokens, samples, epochs and steps of the run, of which one is given
    deadline, start   text, dates or durations
    budget       limit on the cost [dollars]
    power        limit on the rated power, with its unit ("200 kW")
    margin_frac  share of memory to leave free
    available    available GPUs by type ("H100=512")
    confidence   least probability of meeting deadline and budget
    price        prices of GPU-hours ("H100=2.5")
    prices       name of a price list
    words        options and axes of the job
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
    """The plan for ``question``; see ``api.plan``.

    top       how many options to return
    jobs      processes that share the work
    progress  called with the number of finished and of all points

    Raises InvalidConfig that lists everything that is wrong.
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
        assumptions=tuple(_assumptions(space, assumed)),
    )
    if plan.relaxations and "global_batch" in assumed:
        larger = larger_batch(space, goal, jobs=jobs)
        if larger is not None:
            plan = replace(plan, relaxations=(*plan.relaxations, larger))
    return plan


def _refuse_wrong_kinds(question: PlanQuestion) -> None:
    """Raise InvalidConfig for arguments of a wrong type."""
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
    """The space of clusters and strategies to search, and the values of axes that are not given.

    The space is None where the question is wrong; ``attempts`` then holds the error messages.
    """
    words = dict(question.words)
    if words.get("micro_batch") == "max":
        attempts.problems.append(
            "a plan chooses the micro-batch: give --micro-batch a grid such as 1..64*2, or nothing"
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
            parts=words.get("lora_rank") is not None,
            **counts,
        ),
    )
    source: ModelSource | None = attempts.get("model")
    if source is not None:
        has_tokens = question.length["tokens"] is not None
        if (usual := usual_length(source, words)) is not None:
            words["seq_len"] = usual
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
        # A model that one GPU holds needs no tensor or pipeline parallelism: plain PyTorch runs it.
        space = replace(space, fixed=(*(f for f in space.fixed if f[0] != "software"),
                                      ("software", PLAIN.name)))  # fmt: skip
    requested = {g.gpu.name for c in space.clusters for g in c.groups}
    attempts.problems += [
        f"--available {name}: --gpus does not name this type"
        for name, _ in attempts.get("available", ())
        if name not in requested
    ]
    return space, assumed


def _goal(question: PlanQuestion, attempts: Attempts, space: Space | None) -> Goal | None:
    """Length, limits and prices of the run; None where they are wrong, with the error messages in
    ``attempts``.
    """
    if isinstance(question.start, str) and question.deadline is None:
        attempts.problems.append("--start needs a --deadline, which counts from then: give one")
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
            # epochs and samples both given: a second length makes Goal report it
            tokens=1.0 if both else length["tokens"],
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
    return attempts.get("goal")


def _deadline_text(deadline: str | date | timedelta) -> str:
    """A deadline as the command line writes it: a duration in seconds, or an ISO date."""
    if isinstance(deadline, timedelta):
        return f"{deadline.total_seconds():g}s"
    return deadline.isoformat() if isinstance(deadline, date) else deadline  # also of a datetime


def _samples(question: PlanQuestion, attempts: Attempts) -> float | None:
    """Samples of the run: as given, or epochs times the samples of the model's data set."""
    epochs, source = question.length["epochs"], attempts.get("model")
    if epochs is None or source is None:
        return question.length["samples"]
    if source.dataset is None:
        attempts.problems.append(
            f"{source.name} has no data set: give --samples (epochs x samples of yours) or --tokens"
        )
        return 1.0  # so that Goal does not also report a missing length
    return float(epochs * source.dataset.samples.value)


def _refuse_unpriced(space: Space, goal: Goal) -> None:
    """Raise InvalidConfig where the plan needs prices and no GPU of the space has one."""
    gpus = {g.gpu.name for c in space.clusters for g in c.groups}
    if gpus and len(goal.unpriced(gpus)) == len(gpus):
        raise InvalidConfig([
            "no price is known for these GPUs: give --price GPU=DOLLARS, or --objective time"
        ])  # fmt: skip


def _held_by_one(source: ModelSource, words: Mapping[str, Any], space: Space) -> bool:
    """Whether one GPU holds the model's state, and the caller gave neither a degree of model
    parallelism nor a training library.
    """
    if words.get("software") or any(words.get(k) for k in CUTS):
        return False
    if not isinstance(source, ModelRecord):
        return False
    most = max(g.gpu.usable_memory_bytes for c in space.clusters for g in c.groups)
    numel = source.params.value or source.build().trainable_numel
    return numel * _STATE_BYTES <= most


def _assumptions(space: Space, chosen: dict[str, Any]) -> list[str]:
    """Sentences about the values that were searched without being given."""
    names = [
        f"{name.replace('_', '-')} {value}"
        for name, value in chosen.items()
        if name != "global_batch"
    ]
    out = [f"searched {'; '.join(names)}"] if names else []
    if dict(space.fixed).get("software") == AUTO:
        out.insert(0, assumed_of())
    if can_have_chunks(space):
        out.append("searched vpp 2..8 (chunks of layers) for the most promising pipelines")
    if "global_batch" in chosen:
        batches = " or ".join(map(str, space.global_batches))
        out.append(f"{batches} samples per step, near 4 million tokens (--global-batch)")
    if not space.global_batches:
        out.append("the global batch differs by option: micro-batch x accumulation x replicas")
    return out


#: Multiples of the assumed batch to try. Sixteen times is 64 M tokens, the batch of DeepSeek-V3
#: (arXiv 2412.19437, 4.2: 15,360 sequences of 4,096).
_TIMES = (2, 4, 8, 16)


def larger_batch(space: Space, goal: Goal, *, jobs: int = 1) -> Relaxation | None:
    """The smallest of the larger batches with which the largest cluster of some type meets all
    limits; None if there is none.

    Call it where the batches of ``space`` are assumed and no option meets the limits. The result is
    None without a deadline, since a larger batch only saves time.
    """
    if goal.deadline_s is None or not space.global_batches:
        return None
    most: dict[str, int] = {}
    for cluster in space.clusters:
        name = "+".join(g.gpu.name for g in cluster.groups)
        most[name] = max(most.get(name, 0), cluster.n_gpus)
    largest = tuple(c for c in space.clusters
                    if c.n_gpus == most["+".join(g.gpu.name for g in c.groups)])  # fmt: skip
    for times in _TIMES:
        batch = min(space.global_batches) * times
        if make_plan(
            replace(space, clusters=largest, global_batches=(batch,)), goal, top=1, jobs=jobs
        ).feasible:
            change = ("global-batch", "count", float(max(space.global_batches)), float(batch))
            return Relaxation(changes=(change,))
    return None
