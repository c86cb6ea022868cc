"""What the command line, a notebook and a web page all call.

Every function takes plain words and numbers and returns frozen results; nothing prints.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from simcore.base.errors import InvalidConfig, UsageError
from simcore.engine.predict import Request, fitting_batch
from simcore.engine.predict import predict as _predict
from simcore.engine.request import Options, make_request
from simcore.engine.result import Explanation, Prediction
from simcore.hardware.profile import load_profile
from simcore.strategy.precision import PRECISIONS
from simcore.strategy.strategy import parallelism_named
from simcore.validate.known import measured_rows
from simcore.workload.resolve import resolve_model

if TYPE_CHECKING:
    from simcore.engine.memory_timeline import MemoryTimeline
    from simcore.plan.compare import Comparison
    from simcore.plan.fleet import Fleet, FleetJob
    from simcore.plan.goodput import Goodput, Reliability
    from simcore.plan.planner import Plan
    from simcore.plan.space import Space
    from simcore.plan.sweep import Progress, SweepResult


def predict(
    model: str,
    gpus: str,
    *,
    steps: float | None = None,
    epochs: float | None = None,
    keep_timeline: bool = False,
    **options: Unpack[Options],
) -> Prediction:
    """Predict one training job on a cluster such as ``4x8xA6000ada``.

    ``options`` are the command line's words (see ``Options``); what is not given takes the
    model's default and is listed in ``Prediction.defaults``. ``steps`` or ``epochs`` ask for the
    time of a whole run. Raises UsageError (every violation at once) for a wrong request; a job
    that does not fit is an answer, not an error.
    """
    request = make_request(model, gpus, **options)
    result = _predict(request, keep_timeline=keep_timeline)
    inputs = tuple(options.get("inputs") or ())
    run_steps = _run_steps(model, inputs, result, steps, epochs)
    return replace(
        result,
        fixes=_fixes(request) if not result.fits else (),
        measured=measured_rows(request, result),
        run_steps=run_steps,
        run_time_s=run_steps * result.step_time_s.value if run_steps is not None else None,
    )


def explain(model: str, gpus: str, term: str, **options: Unpack[Options]) -> Explanation:
    """Formula, inputs and source of one term (``memory.activations``, ``comm``, ``mfu``…).

    Raises UsageError as ``predict`` does, and for an unknown term.
    """
    from simcore.engine.explain import explain as _explain

    find_terms(term)
    request = make_request(model, gpus, **options)
    return _explain(request, _predict(request), term)


def memory_timeline(
    model: str, gpus: str, *, expandable_segments: bool = False, **options: Unpack[Options]
) -> MemoryTimeline:
    """Memory of the fullest GPU over one step, as PyTorch's caching allocator would hold it.

    Bytes by term, allocated and reserved after every allocation [bytes]; the device's limit.
    ``expandable_segments`` as in ``PYTORCH_CUDA_ALLOC_CONF``. Raises UsageError as ``predict``;
    a job that runs out of memory is an answer (``fits``).
    """
    from simcore.engine.memory_timeline import memory_timeline as _memory_timeline

    request = make_request(model, gpus, **options)
    return _memory_timeline(request, expandable_segments=expandable_segments)


def find_terms(term: str) -> tuple[str, ...]:
    """The terms that a word such as ``comm`` means. Raises UnknownName with the nearest."""
    from simcore.engine.explain import find_terms as _find_terms

    return tuple(_find_terms(term))


def run_violations(steps: float | None, epochs: float | None) -> list[str]:
    """What is wrong with the length of a run."""
    found = []
    if steps is not None and epochs is not None:
        found.append("give --steps or --epochs, not both")
    for name, value in (("steps", steps), ("epochs", epochs)):
        if value is not None and not 0 < value < float("inf"):
            found.append(f"{name} must be above zero, not {value:g}")
    return found


def sweep(
    model: str | Sequence[str],
    gpus: str | Sequence[str],
    *,
    by: str = "throughput",
    top: int = 10,
    output: Path | str | None = None,
    resume: bool = False,
    keep: bool = True,
    jobs: int = 1,
    progress: Progress | None = None,
    **words: Any,
) -> SweepResult:
    """Every combination of clusters, strategies, degrees, precisions and batches, ranked.

    Each word of ``Options`` is a value, a sequence or a grid: ``sweep("latte-xl",
    "A6000ada:1..64x8", strategy="all", micro_batch="1..8")``. A combination that cannot be is
    counted with its reason and loses none of the others. ``output`` streams every point to a
    .parquet, .csv or .json file and can be ``resume``d; ``keep`` holds them in the result's
    ``columns()``; ``jobs`` processes share the work. Raises UsageError for a wrong axis, with all
    that is wrong.
    """
    from simcore.plan.sweep import run_sweep

    return run_sweep(
        make_space(model, gpus, **words),
        output=Path(output) if output is not None else None,
        resume=resume,
        by=by,
        top=top,
        keep=keep and output is None,
        jobs=jobs,
        progress=progress,
    )


def compare(
    model: str,
    gpus: str | Sequence[str],
    *,
    price: Sequence[str] = (),
    prices: str | None = None,
    **words: Any,
) -> Comparison:
    """Clusters, or strategies and degrees given as lists, side by side, at most twelve.

    Cost of a million samples from ``price`` texts (``"H100=2.5"``) over the price lists, or over
    the one that ``prices`` names. Raises UsageError for a wrong request; an option that cannot
    be, or does not fit, is a column that says so.
    """
    from simcore.hardware.prices import price_book
    from simcore.plan.compare import compare as _compare

    most = str(words.get("micro_batch") or "").strip().lower() == "max"
    if most:
        words = {**words, "micro_batch": None}
    problems: list[str] = []
    book, space = None, None
    try:
        book = price_book([price] if isinstance(price, str) else price, prices)
    except InvalidConfig as err:
        problems += err.violations
    try:
        space = make_space(model, gpus, **words)
    except InvalidConfig as err:
        problems += err.violations
    if problems or book is None or space is None:
        raise InvalidConfig(problems)
    return _compare(space, book, "max" if most else None)


def plan(
    model: str,
    gpus: str | Sequence[str],
    *,
    tokens: float | None = None,
    samples: float | None = None,
    epochs: float | None = None,
    steps: float | None = None,
    deadline: str | None = None,
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
    progress: Callable[[int, int], None] | None = None,
    **words: Any,
) -> Plan:
    """The best clusters and strategies for a training run under limits, exact over the space.

    ``gpus``: types (``"H100,H200,B200"``: whole nodes of them) or grids as in ``sweep``. Length:
    one of ``tokens``, ``samples``, ``epochs``, ``steps``. Limits: ``deadline`` ("30d"),
    ``budget`` (dollars), ``power`` ("200 kW", rated), ``margin_frac`` of memory, ``available``
    ("H100=512"), ``max_gpus``, ``confidence`` (probability of meeting deadline and budget).
    ``objective``: cost, time, energy, gpus or step. ``words``: axes as in ``sweep``; those not
    given take defaults that ``Plan.assumptions`` lists. Nothing that breaks a limit is returned;
    where nothing meets them all, ``Plan.relaxations`` says which to move, and how far. Raises
    UsageError for a wrong request.
    """
    from simcore.plan.ask import ask_plan

    return ask_plan(
        model, [gpus] if isinstance(gpus, str) else list(gpus),
        length={"tokens": tokens, "samples": samples, "epochs": epochs, "steps": steps},
        deadline=deadline, budget=budget, power=power, margin_frac=margin_frac,
        available=[available] if isinstance(available, str) else list(available),
        max_gpus=max_gpus, confidence=confidence, objective=objective,
        price=[price] if isinstance(price, str) else list(price), prices=prices,
        reliability=reliability, top=top, progress=progress, words=words,
    )  # fmt: skip


def goodput(
    model: str,
    gpus: str,
    *,
    work_s: float | None = None,
    reliability: Reliability | None = None,
    **options: Unpack[Options],
) -> Goodput:
    """What failures, checkpoints and restarts leave of a job's time, exact for random failures.

    ``work_s``: seconds of work that the run needs without failures; then its length and spread
    too. Raises UsageError as ``predict``.
    """
    from simcore.plan.goodput import Reliability, goodput_of
    from simcore.plan.points import checkpoint_bytes

    request = make_request(model, gpus, **options)
    return goodput_of(
        reliability or Reliability(),
        n_gpus=request.cluster.n_gpus,
        n_nodes=request.cluster.n_nodes,
        checkpoint_bytes=checkpoint_bytes(request),
        work_s=work_s,
    )


def simulate_goodput(found: Goodput, runs: int, *, seed: int = 0) -> dict[str, float]:
    """Lengths of so many simulated runs [s]: mean, 10th and 90th percentile. Needs simpy."""
    from simcore.plan.goodput_sim import simulate_runs

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
    """Jobs (a list, or a .csv or .swf trace) on a cluster with a queue: waiting and utilisation.

    With ``wait_s`` instead of ``gpus``: the fewest GPUs, in eights, with which the waiting
    quantile is at most so long. Needs simpy. Raises UsageError for a wrong request.
    """
    from simcore.plan.fleet import fewest_gpus, read_jobs, run_fleet

    found = list(jobs) if isinstance(jobs, Sequence) and not isinstance(jobs, str) else None
    if found is None:
        found = read_jobs(Path(str(jobs)))
    if (gpus is None) == (wait_s is None):
        raise InvalidConfig(["give the number of GPUs or the longest wait, one of them"])
    if gpus is not None:
        return run_fleet(found, gpus, policy=policy, checkpoint_s=checkpoint_s)
    assert wait_s is not None
    return fewest_gpus(found, wait_s, quantile=quantile, policy=policy)


def make_space(model: str | Sequence[str], gpus: str | Sequence[str], **words: Any) -> Space:
    """The space of a sweep from words; model names are looked up. Raises InvalidConfig."""
    from simcore.plan.space import make_space as _make_space

    problems: list[str] = []
    inputs = tuple(words.get("inputs") or ())
    for name in [model] if isinstance(model, str) else model:
        for one in name.split(","):
            try:
                resolve_model(one.strip(), inputs=inputs)
            except UsageError as err:
                problems.append(str(err))
    space: Space | None = None
    try:
        space = _make_space(model, gpus, **words)
        load_profile(words.get("calibration"))
    except InvalidConfig as err:
        problems += err.violations
    except UsageError as err:
        problems.append(str(err))
    if problems or space is None:
        raise InvalidConfig(problems)
    return space


def validate(
    files: Sequence[Path | str],
    *,
    calibrated: bool = False,
    fill: bool = False,
    by: Sequence[str] = (),
) -> dict[str, Any]:
    """Predict the rows of measured tables; the contract of ``simcore validate --json``.

    ``calibrated``: every row is predicted by a fit of a few physical parameters that has not seen
    its configuration; the blind figures stand beside it under ``blind``. ``fill``: what nobody
    measured, under ``filled``. ``by``: columns of the tables to group errors by.
    """
    from simcore.validate.calibrated import calibrate_and_judge
    from simcore.validate.fill import filled_rows
    from simcore.validate.formats import read_table
    from simcore.validate.judge import contradictions, judge

    tables = [read_table(Path(f)) for f in files]
    blind = judge(tables)
    profile = load_profile()
    suspects = {k: v for t in tables for k, v in contradictions(t.cases).items()}
    out = {**blind.to_dict(by), "suspects": suspects}
    if calibrated:
        found = calibrate_and_judge(tables)
        out = {
            **found.verdict.to_dict(by),
            "suspects": suspects,
            "fit": [
                {
                    "parameter": p.name,
                    "value": found.fit.values[p.name],
                    "sd_log": found.fit.sd_log[p.name],
                    "prior_sd_log": p.prior_sd_log,
                }
                for p in found.fit.parameters
            ],
            "blind": blind.to_dict(by),
        }
    if fill:
        out["filled"] = filled_rows(tables, found.profile_for if calibrated else lambda _: profile)
    return out


def validate_ops(files: Sequence[Path | str], *, calibration: str | None = None) -> dict[str, Any]:
    """Errors of the op models on measured op tables, by GPU, op and dtype, and by kind."""
    from simcore.validate.ops import judge_ops

    return judge_ops([Path(f) for f in files], load_profile(calibration))


def calibrate_from(
    file: Path | str, *, output: Path | str | None = None, name: str | None = None
) -> dict[str, Any]:
    """Fit a few physical parameters to measured steps; write them as a calibration file.

    The result goes to ``output`` (a .yaml for ``predict(calibration=…)``) where one is given.
    Raises InvalidConfig where no row can be fitted.
    """
    from simcore.validate.formats import read_table
    from simcore.validate.save import calibration_of, identified, write_calibration

    table = read_table(Path(file))
    target = Path(output) if output is not None else None
    if target is not None and target.suffix not in (".yaml", ".yml"):
        raise InvalidConfig([f"a calibration is a .yaml file, not {target.name!r}"])
    if target is not None and not target.parent.is_dir():
        raise InvalidConfig([f"no such folder: {str(target.parent)!r}"])
    chosen = name or (target.stem if target is not None else table.path.stem)
    record, found = calibration_of([table], chosen)
    if target is not None:
        write_calibration(target, record)
    return {
        "name": record.name,
        "origin": record.origin,
        "rows": record.rows,
        "residual_sd_log": record.residual_sd_log,
        "leave_one_out_mape_frac": record.leave_one_out_mape_frac,
        "knobs": [
            {**k.model_dump(exclude_none=True), "identified": identified(k)} for k in record.knobs
        ],
        "suspects": found.suspects,
        "skipped": dict(found.verdict.skipped),
        "written": str(target) if target is not None else None,
    }


def _run_steps(
    model: str,
    inputs: tuple[str, ...],
    result: Prediction,
    steps: float | None,
    epochs: float | None,
) -> float | None:
    if problems := run_violations(steps, epochs):
        raise InvalidConfig(problems)
    if steps is not None:
        return float(steps)
    if epochs is None:
        return None
    source = resolve_model(model, inputs=inputs)
    data = source.dataset
    if data is None:
        raise InvalidConfig([f"{source.name} has no data set: give --steps"])
    per_epoch = data.samples.value // result.global_batch
    if per_epoch < 1:
        raise InvalidConfig(
            [
                f"a global batch of {result.global_batch} is larger than data set {data.name} "
                f"({data.samples.value:.0f} samples)"
            ]
        )
    return epochs * per_epoch


def _fixes(request: Request) -> tuple[str, ...]:
    """What would make the job fit, cheapest first; each is computed, not guessed."""
    found: list[str] = []

    def fits(changed: Request, what: str) -> None:
        if _predict(changed).fits:
            found.append(what)

    best = fitting_batch(request)
    if best:
        found.append(f"micro-batch {best}")
    s = request.strategy
    if s.recompute == "none" and any(b.recomputable for b in request.workload.blocks):
        fits(replace(request, strategy=replace(s, recompute="full")), "recompute full")
    if request.cluster.n_gpus > 1 and s.zero_stage < 3:
        for stage in range(max(1, s.zero_stage + 1), 4):
            name = parallelism_named(f"zero{stage}")
            before = len(found)
            fits(replace(request, strategy=replace(s, parallelism=name)), name)
            if len(found) > before:
                break
    if s.precision.name in ("fp32", "tf32"):
        fits(replace(request, strategy=replace(s, precision=PRECISIONS["amp-bf16"])), "amp-bf16")
    return tuple(found)


__all__ = [
    "Explanation",
    "Options",
    "Prediction",
    "Request",
    "calibrate_from",
    "compare",
    "explain",
    "find_terms",
    "fleet",
    "goodput",
    "make_request",
    "make_space",
    "memory_timeline",
    "plan",
    "predict",
    "run_violations",
    "simulate_goodput",
    "sweep",
    "validate",
    "validate_ops",
]  # fmt: skip
