"""Every option of a job with the value used in the prediction, given or default."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from simcore.base.units import FP32_BYTES
from simcore.request.resolved import Request
from simcore.strategy.options import OPTIONS, Option


def settings_in_effect(options: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """The options that were given, with the model's own value of those that are its settings."""
    found = {o.name: settings[o.name] for o in OPTIONS if o.setting and o.name in settings}
    return {**options, **found, "resolution": options.get("resolution") or _resolution(settings)}


def _resolution(settings: Mapping[str, Any]) -> str | None:
    """Height and width of a model's images [pixels] as text; None where it has no images."""
    height = settings.get("height", settings.get("image"))
    width = settings.get("width", settings.get("image_width") or height)
    return None if height is None else f"{height}x{width}"


def resolved_options(request: Request) -> dict[str, Any]:
    """Value of every option, None where it has none; plain types as in JSON."""
    return {o.name: _plain(_value(request, o)) for o in OPTIONS.options().values()
            if o.on_command_line}  # fmt: skip


def _value(request: Request, option: Option) -> Any:
    """The value in the resolved job; else the one that was given; else the default."""
    found: Any = None
    if (of := _OF.get(option.name)) is not None:
        found = of(request)
    elif option.resolved:
        found = request
        for name in option.resolved.split("."):
            found = getattr(found, name, None)
    if found is None:
        found = request.options.get(option.name)
    return option.unsaid if found is None else found


def as_given(option: Option) -> bool:
    """Whether a resolved job does not hold the option, so that only the given value is known."""
    return not option.resolved and option.name not in _OF


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(v) for v in value]
    return str(value) or None


def main_grads(request: Request) -> str:
    """Width of the gradient sums: the weights', the weights' with fused sums, or fp32."""
    precision = request.strategy.precision
    if not precision.main_grads:
        return "weights"
    return "fp32" if precision.grad_bytes == FP32_BYTES else "fused"


def _stages(request: Request) -> str | None:
    """Number of layers of each pipeline stage, as text."""
    return None if request.placed is None else request.placed.stages_text


def _per_node(request: Request) -> int | None:
    """GPUs of each node; None where nodes differ."""
    counts = {g.gpus_per_node for g in request.cluster.groups}
    return counts.pop() if len(counts) == 1 else None


def _bucket_numel(request: Request) -> int:
    """Elements of a gradient bucket: DeepSpeed sets elements, DDP sets bytes."""
    strategy = request.strategy
    if strategy.zero_stage in (1, 2):
        return strategy.buckets.zero_numel
    return int(strategy.buckets.cap_bytes // strategy.precision.grad_bytes)


#: Options whose value is derived from several fields of the resolved job.
_OF: Mapping[str, Callable[[Request], Any]] = {
    "main_grads": main_grads,
    "recompute_modules": lambda r: ",".join(r.strategy.recompute_modules) or None,
    "stages": _stages,
    "shares": lambda r: r.shares_text or None,
    "node": lambda r: "+".join(dict.fromkeys(g.node.name for g in r.cluster.as_written)),
    "nproc_per_node": _per_node,
    "bucket_numel": _bucket_numel,
    "sample_load": lambda r: r.loading and f"{r.loading.sample_load_s:g} s",
    "epoch_samples": lambda r: r.loading and r.loading.samples and round(r.loading.samples),
}
