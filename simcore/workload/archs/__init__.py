"""Architecture builders: a config in, a Workload out; one file per family, registered by name.

Low-rank adapters of a frozen base, which any of them may have, are described here too.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import MISSING, fields, is_dataclass
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any, get_type_hints

from simcore.base.database import search_roots, shipped_root
from simcore.base.lookup import Registry
from simcore.base.record import dataclass
from simcore.workload.graph import Frozen, Workload

#: ``build(name=…, sample_unit=…, **config) -> Workload``; keyword-only, typed, no I/O.
ARCHS: Registry[Callable[..., Workload]] = Registry("architecture")
#: ``build(name=…, **config) -> Frozen``: networks that only run forward in each step.
FROZEN_ARCHS: Registry[Callable[..., Frozen]] = Registry("frozen architecture")

#: Architectures that are records of ``models_db/architectures``, and the record of each.
_RECORDS = (
    "resnet", "inverted_residual", "vgg", "alexnet", "densenet", "inception_v3", "mnist_cnn",
    "unet", "unet_volume", "vnet", "ssd300", "rcnn", "retinanet", "efficientdet", "yolo_c2f",
    "yolo_c3", "yolo_c3k2", "moco", "jasper", "waveglow", "gnmt", "neumf", "dlrm", "dit", "latte",
    "stdit", "uvit",
)  # fmt: skip
LAYER_LISTS = {**{name: name for name in _RECORDS}, "resnext": "resnet"}
#: Records of networks that only run forward.
FROZEN_LAYER_LISTS: tuple[str, ...] = ("embedding_tables", "autoencoder_kl_encoder")
#: Records of layers on ``archs.body``.
BODY_LISTS: tuple[str, ...] = (
    "ltx", "wan", "cogvideox", "mmdit", "mmdit_video", "wav2vec2", "clip", "siglip", "mae",
    "vit", "vit_rotary", "bert", "albert", "modernbert", "deberta", "bart", "t5", "whisper",
    "transformer_xl",
)  # fmt: skip
#: Those of networks that only run forward.
FROZEN_BODY_LISTS: tuple[str, ...] = ("clip_text_encoder", "t5_encoder", "vision_encoder")
#: The file that registers each architecture. The list is explicit (no folder is scanned), so that a
#: prediction imports only the files that it needs.
FILES = {
    **dict.fromkeys((*LAYER_LISTS, *FROZEN_LAYER_LISTS), "layers"),
    **dict.fromkeys((*BODY_LISTS, *FROZEN_BODY_LISTS), "body_layers"),
    "transformer": "transformer",
    "traced": "traced",
    "zamba2": "zamba",
    "latent_unet": "latent_unet",
}

#: Architectures by kind of model, in the order in which a list shows them.
KINDS = {
    "language": ("transformer", "transformer_xl", "zamba2"),
    "text": (
        "bert", "albert", "modernbert", "deberta", "bart", "t5", "t5_encoder", "clip_text_encoder",
        "gnmt",
    ),
    "speech": ("whisper", "wav2vec2", "jasper", "waveglow"),
    "image": (
        "resnet", "resnext", "inverted_residual", "vgg", "alexnet", "densenet", "inception_v3",
        "vit", "vit_rotary", "mae", "moco", "mnist_cnn",
    ),
    "detection": (
        "ssd300", "rcnn", "retinanet", "efficientdet", "yolo_c2f", "yolo_c3", "yolo_c3k2",
    ),
    "segmentation": ("unet", "unet_volume", "vnet"),
    "image and text": ("clip", "siglip", "vision_encoder"),
    "diffusion": (
        "dit", "latte", "stdit", "uvit", "mmdit", "mmdit_video", "wan", "ltx", "cogvideox",
        "latent_unet", "autoencoder_kl_encoder",
    ),
    "recommender": ("neumf", "dlrm", "embedding_tables"),
    "traced": ("traced",),
}  # fmt: skip


def kind_of(name: str) -> str:
    """The kind of the models of architecture ``name``."""
    return next((kind for kind, archs in KINDS.items() if name in archs), "other")


def network_file(name: str) -> Path | None:
    """The file of a network that is a record of layers, a user's own before one that ships."""
    files = (folder / f"{name}.yaml" for folder in _folders()) if name.isidentifier() else ()
    return next((file for file in files if file.is_file()), None)


def networks(*, own: bool = False) -> list[str]:
    """Names of all records of layers, or of those that do not ship."""
    shipped = _folders()[-1]
    folders = [folder for folder in _folders() if not own or folder != shipped]
    return sorted({file.stem for folder in folders for file in folder.glob("*.yaml")})


def _folders() -> list[Path]:
    """Folders that may hold records of layers, that of shipped ones last."""
    roots = [root for root in search_roots() if root != shipped_root()]
    return [root / "models_db" / "architectures" for root in (*roots, shipped_root())]


@lru_cache(maxsize=256)  # import_module takes microseconds, thousands of times in a sweep
def load(name: str) -> None:
    """Import the file that registers ``name``, or all files for an unknown name.

    With all files imported, the error for an unknown name can state the nearest architecture.
    """
    if name not in FILES and name in networks(own=True):
        import_module(f"{__name__}.body_layers").register(name)
        return
    for file in [FILES[name]] if name in FILES else dict.fromkeys(FILES.values()):
        import_module(f"{__name__}.{file}")


#: Arguments of every builder that are no settings.
_OF_ALL = ("name", "sample_unit")


def settings_by_part(build: Callable[..., Workload]) -> Callable[..., Workload]:
    """The builder that takes each setting as a keyword, from one that takes them in dataclasses.

    Arguments of ``build`` other than name and sample unit are annotated with dataclasses; fields of
    these are settings, or dataclasses of further settings. Names of settings are unique.
    """
    hints = get_type_hints(build)
    parts = {p: hints[p] for p in inspect.signature(build).parameters if p not in _OF_ALL}
    known = [setting for part in parts.values() for setting in _settings(part)]
    names = {setting.name for setting in known}

    def build_flat(*, name: str, sample_unit: str = "sequence", **settings: Any) -> Workload:
        if wrong := settings.keys() - names:
            raise TypeError(f"{build.__name__}() has no settings {', '.join(sorted(wrong))}")
        made = {key: _part(cls, settings) for key, cls in parts.items()}
        return build(name=name, sample_unit=sample_unit, **made)

    own = [inspect.signature(build).parameters[key] for key in _OF_ALL]
    build_flat.__signature__ = inspect.Signature([*own, *known])  # type: ignore[attr-defined]
    build_flat.__doc__ = build.__doc__
    return build_flat


@lru_cache(maxsize=64)
def _hints(part: type) -> Mapping[str, Any]:
    return get_type_hints(part)


def _settings(part: type) -> Iterator[inspect.Parameter]:
    """The settings of a dataclass and of the dataclasses in it, as keyword arguments."""
    hints = _hints(part)
    for field in fields(part):
        if is_dataclass(hints[field.name]):
            yield from _settings(hints[field.name])
        else:
            default = inspect.Parameter.empty if field.default is MISSING else field.default
            yield inspect.Parameter(
                field.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=field.type
            )


def _part(cls: Any, settings: Mapping[str, Any]) -> Any:
    """The part of these settings that belongs to a dataclass and to the dataclasses in it."""
    inner, plain = _split(cls)
    parts = {key: _part(hint, settings) for key, hint in inner.items()}
    return cls(**{key: settings[key] for key in plain & settings.keys()}, **parts)


@lru_cache(maxsize=64)
def _split(part: type) -> tuple[Mapping[str, Any], Set[str]]:
    """The fields of a dataclass that are dataclasses themselves, with these, and the others."""
    hints = _hints(part)
    inner = {key: hint for key, hint in hints.items() if is_dataclass(hint)}
    return inner, hints.keys() - inner.keys()


def check_names(**given: tuple[str, Sequence[str]]) -> None:
    """Raises ValueError unless each setting's name is one of its allowed names."""
    for key, (name, known) in given.items():
        if name not in known:
            raise ValueError(f"{key} {name!r} is none of {', '.join(known)}")


#: Kernels of records that functions of ``workload.ops`` make.
KERNELS = ("cast", "autocast_cast", "added_bias")


def head_width(hidden: int, heads: int) -> int:
    """Width of a head. Raises ValueError if the heads do not divide the model's width."""
    if hidden % heads:
        raise ValueError(f"hidden {hidden} is not a multiple of heads {heads}")
    return hidden // heads


#: Bytes per parameter of a quantised base. nf4: 4 bits, and doubly quantised scales of 0.127 bit
#: (Dettmers et al. 2023, QLoRA, section 3); nf4-single: one fp32 scale for 64 parameters, 0.5 bit.
#: gptq: 4 bits, and a scale in 16 bit and a zero point in 4 for 128 parameters (AutoGPTQ's groups).
#: int8: LLM.int8's one fp32 scale per row is left out. fp8: one scale per tensor; fp8 products
#: read it without a cast (Transformer Engine's fp8 parameters).
QUANTISED_BYTES = {
    "nf4": (4 + 0.127) / 8, "nf4-single": (4 + 32 / 64) / 8, "gptq": (4 + 20 / 128) / 8,
    "int8": 1.0, "fp8": 1.0,
}  # fmt: skip
#: Formats whose products return the type of their input, fp32 where the input is fp32
#: (bitsandbytes, nn/modules.py, Linear4bit.forward: ``.to(inp_dtype)``).
AS_WIDE_AS_INPUT = ("nf4", "nf4-single")
QUANTISED = ("none", *QUANTISED_BYTES)

#: Names that checkpoints use for the products of a layer, and the names used here.
TARGETS = {
    "q_proj": ("q",), "k_proj": ("k",), "v_proj": ("v",), "o_proj": ("attention.out",),
    "out_proj": ("attention.out", "out_proj"), "o": ("attention.out",), "dense": ("attention.out",),
    "qkv_proj": ("qkv",), "query_key_value": ("qkv",), "c_attn": ("qkv",),
    "gate_proj": ("gate",), "up_proj": ("up",), "down_proj": ("down",), "c_fc": ("up",),
    "fc1": ("up",), "fc2": ("down",), "dense_h_to_4h": ("up",), "dense_4h_to_h": ("down",),
    "gate_up_proj": ("gate_up",), "c_proj": ("attention.out", "down"),
    "q_a_proj": ("q_a",), "q_b_proj": ("q_b",), "kv_b_proj": ("kv_b",),
    "kv_a_proj_with_mqa": ("kv_a",),
    "in_proj_qkvz": ("in_proj",), "in_proj_ba": ("in_proj1",),  # Qwen3-Next
    "in_proj_qkv": ("in_proj",), "in_proj_z": ("in_proj1",), "in_proj_b": ("in_proj2",),
    "in_proj_a": ("in_proj3",),  # Qwen3.5
    "to_q": ("q",), "to_k": ("k",), "to_v": ("v",),
    "to_out": ("attention.out",), "to_out.0": ("attention.out",),
    "add_q_proj": ("text.q",), "add_k_proj": ("text.k",), "add_v_proj": ("text.v",),
    "to_add_out": ("text.attention.out",),
}  # fmt: skip
ALL_LINEAR = "all-linear"
#: How an adapter runs in addition to its product. ``apart``: in tensor operations (PEFT,
#: tuners/lora/layer.py). ``redrawn``: the same, but backward draws the dropout once more, so that
#: no mask is saved (NeMo, parallel_adapters.py, dropout_recompute: Thunder's). ``joined``: sums and
#: scale are part of the products, of which the second adds to the result of the first, each way
#: (NeMo, TEFusedLoRALinear on Transformer Engine's operation fuser: AddExtraInput, MakeExtraOutput
#: and ConstantScale inside BasicLinear).
LORA_KERNELS = ("apart", "redrawn", "joined")


@dataclass(frozen=True)
class Adapters:
    """Low-rank adapters of ``rank`` on ``targets``.

    - ``quantised``: format of the frozen base.
    - ``drop``: each adapter has its own dropout before it (PEFT, tuners/lora/layer.py).
    - ``wide``: adapters are fp32 while weights are 16 bit, under autocast.
    - ``kernels``: one of ``LORA_KERNELS``.
    - ``wide_experts``: routed experts keep 16 bits on a quantised base: they are no modules of the
      kind that is quantised.
    - ``inputs``: a frozen product after a norm saves its input, as a trained one does (Transformer
      Engine 2, LayerNormLinear: saves ln_out whether or not the weight has a gradient); on a base
      in 4 bits every product does (``hangs_inputs``).
    """

    rank: int
    targets: frozenset[str]
    quantised: str = "none"
    drop: bool = False
    wide: bool = False
    kernels: str = "apart"
    inputs: bool = False
    wide_experts: bool = False

    @property
    def hangs_inputs(self) -> bool:
        """Whether a quantised product keeps its input on its autograd node, as ctx.tensors.

        bitsandbytes, autograd/_functions.py: MatMul8bitLt does, MatMul4Bit did before 0.43.2 (pull
        request 1270), which ``inputs`` says.
        """
        return self.quantised == "int8" or (self.inputs and self.quantised.startswith("nf4"))

    def on(self, name: str) -> bool:
        """Whether the product ``name`` of a layer has an adapter."""
        return ALL_LINEAR in self.targets or not self.targets.isdisjoint({name, plain_name(name)})


def plain_name(name: str) -> str:
    """A product's name without prefixes.

    These are the prefix of a shared layer, of one of two attentions, or of an image stream.
    Libraries match the end of a name. Where text is a separate stream, diffusers calls its products
    add_q_proj and so on.
    """
    for prefix in ("shared.", "image.", "self.", "cross."):
        name = name.removeprefix(prefix)
    return name


def adapters(
    rank: int,
    targets: str,
    quantised_base: str,
    dropout: float = 0.0,
    wide: bool = False,
    kernels: str = "apart",
    inputs: bool = False,
    wide_experts: bool = False,
    frozen: bool = False,
) -> Adapters | None:
    """The adapters that settings describe; None without any. Raises ValueError.

    ``frozen``: of rank 0, so that nothing of the model is trained and gradients pass through it.
    """
    check_names(quantised_base=(quantised_base, QUANTISED), lora_kernels=(kernels, LORA_KERNELS))
    if rank < 0:
        raise ValueError(f"lora_rank {rank} must not be negative")
    if frozen:
        if rank:
            raise ValueError("lora_rank trains adapters of a model that frozen_model freezes")
        return Adapters(0, frozenset(), quantised_base)
    if not rank:
        if quantised_base != "none":
            raise ValueError(f"quantised_base {quantised_base!r} needs a lora_rank")
        if targets:
            raise ValueError(f"lora_targets {targets!r} need a lora_rank")
        if dropout:
            raise ValueError(f"lora_dropout {dropout!r} needs a lora_rank")
        if wide:
            raise ValueError("lora_wide needs a lora_rank")
        return None
    if wide and kernels == "joined":
        raise ValueError("lora_kernels 'joined' has no adapters in fp32: leave out lora_wide")
    words = [w.strip() for w in (targets or ALL_LINEAR).split(",") if w.strip()]
    wanted = frozenset(ours for word in words for ours in TARGETS.get(word, (word,)))
    return Adapters(
        rank, wanted, quantised_base, dropout > 0, wide, kernels, inputs, wide_experts
    )  # fmt: skip


def adapter_assumptions(chosen: Adapters | None) -> tuple[str, ...]:
    """Sentences on what a prediction with adapters assumes."""
    if chosen is None:
        return ()
    base = "" if chosen.quantised == "none" else f" in {chosen.quantised}"
    drop = "with" if chosen.drop else "without"
    own = f"adapters of rank {chosen.rank} {drop} dropout; " if chosen.rank else ""
    return (f"{own}the frozen base{base} is sharded by zero3, whole on every rank otherwise",)
