"""Builders whose settings are grouped in dataclasses, while users name the settings alone."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from functools import lru_cache
from typing import Any, get_type_hints

from simcore.workload.graph import Workload

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


#: How a linear layer's bias is added: by the product's own epilogue, or by a kernel after it.
BIAS_ADDS = ("fused", "separate")
#: When a scripted function's saved tensors are freed once its backward has run.
SCRIPTED = ("released", "held")
#: Kernels of records that functions of ``workload.ops`` make.
KERNELS = ("cast", "autocast_cast", "added_bias")
#: Units that compute products and convolutions which matrix units support only from some library
#: release on.
UNITS = ("matrix_units", "vector_units")


def head_width(hidden: int, heads: int) -> int:
    """Width of a head. Raises ValueError if the heads do not divide the model's width."""
    if hidden % heads:
        raise ValueError(f"hidden {hidden} is not a multiple of heads {heads}")
    return hidden // heads
