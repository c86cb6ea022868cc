"""One training step of a module on fake tensors, recorded."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import torch
from torch import nn

from simcore.base.errors import UsageError
from simcore.workload.trace.attention import Attention
from simcore.workload.trace.fake import fake_step, unwrapped
from simcore.workload.trace.guard import check_traceable, explained
from simcore.workload.trace.record import ParamRecord, Trace
from simcore.workload.trace.recorder import GivenTypes, Recorder, leaves
from simcore.workload.trace.units import repeated_units

Loss = Callable[..., Any]
_AUTOCAST = {"bf16": torch.bfloat16, "fp16": torch.float16}


def trace(
    module_or_step: Any,
    sample_inputs: Sequence[Any] | Mapping[str, Any],
    *,
    loss: Loss | None = None,
    autocast: str | None = None,
    attention: Attention = "flash",
    modules: Iterable[Any] = (),
    what: str = "",
) -> Trace:
    """The trace of forward and backward of ``module_or_step(*sample_inputs)`` on fake tensors.

    ``module_or_step``: an nn.Module, or a training step, which is a callable that returns the loss.
    ``sample_inputs``: positional, or named in a mapping; only shapes and dtypes matter.
    ``loss(output)``: the scalar loss of a module's output; None: the output's own ``loss``, or the
    mean of its floating-point tensors. ``modules``: the modules that a training step trains.
    ``autocast``: None, ``bf16`` or ``fp16``, with CUDA's list of ops. ``attention``: the kernel
    that CUDA would choose; ``native``: this machine's. ``what``: the model's name in errors.

    The module is unchanged afterwards. Raises UsageError if something cannot be traced, with the
    module's path and a remedy, and for an exception of the model's own code, with its type, text,
    file and line.
    """
    if autocast not in (None, *_AUTOCAST):
        raise UsageError(f"autocast is bf16 or fp16, not {autocast!r}")
    is_module = isinstance(module_or_step, nn.Module)
    target = unwrapped(module_or_step) if is_module else module_or_step
    trained = (target,) if is_module else tuple(unwrapped(m) for m in modules)
    if not trained:
        raise UsageError("a training step is traced with its modules: give modules=(model,)")
    what = what or type(trained[0]).__name__
    check_traceable(trained, what)
    recorder = Recorder()
    with ExitStack() as stack:
        inputs = stack.enter_context(fake_step(trained, sample_inputs, attention))
        params, buffers = _inventory(trained, recorder)
        for t in leaves(inputs):
            recorder.track(t, "input", "high" if t.dtype == torch.float32 else "raw")
        order: list[str] = []
        handles = _hooks(trained, recorder, params, order)
        stack.callback(lambda: [h.remove() for h in handles])
        stack.enter_context(explained(what, recorder))
        stack.enter_context(recorder)
        saving = torch.autograd.graph.saved_tensors_hooks(recorder.pack, lambda t: t)
        with saving, GivenTypes(recorder), ExitStack() as forward:
            if autocast:
                forward.enter_context(torch.autocast("cpu", dtype=_AUTOCAST[autocast]))
            named = isinstance(inputs, Mapping)
            output = target(**inputs) if named else target(*inputs)
            value = scalar_of(output, loss if is_module else None)
        if not value.requires_grad:
            raise UsageError(f"{what}: the loss does not depend on any trained parameter")
        saved = recorder.alive_storages(leaves(output))
        recorder.stack[:], recorder.forward_done = [""], True
        value.backward()
        peak = recorder.peak
    return Trace(
        ops=tuple(recorder.ops),
        saved=saved,
        params=tuple(
            ParamRecord(
                tuple(names),
                p.numel(),
                p.element_size(),
                p.requires_grad,
                _dtype(p),
                recorder.first_use(p),
                tuple(p.shape),
            )
            for p, names in params.values()
        ),
        buffers=buffers,
        gradient_order=tuple(order),
        units=tuple(recorder.units),
        calls=tuple(recorder.calls),
        input_bytes=sum(t.numel() * t.element_size() for t in leaves(inputs)),
        peak_live_bytes=peak,
        autocast=autocast,
        uncounted=tuple(recorder.uncounted),
    )


def _dtype(tensor: Any) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def scalar_of(output: Any, loss: Loss | None) -> Any:
    """The loss of a model's output: ``loss(output)``, its own ``loss``, or the mean of its floats.

    Raises UsageError if no floating-point output depends on a parameter.
    """
    if loss is not None:
        return loss(output)
    own = output.get("loss") if isinstance(output, dict) else getattr(output, "loss", None)
    if isinstance(own, torch.Tensor):
        return own
    if not isinstance(output, (torch.Tensor, list, tuple, dict)) and hasattr(output, "__dict__"):
        output = vars(output)
    floats = [t for t in leaves(output) if t.is_floating_point() and t.requires_grad]
    if not floats:
        raise UsageError("the model returns no floating-point tensor that depends on a parameter")
    if len(floats) == 1 and floats[0].numel() == 1:
        return floats[0].reshape(())
    total = floats[0].float().mean()
    for other in floats[1:]:
        total = total + other.float().mean()
    return total


def _prefix(trained: tuple[Any, ...], i: int) -> str:
    """The start of module paths in module ``i``: its number, where there are several modules."""
    return "" if len(trained) == 1 else f"{i}."


def _inventory(trained: tuple[Any, ...], recorder: Recorder) -> tuple[dict[int, Any], Any]:
    """All parameters with their names, by id, and all buffers; the recorder tracks them."""
    params: dict[int, tuple[Any, list[str]]] = {}
    buffers: dict[int, tuple[str, int, int]] = {}
    for i, root in enumerate(trained):
        at = _prefix(trained, i)
        for name, p in root.named_parameters(remove_duplicate=False):
            recorder.track(p, "parameter", "high" if p.dtype == torch.float32 else "raw")
            params.setdefault(id(p), (p, []))[1].append(at + name.replace("_orig_mod.", ""))
        for name, b in root.named_buffers():
            recorder.track(b, "buffer", "high" if b.dtype == torch.float32 else "raw")
            buffers.setdefault(id(b), (at + name, b.numel(), b.element_size()))
    return params, tuple(buffers.values())


def _hooks(
    trained: tuple[Any, ...], recorder: Recorder, params: dict[int, Any], order: list[str]
) -> list[Any]:
    """Add hooks that record module calls and append ready gradients to ``order``; their handles."""
    handles: list[Any] = []

    def ready(name: str) -> Callable[[Any], None]:
        return lambda _: order.append(name)

    for p, names in params.values():
        if p.requires_grad:
            handles.append(p.register_post_accumulate_grad_hook(ready(names[0])))
    seen: set[int] = set()
    for i, root in enumerate(trained):
        at = _prefix(trained, i)
        recorder.units.update(dict.fromkeys(at + u for u in repeated_units(root)))
        for name, module in root.named_modules():
            if id(module) in seen:
                continue
            seen.add(id(module))
            path = (at + name.replace("_orig_mod.", "").removesuffix("_orig_mod")).strip(".")

            def enter(_: Any, args: Any, kwargs: Any, path: str = path) -> None:
                recorder.enter(path, (args, kwargs))

            handles.append(module.register_forward_pre_hook(enter, with_kwargs=True))
            handles.append(
                module.register_forward_hook(lambda *_: recorder.leave(), always_call=True)
            )
    return handles
