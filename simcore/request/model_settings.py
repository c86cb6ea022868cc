"""What a job's options say of its model: sizes of a sample, what torch.compile fuses, its layout.

Where lengths of sequences vary, time is of their mean and memory of the longest.

TorchInductor fuses everything between matrix products into one kernel, reductions included, and
leaves products and attention to their libraries (Ansel et al. 2024, PyTorch 2, section 4). That
covers rotary positions, gated activations, norms written as tensor operations, and the loss. It
pads products to aligned rows (torch/_inductor/fx_passes/pad_mm.py, config.shape_padding), in the
kernels before them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any, Final, get_args

from simcore.base.errors import InvalidConfig, UnknownName
from simcore.base.record import dataclass, first_equal
from simcore.step.schedules import SCHEDULES
from simcore.strategy.layout import (
    BALANCED,
    DEGREES,
    DISPATCHERS_CALLED,
    CpComm,
    Dispatcher,
    Layout,
    Routing,
)
from simcore.strategy.options import OPTIONS, on_or_off, read_options, sides
from simcore.workload.archs.lm_attention import FLASH
from simcore.workload.models import ModelRecord, Scalar
from simcore.workload.resolve import ModelSource
from simcore.workload.settings import settings_given

#: Settings that a resolution sets.
_OF_RESOLUTION = ("image", "image_width", "height", "width")
#: Prefix of models whose library has its own switch between fused and written-out attention.
SWITCHED = "timm:"
#: Layouts of images by PyTorch's names.
_LAYOUTS = {"channels_last": "nhwc", "channels_first": "nchw"}
#: Patterns of sizes in full names.
_FRAMES = re.compile(r"\b\d+ frames\b")
_SIDES = re.compile(r"\b\d+(?: x \d+)+\b")


def overrides_of(record: ModelSource | None, options: Mapping[str, Any]) -> dict[str, Scalar]:
    """The model settings that the job's options change, by name.

    ``options``: the job's options, such as ``seq_len`` or ``resolution`` (which becomes the image's
    height and width). Raises InvalidConfig where the model lacks such a setting, and where an
    option and ``--set`` give the same setting.
    """
    found: dict[str, Scalar] = {k: v for k in OPTIONS.settings if (v := options.get(k)) is not None}
    if layout := str(found.get("layout", "")).lower():
        found["layout"] = _LAYOUTS.get(layout.replace("-", "_"), layout)
    text = options.get("resolution")
    sizes = _OF_RESOLUTION if text is not None else ()
    if twice := [k for k in settings_given(options.get("settings")) if k in (*found, *sizes)]:
        flags = [f"--{k.replace('_', '-') if k in found else 'resolution'}" for k in twice]
        raise InvalidConfig(
            [f"give {f} or --set {k}, not both" for f, k in zip(flags, twice, strict=True)]
        )
    if record is None or not (found or text is not None):
        return found
    known = record.settings({}) if isinstance(record, ModelRecord) else {}
    if known and (lacks := [k for k in found if k not in known]):
        raise InvalidConfig([_lacking(record.name, k) for k in lacks])
    if text is None:
        return found
    height, width = sides(str(text))
    if {"height", "width"} <= known.keys():
        return found | {"height": height, "width": width}
    if "image" not in known:
        raise InvalidConfig([f"{record.name}: {_unsized(record, height, width)}"])
    if isinstance(own := known["image"], str):  # a side for each dimension: 192x160, 128x128x128
        if (n_sides := own.count("x") + 1) > 2 and height != width:
            raise InvalidConfig([f"{record.name}: give the sides of a volume by --set image={own}"])
        return found | {"image": "x".join([str(height), *[str(width)] * (n_sides - 1)])}
    if height != width and "image_width" in known:
        return found | {"image": height, "image_width": width}
    if height != width:
        raise InvalidConfig([f"{record.name}: resolution {text} must be square: its images are"])
    return found | {"image": height}


#: Longest sequences of a fine-tuning run with adapters, where none are given [tokens]: defaults of
#: unsloth (unsloth/models/loader.py, FastLanguageModel.from_pretrained: max_seq_length) and of
#: LLaMA-Factory (src/llamafactory/hparams/data_args.py, DataArguments.cutoff_len).
ADAPTER_TOKENS: Final = 2048


def usual_length(record: ModelSource | None, options: Mapping[str, Any]) -> int | None:
    """The sequence length [tokens] that is usual for a job's kind of training; None: the model's.

    Adapters are trained on shorter sequences than models are pre-trained on.
    """
    if options.get("lora_rank") is None or not isinstance(record, ModelRecord):
        return None
    if options.get("seq_len") is not None or "seq_len" in settings_given(options.get("settings")):
        return None
    own = record.settings({}).get("seq_len")
    return ADAPTER_TOKENS if isinstance(own, int) and own > ADAPTER_TOKENS else None


def _lacking(name: str, key: str) -> str:
    text = f"{name} {OPTIONS[key].setting} ({OPTIONS[key].typed})"
    if key == "attention" and name.startswith(SWITCHED):
        return f"{text} except math (separate kernels, as before PyTorch 2.0)"
    if key == "layout" and ":" in name:
        return f"{text}: give channels_last after the shape in --input"
    return text


def _unsized(record: ModelSource, height: int, width: int) -> str:
    from simcore.workload.trace.zoos import zoo_of  # needed only for this error

    if isinstance(record, ModelRecord) and any("image" in f.config for f in record.frozen):
        return f"its images are those of a frozen encoder: --set image={height}"
    if zoo_of(record.name) is None:
        return "it has no resolution to change"
    return f"its images have the size of its input: --input 'float32[B,3,{height},{width}]'"


def name_of(record: ModelSource, overrides: Mapping[str, Scalar]) -> str:
    """The model's full name, with image size and frames of the job instead of the model's own."""
    size = [f"{overrides[k]}" for k in ("height", "width") if k in overrides]
    if "image" in overrides:
        size = f"{overrides['image']}".split("x")
        if len(size) == 1:
            size = [*size, f"{overrides.get('image_width', size[0])}"]
    sizes = [(_FRAMES, f"{overrides['frames']} frames")] if "frames" in overrides else []
    sizes += [(_SIDES, " x ".join(size))] if size else []
    name, left = record.full_name, []
    for own, text in sizes:
        found = own.search(name)
        if found:
            name = name[: found.start()] + text + name[found.end() :]
        else:
            left.append(text)
    return f"{name}, {' of '.join(left)}" if left else name


_FUSES: Final = "fused_pointwise"
_PADS: Final = "padded_vocab"
#: Implementations written as tensor operations, and what each becomes when it is one kernel.
_BECOMES: Final[Mapping[str, Mapping[Scalar, Scalar]]] = {
    "loss": {"eager": "compiled", "eager_freed": "compiled", "eager_shifted": "compiled"},
    "norm": dict.fromkeys(("rmsnorm_eager", "rmsnorm_eager_wide", "rmsnorm_gemma"), "rmsnorm"),
    "mlp": {"gelu_new": "gelu"},
}


def compiles(record: object) -> bool:
    """Whether it is known which operations torch.compile fuses in this model."""
    return isinstance(record, ModelRecord) and _FUSES in record.settings({})


def compiled_of(
    record: ModelSource | None,
    options: Mapping[str, Any],
    settings: Mapping[str, Scalar],
    of_library: Mapping[str, Scalar],
) -> dict[str, Scalar]:
    """Settings of the model that compilation changes; empty where compilation is off.

    ``settings``: what the training library sets on top of the model's record; ``of_library``: what
    it sets on top for a compiled model. Raises InvalidConfig for a model that is not a language
    model.
    """
    if not on_or_off("compile", options.get("compile")) or record is None:
        return {}
    if not compiles(record):
        raise InvalidConfig(
            [f"{record.name}: what torch.compile fuses is known for language models only; without "
             "--compile its kernels are predicted as eager ones"]
        )  # fmt: skip
    assert isinstance(record, ModelRecord)
    has = {**record.settings({}), **settings}
    changed = {k: new[has[k]] for k, new in _BECOMES.items() if has.get(k) in new}
    return {_FUSES: True, _PADS: True, **changed, **of_library}


@dataclass(frozen=True)
class Lengths:
    """Model settings of a step of mean length and of one of the longest sequences.

    Both are empty where all sequences are equally long. ``notes``: what is assumed of them.
    """

    mean: Mapping[str, Scalar] = field(default_factory=dict)
    longest: Mapping[str, Scalar] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def lengths_of(
    record: ModelSource | None, options: Mapping[str, Any], settings: Mapping[str, Scalar]
) -> Lengths:
    """The lengths that the options ``mean_seq_len`` and ``packing`` state. Raises InvalidConfig.

    ``settings``: the model's that the job changes. Without packing each sequence is a sample of
    mean length. With it a sample is filled with sequences of mean length, and attention is computed
    within each of them, as within chunks of that length.
    """
    packed, mean = on_or_off("packing", options.get("packing")), options.get("mean_seq_len")
    if mean is None:
        if packed:
            raise InvalidConfig(["packing needs --mean-seq-len, the sequences' mean length"])
        return Lengths()
    has = {**(record.settings({}) if isinstance(record, ModelRecord) else {}), **settings}
    if "seq_len" not in has:
        raise InvalidConfig([f"{record.name if record else 'the model'} has no sequence length"])
    longest = int(has["seq_len"])
    if mean > longest:
        raise InvalidConfig([f"mean-seq-len {mean} is more than seq-len {longest}, the longest"])
    if not packed:
        note = (
            f"sequences of {mean} tokens on average and at most {longest}: time is of the mean, "
            "without padding, memory of the longest"
        )
        return Lengths({"seq_len": mean}, {"seq_len": longest}, (note,))
    if "window" not in has or has.get("attention") not in FLASH or has.get("window"):
        why = "attention is counted over whole samples"
        note = f"samples of {longest} tokens are packed with sequences of {mean}; {why}"
        return Lengths(notes=(note,))
    note = (
        f"samples of {longest} tokens are packed with sequences of {mean}, all equally long, which "
        "attend only to themselves"
    )
    return Lengths({"window": mean, "window_pattern": "w", "chunked": True}, notes=(note,))


def layout_of(options: Mapping[str, Any], problems: list[str] | None = None) -> Layout:
    """The layout that the options describe; degrees that are not given are 1.

    Where the size of every stage is given, their number sets pp. Unknown names are appended to
    ``problems`` if that is given, so that the rest of the layout can still be checked. Raises
    InvalidConfig, and UnknownName if ``problems`` is None.
    """
    degrees = {k: int(options[k]) for k in DEGREES if options.get(k) is not None}
    stages = ""
    if options.get("stages"):
        from simcore.strategy.cuts import normalised, stages_told

        stages = normalised(str(options["stages"]))
        if "pp" not in degrees and (stated := stages_told(stages)) is not None:
            degrees["pp"] = stated
    sequence: bool | str | None = options.get("sequence_parallel")
    try:
        cut = sequence is None or on_or_off("sequence-parallel", sequence)
    except InvalidConfig as wrong:
        if problems is None:
            raise
        problems += wrong.violations
        cut = True

    def one_of(kind: str, names: Sequence[str], also: Mapping[str, str] | None = None) -> Any:
        """The named value of an option, by default its first; ``also``: other spellings."""
        if not (stated := options.get(kind)):
            return names[0]
        name = str(stated).strip().lower()
        name = (also or {}).get(name, name)
        if name in names:
            return name
        error = UnknownName(kind.replace("_", "-"), name, names)
        if problems is None:
            raise error
        problems.append(str(error))
        return names[0]

    layout = Layout(
        **degrees,
        sequence_parallel=cut,
        schedule=one_of("schedule", tuple(SCHEDULES)),
        expert_tp=int(options.get("expert_tp") or 1),
        dispatcher=one_of("dispatcher", get_args(Dispatcher), DISPATCHERS_CALLED),
        cp_comm=one_of("cp_comm", get_args(CpComm)),
        stages=stages,
        vpp_group=int(options.get("vpp_group") or 1),
        deferred_heads=int(options.get("deferred_heads") or 0),
    )
    return first_equal(layout)


#: Strategies that gather or reduce a layer's parameters or gradients in every micro-batch.
_EVERY_MICRO_BATCH = ("zero2", "zero3")
#: Default strategy of the data ranks where a layout divides the model: shards the optimizer only.
BESIDE_CUTS = "zero1"


def usual_strategy(own: str, layout: Layout, shards_beside_tp: bool = False) -> str:
    """The strategy where none is given: the model's own, unless tp or pp divides the model.

    With tp or pp it is Megatron's distributed optimizer (Narayanan et al. 2021;
    megatron/core/distributed). ``shards_beside_tp``: the program shards weights of tensor ranks
    too. DeepSpeed's pipeline refuses ZeRO-2 and -3 (runtime/pipe/engine.py), and torchtitan does
    not shard weights again after a pipeline's forward (parallelize: reshard_after_forward).
    """
    if own not in _EVERY_MICRO_BATCH or (shards_beside_tp and layout.pp == 1):
        return own
    return BESIDE_CUTS if max(layout.tp, layout.pp) > 1 else own


def strategy_note(named: str | None, own: str, usual: str) -> tuple[str, ...]:
    """A sentence where the default strategy is another than the model's own."""
    if named or own == usual:
        return ()
    return (f"strategy: {usual}, as Megatron uses with tp or pp; without these the model's {own}",)


def context_note(layout: Layout, named: object) -> tuple[str, ...]:
    """A sentence where the request names a context exchange but has no context ranks."""
    if named is None or layout.cp > 1:
        return ()
    return (f"cp-comm {layout.cp_comm} changes nothing: cp is 1",)


_WORDS = ("expert_imbalance", "expert_capacity", "expert_padding")


def experts_of(record: ModelSource) -> tuple[int, int]:
    """(routed experts of a layer, experts that each token goes to)."""
    config = record.settings({}) if isinstance(record, ModelRecord) else {}
    experts = int(config.get("experts", 0) or 0)
    return experts, int(config.get("top_k", 0) or 0) or min(2, experts)


def routing_of(record: ModelSource | None, options: Mapping[str, Any]) -> Routing:
    """The routing that the options describe. Raises InvalidConfig with every violation."""
    given = {w: v for w in _WORDS if (v := options.get(w)) is not None}
    if not given:
        return BALANCED
    found, problems = read_options(given)
    if "expert_padding" in given and "expert_capacity" not in given:
        problems.append("expert-padding needs expert-capacity: it fills the slots up to it")
    if record is not None:
        experts, top_k = experts_of(record)
        if experts and _room_of(record):
            problems.append(
                f"{record.name} fixes the capacity of its experts, {_room_of(record)} tokens of a "
                "sequence each, and routes evenly: it takes no routing options"
            )
        elif not experts:
            named = " and ".join(w.replace("_", "-") for w in given)
            problems.append(f"{record.name} has no experts for {named}")
        elif (capacity := found.get("expert_capacity", 1.0)) > (most := experts / top_k):
            problems.append(
                f"expert-capacity {capacity:g} is more than experts / top-k = {most:g}; with "
                f"{most:g} every expert already has a slot for every token"
            )
    if problems:
        raise InvalidConfig(problems)
    return Routing(
        imbalance=found.get("expert_imbalance", 1.0),
        capacity=found.get("expert_capacity"),
        padding=found.get("expert_padding", True),
    )


def _room_of(record: ModelSource) -> int:
    """Tokens of a sequence for which each expert has slots where the model fixes that; else 0."""
    config = record.settings({}) if isinstance(record, ModelRecord) else {}
    return int(config.get("expert_capacity", 0) or 0)


def routing_settings(
    record: ModelSource | None, routing: Routing, layout: Layout
) -> dict[str, Scalar]:
    """Model settings that describe the routing and how rows arrive at experts."""
    rows = routing.rows(layout.ep, layout.dispatcher)
    rows_frac = {"expert_rows": rows.computed, "permuted_rows": rows.permuted}
    found: dict[str, Scalar] = {k: v for k, v in rows_frac.items() if v != 1.0}
    routes = record is not None and experts_of(record)[0] > 0
    if layout.ep > 1 and layout.dispatcher == "alltoall" and routes:
        found["regrouped_rows"] = True
    if routing.capacity is not None and routing.padding and routes:
        found["waits_for_counts"] = False  # every expert has as many rows as slots
    return found


def routing_notes(record: ModelSource, routing: Routing, layout: Layout) -> tuple[str, ...]:
    """Assumptions about the rows of experts, for a model that has experts."""
    if not experts_of(record)[0]:
        return ()
    if routing == BALANCED and (slots := _room_of(record)):
        return (f"routing of experts: balanced, at most {slots} tokens of a sequence per expert",)
    if routing == BALANCED:
        return ("routing of experts: balanced (--expert-imbalance), no tokens dropped",)
    found: list[str] = []
    rows = routing.rows(layout.ep, layout.dispatcher)
    fullest = routing.fullest(layout.ep)
    if layout.ep == 1 and routing.imbalance > 1.0:
        found.append(
            f"expert-imbalance {routing.imbalance:g} changes nothing: each rank has all experts"
        )
    elif fullest < routing.imbalance:
        found.append(f"expert-imbalance {fullest:g}: one rank of {layout.ep} has all the tokens")
    if routing.capacity is None:
        if fullest > 1.0:
            found.append(
                f"fullest expert rank {rows.computed:g} x the mean rows in every layer: all ranks "
                "wait for it, and the memory shown is its own"
            )
        return tuple(found)
    if routing.padding:
        found.append(
            f"experts compute {routing.capacity:g} x the mean rows, padding included; tokens "
            "beyond are dropped (MFU counts routed tokens, not padding)"
        )
    else:
        found.append(
            f"tokens beyond {routing.capacity:g} x the mean rows of an expert are dropped: fullest "
            f"expert rank {rows.computed:g} x the mean rows"
        )
    return tuple(found)
