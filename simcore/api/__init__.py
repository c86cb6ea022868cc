"""The Python interface, which the command line, notebooks and the web page all call.

Every function takes text and numbers and returns frozen results that hold the arguments of the
call (``api.results``), so that the call can be repeated with changes. Nothing prints.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from simcore.answer.predict import predict as _predict
from simcore.answer.request import is_max
from simcore.answer.request import make_request as _make_request
from simcore.answer.result import Advice, MeasuredRow
from simcore.answer.result import Prediction as PlainPrediction
from simcore.api.result import Call, plain_as, takes_job, takes_options
from simcore.api.results import Explanation, Memory, Prediction, Timeline
from simcore.base.errors import InvalidConfig, SimcoreError, UsageError
from simcore.base.lookup import Later, one_question
from simcore.base.units import number_problems
from simcore.hardware.cluster import ClusterSpec
from simcore.hardware.profile import Profile
from simcore.request.resolved import Request
from simcore.strategy.options import Options, inputs_of
from simcore.workload.resolve import ModelSource, model_of

if TYPE_CHECKING:
    from simcore.answer.replay import Replay
    from simcore.answer.slower import Slower
    from simcore.answer.views import Roofline, Swing
    from simcore.api.generation import inference
    from simcore.api.logs import explain_trace, node_from_topo, validate_nccl
    from simcore.api.machine import (
        calibrate_machine,
        calibrate_model,
        calibration,
        calibration_curves,
        refit_machine,
        selftest,
    )
    from simcore.api.many import Comparison, Fleet, Goodput, MemoryTimeline, Plan, Scaling, Sweep
    from simcore.api.objects import Model
    from simcore.api.spaces import (
        compare,
        fleet,
        goodput,
        launched_words,
        make_space,
        plan,
        simulate_goodput,
        sweep,
    )
    from simcore.api.tables import calibrate_from, commands, validate, validate_ops
    from simcore.request.emit import LaunchFile


#: ``answer.request.make_request`` for Python callers: it may import a callable that they name.
make_request = takes_job()(_make_request)


@takes_options()
@takes_job()
@one_question()
def predict(
    model: Model,
    gpus: str | ClusterSpec,
    *,
    steps: float | str | None = None,
    epochs: float | None = None,
    tokens: float | str | None = None,
    deadline: str | None = None,
    cost: bool = False,
    price: Sequence[str] | str | None = None,
    prices: str | None = None,
    keep_timeline: bool = False,
    **options: Any,
) -> Prediction:
    """The prediction of one training job on a cluster such as ``4x8xA6000ada``.

    ``model`` is a name, a file (text or a path), a callable (``package.module:function``), a torch
    module with its ``inputs`` (tensors of a batch, or their shapes), a config of transformers (or
    its dictionary) or a result of ``read_config``. ``gpus`` may be a ``ClusterSpec`` too.
    ``options`` are those of ``simcore predict``, listed below; options that are not given take
    their defaults, which ``Prediction.defaults`` lists. Raises UsageError, which lists everything
    that is wrong with the request. A job that does not fit in memory is a normal result, not an
    error.

    steps, epochs, tokens   length of a run ("15T"), one of them: ``run`` has its time, cost, energy
    deadline       "30d" or a date: ``run`` has the probability that the run ends before it
    cost           whether ``cost`` tells what an hour and a million tokens (or samples) cost
    price, prices  prices of GPU-hours, as in ``compare``
    """
    of_run = {"steps": steps, "epochs": epochs, "tokens": tokens, "deadline": deadline,
              "cost": cost or None, "price": price, "prices": prices}  # fmt: skip
    of_run = {name: value for name, value in of_run.items() if value is not None}
    result = answer_of(model, gpus, options, keep_timeline=keep_timeline)  # type: ignore[arg-type]
    if of_run:
        from simcore.api.run import told_of_run

        result = replace(result, **told_of_run(model, options, result, of_run))
    words = {"model": model, "gpus": gpus, **of_run, "keep_timeline": keep_timeline, **options}
    return Prediction.of(result, Call("predict", words))


@takes_job()
def answer_of(
    model: str | Path | ModelSource,
    gpus: str | ClusterSpec,
    options: Options,
    *,
    keep_timeline: bool = False,
) -> PlainPrediction:
    """The engine's prediction, with advice and measured steps of the same job, once asked for."""
    request = make_request(model, gpus, **options)
    if is_max(options.get("seq_len")):  # changes are tried with the length that was found
        options = {**options, "seq_len": request.options["seq_len"]}
    found = _predict(request, keep_timeline=keep_timeline)
    added: dict[str, Any] = {
        "later_advice": Later(lambda: _advice(request, found, model, gpus, options)),
        "later_measured": Later(lambda: _measured(request, found)),
    }
    if request.strategy.nccl.algorithms or request.strategy.nccl.protocols:
        from simcore.answer.collective_choice import left_without

        added["assumptions"] = (*left_without(request), *found.assumptions)
    if keep_timeline and request.placed is not None:
        from simcore.answer.pipeline_timeline import pipeline_line, undrawn

        if why := undrawn(request):
            notes = added.get("assumptions", found.assumptions)
            added["assumptions"] = (*notes, f"the timeline is that of one stage: {why}")
        else:
            added["pipeline"] = pipeline_line(request)
    return replace(found, **added)


def _advice(
    request: Request,
    found: PlainPrediction,
    model: str | Path | ModelSource,
    gpus: str | ClusterSpec,
    options: Options,
) -> Advice:
    plain = request.placed is None and not request.strategy.zero_stage
    if found.fits and plain and len(request.kinds) == 1:
        return Advice()  # nothing is tried for such a job
    from simcore.api.fixes import advice_on, asking

    return advice_on(request, found, asking(model, gpus, options))


def _measured(request: Request, found: PlainPrediction) -> tuple[MeasuredRow, ...]:
    from simcore.answer.request import measured_rows

    return measured_rows(request, found)


@takes_options()
@takes_job()
def explain(model: str | Path | ModelSource, gpus: str, term: str, **options: Any) -> Explanation:
    """Formula, inputs and source of one term of a prediction.

    ``term``: ``memory.activations``, ``comm``, ``mfu`` ... Raises UsageError as ``predict`` does,
    and for an unknown term.
    """
    from simcore.answer.explain import explain as _explain

    find_terms(term)
    request = make_request(model, gpus, **options)
    return plain_as(Explanation, _explain(request, _predict(request), term))


@takes_options()
@takes_job()
def terms(model: str | Path | ModelSource, gpus: str, **options: Any) -> dict[str, str]:
    """The terms of a prediction that ``explain`` explains, with their values as text."""
    from simcore.answer.explain import listed

    request = make_request(model, gpus, **options)
    return dict(listed(request, _predict(request)))


@takes_options()
@takes_job()
def slower(model: str | Path | ModelSource, gpus: str, measured_s: float, **options: Any) -> Slower:
    """Why a measured step takes longer (or less long) than predicted: what each resource alone
    would have to deliver, the most likely first.

    Raises UsageError as ``predict`` does, and for a time that is not above zero.
    """
    from simcore.answer.slower import slower as _slower

    if problems := number_problems("measured_s", measured_s):
        raise InvalidConfig(problems)
    request = make_request(model, gpus, **options)
    return _slower(request, _predict(request), measured_s)


@takes_options()
@takes_job()
def memory_timeline(
    model: str | Path | ModelSource,
    gpus: str,
    *,
    gpu: str | None = None,
    expandable_segments: bool = False,
    **options: Any,
) -> MemoryTimeline:
    """Memory of the fullest GPU over one step, simulated with PyTorch's caching allocator.

    The result has the bytes of each term, and the allocated and reserved bytes, after every
    allocation, and the capacity of the device. ``gpu``: the GPU type to simulate, in a mixed
    cluster. ``expandable_segments`` as in ``PYTORCH_CUDA_ALLOC_CONF``. Raises UsageError as
    ``predict`` does; running out of memory is a normal result (``fits``).
    """
    from simcore.api.many import MemoryTimeline
    from simcore.memory.over_time import memory_timeline as _memory_timeline

    found = _memory_timeline(
        make_request(model, gpus, **options), gpu=gpu, expandable_segments=expandable_segments
    )
    words = {"model": model, "gpus": gpus, "gpu": gpu,
             "expandable_segments": expandable_segments, **options}  # fmt: skip
    return MemoryTimeline.of(found, Call("memory_timeline", words))


@takes_options()
@takes_job()
def timeline(model: str | Path | ModelSource, gpus: str, **options: Any) -> Timeline:
    """Start and finish of every task of one step [s]: the timeline of
    ``predict(..., keep_timeline=True)``.
    """
    found = predict(model, gpus, keep_timeline=True, **options).timeline
    assert isinstance(found, Timeline)
    return found


@takes_options()
@takes_job()
def replay(model: str | Path | ModelSource, gpus: str, **options: Any) -> Replay:
    """One step as a graph of compute tasks and messages, for network simulators.

    Compute tasks have a duration [s], messages have bytes and ranks. Raises UsageError as
    ``predict`` does, and for a cluster of several GPU types.
    """
    from simcore.answer.replay import replay as _replay

    try:
        return _replay(make_request(model, gpus, **options))
    except ValueError as err:
        raise UsageError(str(err)) from None


@takes_options()
@takes_job()
@one_question()
def scaling(
    model: str | Path | ModelSource,
    gpus: str,
    *,
    clusters: Sequence[str] | str | None = None,
    **options: Any,
) -> Scaling:
    """Weak scaling: the same job on one GPU, on two ... up to ``gpus``.

    Micro-batch and accumulation are the same at every point. ``clusters``: the clusters to use
    instead, of the same GPU type. Invalid points (a layout of eight ranks on four GPUs) are left
    out. Raises UsageError as ``predict`` does, and for a mixed cluster.
    """
    from simcore.answer import scaling as curve
    from simcore.api.many import Scaling

    whole = make_request(model, gpus, **options)
    curve.check_scales(whole)
    group = whole.cluster.groups[0]
    fixed: Options = {
        **options, "micro_batch": whole.micro_batch, "grad_accum": whole.grad_accum,
        "global_batch": None, "nnodes": None, "nproc_per_node": None,
    }  # fmt: skip
    steps = [clusters] if isinstance(clusters, str) else list(clusters or ())
    curve.check_clusters(steps, group.gpu.name, options.get("network"), options.get("node"))
    if not steps:
        steps = curve.clusters_up_to(str(whole.cluster), whole.cluster.n_nodes, group.gpus_per_node)
        fixed |= curve.words_for(whole.cluster, options.get("node"), options.get("network"))
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
    return Scaling.of(curve.scaling_of(group.gpu.name, predictions), Call("scaling", words))


@takes_options()
@takes_job()
def roofline(model: str | Path | ModelSource, gpus: str, **options: Any) -> Roofline:
    """Flop, memory traffic and predicted time of every operator in one micro-step of one GPU."""
    from simcore.answer.views import roofline as _roofline

    return _roofline(make_request(model, gpus, **options))


@takes_options()
@takes_job()
def sensitivity(
    model: str | Path | ModelSource, gpus: str, **options: Any
) -> tuple[float, tuple[Swing, ...]]:
    """Step time [s], and how it changes with half and with twice of each resource, the resource
    with the largest change first.
    """
    from simcore.answer.views import sensitivity as _sensitivity

    return _sensitivity(make_request(model, gpus, **options))


def find_terms(term: str) -> tuple[str, ...]:
    """The terms that a word such as ``comm`` stands for. Raises UnknownName that suggests the
    nearest.
    """
    from simcore.answer.explain import find_terms as _find_terms

    return tuple(_find_terms(term))


@takes_options()
@takes_job(at=1)
@one_question()
def launch_file(
    dialect: str,
    model: str | Path | ModelSource,
    gpus: str,
    **options: Any,
) -> LaunchFile:
    """The job as a launch file of another program.

    ``dialect``: the format, one of ``choices()["emit"]``. Raises UsageError as ``predict`` does,
    and with everything that the format cannot express.
    """
    from simcore.request.emit import launch_file as _launch_file

    request = make_request(model, gpus, **options)
    attention = _stated("attention", options)
    if is_max(options.get("seq_len")) or "seq-len" in " ".join(request.defaults):
        options = {**options, "seq_len": request.options["seq_len"]}
    source = model_of(model, inputs_of(options), request.options.get("settings"))
    language = getattr(source, "arch", "") == "transformer"
    shape = getattr(source, "config", {}) if language else {}
    return _launch_file(dialect, request, _seq_len(source, options), attention, shape)


def read_config(text: str, name: str) -> ModelSource:
    """A model from the text of a Hugging Face ``config.json``.

    No code is executed, no file opened, nothing downloaded. ``name``: file name for error messages.
    Raises DataError with the line.
    """
    from simcore.workload.huggingface.read import parse_config

    return parse_config(text, Path(name))


def read_calibration(text: str, name: str) -> Profile:
    """A profile from the YAML text of a calibration.

    YAML aliases and tags, deep nesting and overlong texts are refused. ``name``: file name for
    error messages. Raises DataError with the line.
    """
    from simcore.hardware.calibrations import read_calibration as _read_calibration
    from simcore.hardware.profile import profile_of

    return profile_of(_read_calibration(text, name))


def model_named(name: str) -> ModelSource:
    """The model of a name: an entry of models_db, an architecture (``arch:NAME``) whose dimensions
    are settings, or a model of an installed vision library (``timm:NAME``).

    A name is never taken for a path or a callable. Raises UnknownName that suggests the nearest,
    UsageError.
    """
    from simcore.workload.model_aliases import alias_named
    from simcore.workload.models import MODELS
    from simcore.workload.resolve import record_named, resolve_model
    from simcore.workload.settings import PREFIX, arch_record
    from simcore.workload.trace import trace_zoo
    from simcore.workload.trace.zoos import zoo_of

    if name.startswith(PREFIX):
        return arch_record(name)
    if MODELS.path(name) is None and alias_named(name):
        return resolve_model(name)
    return trace_zoo(name) if zoo_of(name) else record_named(name)


def choices() -> dict[str, tuple[str, ...]]:
    """The names that each option accepts, by option; ``gpu``: GPU types of clusters."""
    from simcore.request.choices import choices as _choices

    return _choices()


def _stated(word: Literal["seq_len", "attention"], options: Options) -> Any:
    """The value among the options, else the one in the launch file, else None."""
    if (given := options.get(word)) is not None:
        return given
    if (launch := options.get("launch")) is None:
        return None
    from simcore.strategy.dialects import read_launch

    return getattr(read_launch(str(launch)), word)


def _seq_len(source: ModelSource, options: Options) -> int | None:
    """The sequence length [tokens] in the options or the launch file, else that of the model."""
    if (stated := _stated("seq_len", options)) is not None:
        return int(stated)
    value = getattr(source, "config", {}).get("seq_len")
    return value if isinstance(value, int) else None


@takes_options()
@takes_job()
@one_question()
def report(model: str | Path | ModelSource, gpus: Sequence[str] | str, **options: Any) -> str:
    """A self-contained HTML page about one job, on one cluster or on several side by side.

    The page has no scripts and no external links and is smaller than a megabyte. It says which
    parts are not available for a cluster (memory over the step with model parallelism). Raises
    UsageError as ``predict`` does, and where jinja2 or matplotlib is missing.
    """
    from simcore.api.document import facts_of
    from simcore.report.html import page

    return page(facts_of(model, gpus, **options))


#: Names that a prediction does not need, to the module of this package that is imported when they
#: are first used.
_LATER = {
    **dict.fromkeys(
        ("Comparison", "Fleet", "Goodput", "MemoryTimeline", "Plan", "Scaling", "Sweep"), "many"
    ),
    **dict.fromkeys(
        (
            "calibrate_machine",
            "calibrate_model",
            "calibration",
            "calibration_curves",
            "refit_machine",
            "selftest",
        ),
        "machine",
    ),
    **dict.fromkeys(("node_from_topo", "validate_nccl"), "logs"),
    **dict.fromkeys(
        (
            "compare",
            "fleet",
            "goodput",
            "launched_words",
            "make_space",
            "plan",
            "simulate_goodput",
            "sweep",
        ),
        "spaces",
    ),
    **dict.fromkeys(("calibrate_from", "commands", "validate", "validate_ops"), "tables"),
    "inference": "generation",
    "explain_trace": "logs",
}


def __getattr__(name: str) -> object:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"simcore.api.{_LATER[name]}"), name)


__all__ = [
    "Comparison", "Explanation", "Fleet", "Goodput", "Memory", "MemoryTimeline", "ModelSource",
    "Options", "Plan", "Prediction", "Request", "Scaling", "Sweep", "Timeline", "answer_of",
    "calibrate_from", "calibrate_machine", "calibrate_model", "calibration", "calibration_curves",
    "choices", "commands", "compare", "explain", "explain_trace", "find_terms", "fleet", "goodput",
    "inference", "launch_file", "launched_words", "make_request", "make_space", "memory_timeline",
    "model_named", "node_from_topo", "plan", "predict", "read_calibration", "read_config",
    "refit_machine", "replay", "report", "roofline", "scaling", "selftest", "sensitivity",
    "simulate_goodput", "slower", "sweep", "terms", "timeline", "validate", "validate_nccl",
    "validate_ops",
]  # fmt: skip
