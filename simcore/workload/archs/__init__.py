"""Architecture builders: a config in, a Workload out; one file per family, registered by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any, get_type_hints

from simcore.base.database import search_roots, shipped_root
from simcore.base.registry import Registry
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
    hints = _hints(cls)
    inner = {key: _part(hint, settings) for key, hint in hints.items() if is_dataclass(hint)}
    own = {key: settings[key] for key in hints.keys() - inner.keys() if key in settings}
    return cls(**own, **inner)


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
