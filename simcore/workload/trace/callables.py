"""Models traced from ``package.module:callable``: import, build without memory, trace, convert."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from simcore.base.errors import UsageError, did_you_mean, nearest
from simcore.base.record import dataclass
from simcore.workload.archs.traced import traced_part
from simcore.workload.graph import Workload
from simcore.workload.settings import TrustedName, permitted
from simcore.workload.trace.convert import converted, noted
from simcore.workload.trace.depth import (
    SHALLOW,
    Converted,
    Layers,
    equal_layers,
    extrapolated,
    forward_operators,
    repeat_of,
)
from simcore.workload.trace.fake import resized, unwrapped
from simcore.workload.trace.guard import own_error
from simcore.workload.trace.inputs import InputShape
from simcore.workload.trace.light import light
from simcore.workload.trace.record import Trace
from simcore.workload.trace.recorder import leaves
from simcore.workload.trace.tracer import trace
from simcore.workload.trace.zoos import ZOOS, TrainingDefaults, ready_torchvision

#: Batch sizes of the two traces; some models need an even batch.
BATCHES, EVEN_BATCHES = (2, 3), (2, 4)


@dataclass(frozen=True)
class Built:
    """What a callable returned: a module, its sample inputs (or None) and its loss (or None)."""

    module: Any
    sample: tuple[Any, ...] | None
    loss: Callable[..., Any] | None


def find_callable(text: TrustedName) -> Callable[[], Any]:
    """The callable of that name, imported from the current folder.

    This is the only place where a name becomes code that runs. Raises CodeRefused for a name that
    no user typed, and UsageError with the text of the module's own exception.
    """
    text = permitted(text)
    path, _, name = text.partition(":")
    if path.endswith(".py") or "/" in path:
        dotted = path.removesuffix(".py").strip("./").replace("/", ".")
        raise UsageError(
            f"{path!r} is a file, and {text!r} names a module in the folder you work in: "
            f"did you mean {dotted}:{name}?"
        )
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    ready_torchvision()  # The module may import torchvision, or timm, which imports it.
    try:
        module = importlib.import_module(path)
    except ModuleNotFoundError as err:
        if err.name and (path == err.name or path.startswith(f"{err.name}.")):
            library = nearest(path, list(ZOOS), 1)
            meant = f": did you mean {library[0]}:{name}?" if library else ""
            raise UsageError(
                f"no module {err.name!r} here: {text!r} is imported from the folder you work in"
                f"{meant}"
            ) from None
        raise own_error(path, err) from err
    except Exception as err:
        raise own_error(path, err) from err
    found: Any = module
    for part in name.split("."):
        if not hasattr(found, part):
            hint = did_you_mean(part, [n for n in dir(found) if not n.startswith("_")])
            raise UsageError(f"module {path!r} has no {part!r}{hint}")
        found = getattr(found, part)
    if not callable(found):
        raise UsageError(f"{text} is not callable: name a function that returns an nn.Module")
    return found


def build(text: TrustedName) -> Built:
    """The model that a callable returns, built without memory (``light``). Raises UsageError."""
    make = find_callable(text)
    needed = [
        p.name
        for p in _parameters(make)
        if p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
    ]
    if needed:
        raise UsageError(
            f"{text} needs arguments ({', '.join(needed)}): name a function that takes none"
        )
    return built_from(light(make, text), text)


def _parameters(make: Callable[..., Any]) -> list[inspect.Parameter]:
    try:
        return list(inspect.signature(make).parameters.values())
    except (TypeError, ValueError):
        return []


def built_from(returned: Any, text: str) -> Built:
    """The parts of a callable's result. Raises UsageError if it is of another form."""
    parts = returned if isinstance(returned, tuple) else (returned,)
    module, sample, loss = (*parts, None, None)[:3]
    if not isinstance(module, nn.Module) or len(parts) > 3:
        raise UsageError(
            f"{text} returned {type(module).__name__}: return an nn.Module, (module, sample) or "
            "(module, sample, loss)"
        )
    if loss is not None and not callable(loss):
        raise UsageError(f"{text}: the loss is not callable: give loss(output) -> scalar")
    if sample is not None and not isinstance(sample, (tuple, list)):
        sample = (sample,)
    return Built(module, tuple(sample) if sample is not None else None, loss)


def _from_shapes(shapes: tuple[InputShape, ...], batch: int) -> tuple[Any, ...]:
    """Input tensors of the given shapes on the meta device."""
    return tuple(
        torch.empty(
            s.at(batch),
            dtype=getattr(torch, s.dtype),
            device="meta",
            memory_format=torch.channels_last if s.channels_last else torch.contiguous_format,
        )
        for s in shapes
    )


def batch_of(sample: Any, what: str) -> int:
    """The batch size of a sample: the first dimension of its first tensor. Raises UsageError."""
    tensors = [t for t in leaves(sample) if t.dim()]
    if not tensors:
        raise UsageError(f"{what}: the sample inputs hold no tensor with a batch dimension")
    return int(tensors[0].shape[0])


def traced_twice(
    built: Built, shapes: tuple[InputShape, ...], what: str
) -> tuple[tuple[Trace, Trace], tuple[int, int]]:
    """Traces at two batch sizes, and the batch sizes. Raises UsageError."""
    if not shapes and built.sample is None:
        raise UsageError(
            f"{what} needs its inputs: --input 'float32[B,3,224,224]' (once for each, in order), "
            "or let it return (module, sample)"
        )
    of = 0 if shapes else batch_of(built.sample, what)

    def one(batch: int) -> Trace:
        given = (
            _from_shapes(shapes, batch)
            if shapes
            else resized(built.sample, batch, of, device="meta")
        )
        return trace(built.module, given, loss=built.loss, what=what)

    first = one(BATCHES[0])
    for batches in (BATCHES, EVEN_BATCHES):
        try:
            return (first, one(batches[1])), batches
        except UsageError:
            if batches is EVEN_BATCHES:
                raise
    raise AssertionError


def _unit(sample: Any) -> tuple[str, float]:
    """The name of a sample and its number of tokens, from the shape of the first tensor."""
    first = next(t for t in leaves(sample) if t.dim())
    if first.dtype in (torch.int64, torch.int32) and first.dim() == 2:
        return "sequence", float(first.shape[1])
    return ("image" if first.dim() == 4 else "sample"), 0.0


def traced_workload(built: Built, shapes: tuple[InputShape, ...], what: str) -> Workload:
    """The workload of a built model. Raises UsageError."""

    def converted_now() -> Converted:
        traces, batches = traced_twice(built, shapes, what)
        unit, tokens = _unit(_from_shapes(shapes, 2) if shapes else built.sample)
        return converted(traces, batches, name=what, sample_unit=unit, tokens_per_sample=tokens)

    layers = equal_layers(unwrapped(built.module))
    shallow = _from_shallow(built, shapes, layers, converted_now) if layers else None
    return noted(*(shallow or converted_now()))


def _from_shallow(
    built: Built, shapes: tuple[InputShape, ...], layers: Layers, convert: Callable[[], Converted]
) -> Converted | None:
    """The workload from traces of a few of the model's equal layers; None if not exact.

    ``convert`` traces and converts the model as it is at that moment.
    """
    root = unwrapped(built.module)
    sample = _from_shapes(shapes, BATCHES[0]) if shapes else built.sample
    shallow_models: list[Converted] = []

    def ran(depth: int) -> list[tuple[object, ...]]:
        with layers.cut_to(depth):
            return forward_operators(root, sample or (), built.loss)

    try:
        shallow = ran(SHALLOW)
        repeat = repeat_of(shallow, ran(SHALLOW + 1))
        times = layers.depth - SHALLOW
        if repeat is None or repeat.times(shallow, times) != tuple(ran(layers.depth)):
            return None
        for depth in (SHALLOW, SHALLOW + 1):
            with layers.cut_to(depth):
                shallow_models.append(convert())
    except Exception:  # The full trace raises the error, if there is one at full depth.
        return None
    whole = extrapolated(shallow_models[0], shallow_models[1], layers)
    trained = {id(p): p.numel() for p in root.parameters() if p.requires_grad}
    if whole is None or whole[0].trainable_numel != sum(trained.values()):
        return None
    return whole


def _titled(module: str, text: str, images: tuple[InputShape, ...]) -> str:
    """The full name: ``MyNet (pkg.net:build)``, or ``timm:NAME (MyNet, 224 x 224)``."""
    if not images:
        return f"{module} ({text})"
    height, width = images[0].dims[-2:]
    return f"{text} ({module}, {height} x {width})"


def _precision(module: Any) -> str:
    """The name of the precision in which the module's parameters are stored."""
    widths = {p.dtype for p in module.parameters() if p.is_floating_point()}
    return {torch.bfloat16: "bf16", torch.float16: "fp16"}.get(next(iter(widths), None), "fp32")


def callable_data(text: TrustedName, shapes: tuple[InputShape, ...]) -> dict[str, Any]:
    """The plain data, as in a models_db file, of ``package.module:callable``. Raises UsageError."""
    return record_data(build(text), shapes, text)


def record_data(
    built: Built,
    shapes: tuple[InputShape, ...],
    text: str,
    usual: TrainingDefaults | None = None,
) -> dict[str, Any]:
    """The plain data, as in a models_db file, of a built model. Raises UsageError.

    ``usual``: the defaults of its library's training script; None: the model has no library.
    """
    if any(s.channels_last for s in shapes):
        built.module.to(memory_format=torch.channels_last)
    workload = traced_workload(built, shapes, text)
    given = ", ".join(map(str, shapes)) or "its own sample"
    module = type(built.module).__name__
    return {
        "name": str(text),
        "full_name": _titled(module, text, shapes if usual else ()),
        "arch": "traced",
        "sample_unit": workload.sample_unit,
        "params": {"value": float(workload.trainable_numel), "source": "traced"},
        "training": {
            "waits_for_gradients": False,
            "micro_batch": usual.micro_batch if usual else 1,
            "precision": _precision(built.module),
            "optimizer": "sgd" if usual else "adamw",
            "source": usual.script if usual else "traced",
        },
        "notes": [
            *workload.notes,
            f"training defaults are those of {usual.script}: SGD with momentum, "
            f"micro-batch {usual.micro_batch}, fp32, DDP"
            if usual
            else "training defaults are assumed: AdamW, DDP, micro-batch 1 (a module says none)",
        ],
        "sources": {
            "traced": f"trace of {text} with {given}, torch {torch.__version__}",
        },
        "traced": traced_part(workload),
    }
