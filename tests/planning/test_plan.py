"""Plans are exact: brute force over ``predict`` finds the same, and no limit is ever broken."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from random import Random
from typing import Any

import numpy as np
import pytest

from simcore import api
from simcore.answer.result import Prediction
from simcore.base.errors import InvalidConfig, SimcoreError
from simcore.base.figures import Z80
from simcore.hardware.prices import price_book
from simcore.planning.goal import Goal
from simcore.planning.goodput import Reliability, goodput_of
from simcore.planning.grid import cluster_texts
from simcore.planning.planner import Option, Plan, make_plan
from simcore.planning.points import checkpoint_bytes
from simcore.planning.space import make_space
from simcore.report.plan import option_table

PRICES = ["H100=4", "A100=1.8", "A6000ada=0.8", "T4=0.2"]
DAY = 86400.0


def relaxed(goal: Goal, name: str, value: float) -> Goal:
    """The goal with one limit moved, by the name that a plan has for it."""
    field = {"deadline": "deadline_s", "budget": "budget_usd", "power": "power_w"}.get(name)
    if field is not None:
        return replace(goal, **{field: value})  # type: ignore[arg-type]
    if name == "max-gpus":
        return replace(goal, max_gpus=int(value))
    if name.startswith("available "):
        gpu = name.removeprefix("available ")
        kept = tuple((g, n) for g, n in goal.available if g != gpu)
        return replace(goal, available=(*kept, (gpu, int(value))))
    return replace(goal, margin_frac=max(0.0, 1.0 - value))


def brute(
    model: str, gpus: str, axes: dict[str, tuple[Any, ...]], samples: float, rel: Reliability
) -> list[dict[str, Any]]:
    """Every point by ``predict``, one at a time; what is not valid is left out."""
    book, out = price_book(PRICES), []
    # a space that cuts some points has one library for all
    library = dict(make_space(model, gpus, **axes).fixed)
    for cluster, *values in product(cluster_texts(gpus), *axes.values()):
        words = dict(zip(axes, values, strict=True)) | library
        try:
            request = api.make_request(model, cluster, **words)
            p: Prediction = api.predict(model, cluster, **words)
        except SimcoreError:
            continue
        work = math.ceil(samples / p.global_batch) * p.step_time_s.value
        held = goodput_of(
            rel, n_gpus=p.n_gpus, n_nodes=p.n_nodes, checkpoint_bytes=checkpoint_bytes(request)
        )
        time = work / held.goodput_frac
        usd = book.cluster_usd_per_h(request.cluster)
        assert usd is not None
        out.append({
            "words": words, "cluster": p.cluster, "time": time, "cost": time / 3600 * usd,
            "gpus": float(p.n_gpus), "step": p.step_time_s.value,
            "share": 1.0 - p.memory.margin_frac,
            "watts": sum(g.gpu.tdp.value * g.n_gpus for g in request.cluster.groups),
        })  # fmt: skip
    return out


def figure_of(option: Option, objective: str) -> float:
    return {
        "time": option.time_s, "cost": option.cost_usd or math.inf,
        "gpus": float(option.n_gpus), "step": option.step_time_s,
    }[objective]  # fmt: skip


SPACES = [
    ("latte-s", ("A6000ada:1..2x4", "1x2xA100,A6000ada:1x8", "T4:1..2x4,A100:1x1")),
    ("llama3.2-1b", ("H100:1..2x8", "A100:1x4,8", "H100:1x8,A100:2x8")),
]


@pytest.mark.parametrize(
    "seed", [n if n < 12 else pytest.param(n, marks=pytest.mark.long) for n in range(24)]
)
def test_brute_force_finds_the_same(seed: int) -> None:
    rng = Random(seed)
    model, clusters = SPACES[seed % 2]
    gpus = rng.choice(clusters)
    axes: dict[str, tuple[Any, ...]] = {
        "strategy": tuple(rng.sample(["dp", "ddp", "zero1", "zero2", "zero3"], 2)),
        "micro_batch": tuple(rng.sample([1, 2, 3, 8, 64], 2)),
    }
    if seed % 2:
        axes |= {"precision": ("bf16",), "tp": tuple(rng.sample([1, 2, 3, 4], 2))}
        axes |= {"global_batch": (64,)} if rng.random() < 0.5 else {"pp": (1, 2)}
        if "pp" in axes and rng.random() < 0.7:  # 16 layers, cut evenly or not
            cuts = ["even", "auto", "9,7", "7,rest", "5,11"]
            axes |= {"stages": tuple(rng.sample(cuts, 2)), "grad_accum": (rng.choice([4, 9]),)}
        elif "pp" in axes:
            axes |= {"stages": ("even",)}  # a plan that is not told looks through all cuts
    samples = 10.0 ** rng.uniform(4, 6)
    rel = Reliability(failures_per_gpu_h=rng.choice([0.0, 2e-5, 1e-3]))
    points = brute(model, gpus, axes, samples, rel)
    if not points:
        pytest.skip("a space without a valid point")

    def quantile(key: str, at: float) -> float:
        values = sorted(p[key] for p in points)
        return float(values[round(at * (len(values) - 1))]) * 1.0001

    objective = rng.choice(["cost", "time", "gpus", "step"])
    limits = {
        "deadline_s": quantile("time", rng.random()) if rng.random() < 0.6 else None,
        "budget_usd": quantile("cost", rng.random()) if rng.random() < 0.6 else None,
        "power_w": quantile("watts", rng.random()) if rng.random() < 0.3 else None,
        "margin_frac": rng.choice([0.0, 0.1, 0.5]),
    }
    space = make_space(model, gpus, **axes)
    from simcore.planning.goal import Goal

    limited = limits["deadline_s"] is not None or limits["budget_usd"] is not None
    goal = Goal(
        samples=samples, objective=objective, prices=price_book(PRICES), reliability=rel,
        confidence=1e-9 if limited else None, **limits,
    )  # fmt: skip
    found = make_plan(space, goal, top=99)

    def within(p: dict[str, Any]) -> bool:
        return (
            p["share"] <= 1.0 - limits["margin_frac"]
            and p["time"] <= (limits["deadline_s"] or math.inf)
            and p["cost"] <= (limits["budget_usd"] or math.inf)
            and p["watts"] <= (limits["power_w"] or math.inf)
        )

    good = [p for p in points if within(p)]
    assert found.n_valid == len(points)
    assert found.n_feasible == len(good)
    assert found.feasible == bool(good)
    if not good:
        check_relaxations(found, space, points, limits)
        return
    best = min(p[objective] for p in good)
    assert figure_of(found.best[0], objective) == pytest.approx(best, rel=1e-9)
    by_cluster: dict[str, float] = {}
    for p in good:
        by_cluster[p["cluster"]] = min(by_cluster.get(p["cluster"], math.inf), p[objective])
    told = {o.cluster: figure_of(o, objective) for o in found.best}
    assert told == pytest.approx(by_cluster, rel=1e-9)
    for option in (*found.best, *found.front):
        assert option.memory_bytes <= option.capacity_bytes * (1 - limits["margin_frac"])
        assert option.time_s <= (limits["deadline_s"] or math.inf)
        assert (option.cost_usd or 0.0) <= (limits["budget_usd"] or math.inf)
        assert option.power_w <= (limits["power_w"] or math.inf)
    front = {(round(p["time"], 6), round(p["cost"], 6)) for p in good if not any(
        q["time"] <= p["time"] and q["cost"] <= p["cost"]
        and (q["time"] < p["time"] * (1 - 1e-12) or q["cost"] < p["cost"] * (1 - 1e-12))
        for q in good
    )}  # fmt: skip
    assert len(found.front) == len(front)


def check_relaxations(
    found: Plan, space: Any, points: list[dict[str, Any]], limits: dict[str, Any]
) -> None:
    """What is said to help does, and a little less does not."""
    hopeless = all(p["share"] > 1.0 for p in points)
    if hopeless:
        return
    assert found.relaxations
    for change in found.relaxations:
        eased = found.goal
        for name, _, _, needed in change.changes:
            eased = relaxed(eased, name, needed * (1 + 1e-9))
        assert make_plan(space, eased).feasible
        if len(change.changes) == 1:
            name, _, limit, needed = change.changes[0]
            assert needed > limit
            assert not make_plan(space, relaxed(found.goal, name, needed * (1 - 1e-6))).feasible


def test_probability_follows_from_the_interval() -> None:
    rel = Reliability(failures_per_gpu_h=0.0)
    base = api.plan(
        "latte-xl", "4x8xA6000ada", samples=1e6, objective="time", price=PRICES, reliability=rel,
        strategy="ddp", micro_batch=1, recompute="none",
    )  # fmt: skip
    option = base.best[0]
    t = option.prediction.step_time_s  # type: ignore[union-attr]
    for ratio, odds in ((t.high / t.value, 0.9), (t.low / t.value, 0.1), (1.0, 0.5)):
        again = api.plan(
            "latte-xl", "4x8xA6000ada", samples=1e6, objective="time", price=PRICES,
            reliability=rel, strategy="ddp", micro_batch=1, recompute="none",
            deadline=f"{option.time_s * max(ratio, 1.0)!r}s",
        )  # fmt: skip
        if ratio >= 1.0:
            assert again.best[0].deadline_prob == pytest.approx(odds, abs=1e-6)
        else:
            assert not make_plan(
                make_space("latte-xl", "4x8xA6000ada", strategy="ddp", micro_batch=1),
                relaxed(base.goal, "deadline", option.time_s * ratio),
            ).feasible
    assert Z80 > 1


def test_confidence_moves_the_choice_to_what_is_safe() -> None:
    words: dict[str, Any] = {
        "samples": 3e6, "price": PRICES, "strategy": "ddp,zero1", "micro_batch": "1,2",
    }  # fmt: skip
    free = api.plan("latte-xl", "A6000ada:1..16x8", **words)
    limit = f"{free.best[0].time_s * 1.01!r}s"
    plain = api.plan("latte-xl", "A6000ada:1..16x8", deadline=limit, confidence=0.4, **words)
    sure = api.plan("latte-xl", "A6000ada:1..16x8", deadline=limit, confidence=0.95, **words)
    assert plain.best[0].deadline_prob < 0.6  # type: ignore[operator]
    assert sure.best[0].deadline_prob >= 0.95  # type: ignore[operator]
    assert sure.best[0].cost_usd > plain.best[0].cost_usd  # type: ignore[operator]


def test_sensitivities_are_plans_of_the_changed_world() -> None:
    words: dict[str, Any] = {
        "samples": 1e6, "strategy": "ddp,zero3", "micro_batch": "1,2,4", "deadline": "3d",
    }  # fmt: skip
    found = api.plan("latte-xl", "A6000ada:1..4x8,H100:1..2x8", price=PRICES, **words)
    told = {s.change: s.best for s in found.sensitivities}
    halved = api.plan(
        "latte-xl", "A6000ada:1..4x8,H100:1..2x8", price=["A6000ada=0.8", "H100=2"], **words
    )
    assert told["H100-SXM-80GB at half price"] == pytest.approx(halved.best[0].cost_usd)
    later = api.plan(
        "latte-xl", "A6000ada:1..4x8,H100:1..2x8", price=PRICES, **{**words, "deadline": "4.5d"}
    )
    assert told["deadline 4.5 d"] == pytest.approx(later.best[0].cost_usd)
    assert all(s.best is not None and s.best <= found.best[0].cost_usd for s in found.sensitivities)


def test_a_gpu_without_a_price_is_said_and_never_taken_for_free() -> None:
    found = api.plan("latte-s", "1x8xA6000ada,1x8xH100", samples=1e5, budget=1e9)
    assert {o.cluster for o in found.best} == {"1x8xH100-SXM-80GB"}
    assert "no price known" in dict(found.sources)["price A6000ada"]
    assert found.unpriced == ("A6000ada",)
    assert "A6000ada left out: no price is known (give --price A6000ada=DOLLARS" in " ".join(
        str(found).split()
    )
    with pytest.raises(InvalidConfig, match="--price"):
        api.plan("latte-s", "1x8xA6000ada", samples=1e5)
    timed = api.plan("latte-s", "1x8xA6000ada", samples=1e5, objective="time")
    assert timed.best[0].cost_usd is None and not timed.unpriced


def test_bare_types_become_whole_nodes_up_to_what_is_there() -> None:
    found = api.plan(
        "latte-s", "H100", samples=1e5, objective="time", available=["H100=48"], strategy="ddp",
        micro_batch=1, recompute="none",
    )  # fmt: skip
    assert found.n_points == 5  # 1, 2, 3, 4, 6 nodes of 8
    assert found.best[0].n_gpus == 48
    assert max(o.n_gpus for o in found.best) <= 48


ASK = ("plan", "--model", "llama3-8b", "--tokens", "1e11", "--gpus", "H100,A100",
       "--max-gpus", "64", "--tp", "1,8", "--pp", "1", "--strategy", "zero1")  # fmt: skip


def test_the_command_in_text_json_and_launch_file(simcore_cli: Callable) -> None:
    code, out, err = simcore_cli(*ASK, "--deadline", "30d", "--budget", "3e5")
    assert code == 0, err
    assert max(map(len, out.splitlines())) <= 80
    for said in ("TAKE", "RISK", "GOODPUT", "WHAT IF", "source", "RunPod", "arXiv", "assumed"):
        assert said in out, said
    import json

    code, out, _ = simcore_cli(*ASK, "--json")
    told = json.loads(out)
    assert told["feasible"]
    assert told["best"][0]["why"].startswith("cheapest")
    assert told["sources"]
    code, out, err = simcore_cli(*ASK, "--emit", "torchrun")
    assert code == 0
    assert "torchrun" in out
    assert "plan:" in err


def test_the_impossible_says_what_to_relax(simcore_cli: Callable) -> None:
    code, out, _ = simcore_cli(*ASK, "--deadline", "1d")
    assert code == 1
    assert "IMPOSSIBLE" in out
    assert "deadline from 24.0 h to" in out
    code, out, _ = simcore_cli(*ASK, "--deadline", "1h", "--budget", "10")
    assert code == 1
    assert " and budget from $10.0 to" in out
    assert max(map(len, out.splitlines())) <= 80


def test_a_batch_that_nobody_said_is_no_limit() -> None:
    """4 million tokens a step leave most of 16,384 GPUs idle; more meet the deadline."""
    asked: dict[str, Any] = {
        "model": "gpt-76.1b", "gpus": "H100:2048x8", "tokens": 1e13, "deadline": "14d",
        "tp": 8, "pp": "1,2", "micro_batch": 1, "recompute": "none", "strategy": "zero1",
    }  # fmt: skip
    found = api.plan(**asked)
    assert not found.feasible
    said = [c for r in found.relaxations for c in r.changes if c[0] == "global-batch"]
    ((_, _, assumed, needed),) = said
    assert needed > assumed
    assert api.plan(**asked, global_batch=int(needed)).feasible
    assert not api.plan(**asked, global_batch=int(needed) // 2).feasible
    told = api.plan(**asked, global_batch=int(assumed))  # a batch that was said is kept
    assert all(c[0] != "global-batch" for r in told.relaxations for c in r.changes)
    assert f"global-batch from {assumed:,.0f} to {needed:,.0f}" in str(found)


def test_everything_wrong_is_said_at_once(simcore_cli: Callable) -> None:
    code, out, err = simcore_cli(
        "plan", "--model", "llama3-8bb", "--gpus", "H10", "--deadline", "3x", "--budget", "-1",
        "--available", "H100", "--objective", "tim", "--price", "x", "--prices", "lamda",
    )  # fmt: skip
    assert (code, out) == (2, "")
    for said in ("llama3-8b'", "'H10'", "--deadline '3x'", "budget", "'tim'", "GPU=COUNT",
                 "GPU=DOLLARS", "'lambda'", "--tokens"):  # fmt: skip
        assert said in err, said
    code, _, err = simcore_cli("plan", "--restart", "x", "--failures", "y", "--stragglers", "2:z")
    assert code == 2
    for said in ("--model is missing", "--gpus is missing", "--restart", "--failures"):
        assert said in err


def test_goodput_command(simcore_cli: Callable) -> None:
    ask = ("goodput", "--model", "llama3.1-405b", "--gpus", "2048x8xH100", "--work", "50d")
    code, out, _ = simcore_cli(*ask, "--simulate", "2")
    assert code == 0
    assert max(map(len, out.splitlines())) <= 80
    for said in ("GOODPUT     92 %", "Young", "Daly", "SIMULATED", "Llama 3"):
        assert said in out
    code, _, err = simcore_cli("goodput", "--gpus", "8xH100", "--work", "later")
    assert code == 2
    assert "--model is missing" in err
    assert "--work 'later'" in err


def test_what_nobody_can_be_sure_of_says_how_sure_one_can_be() -> None:
    words: dict[str, Any] = {"samples": 3e6, "price": PRICES, "strategy": "ddp", "micro_batch": 2}
    free = api.plan("latte-xl", "A6000ada:4x8", **words)
    limit = f"{free.best[0].time_s * 1.01!r}s"
    found = api.plan("latte-xl", "A6000ada:4x8", deadline=limit, confidence=0.99, **words)
    assert not found.feasible
    assert found.front == ()
    ((name, _, wanted, possible),) = found.relaxations[0].changes
    assert (name, wanted) == ("confidence", 0.99)
    assert 0.4 < possible < 0.7
    eased = api.plan("latte-xl", "A6000ada:4x8", deadline=limit, confidence=possible, **words)
    assert eased.feasible
    from simcore.report.plan import render_plan

    assert "confidence from 99 % to 5" in render_plan(found)


def test_a_plan_cuts_its_pipelines_itself() -> None:
    words: dict[str, Any] = {
        "samples": 1e6, "price": PRICES, "strategy": "zero1", "precision": "bf16", "pp": 4,
        "micro_batch": 1, "grad_accum": 32, "recompute": "none", "objective": "time",
    }  # fmt: skip
    found = api.plan("llama3.2-1b", "1x8xH100", **words).best[0]
    even = api.plan("llama3.2-1b", "1x8xH100", stages="even", **words).best[0]
    assert found.time_s < 0.9 * even.time_s, "the head weighs as much as layers do"
    assert str(found.form.layout).startswith("pp4 stages ")
    again = api.predict(
        "llama3.2-1b", found.cluster, micro_batch=found.micro_batch, grad_accum=found.grad_accum,
        **dict(found.form.options),
    )  # fmt: skip
    assert again.step_time_s.value == pytest.approx(found.step_time_s, rel=1e-9)
    assert again.memory.device_bytes == pytest.approx(found.memory_bytes, rel=1e-9)


@pytest.mark.parametrize("seed", range(4))
def test_the_cuts_that_a_plan_leaves_out_change_nothing(seed: int) -> None:
    """Branch and bound against every cut of every point; bounds that no cut goes below."""
    rng = Random(seed)
    words: dict[str, Any] = {
        "samples": 1e6, "price": PRICES, "strategy": "zero1", "precision": "bf16",
        "pp": rng.choice([(2, 4), (4, 8), (8,)]), "tp": rng.choice([1, 2]),
        "micro_batch": (1, rng.choice([2, 8, 32])), "recompute": rng.choice(["none", "full"]),
        "objective": rng.choice(["cost", "time", "step"]), "margin_frac": 0.0,
        "grad_accum": (rng.choice([1, 3]), rng.choice([8, 40])), "top": rng.choice([1, 2, 9]),
        "schedule": rng.choice(["1f1b", "gpipe", "zb-1p"]), "vpp": 1,
    }  # fmt: skip
    clusters = ["H100:1..2x8", "A100:1..2x8"]
    found = api.plan("llama3.2-1b", clusters, **words)
    every = api.plan("llama3.2-1b", clusters, stages="even;auto", **words)
    assert [o.cluster for o in found.best] == [o.cluster for o in every.best]
    for mine, theirs in zip(found.best, every.best, strict=True):
        objective = words["objective"]
        assert mine.of(objective) == pytest.approx(theirs.of(objective), rel=1e-9)


def test_no_cut_goes_below_its_bounds() -> None:
    from simcore.planning.evaluator import batches

    words: dict[str, Any] = {
        "strategy": "zero1", "precision": "bf16", "pp": (2, 4, 8), "micro_batch": (1, 4),
        "grad_accum": (1, 2, 5, 64), "tp": (1, 2), "schedule": ("1f1b", "gpipe"),
    }  # fmt: skip
    clusters = "H100:2x8"
    even = list(batches(make_space("llama3.2-1b", clusters, stages="even", **words), twice="inter"))
    auto = list(batches(make_space("llama3.2-1b", clusters, stages="auto", **words), twice="inter"))
    gain = 0.0
    for bound, cut in zip(even, auto, strict=True):
        if len(cut):
            assert (bound.balanced_s <= cut.step_time_s).all()
            assert (bound.least_bytes <= cut.needed_bytes * (1 + 1e-12)).all()
            gain = max(gain, float((bound.step_time_s / cut.step_time_s).max()))
            assert (bound.balanced_s > 0.3 * cut.step_time_s).all(), "a bound that bounds little"
    assert gain > 1.1


def test_what_lacks_much_memory_is_not_timed_and_nothing_else_changes() -> None:
    from simcore.planning.candidates import MORE_MEMORY_BYTES
    from simcore.planning.evaluator import Evaluator

    space = make_space(
        "llama3-8b", "A100:1,2,8x8,T4:2x4", strategy=("ddp", "zero3"), pp=(1, 4), precision="bf16",
        micro_batch=(1, 4, 16), global_batch=(256, 384), recompute=("none", "full"),
    )  # fmt: skip
    every = Evaluator(space, twice="inter")
    some = Evaluator(space, twice="inter", lacking=MORE_MEMORY_BYTES)
    seen = set()
    for all_of, left in zip(
        every.batches(0, len(every)), some.batches(0, len(some)), strict=True
    ):  # fmt: skip
        if not len(all_of):
            continue
        assert all_of.least_bytes is not None
        assert all_of.step_time_s is not None
        assert left.step_time_s is not None
        timed = all_of.least_bytes <= all_of.capacity_bytes + MORE_MEMORY_BYTES
        seen |= set(timed.tolist())
        assert (np.isfinite(left.step_time_s) == timed).all()
        for name in ("step_time_s", "faster_s", "busy_frac", "balanced_s"):
            told, asked = getattr(left, name), getattr(all_of, name)
            assert told[timed] == pytest.approx(asked[timed], rel=1e-12)
        assert (left.needed_bytes == all_of.needed_bytes).all()
    assert seen == {True, False}


def test_processes_share_a_plan_and_change_nothing() -> None:
    words: dict[str, Any] = {"samples": 1e6, "price": PRICES, "precision": "bf16", "pp": (1, 2, 4)}
    alone = api.plan("llama3.2-1b", "H100:1..4x8", **words)
    shared = api.plan("llama3.2-1b", "H100:1..4x8", jobs=2, **words)
    assert alone.to_dict() == shared.to_dict()


def test_a_cut_leaves_the_memory_free_that_is_asked_for() -> None:
    """With half of the memory to spare the first stages give layers away until they have it."""
    words: dict[str, Any] = {
        "samples": 1e6, "price": PRICES, "strategy": "zero1", "precision": "bf16", "pp": 8,
        "micro_batch": 2, "grad_accum": 32, "recompute": "none", "objective": "time", "tp": 1,
    }  # fmt: skip
    free = api.plan("llama3-8b", "2x8xH200", **words).best[0]
    share = free.memory_bytes / free.capacity_bytes
    words["margin_frac"] = 1.0 - share * 0.97
    found = api.plan("llama3-8b", "2x8xH200", **words).best[0]
    assert found.memory_bytes <= found.capacity_bytes * (1.0 - words["margin_frac"])
    assert found.time_s >= free.time_s
    assert found.form.layout.stages != free.form.layout.stages


def test_experts_are_dealt_out_to_ranks_that_divide_them() -> None:
    from simcore.planning.plan_request import default_words
    from simcore.workload.resolve import resolve_model

    assert default_words(resolve_model("mixtral-8x7b"), {}, False)["ep"] == "1,2,4,8"
    assert default_words(resolve_model("deepseek-v3"), {}, False)["ep"] == "1,2,4,8,16,32,64"


def test_a_slice_by_its_clouds_name_is_a_cluster_of_its_own() -> None:
    from simcore.planning.plan_request import gpu_grids

    found = gpu_grids(["v5p-64,H100"], available={}, max_gpus=8)
    assert found[0] == "v5p-64" and found[1].startswith("H100")


def test_where_nothing_fits_the_leanest_way_is_told(simcore_cli: Callable) -> None:
    code, out, _ = simcore_cli(
        "plan", "--model", "llama3-8b", "--gpus", "T4:1x4", "--samples", "1e6", "--pp", "1,2",
        "--strategy", "zero1", "--global-batch", "64", "--budget", "$2M",
    )  # fmt: skip
    assert code == 1
    assert "the leanest way needs" in out
    assert "0 of them fit and meet all limits" in " ".join(out.split())
    assert max(map(len, out.splitlines())) <= 80
    code, _, err = simcore_cli(*ASK, "--margin", "150%", "--confidence", "100", "--budget", "3X")
    assert code == 2
    for said in ("--margin must be 0 to less than 100 percent, not 150%", "--confidence", "3X"):
        assert said in err, said


def test_small_runs_are_told_in_small_units() -> None:
    """A quarter of a day is six hours, and a thousandth of a MWh a kWh."""
    found = api.plan("resnet-50", "RTX4090:1,2x8", epochs=2, deadline="1h")
    text = str(found)
    assert " kWh, rated " in text and "MWh" not in text
    assert "deadline 1.5 h" in text


def test_gpus_of_which_none_is_asked_are_refused() -> None:
    """A limit on GPUs that the plan does not look at would say nothing."""
    with pytest.raises(InvalidConfig, match="--available A100-SXM-80GB: --gpus does not name"):
        api.plan("latte-s", "H100:1x8", samples=1e5, objective="time", available=["A100=64"])


def test_less_than_a_node_is_planned_where_no_more_may_be_taken() -> None:
    found = api.plan("latte-s", "H100", samples=1e5, max_gpus=4, micro_batch=1, strategy="ddp")
    assert {o.n_gpus for o in found.best} == {1, 2, 4}


def test_more_gpus_are_named_where_too_few_hold_nothing(simcore_cli: Callable) -> None:
    """Not "no change of the limits would help": the limit on GPUs is one of them."""
    ask = ("plan", "--model", "llama3-70b", "--gpus", "RTX4090", "--tokens", "1e9", "--tp", "1",
           "--strategy", "zero3", "--pp", "1", "--recompute", "full",
           "--seq-len", "1024")  # fmt: skip
    code, out, _ = simcore_cli(*ask, "--max-gpus", "8")
    assert code == 1
    assert "no way within these GPUs holds the model" in " ".join(out.split())
    assert simcore_cli(*ask, "--max-gpus", "256")[0] == 0


def test_a_change_that_rounds_to_nothing_is_the_same() -> None:
    found = api.plan("latte-s", "A6000ada:1..2x8", samples=1e5, objective="time", micro_batch=1,
                     strategy="ddp", recompute="none")  # fmt: skip
    told = [o.why for o in found.best]
    assert not any("+0%" in why or "-0%" in why for why in told), told


def test_every_column_of_a_wide_table_is_there_to_its_end() -> None:
    """Long clusters, ways of training, sums and chances: how a plan trains gives way."""
    found = api.plan(
        "llama3-8b", "H100", tokens=1e11, deadline="30d", max_gpus=8, tp=8, pp=1, strategy="zero1",
        recompute="full", micro_batch=1,
    )  # fmt: skip
    layout = replace(found.best[0].form.layout, pp=16, vpp=8, stages="17,15")
    wide = replace(
        found.best[0], cluster="128x8xH100-SXM-80GB", n_gpus=1024, cost_usd=12_345_678.0,
        deadline_prob=0.87, form=replace(found.best[0].form, layout=layout),
    )  # fmt: skip
    heading, line = option_table([wide])
    assert heading.endswith("in time") and line.endswith("87 %") and "$12.3M" in line
    assert len(line) <= 80 and "zero1 tp8 pp16" in line


def test_a_plan_takes_what_is_sure_and_says_what_certainty_costs() -> None:
    """A deadline at the cheapest option's central time is met by it with 50 %, so a larger cluster
    is taken; with no larger cluster it is taken all the same, and the answer calls it uncertain.
    """
    words: dict[str, Any] = {
        "steps": 1e5, "global_batch": 64, "strategy": "ddp", "recompute": "none",
        "micro_batch": 8, "objective": "gpus",
    }  # fmt: skip
    free = api.plan("gpt2", "H100:1x1,2", **words)
    least = free.best[0]
    assert least.n_gpus == 1
    deadline = f"{least.time_s * 1.001}s"
    sure = api.plan("gpt2", "H100:1x1,2", deadline=deadline, **words)
    assert sure.best[0].n_gpus == 2 and sure.best[0].odds >= 0.9 and sure.surer is None
    assert "90 % sure (default)" in str(sure)
    bold = api.plan("gpt2", "H100:1x1,2", deadline=deadline, confidence=0.4, **words)
    assert bold.best[0].n_gpus == 1 and bold.best[0].odds == pytest.approx(0.5, abs=0.05)
    assert bold.surer is not None and bold.surer.n_gpus == 2
    assert "coin flip: only 5" in " ".join(str(bold).split()) and "sure: 1x2xH100" in str(bold)
    alone = api.plan("gpt2", "H100:1x1", deadline=deadline, **words)
    assert alone.best[0].n_gpus == 1 and alone.surer is None
    assert "nothing in the space is 90 % sure" in " ".join(str(alone).split())
