"""What the command line, a notebook and a web page all call.

Every function takes plain words and numbers and returns frozen results that remember how they
were asked (``api.results``); nothing prints.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Unpack, cast

from simcore.api.results import Explanation, Memory, Prediction, Timeline
from simcore.api.shown import Asked, plain_as, remembered
from simcore.api.signatures import takes_options
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
from simcore.base.errors import InvalidConfig, SimcoreError, UsageError
from simcore.base.numbers import number_problems
from simcore.engine.advice import uneven
from simcore.engine.options import Options
from simcore.engine.predict import predict as _predict
from simcore.engine.request import make_request as _make_request
from simcore.engine.resolved import Request
from simcore.engine.result import Faster
from simcore.engine.result import Prediction as PlainPrediction
from simcore.hardware.cluster import ClusterSpec
from simcore.hardware.profile import Profile
from simcore.strategy.options.values import inputs_of
from simcore.validate.known import measured_rows
from simcore.workload.permission import trusts_call
from simcore.workload.resolve import ModelSource, model_of, one_question

if TYPE_CHECKING:
    from simcore.api.explained import explain_trace
    from simcore.api.logs import node_from_topo, validate_nccl
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


#: What a request is made of, for Python callers.
make_request = trusts_call()(_make_request)


@takes_options()
@trusts_call()
@one_question()
def predict(
    model: str | Path | ModelSource,
    gpus: str,
    *,
    steps: float | None = None,
    epochs: float | None = None,
    keep_timeline: bool = False,
    **options: Unpack[Options],
) -> Prediction:
    """Predict one training job on a cluster such as ``4x8xA6000ada``.

    ``options`` are those of ``simcore predict``, below; what is not given takes its default and is
    listed in ``Prediction.defaults``. ``steps`` or ``epochs`` ask for the time of a whole run.
    ``model`` is a name, a file (text or a path), a callable (``package.module:function``) or what
    ``read_config`` made. Raises UsageError (every violation at once) for a wrong request; a job
    that does not fit is an answer, not an error.
    """
    result = answer_of(model, gpus, options, keep_timeline=keep_timeline)
    run_steps = _run_steps(model, options, result, steps, epochs)
    told = replace(
        result,
        run_steps=run_steps,
        run_time_s=run_steps * result.step_time_s.value if run_steps is not None else None,
    )
    words = {"model": model, "gpus": gpus, "steps": steps, "epochs": epochs,
             "keep_timeline": keep_timeline, **options}  # fmt: skip
    return Prediction.of(told, Asked("predict", words))


@trusts_call()
def answer_of(
    model: str | Path | ModelSource,
    gpus: str | ClusterSpec,
    options: Options,
    *,
    keep_timeline: bool = False,
) -> PlainPrediction:
    """The engine's prediction, with what makes it fit and what was measured of the same job."""
    request = make_request(model, gpus, **options)
    found = _predict(request, keep_timeline=keep_timeline)
    largest = str(options.get("micro_batch") or "").strip().lower() == "max"

    def ask(words: dict[str, Any]) -> Request:
        if largest and "micro_batch" not in words:  # the batch is the largest again
            words = {k: v for k, v in words.items() if k not in ("global_batch", "grad_accum")}
        changed = {**options, **words}
        where = changed.pop("gpus", gpus)
        return make_request(model, where, **cast("Options", changed))

    helps: dict[str, Any] = {}
    faster: tuple[Faster, ...] = ()
    if not found.fits:
        from simcore.api.fixes import advice_of

        advice = advice_of(request, ask)
        helps = {"fixes": advice.fixes, "instead": advice.instead, "why_none": advice.why_none}
    elif request.placed is not None or request.strategy.zero_stage:
        from simcore.api.faster import faster_of

        faster = faster_of(request, found, ask)
    forced: tuple[str, ...] = ()
    if request.strategy.nccl_algorithms or request.strategy.nccl_protocols:
        from simcore.engine.collective_choice import left_without

        forced = left_without(request)
    pipeline = None
    placed = request.placed
    if keep_timeline and placed is not None:
        from simcore.engine.pipeline_line import drawable, pipeline_line

        pipeline = pipeline_line(request) if drawable(request) else None
    return replace(
        found,
        assumptions=(*forced, *found.assumptions),
        **helps,
        uneven=uneven(request),
        faster=faster,
        measured=measured_rows(request, found),
        pipeline=pipeline,
    )


@takes_options()
@trusts_call()
def explain(
    model: str | Path | ModelSource, gpus: str, term: str, **options: Unpack[Options]
) -> Explanation:
    """Formula, inputs and source of one term (``memory.activations``, ``comm``, ``mfu``…).

    Raises UsageError as ``predict`` does, and for an unknown term.
    """
    from simcore.engine.explain import explain as _explain

    find_terms(term)
    request = make_request(model, gpus, **options)
    return plain_as(Explanation, _explain(request, _predict(request), term))


@takes_options()
@trusts_call()
def memory_timeline(
    model: str | Path | ModelSource,
    gpus: str,
    *,
    gpu: str | None = None,
    expandable_segments: bool = False,
    **options: Unpack[Options],
) -> MemoryTimeline:
    """Memory of the fullest GPU over one step, as PyTorch's caching allocator would hold it.

    Bytes by term, allocated and reserved after every allocation [bytes]; the device's limit.
    ``gpu``: of several types, which.
    ``expandable_segments`` as in ``PYTORCH_CUDA_ALLOC_CONF``. Raises UsageError as ``predict``;
    a job that runs out of memory is an answer (``fits``).
    """
    from simcore.api.many import MemoryTimeline
    from simcore.engine.memory_timeline import memory_timeline as _memory_timeline

    found = _memory_timeline(
        make_request(model, gpus, **options), gpu=gpu, expandable_segments=expandable_segments
    )
    words = {"model": model, "gpus": gpus, "gpu": gpu,
             "expandable_segments": expandable_segments, **options}  # fmt: skip
    return remembered(MemoryTimeline, found, "memory_timeline", words)


@takes_options()
@trusts_call()
def timeline(model: str | Path | ModelSource, gpus: str, **options: Unpack[Options]) -> Timeline:
    """Start and finish of every task of one step [s], as ``predict(keep_timeline=True)`` has it."""
    found = predict(model, gpus, keep_timeline=True, **options).timeline
    assert isinstance(found, Timeline)
    return found


@takes_options()
@trusts_call()
def replay(model: str | Path | ModelSource, gpus: str, **options: Unpack[Options]) -> Replay:
    """One step as work and messages that depend on each other, for simulators of networks.

    Compute has seconds, messages have bytes and ranks. Raises UsageError as ``predict``, and for
    a cluster of several GPU types.
    """
    from simcore.engine.replay import replay as _replay

    try:
        return _replay(make_request(model, gpus, **options))
    except ValueError as err:
        raise UsageError(str(err)) from None


@takes_options()
@trusts_call()
@one_question()
def scaling(
    model: str | Path | ModelSource,
    gpus: str,
    *,
    clusters: Sequence[str] | str | None = None,
    **options: Unpack[Options],
) -> Scaling:
    """The same job on one GPU, on two, … up to ``gpus``, micro-batch and accumulation kept.

    ``clusters`` names the points instead, of the same GPU type. Points that cannot be (a layout of
    eight ranks on four GPUs) are left out. Raises UsageError as ``predict`` does, and for a mixed
    cluster.
    """
    from simcore.api.many import Scaling
    from simcore.engine.scaling import check_clusters, check_scales, clusters_up_to, scaling_of

    whole = make_request(model, gpus, **options)
    check_scales(whole)
    group = whole.cluster.groups[0]
    fixed: Options = {
        **options, "micro_batch": whole.micro_batch, "grad_accum": whole.grad_accum,
        "global_batch": None, "nnodes": None, "nproc_per_node": None,
    }  # fmt: skip
    steps = [clusters] if isinstance(clusters, str) else list(clusters or ())
    check_clusters(steps, group.gpu.name, options.get("network"), options.get("node"))
    steps = steps or clusters_up_to(str(whole.cluster), whole.cluster.n_nodes, group.gpus_per_node)
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


@takes_options()
@trusts_call()
def roofline(model: str | Path | ModelSource, gpus: str, **options: Unpack[Options]) -> Roofline:
    """Work, traffic and predicted time of every operator of one micro-step of one GPU."""
    from simcore.engine.views import roofline as _roofline

    return _roofline(make_request(model, gpus, **options))


@takes_options()
@trusts_call()
def sensitivity(
    model: str | Path | ModelSource, gpus: str, **options: Unpack[Options]
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
        found += number_problems(name, value)
    return found


@takes_options()
@trusts_call(at=1)
@one_question()
def launch_file(
    dialect: str,
    model: str | Path | ModelSource,
    gpus: str,
    **options: Unpack[Options],
) -> LaunchFile:
    """The job as a launch file of another program (``choices()["emit"]``).

    Raises UsageError as ``predict`` does, and with everything that the format cannot express.
    """
    from simcore.engine.emit import launch_file as _launch_file

    request = make_request(model, gpus, **options)
    attention = _stated("attention", options)
    return _launch_file(dialect, request, _seq_len(model, options), attention)


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
    """An entry of models_db, an architecture (``arch:NAME``) whose dimensions are settings, or a
    vision library's model (``timm:NAME``) where it is installed.

    Never a path or a callable, whatever the name looks like. Raises UnknownName with the nearest,
    UsageError.
    """
    from simcore.workload.model_aliases import alias_named
    from simcore.workload.models import MODELS
    from simcore.workload.resolve import resolve_model
    from simcore.workload.settings import PREFIX, arch_record
    from simcore.workload.trace import trace_zoo
    from simcore.workload.trace.zoos import zoo_of

    if name.startswith(PREFIX):
        return arch_record(name)
    if MODELS.path(name) is None and alias_named(name):
        return resolve_model(name)
    return trace_zoo(name) if zoo_of(name) else MODELS[name].under(name)


def choices() -> dict[str, tuple[str, ...]]:
    """The names that options take, by option; ``gpu`` is the type in a cluster."""
    from simcore.engine.choices import choices as _choices

    return _choices()


def _stated(word: Literal["seq_len", "attention"], options: Options) -> Any:
    """What was asked for, or what the launch file says."""
    if (asked := options.get(word)) is not None:
        return asked
    if (launch := options.get("launch")) is None:
        return None
    from simcore.strategy.dialects import read_launch

    return getattr(read_launch(str(launch)), word)


def _seq_len(model: str | Path | ModelSource, options: Options) -> int | None:
    """What was stated, or the model's own."""
    if (stated := _stated("seq_len", options)) is not None:
        return int(stated)
    source = model_of(model, inputs_of(options), options.get("settings"))
    value = getattr(source, "config", {}).get("seq_len")
    return value if isinstance(value, int) else None


def _run_steps(
    model: str | Path | ModelSource,
    options: Options,
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
    source = model_of(model, inputs_of(options), options.get("settings"))
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


@takes_options()
@trusts_call()
@one_question()
def report(
    model: str | Path | ModelSource, gpus: Sequence[str] | str, **options: Unpack[Options]
) -> str:
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
    **dict.fromkeys(("node_from_topo", "validate_nccl"), "logs"),
    "explain_trace": "explained",
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
    "commands", "compare", "explain", "explain_trace", "find_terms", "fleet", "goodput",
    "launch_file", "launched_words", "make_request", "make_space", "memory_timeline", "model_named",
    "node_from_topo", "plan", "predict", "read_calibration", "read_config", "replay", "report",
    "roofline", "run_violations", "scaling", "selftest", "sensitivity", "simulate_goodput",
    "sweep", "timeline", "validate", "validate_nccl", "validate_ops",
]  # fmt: skip
