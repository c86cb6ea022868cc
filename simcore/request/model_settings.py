"""Settings of the model that a job changes: sizes of a sample, and what torch.compile fuses.

Where lengths of sequences vary, time is of their mean and memory of the longest.

TorchInductor fuses everything between matrix products into one kernel, reductions included, and
leaves products and attention to their libraries (Ansel et al. 2024, PyTorch 2, section 4). That
covers rotary positions, gated activations, norms written as tensor operations, and the loss. It
pads products to aligned rows (torch/_inductor/fx_passes/pad_mm.py, config.shape_padding), in the
kernels before them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import field
from typing import Any, Final

from simcore.base.errors import InvalidConfig
from simcore.base.record import dataclass
from simcore.strategy.options import OPTIONS
from simcore.strategy.options.values import on_or_off, sides
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
    settings = [option.name for option in OPTIONS if option.setting]
    found: dict[str, Scalar] = {k: v for k in settings if (v := options.get(k)) is not None}
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
