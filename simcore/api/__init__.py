"""What the command line, a notebook and a web page all call.

Every function takes plain words and numbers and returns frozen results that remember how they
were asked (``api.results``); nothing prints.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Unpack, cast

from simcore.api.results import Asked, Memory, Prediction, Timeline, remembered
from simcore.api.spaces import (
    compare,
    fleet,
    goodput,
    make_space,
    plan,
    simulate_goodput,
    sweep,
)
from simcore.base.errors import InvalidConfig, SimcoreError, UnknownName, UsageError
from simcore.engine.advice import uneven
from simcore.engine.predict import Request
from simcore.engine.predict import predict as _predict
from simcore.engine.request import Options, make_request
from simcore.engine.result import Explanation
from simcore.engine.result import Prediction as PlainPrediction
from simcore.hardware.cluster import ClusterSpec
from simcore.hardware.profile import Profile, load_profile
from simcore.validate.known import measured_rows
from simcore.workload.resolve import ModelSource, resolve_model

if TYPE_CHECKING:
    from simcore.api.machine import (
        calibrate_machine,
        calibration,
        calibration_curves,
        selftest,
    )
    from simcore.api.many import Comparison, Fleet, Goodput, MemoryTimeline, Plan, Scaling, Sweep
    from simcore.engine.emit import LaunchFile
    from simcore.engine.replay import Replay
    from simcore.engine.views import Roofline, Swing
    from simcore.validate.case import Case


def predict(
    model: str | ModelSource,
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
    time of a whole run. ``model`` may be what ``read_config`` made. Raises UsageError (every
    violation at once) for a wrong request; a job that does not fit is an answer, not an error.
    """
    result = answer_of(model, gpus, options, keep_timeline=keep_timeline)
    inputs = tuple(options.get("inputs") or ())
    run_steps = _run_steps(model, inputs, result, steps, epochs)
    told = replace(
        result,
        run_steps=run_steps,
        run_time_s=run_steps * result.step_time_s.value if run_steps is not None else None,
    )
    words = {"model": model, "gpus": gpus, "steps": steps, "epochs": epochs,
             "keep_timeline": keep_timeline, **options}  # fmt: skip
    return Prediction.of(told, Asked("predict", words))


def answer_of(
    model: str | ModelSource,
    gpus: str | ClusterSpec,
    options: Options,
    *,
    keep_timeline: bool = False,
) -> PlainPrediction:
    """The engine's prediction, with what makes it fit and what was measured of the same job."""
    request = make_request(model, gpus, **options)
    found = _predict(request, keep_timeline=keep_timeline)
    fixes: tuple[str, ...] = ()
    if not found.fits:
        from simcore.api.fixes import fixes_of

        def ask(words: dict[str, Any]) -> Request:
            changed = {**options, **words}
            where = changed.pop("gpus", gpus)
            return make_request(model, where, **cast("Options", changed))

        fixes = fixes_of(request, ask)
    pipeline = None
    placed = request.placed
    if keep_timeline and placed is not None and placed.layout.directions == 1:
        from simcore.engine.pipeline_line import pipeline_line

        pipeline = pipeline_line(request)
    return replace(
        found,
        fixes=fixes,
        uneven=uneven(request),
        measured=measured_rows(request, found),
        pipeline=pipeline,
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
    model: str | ModelSource,
    gpus: str,
    *,
    expandable_segments: bool = False,
    **options: Unpack[Options],
) -> MemoryTimeline:
    """Memory of the fullest GPU over one step, as PyTorch's caching allocator would hold it.

    Bytes by term, allocated and reserved after every allocation [bytes]; the device's limit.
    ``expandable_segments`` as in ``PYTORCH_CUDA_ALLOC_CONF``. Raises UsageError as ``predict``;
    a job that runs out of memory is an answer (``fits``).
    """
    from simcore.api.many import MemoryTimeline
    from simcore.engine.memory_timeline import memory_timeline as _memory_timeline

    found = _memory_timeline(
        make_request(model, gpus, **options), expandable_segments=expandable_segments
    )
    words = {"model": model, "gpus": gpus, "expandable_segments": expandable_segments, **options}
    return remembered(MemoryTimeline, found, "memory_timeline", words)


def timeline(model: str | ModelSource, gpus: str, **options: Unpack[Options]) -> Timeline:
    """Start and finish of every task of one step [s], as ``predict(keep_timeline=True)`` has it."""
    found = predict(model, gpus, keep_timeline=True, **options).timeline
    assert isinstance(found, Timeline)
    return found


def replay(model: str | ModelSource, gpus: str, **options: Unpack[Options]) -> Replay:
    """One step as work and messages that depend on each other, for simulators of networks.

    Compute has seconds, messages have bytes and ranks. Raises UsageError as ``predict``, and for
    a cluster of several GPU types.
    """
    from simcore.engine.replay import replay as _replay

    try:
        return _replay(make_request(model, gpus, **options))
    except ValueError as err:
        raise UsageError(str(err)) from None


def scaling(
    model: str | ModelSource,
    gpus: str,
    *,
    clusters: Sequence[str] | None = None,
    **options: Unpack[Options],
) -> Scaling:
    """The same job on one GPU, on two, … up to ``gpus``, micro-batch and accumulation kept.

    ``clusters`` names the points instead. Points that cannot be (a layout of eight ranks on four
    GPUs) are left out. Raises UsageError as ``predict`` does, and for a mixed cluster.
    """
    from simcore.api.many import Scaling
    from simcore.engine.scaling import check_scales, clusters_up_to, scaling_of

    whole = make_request(model, gpus, **options)
    check_scales(whole)
    group = whole.cluster.groups[0]
    fixed: Options = {
        **options, "micro_batch": whole.micro_batch, "grad_accum": whole.grad_accum,
        "global_batch": None, "nnodes": None, "nproc_per_node": None,
    }  # fmt: skip
    steps = clusters or clusters_up_to(
        str(whole.cluster), whole.cluster.n_nodes, group.gpus_per_node
    )
    predictions = []
    for cluster in steps:
        try:
            predictions.append(predict(model, cluster, **fixed))
        except SimcoreError:
            if len(steps) == 1:
                raise
    if not predictions:
        raise InvalidConfig([f"{model} runs on none of {', '.join(steps)}"])
    words = {"model": model, "gpus": gpus, "clusters": clusters, **options}
    return remembered(Scaling, scaling_of(group.gpu.name, predictions), "scaling", words)


def roofline(model: str | ModelSource, gpus: str, **options: Unpack[Options]) -> Roofline:
    """Work, traffic and predicted time of every operator of one micro-step of one GPU."""
    from simcore.engine.views import roofline as _roofline

    return _roofline(make_request(model, gpus, **options))


def sensitivity(
    model: str | ModelSource, gpus: str, **options: Unpack[Options]
) -> tuple[float, tuple[Swing, ...]]:
    """(step time [s], its swing with half and twice of each resource, the widest first)."""
    from simcore.engine.views import sensitivity as _sensitivity

    return _sensitivity(make_request(model, gpus, **options))


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


def validate(
    files: Sequence[Path | str],
    *,
    calibrated: bool = False,
    calibrate: int | Literal["one-gpu"] | None = None,
    draws: int | None = None,
    only: Mapping[str, str] | None = None,
    fill: bool = False,
    by: Sequence[str] = (),
) -> dict[str, Any]:
    """Predict the rows of measured tables; the contract of ``simcore validate --json``.

    ``calibrate``: fit on so many rows of each source and GPU (``one-gpu``: on all rows of one
    device) and judge the others alone; ``draws``: so many random choices of these rows instead of
    the most telling. ``only``: rows with these values of their columns.

    ``calibrated``: every row is predicted by a fit of a few physical parameters that has not seen
    its configuration; the blind figures stand beside it under ``blind``. ``fill``: what nobody
    measured, under ``filled``. ``by``: columns of the tables to group errors by, ``gpu`` of any
    table. Raises InvalidConfig for a column that none has.
    """
    from simcore.validate.calibrated import calibrate_and_judge
    from simcore.validate.fill import filled_rows
    from simcore.validate.formats import read_table
    from simcore.validate.judge import contradictions, judge

    tables = [read_table(Path(f)) for f in files]
    if only:
        from simcore.validate.select import rows_with

        tables = [rows_with(t, only) for t in tables]
    _check_columns(by, [case for t in tables for case in t.cases])
    if calibrate is not None:
        from simcore.validate.few_rows_dict import validated

        return validated(tables, calibrate, draws, by)
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


def _check_columns(names: Sequence[str], cases: Sequence[Case]) -> None:
    known = {"gpu", *(column for case in cases for column in case.columns)}
    wrong = [str(UnknownName("column", n, sorted(known))) for n in names if n not in known]
    if cases and wrong:
        raise InvalidConfig(wrong)


def validate_ops(
    files: Sequence[Path | str],
    *,
    calibration: str | None = None,
    refit: Literal["shapes", "family"] | None = None,
    bad_rows: Literal["skip", "refuse"] = "skip",
) -> dict[str, Any]:
    """Errors of the op models on measured op tables, by GPU, op and dtype, and by kind.

    Figures of the GPU itself (own) and of others (blind) apart. ``refit``: judge figures fitted
    anew from these files, on shapes (``shapes``) and families (``family``) they have not seen.
    ``bad_rows``: rows that are no measurement are named and skipped, or refused (DataError).
    """
    from simcore.validate.ops import judge_ops

    profile = load_profile(calibration)
    return judge_ops([Path(f) for f in files], profile, refit=refit, on_bad=bad_rows)


def calibrate_from(
    file: Path | str,
    *,
    output: Path | str | None = None,
    name: str | None = None,
    bad_rows: Literal["refuse", "skip"] = "refuse",
) -> dict[str, Any]:
    """Fit a few physical parameters to measured steps; write them as a calibration file.

    The result goes to ``output`` (a .yaml for ``predict(calibration=…)``) where one is given.
    ``bad_rows``: rows that cannot be are refused (DataError), or skipped and named.
    Raises InvalidConfig where no row can be fitted.
    """
    from simcore.validate.formats import read_table
    from simcore.validate.formats.project import FORMAT, ignored_columns
    from simcore.validate.save import calibration_of, identified, write_calibration

    table = read_table(Path(file), on_bad=bad_rows)
    columns = dict.fromkeys(c for case in table.cases for c in case.columns)
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
        "ignored_columns": list(ignored_columns(columns)) if table.format == FORMAT.name else [],
        "written": str(target) if target is not None else None,
    }


def launch_file(
    dialect: str,
    model: str | ModelSource,
    gpus: str,
    **options: Unpack[Options],
) -> LaunchFile:
    """The job as a launch file of another program (``choices()["emit"]``).

    Raises UsageError as ``predict`` does, and with everything that the format cannot express.
    """
    from simcore.engine.emit import launch_file as _launch_file

    request = make_request(model, gpus, **options)
    return _launch_file(dialect, request, _seq_len(model, options))


def read_config(text: str, name: str) -> ModelSource:
    """A Hugging Face ``config.json``'s text as a model; nothing is executed, fetched or opened.

    ``name`` is what errors call it. Raises DataError with the line.
    """
    from simcore.workload.huggingface.read import parse_config

    return parse_config(text, Path(name))


def read_calibration(text: str, name: str) -> Profile:
    """A calibration's YAML text as a profile; aliases, tags, deep nesting and size are refused.

    ``name`` is what errors call it. Raises DataError with the line.
    """
    from simcore.hardware.calibrations import read_calibration as _read_calibration
    from simcore.hardware.profile import profile_of

    return profile_of(_read_calibration(text, name))


def model_named(name: str) -> ModelSource:
    """An entry of models_db: never a path or a callable, whatever the name looks like.

    Raises UnknownName with the nearest.
    """
    from simcore.workload.models import MODELS

    return MODELS[name]


def choices() -> dict[str, tuple[str, ...]]:
    """The names that options take, by option; ``gpu`` is the type in a cluster."""
    from simcore.engine.choices import choices as _choices

    return _choices()


def _seq_len(model: str | ModelSource, options: Options) -> int | None:
    """What was asked for, what the launch file says, or the model's own."""
    if (asked := options.get("seq_len")) is not None:
        return asked
    if (launch := options.get("launch")) is not None:
        from simcore.strategy.dialects import read_launch

        if (stated := read_launch(launch).seq_len) is not None:
            return stated
    inputs = tuple(options.get("inputs") or ())
    source = resolve_model(model, inputs=inputs) if isinstance(model, str) else model
    value = getattr(source, "config", {}).get("seq_len")
    return value if isinstance(value, int) else None


def _run_steps(
    model: str | ModelSource,
    inputs: tuple[str, ...],
    result: PlainPrediction,
    steps: float | None,
    epochs: float | None,
) -> float | None:
    if problems := run_violations(steps, epochs):
        raise InvalidConfig(problems)
    if steps is not None:
        return float(steps)
    if epochs is None:
        return None
    source = resolve_model(model, inputs=inputs) if isinstance(model, str) else model
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


def report(model: str | ModelSource, gpus: Sequence[str] | str, **options: Unpack[Options]) -> str:
    """A self-contained HTML page about one job, on one cluster or side by side on several.

    No script, no link to anywhere, below a megabyte. What one cluster does not have (memory over
    the step with model parallelism) is told in the page. Raises UsageError as ``predict`` does,
    and where jinja2 or matplotlib is missing.
    """
    from simcore.api.document import facts_of
    from simcore.report.html import page

    return page(facts_of(model, gpus, **options))


#: What a prediction does without loads on first use: name -> module of this package.
_LATER = {
    **dict.fromkeys(
        ("Comparison", "Fleet", "Goodput", "MemoryTimeline", "Plan", "Scaling", "Sweep"), "many"
    ),
    **dict.fromkeys(
        ("calibrate_machine", "calibration", "calibration_curves", "selftest"), "machine"
    ),
}


def __getattr__(name: str) -> object:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"simcore.api.{_LATER[name]}"), name)


__all__ = [
    "Comparison", "Explanation", "Fleet", "Goodput", "Memory", "MemoryTimeline", "ModelSource",
    "Options", "Plan", "Prediction", "Request", "Scaling", "Sweep", "Timeline", "answer_of",
    "calibrate_from", "calibrate_machine", "calibration", "calibration_curves", "choices",
    "compare", "explain", "find_terms", "fleet", "goodput", "launch_file", "make_request",
    "make_space", "memory_timeline", "model_named", "plan", "predict", "read_calibration",
    "read_config", "replay", "report", "roofline", "run_violations", "scaling", "selftest",
    "sensitivity", "simulate_goodput", "sweep", "timeline", "validate", "validate_ops",
]  # fmt: skip
