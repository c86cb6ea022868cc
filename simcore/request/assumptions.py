"""What is assumed of a job, in sentences: its program, its model's data, knobs without effect."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from simcore.base.errors import nearest
from simcore.base.names import Changed
from simcore.hardware.profile import Profile
from simcore.request.inputs import Attempts, Inputs
from simcore.request.model_settings import context_note, routing_notes, strategy_note
from simcore.request.resolved import Loading
from simcore.strategy.strategy import Strategy
from simcore.workload.graph import Workload
from simcore.workload.models import MODELS, ModelRecord
from simcore.workload.resolve import ModelSource

if TYPE_CHECKING:
    from simcore.request.launch import Launched
    from simcore.request.placed import Placed


def assumptions_of(tries: Attempts, inputs: Inputs, strategy: Strategy) -> tuple[str, ...]:
    """Every assumption of a job that its launch file, program, profile, layout or model brings."""
    record, workload, launched = inputs.record, tries["workload"], inputs.launched
    assert record is not None
    own, usual = record.training.strategy, inputs.usual_strategy
    return (
        *(launched.told(record) if launched else ()),
        *inputs.library.told(),
        *strategy_note(
            inputs.options.get("strategy"), usual if inputs.shards_nothing else own, usual
        ),
        *knobs_without_effect(tries["profile"], workload.name),
        *routing_notes(record, strategy.routing, inputs.layout),
        *context_note(inputs.layout, inputs.options.get("cp_comm")),
        *_of_loading(record, tries["loading"], inputs.options, launched),
        *_of_model(record, workload),
    )


def round_warnings(tries: Attempts, inputs: Inputs, accum: int) -> tuple[str, ...]:
    """Warnings where Megatron's interleaved schedule would refuse the number of micro-batches.

    They apply where the user did not name Megatron, and to rounds that are not whole.
    """
    placed: Placed | None = tries.get("placed")
    if placed is None or not inputs.library.program.pipeline.whole_rounds:
        return ()
    layout = placed.layout
    if refused := placed.schedule.rounds_refused(layout, accum):
        return (Changed(f"Megatron would refuse this: {refused}"),)
    if placed.schedule.whole_rounds and accum % layout.pp:
        return (
            Changed(
                f"{accum} micro-batches are no whole rounds of pp={layout.pp}: Megatron needs "
                "another --microbatch-group-size-per-virtual-pipeline-stage for them"
            ),
        )
    return ()


def largest_note(largest: Mapping[str, Any]) -> tuple[str, ...]:
    """A note that memory is that of the largest batch in training."""
    sizes = ", ".join(f"{k} {v}" for k, v in largest.items())
    return (f"memory is that of the largest batch in training ({sizes})",)


def miscounted(record: ModelSource, workload: Workload) -> tuple[str, ...]:
    """A warning where a model file's settings give another parameter count than it states."""
    stated = record.params.value if isinstance(record, ModelRecord) else None
    made = workload.trainable_numel
    if not stated or round(stated) == made:
        return ()
    text = f"{record.name}: the file states {stated:,.0f} parameters, its settings make {made:,}"
    return (Changed(text),)


def _of_model(record: ModelSource, workload: Workload) -> tuple[str, ...]:
    spread, norms = workload.work_sd_frac, workload.sync_norms
    uneven = (
        f"samples differ in work by {spread:.0%} (sd): all ranks wait for the one with most work"
        if spread
        else ""
    )
    synced = f"{norms} batch norms average over all ranks, forward and backward" if norms else ""
    return tuple(text for text in (uneven, synced) if text)


def _of_loading(
    record: ModelSource,
    loading: Loading | None,
    options: Mapping[str, Any],
    launched: Launched | None = None,
) -> tuple[str, ...]:
    """What is assumed of loading."""
    if loading is None:
        captured = getattr(record, "captured", None)
        # what the script itself has, or its launch file, is no surprise
        seen = captured.options if captured else launched.launch.words() if launched else {}
        given = [
            f"--{name.replace('_', '-')}"
            for name in _COUNTED
            if options.get(name) is not None and options.get(name) != seen.get(name)
        ]
        if given:
            text = (
                f"{' and '.join(given)} without effect on the step: nothing says how long a sample "
                "takes to load (--sample-load); loading is assumed to keep up"
            )
            of_run = given == ["--epoch-samples"]  # also the length of a run in epochs
            return (text if of_run else Changed(text),)
        return ("data loading is assumed to keep up (no data set described)",)
    data = record.dataset
    of = f"data set {data.name}" if data and not options.get("epoch_samples") else "data set"
    samples = f"{loading.samples:.0f} samples" if loading.samples else "epochs without end"
    return (
        f"{of}: {samples}, {loading.workers} loader workers a rank, {loading.sample_load_s:g} s of "
        "processor time a sample",
    )


#: Options that count only where the time to load a sample is known.
_COUNTED = ("num_workers", "prefetch", "epoch_samples")


def knobs_without_effect(profile: Profile, model: str) -> tuple[str, ...]:
    """A sentence for each name in the profile's knobs that is neither ``model`` nor known."""
    named = dict.fromkeys(k.workload for k in profile.knob_values if k.workload)
    return tuple(
        _sentence(profile.name, name) for name in named if name != model and not _is_record(name)
    )


def _is_record(name: str) -> bool:
    """Whether this is exactly the name of a known model (not an alias)."""
    path = MODELS.path(name)
    return path is not None and path.stem == name


def _sentence(profile: str, name: str) -> str:
    path = MODELS.path(name)
    near = [path.stem] if path is not None else nearest(name, MODELS.names(), 1)
    meant = f" (did you mean {near[0]!r}?)" if near else ""
    return f"calibration {profile}: a knob of workload {name!r} changes nothing here{meant}"
