"""Functions on many configurations: sweeps, comparisons, plans, goodput and queues of jobs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import date, timedelta
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simcore.answer.request import is_max, make_request
from simcore.answer.scaling import words_for
from simcore.api.many import Comparison, Fleet, Goodput, Plan, Sweep
from simcore.api.result import Call, takes_job, takes_options
from simcore.api.results import Prediction
from simcore.base.errors import InvalidConfig, Problems, SimcoreError, UsageError
from simcore.base.lookup import one_question
from simcore.base.units import number_problems
from simcore.hardware.prices import price_book
from simcore.hardware.profile import load_profile
from simcore.planning import compare as comparing
from simcore.planning import launched, space
from simcore.planning.fleet import FleetJob, fewest_gpus, read_jobs, run_fleet
from simcore.planning.goodput import Reliability, goodput_of
from simcore.planning.plan_request import PlanQuestion, ask_plan
from simcore.planning.points import checkpoint_bytes
from simcore.planning.store import warn
from simcore.planning.sweep import run_sweep
from simcore.strategy.options import inputs_of, with_files
from simcore.strategy.options.kinds import Number
from simcore.workload.resolve import model_of, resolve_model

if TYPE_CHECKING:
    from simcore.hardware.cluster import ClusterSpec
    from simcore.planning.goodput import Goodput as PlainGoodput
    from simcore.planning.ranking import Point
    from simcore.planning.sweep import Progress, SweepResult


@takes_options(several=True)
@takes_job()
@one_question()
def sweep(
    model: str | Path | Sequence[str | Path],
    gpus: str | Sequence[str],
    *,
    by: str = "throughput",
    top: int = 10,
    output: Path | str | None = None,
    resume: bool = False,
    keep: bool = True,
    jobs: int = 1,
    cluster: Any = None,
    progress: Progress | None = None,
    say: Callable[[str], None] | None = None,
    **words: Any,
) -> Sweep:
    """Predictions of every combination of clusters, strategies, degrees and batches, ranked.

    Each option of a job, listed below, is a value, a sequence or a grid: ``sweep("latte-xl",
    "A6000ada:1..64x8", strategy="all", micro_batch="1..8")``. Invalid combinations are counted by
    their reason; the others are predicted.

    by        ranking, one of ``planning.ranking.SCORES``
    top       how many of the best combinations the result lists
    output    .parquet, .csv or .json file to which every point is written as it is computed
    resume    continue the interrupted sweep that wrote ``output``
    keep      hold all points in the result, for ``to_pandas`` and ``plot`` (not with ``output``)
    jobs      processes that share the work
    cluster   Dask cluster that does the work instead: its address ("tcp://host:8786"), "local",
              "local:4" (a script needs a ``__main__`` guard for these) or a ``distributed.Client``
    progress  called with the number of finished and of all points
    say       called with a message about parts of an interrupted sweep that were damaged and are
              computed again (default: a warning)
    launch    launch file, whose options apply where no other value is given

    Raises UsageError that lists everything that is wrong with the axes, DataError where the output
    cannot be written, SimcoreError where the workers cannot be reached.
    """
    Problems(number_problems("top", top, least=1, whole=True)).stop()
    words = _with_inputs(words)
    filled, _ = launched_words(_names(model), _grids(gpus), words)
    found = run_sweep(
        make_space(model, gpus, **filled),
        output=Path(output) if output is not None else None,
        resume=resume,
        by=by,
        top=top,
        keep=keep and output is None,
        jobs=jobs,
        cluster=cluster,
        progress=progress,
        say=say or warn,
    )
    call = {
        "model": model, "gpus": gpus, "by": by, "top": top, "jobs": jobs, "cluster": cluster,
        **words,
    }  # fmt: skip
    return Sweep.of(_advised(found, filled), Call("sweep", call))


#: Rankings of a sweep in which more work per second is better.
_BY_RATE = ("throughput", "per-gpu", "tokens", "samples")


def _advice(models: Sequence[str], point: Point, words: Mapping[str, Any]) -> dict[str, Any]:
    """What would make a point fit, or faster: the fields of a prediction that say so.

    ``models``: the texts of which one names the point's model. Empty where the point alone cannot
    be predicted.
    """
    from simcore import api

    given = words.get("network")
    one = given if isinstance(given, str) and "," not in given else None  # of a single node too
    options = {
        **dict(point.form.options),
        "micro_batch": point.micro_batch,
        "grad_accum": point.grad_accum,
        "network": (point.network or one) if given else None,
        "node": words.get("node"),
        "fabric": words.get("fabric"),
    }
    inputs, settings = tuple(options.get("inputs") or ()), options.get("settings")

    def is_its(model: str) -> bool:
        return len(models) == 1 or model_of(model, inputs, settings).name == point.form.model

    try:
        model = next(filter(is_its, models), point.form.model)
        found = api.answer_of(model, point.cluster, options)
    except SimcoreError:  # the result is returned without advice
        return {}
    return {k: getattr(found, k) for k in ("fixes", "instead", "why_none", "faster")}


def _advised(found: SweepResult, words: Mapping[str, Any]) -> SweepResult:
    """The result with advice: changes that make the best point faster or, where no point fits,
    changes that make the nearest one fit.
    """
    point = found.best[0] if found.best else found.nearest
    if point is None or found.space is None or (found.best and found.ranked_by not in _BY_RATE):
        return found
    return replace(found, **_advice(found.space.models, point, words))


@takes_options(several=True)
@takes_job()
@one_question()
def compare(
    model: str | Path,
    gpus: str | Sequence[str],
    *,
    price: Sequence[str] = (),
    prices: str | None = None,
    **words: Any,
) -> Comparison:
    """At most twelve predictions side by side: of clusters, or of options given as lists.

    price   prices of GPU-hours for the cost of a million samples: ``"H100=2.5"`` (dollars); they
            override the price lists
    prices  name of the one price list to use

    An invalid combination, or one that does not fit, is a column that says so. Raises UsageError
    for a wrong request.
    """
    call = {"model": model, "gpus": gpus, "price": price, "prices": prices, **words}
    words, _ = launched_words(_names(model), _grids(gpus), _with_inputs(words))
    most = is_max(words.get("micro_batch"))
    if most:
        words = {**words, "micro_batch": None}
    problems = Problems()
    given = [price] if isinstance(price, str) else price
    book = problems.attempt(price_book, given, prices)
    options = problems.attempt(make_space, model, gpus, **words)
    problems.stop()
    assert book is not None and options is not None
    network = words.get("network")

    def ask(name: str, cluster: ClusterSpec, options: dict[str, Any]) -> Prediction:
        from simcore import api

        if most:
            options = {**options, "micro_batch": "max"}
        if words.get("grad_accum") is None:
            # the default of the model applies
            options = {k: v for k, v in options.items() if k != "grad_accum"}
        found = api.answer_of(name, cluster, options)
        said = words_for(cluster, words.get("node"), cluster.network if network else None)
        where = {**said, "fabric": words.get("fabric")}
        arguments = {"model": name, "gpus": str(cluster), **where, **options}
        return Prediction.of(found, Call("predict", arguments))

    return Comparison.of(comparing.compare(options, book, ask), Call("compare", call))


@takes_options(several=True)
@takes_job()
@one_question()
def plan(
    model: str | Path,
    gpus: str | Sequence[str],
    *,
    tokens: float | str | None = None,
    samples: float | str | None = None,
    epochs: float | str | None = None,
    steps: float | str | None = None,
    deadline: str | date | timedelta | None = None,
    start: str | date | None = None,
    budget: float | None = None,
    power: str | None = None,
    margin_frac: float = 0.0,
    available: Sequence[str] = (),
    max_gpus: int | None = None,
    confidence: float | None = None,
    objective: str = "cost",
    price: Sequence[str] = (),
    prices: str | None = None,
    reliability: Reliability | None = None,
    top: int = 5,
    jobs: int = 1,
    progress: Callable[[int, int], None] | None = None,
    **words: Any,
) -> Plan:
    """The best clusters and strategies for a training run under limits.

    The search covers the whole space: no combination is better than the result.

    gpus         types (``"H100,H200,B200"``: whole nodes of them) or grids as in ``sweep``
    tokens, samples, epochs, steps   length of the run ("15T"), one of them
    deadline     limit on the time: "30d", or a date such as "2026-12-24T18:00"
    start        when the run starts (default: now)
    budget       limit on the cost [dollars]
    power        limit on the rated power of the GPUs: "200 kW"
    margin_frac  share of each GPU's memory that must stay free
    available    GPUs that are available, by type: "H100=512"
    max_gpus     limit on the number of GPUs
    confidence   least probability of meeting deadline and budget; without it 0.9, where an option
                 has that, else the best option, with ``Plan.surer`` for what certainty costs
    objective    what to minimise: cost, time, energy, gpus or step
    price, prices   prices of GPU-hours, as in ``compare``
    reliability  failures, checkpoints and restarts
    top          how many options the result lists
    jobs         processes that share the work; the result does not depend on it
    words        axes as in ``sweep``; ``Plan.assumptions`` lists the defaults of the others

    No option that violates a limit is returned. Where no option meets all limits,
    ``Plan.relaxations`` says by how much to relax which of them. Raises UsageError for a wrong
    request.
    """
    call = {
        "model": model, "gpus": gpus, "tokens": tokens, "samples": samples, "epochs": epochs,
        "steps": steps, "deadline": deadline, "start": start, "budget": budget, "power": power,
        "margin_frac": margin_frac, "available": available, "max_gpus": max_gpus,
        "confidence": confidence, "objective": objective, "price": price, "prices": prices,
        "reliability": reliability, "top": top, "jobs": jobs, **words,
    }  # fmt: skip
    names, grids = _names(model), _grids(gpus)
    if len(names) != 1:
        raise InvalidConfig([f"a plan is for one model, not for {len(names)}"])
    Problems(number_problems("top", top, least=1, whole=True)).stop()
    words, _ = launched_words(names, grids, _with_inputs(words), sized=False)
    question = PlanQuestion(
        model=names[0], gpus=tuple(grids),
        length=_lengths(tokens=tokens, samples=samples, epochs=epochs, steps=steps),
        deadline=deadline, start=start, budget=budget, power=power, margin_frac=margin_frac,
        available=(available,) if isinstance(available, str) else tuple(available),
        max_gpus=max_gpus, confidence=confidence, objective=objective,
        price=(price,) if isinstance(price, str) else tuple(price), prices=prices,
        reliability=reliability, words=words,
    )  # fmt: skip
    found = ask_plan(question, top=top, jobs=jobs, progress=progress)
    if found.leanest is not None:
        found = replace(found, fixes=_advice(names, found.leanest, words).get("fixes", ()))
    # so that a repetition of the call has the same start
    return Plan.of(found, Call("plan", {**call, "start": found.goal.begins or start}))


@takes_options()
@takes_job()
def goodput(
    model: str | Path,
    gpus: str,
    *,
    work_s: float | None = None,
    reliability: Reliability | None = None,
    **options: Any,
) -> Goodput:
    """The share of a job's time that remains useful with failures, checkpoints and restarts.

    The result is exact for failures at random times. ``work_s``: time of the run without failures
    [s]; with it, the result includes the time with failures and its spread. Raises UsageError as
    ``predict`` does.
    """
    Problems(number_problems("work_s", work_s)).stop()
    request = make_request(model, gpus, **options)
    found = goodput_of(
        reliability or Reliability(),
        cluster=str(request.cluster),
        n_gpus=request.cluster.n_gpus,
        n_nodes=request.cluster.n_nodes,
        checkpoint_bytes=checkpoint_bytes(request),
        work_s=work_s,
    )
    call = {"model": model, "gpus": gpus, "work_s": work_s, "reliability": reliability, **options}
    return Goodput.of(found, Call("goodput", call))


def simulate_goodput(found: PlainGoodput, runs: int, *, seed: int = 0) -> dict[str, float]:
    """Mean, 10th and 90th percentile of the lengths [s] of ``runs`` simulated runs. Needs simpy."""
    from simcore.planning.goodput_sim import simulate_runs

    Problems(number_problems("runs", runs, least=1, whole=True)).stop()
    return simulate_runs(found, runs, seed=seed)


def fleet(
    jobs: Sequence[FleetJob] | Path | str,
    gpus: int | None = None,
    *,
    policy: str = "backfill",
    checkpoint_s: float = 3600.0,
    wait_s: float | None = None,
    quantile: float = 0.95,
) -> Fleet:
    """Waiting times and utilisation of jobs in the queue of a cluster, by simulation.

    jobs          a list, or a .csv or .swf file
    gpus          size of the cluster
    wait_s        instead of ``gpus``: find the fewest GPUs, in multiples of eight, with which the
                  ``quantile`` of the waiting time is at most this long [s]
    policy        fifo, backfill, priority or preempt (``planning.fleet``)
    checkpoint_s  time between checkpoints [s], for preempted jobs

    Needs simpy. Raises UsageError for a wrong request.
    """
    call = {
        "jobs": jobs, "gpus": gpus, "policy": policy, "checkpoint_s": checkpoint_s,
        "wait_s": wait_s, "quantile": quantile,
    }  # fmt: skip
    found = list(jobs) if isinstance(jobs, Sequence) and not isinstance(jobs, str) else None
    if found is None:
        found = read_jobs(Path(str(jobs)))
    problems = [
        *(f"a job is a FleetJob, not {j!r:.60}" for j in found if not isinstance(j, FleetJob)),
        *number_problems("gpus", gpus, least=1, whole=True),
        *number_problems("wait_s", wait_s, least=0),
        *number_problems("checkpoint_s", checkpoint_s, least=0),
        *number_problems("quantile", quantile),
    ]
    if not problems and quantile > 1:
        problems = [f"quantile must be at most 1, not {quantile:g}"]
    if (gpus is None) == (wait_s is None):
        problems.append("give either the number of GPUs or the longest wait")
    if problems:
        raise InvalidConfig(problems[:5])
    if gpus is not None:
        outcome = run_fleet(found, gpus, policy=policy, checkpoint_s=checkpoint_s)
    else:
        assert wait_s is not None
        outcome = fewest_gpus(
            found, wait_s, quantile=quantile, policy=policy, checkpoint_s=checkpoint_s
        )
    return Fleet.of(outcome, Call("fleet", call))


@takes_job()
def launched_words(
    model: str | Sequence[str],
    gpus: str | Sequence[str],
    words: Mapping[str, Any],
    *,
    sized: bool = True,
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The options of a sweep, comparison or plan, completed with those of its ``launch`` file.

    ``sized``: whether the file's numbers of nodes and processes are taken too (not for a plan,
    which chooses them). The second value lists what was taken from the file and what was not.
    Raises UsageError, and DataError for a file that cannot be read.
    """
    if words.get("launch") is None:
        return {k: v for k, v in words.items() if k != "launch"}, ()
    names = [n.strip() for m in _names(model) for n in m.split(",")]
    return launched.launched_words(names, _grids(gpus), words, sized=sized)


def _lengths(**given: float | str | None) -> dict[str, float | None]:
    """Lengths of a run, of which texts such as 300B are read. Raises InvalidConfig."""
    problems, counted = Problems(), Number(counts=True)
    lengths = {
        word: problems.attempt(counted.read, word, value) if isinstance(value, str) else value
        for word, value in given.items()
    }
    problems.stop()
    return lengths


def _names(model: object) -> list[str]:
    """Names of models, given as one text or several. Raises UsageError for other values."""
    found = [model] if isinstance(model, str | PathLike) else model
    if not isinstance(found, Sequence):
        found = [found]
    names: list[str] = []
    for one in found:
        if not isinstance(one, str | PathLike):
            name = model_of(one).name  # raises UsageError for what is not a model
            raise UsageError(
                f"sweeps, comparisons and plans take models by name, not the object {name!r}: "
                "give the name of its file, or call predict for each"
            )
        names.append(fspath(one))
    return names


def _grids(gpus: object) -> list[str]:
    """Clusters, given as one text or several. Raises UsageError for other values, and for none."""
    found = [gpus] if isinstance(gpus, str) or not isinstance(gpus, Iterable) else list(gpus)
    for one in found:
        if not isinstance(one, str):
            raise UsageError(f"gpus must be text such as 4x8xA6000ada, not {one!r:.60}")
    if not found:
        raise UsageError("no clusters given: write --gpus TYPE:NODESxGPUS or 4x8xA6000ada")
    return [str(one) for one in found]


def _with_inputs(words: Mapping[str, Any]) -> dict[str, Any]:
    """The options with files as text and a callable's inputs as a tuple, hashable for caches."""
    found = with_files(words)
    if isinstance(found.get("inputs"), str | list):
        found["inputs"] = inputs_of(found)
    return found


@takes_job()
def make_space(
    model: str | Path | Sequence[str | Path], gpus: str | Sequence[str], **words: Any
) -> space.Space:
    """The space of a sweep from its options. Model names are looked up. Raises InvalidConfig that
    lists everything that is wrong.
    """
    problems = Problems()
    inputs, settings = inputs_of(words), words.get("settings")
    names = _names(model)
    for one in (part.strip() for name in names for part in name.split(",")):
        problems.attempt(resolve_model, one, inputs=inputs, settings=settings)
    found = problems.attempt(lambda: space.make_space(names, _grids(gpus), **words))
    if found is not None:
        problems.attempt(load_profile, words.get("calibration"))
    problems.stop()
    assert found is not None
    return found
