"""The best clusters and strategies for a training run under limits, by exhaustive search.

Every point of the space is evaluated, the limits are masks over the points, and the result is the
minimum of the objective. The listed options are predicted in full, for their interval, bottleneck
and probability of meeting the deadline.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np

from simcore.answer.predict import predict
from simcore.answer.result import Prediction
from simcore.base.arrays import rare_collections
from simcore.base.errors import InvalidConfig
from simcore.base.record import dataclass
from simcore.base.units import HOUR, KILO
from simcore.planning.candidates import Candidates, Progress, candidates, request_of
from simcore.planning.chunks import with_chunks
from simcore.planning.constraints import Constraint, Judged, Relaxation, judge, relaxations
from simcore.planning.goal import CONFIDENCE, OBJECTIVES, Goal
from simcore.planning.goodput import Goodput, goodput_of
from simcore.planning.ranking import Point, network_of
from simcore.planning.run import SOURCE as ENERGY_SOURCE
from simcore.planning.run import odds_within, sides_of
from simcore.planning.sensitivity import Sensitivity, sensitivities
from simcore.planning.space import Space
from simcore.planning.stage_search import with_cuts
from simcore.workload.resolve import resolve_model


@dataclass(frozen=True, kw_only=True)
class Option(Point):
    """One way to do the run: a point of the space, with time, cost and energy of the whole run.

    time_s          time of the run, with failures and stragglers
    effective_frac  share of that time that moves the run forward
    why             what makes the option worth listing
    deadline_prob, budget_prob   probability of meeting the limit, from the interval of the step
                    time and the spread of failures; None without such a limit
    """

    n_steps: float
    time_s: float
    cost_usd: float | None
    energy_j: float
    power_w: float
    effective_frac: float
    why: str = ""
    prediction: Prediction | None = None
    goodput: Goodput | None = None
    deadline_prob: float | None = None
    budget_prob: float | None = None

    @property
    def odds(self) -> float:
        """Probability of meeting the less certain one of deadline and budget; 1 without them."""
        return min(
            (p for p in (self.deadline_prob, self.budget_prob) if p is not None), default=1.0
        )

    @property
    def words(self) -> dict[str, Any]:
        """The options with which ``predict`` predicts its step, besides model and GPUs."""
        batch = {"micro_batch": self.micro_batch, "grad_accum": self.grad_accum}
        return {"precision": self.form.precision, **dict(self.form.options), **batch}

    def of(self, objective: str) -> float:
        """The value of an objective; infinite where it is unknown."""
        values = {
            "cost": self.cost_usd,
            "time": self.time_s,
            "energy": self.energy_j,
            "gpus": float(self.n_gpus),
            "step": self.step_time_s,
        }
        found = values[objective]
        return math.inf if found is None else found

    def to_dict(self) -> dict[str, Any]:
        """Plain data, with units in the names."""
        p = self.prediction
        layout = self.form.layout
        return {
            "cluster": self.cluster,
            "n_gpus": self.n_gpus,
            "n_nodes": self.n_nodes,
            "strategy": self.form.strategy,
            "precision": self.form.precision,
            "recompute": self.form.recompute,
            "tp": layout.tp, "pp": layout.pp, "vpp": layout.vpp, "cp": layout.cp, "ep": layout.ep,
            "micro_batch": self.micro_batch,
            "grad_accum": self.grad_accum,
            "global_batch": self.global_batch,
            "n_steps": self.n_steps,
            "step_time_s": {
                "value": self.step_time_s,
                "low": p.step_time_s.low if p else None,
                "high": p.step_time_s.high if p else None,
            },
            "time_to_train_s": self.time_s,
            "cost_usd": self.cost_usd,
            "energy_j": self.energy_j,
            "rated_power_w": self.power_w,
            "memory_bytes": self.memory_bytes,
            "capacity_bytes": self.capacity_bytes,
            "effective_frac": self.effective_frac,
            "bound_by": p.bound_by if p else None,
            "mfu_frac": p.mfu_frac if p else None,
            "deadline_probability": self.deadline_prob,
            "budget_probability": self.budget_prob,
            "why": self.why,
        }  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The result of a plan: the best options, or which limits prevent any option.

    best           the best option of each cluster, best first
    surer          the best option that meets the limits with a probability of ``CONFIDENCE``, where
                   the first of ``best`` does not; None where there is none
    front          Pareto front of time and cost (of time and GPUs where prices are unknown)
    n_timed        points that fit, or would fit with ``MORE_MEMORY_BYTES`` more per GPU; only their
                   time is computed
    relaxations    changes of limits with which an option exists, where there is none
    invalid        number of points that break a rule, by the rule
    blocked        number of points that each limit excludes; for limits of time and money, of the
                   points in ``n_timed``
    unpriced       GPU types whose clusters are left out, since cost counts and no price is known
    leanest        option that needs the least memory, where nothing fits
    fixes          changes of ``leanest`` with which it fits, also on more or larger GPUs
    """

    model: str
    goal: Goal
    samples: float | None
    n_points: int
    n_valid: int
    n_timed: int
    n_feasible: int
    objective: str
    best: tuple[Option, ...]
    front: tuple[Option, ...]
    sensitivities: tuple[Sensitivity, ...]
    relaxations: tuple[Relaxation, ...]
    invalid: dict[str, int]
    blocked: dict[str, int]
    leanest: Option | None
    sources: tuple[tuple[str, str], ...]
    assumptions: tuple[str, ...]
    fixes: tuple[str, ...] = ()
    unpriced: tuple[str, ...] = ()
    surer: Option | None = None

    @property
    def feasible(self) -> bool:
        """Whether an option meets all limits."""
        return bool(self.best)

    def to_dict(self) -> dict[str, Any]:
        """Plain data, with units in the names."""
        g = self.goal
        return {
            "model": self.model,
            "samples": self.samples,
            "limits": {
                "deadline_s": g.deadline_s,
                "begins": g.begins.isoformat() if g.begins else None,
                "ends": g.ends.isoformat() if g.ends else None,
                "budget_usd": g.budget_usd, "power_w": g.power_w,
                "memory_margin_frac": g.margin_frac, "max_gpus": g.max_gpus,
                "available": dict(g.available), "confidence": g.confidence or (
                    CONFIDENCE if g.limits_time_or_cost else None
                ),
            },
            "objective": self.objective,
            "n_points": self.n_points,
            "n_valid": self.n_valid,
            "n_timed": self.n_timed,
            "n_feasible": self.n_feasible,
            "feasible": self.feasible,
            "best": [o.to_dict() for o in self.best],
            "surer": self.surer.to_dict() if self.surer else None,
            "pareto_front": [o.to_dict() for o in self.front],
            "sensitivity": [s.to_dict() for s in self.sensitivities],
            "relax": [r.to_dict() for r in self.relaxations],
            "invalid": self.invalid,
            "blocked": self.blocked,
            "leanest": self.leanest.to_dict() if self.leanest else None,
            "fixes": list(self.fixes),
            "unpriced": list(self.unpriced),
            "sources": dict(self.sources),
            "assumptions": list(self.assumptions),
        }  # fmt: skip


@rare_collections()
def make_plan(
    space: Space, goal: Goal, *, top: int = 5, progress: Progress | None = None,
    assumptions: tuple[str, ...] = (), jobs: int = 1,
) -> Plan:  # fmt: skip
    """The plan of a run over a space of configurations.

    top          how many clusters to list
    progress     called with the number of finished and of all points
    assumptions  sentences about the space, for ``Plan.assumptions``
    jobs         processes that share the work

    Raises InvalidConfig where the length of the run cannot be converted to samples.
    """
    samples = _samples(space, goal)
    found = candidates(space, goal, progress, jobs)
    found = with_cuts(found, goal, samples, top)
    found = with_chunks(found, goal, samples, top)
    judged = judge(found, goal, samples)
    planner = _Planner(goal, judged)
    best = planner.best(top)
    surer = planner.surer() if best and best[0].odds < CONFIDENCE else None
    front = [planner.option(i, full=False) for i in judged.front()] if best else []
    possible = bool(judged.meets.any())
    eased = [] if possible else relaxations(judged.limits, len(found))
    if possible and not best and goal.confidence is not None:
        change = ("confidence", "odds", goal.confidence, planner.surest)
        eased = [Relaxation(changes=(change,))]
    return Plan(
        model=space.models[0],
        goal=goal,
        samples=samples,
        n_points=len(space),
        n_valid=len(found),
        n_timed=int(np.isfinite(found.step_s).sum()),
        n_feasible=int(judged.meets.sum()),
        objective=goal.objective,
        best=tuple(best),
        front=tuple(front),
        sensitivities=tuple(
            sensitivities(found, _sure(goal, best[0]), samples, best[0].cluster, goal.deadline_s)
        )
        if best
        else (),
        relaxations=tuple(eased),
        invalid=found.invalid,
        blocked=_blocked(judged.limits, found),
        leanest=None if judged.limits[0].passes.any() else planner.leanest(),
        sources=tuple(_sources(space, goal)),
        assumptions=assumptions,
        unpriced=goal.unpriced(g.gpu.name for c in space.clusters for g in c.groups),
        surer=surer,
    )


def _sure(goal: Goal, best: Option) -> Goal:
    """The goal with limits that central estimates must meet to be as sure as ``best``.

    The upper end of an 80 % interval is exceeded with a probability of 10 %.
    """
    if goal.confidence is not None or best.odds < CONFIDENCE or best.prediction is None:
        return goal
    t = best.prediction.step_time_s
    deadline, budget = goal.deadline_s, goal.budget_usd
    return replace(
        goal,
        deadline_s=None if deadline is None else max(deadline * t.value / t.high, best.time_s),
        budget_usd=None if budget is None else max(budget * t.value / t.high, best.cost_usd or 0.0),
    )


def _blocked(limits: list[Constraint], found: Candidates) -> dict[str, int]:
    """How many candidates each limit excludes; for limits of time and money, only candidates whose
    step time is computed count.
    """
    timed = np.isfinite(found.step_s)
    excluded = {c.name: int((~c.passes & (timed | np.isfinite(c.value))).sum()) for c in limits}
    return {name: n for name, n in excluded.items() if n}


def _samples(space: Space, goal: Goal) -> float | None:
    """Samples of the run: as given, or its tokens over the tokens of a sample; None for steps."""
    if goal.tokens is None:
        return goal.samples
    fixed = dict(space.fixed)
    source = resolve_model(
        space.models[0], inputs=tuple(fixed.get("inputs") or ()), settings=fixed.get("settings")
    )
    lengths = dict(space.axes).get("seq_len", (None,))
    if len(lengths) > 1:
        raise InvalidConfig(["a plan for a number of tokens takes one --seq-len only"])
    overrides = {"seq_len": lengths[0]} if lengths[0] is not None else {}
    per_sample = source.build(**overrides).tokens_per_sample
    if not per_sample:
        raise InvalidConfig([f"{source.name} has no tokens: give --samples, --epochs or --steps"])
    return goal.tokens / per_sample


class _Planner:
    """Makes options of judged candidates.

    ``surest``: greatest probability of meeting the limits among the options that ``best`` tried.
    """

    def __init__(self, goal: Goal, judged: Judged) -> None:
        self.goal, self.judged, self.c = goal, judged, judged.c
        self.surest = 0.0

    def best(self, top: int) -> list[Option]:
        """The best option of each of the best ``top`` clusters, with the reason to list it."""
        given = self.goal.confidence
        chosen = list(islice(self._probable(CONFIDENCE if given is None else given), top))
        if not chosen and given is None:
            chosen = list(islice(self._probable(0.0), top))
        return [_with_why(o, chosen, self.goal.objective) for o in chosen]

    def surer(self) -> Option | None:
        """The best option that meets the limits with a probability of ``CONFIDENCE``."""
        return next(self._probable(CONFIDENCE), None)

    def _probable(self, wanted: float) -> Iterator[Option]:
        """Options, best first, one per cluster, that meet the limits with probability ``wanted``.

        Options of a cluster that take no less time than one that is too uncertain are left out,
        unless the caller gave the probability.
        """
        seen: set[int] = set()
        too_long: dict[int, float] = {}
        for i in self.judged.ranked():
            cluster, time = int(self.c.cluster[i]), float(self.judged.runs.time_s[i])
            if cluster in seen or time >= too_long.get(cluster, math.inf):
                continue
            option = self.option(i, full=True)
            self.surest = max(self.surest, option.odds)
            if option.odds < wanted:
                if self.goal.confidence is None:
                    too_long[cluster] = time
                continue
            seen.add(cluster)
            yield option

    def leanest(self) -> Option | None:
        """The option that needs the smallest share of a GPU's memory; None without candidates."""
        share = self.c.needed_bytes / self.c.capacity_bytes
        return self.option(int(share.argmin()), full=False) if len(share) else None

    def option(self, i: int, *, full: bool) -> Option:
        """Candidate ``i`` as an option; ``full``: with prediction, goodput and probabilities."""
        c, runs, goal = self.c, self.judged.runs, self.goal
        cluster = c.space.clusters[int(c.cluster[i])]
        form = c.form_of(i)
        cost = float(runs.cost_usd[i])
        option = Option(
            form=form,
            cluster=str(cluster),
            n_gpus=int(c.n_gpus[i]),
            n_nodes=int(c.n_nodes[i]),
            network=network_of(cluster),
            micro_batch=int(c.micro_batch[i]),
            grad_accum=int(c.grad_accum[i]),
            global_batch=int(c.global_batch[i]),
            step_time_s=float(c.step_s[i]),
            samples_per_s=float(c.global_batch[i] / c.step_s[i]),
            memory_bytes=float(c.memory_bytes[i]),
            needed_bytes=float(c.needed_bytes[i]),
            capacity_bytes=float(c.capacity_bytes[i]),
            n_steps=float(runs.n_steps[i]),
            time_s=float(runs.time_s[i]),
            cost_usd=cost if math.isfinite(cost) else None,
            energy_j=float(runs.energy_j[i]),
            power_w=float(c.tdp_w[i]),
            effective_frac=float(c.effective_frac[i]),
        )
        if not full:
            return option
        predicted = predict(request_of(c, i))
        held = goodput_of(
            goal.reliability, n_gpus=option.n_gpus, n_nodes=option.n_nodes,
            checkpoint_bytes=form.checkpoint_bytes, work_s=float(runs.work_s[i]),
        )  # fmt: skip
        spread = (held.run_sd_s or 0.0) / (held.run_s or 1.0)
        t = predicted.step_time_s
        sides = [math.hypot(sd, spread) for sd in sides_of(t)]
        deadline = budget = None
        if goal.deadline_s is not None:
            deadline = odds_within(goal.deadline_s / option.time_s, *sides)
        if goal.budget_usd is not None and option.cost_usd is not None:
            budget = odds_within(goal.budget_usd / option.cost_usd, *sides)
        return replace(
            option, prediction=predicted, goodput=held, deadline_prob=deadline, budget_prob=budget
        )


_BETTER = {"cost": "cheapest", "time": "fastest", "energy": "least energy", "gpus": "fewest GPUs",
           "step": "shortest step"}  # fmt: skip


def _with_why(option: Option, listed: list[Option], objective: str) -> Option:
    """The option with the reason to list it: what it is best at, and its distance to the first."""
    first = listed[0]
    strengths = []
    for name, word in _BETTER.items():
        values = [o.of(name) for o in listed]
        mine = option.of(name)
        if math.isfinite(mine) and mine == min(values) and values.count(mine) == 1:
            strengths.append(word)
    if option is first and _BETTER[objective] not in strengths:
        strengths.insert(0, _BETTER[objective])
    text = ", ".join(dict.fromkeys(strengths))
    if option is not first:
        more = option.of(objective) / first.of(objective) - 1.0
        other = "time" if objective != "time" else "cost"
        change = option.of(other) / first.of(other) - 1.0
        difference = _change(more, _NOUN[objective])
        if math.isfinite(change):
            difference += f", {_change(change, _NOUN[other])}"
        text = f"{text}: {difference}" if text else difference
    return replace(option, why=text)


def _change(frac: float, noun: str) -> str:
    """``+12% cost``, or ``same cost`` where the change rounds to zero."""
    return f"{frac:+.0%} {noun}" if abs(frac) >= 0.005 else f"same {noun}"


_NOUN = {"cost": "cost", "time": "time", "energy": "energy", "gpus": "GPUs", "step": "step time"}


def _sources(space: Space, goal: Goal) -> Iterator[tuple[str, str]]:
    """(name, source) of the prices, powers and failure rates behind a plan."""
    for name, source in goal.prices.sources(space.clusters).items():
        yield f"price {name}", source
    gpus = {g.gpu.name: g.gpu for c in space.clusters for g in c.groups}
    for name, gpu in gpus.items():
        if gpu.tdp is None:
            yield f"power {name}", "rated power unknown: no energy"
            continue
        # without the URL; `simcore show gpu` prints the whole citation
        source = gpu.sources.get(gpu.tdp.source, gpu.tdp.source).partition(", http")[0]
        yield f"power {name}", f"{gpu.tdp.value:g} W TDP ({source})"
    yield "energy", ENERGY_SOURCE
    rel = goal.reliability
    probe = goodput_of(rel, n_gpus=1, n_nodes=1, checkpoint_bytes=1.0)
    origin = dict(probe.sources)
    yield (
        "failures",
        (
            f"{rel.failures_per_gpu_h:.3g} per GPU and hour ({origin['failures']}), "
            f"restart {rel.restart_s:g} s ({origin['restart']})"
        ),
    )
    yield "checkpoints", origin["checkpoint bandwidth"]


def kwh(joules: float) -> float:
    """Joules as kilowatt-hours."""
    return joules / (KILO * HOUR)


__all__ = ["OBJECTIVES", "Option", "Plan", "Sensitivity", "kwh", "make_plan"]
