"""Memory of one device that trains a given module, by term, without running the module.

from simcore import estimate_memory
estimate_memory(model, sample_input, torch.optim.AdamW(model.parameters()))
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import nn

from simcore.base.errors import UsageError, did_you_mean
from simcore.base.record import dataclass
from simcore.workload.trace.attention import Attention
from simcore.workload.trace.fake import unwrapped
from simcore.workload.trace.record import ParamRecord, Trace
from simcore.workload.trace.tracer import trace

#: Optimizer state tensors per parameter, each of the parameter's size and dtype.
_STATES = {
    "sgd-plain": 0, "sgd": 1, "adam": 2, "adamw": 2, "adamax": 2, "nadam": 2, "radam": 2,
    "rmsprop": 1, "adagrad": 1, "lion": 1, "adadelta": 2,
}  # fmt: skip
#: Optimizers with two states of one byte per element and an fp32 scale for every block of 256
#: elements of each state (Dettmers et al. 2022).
_EIGHT_BIT = ("adam8bit", "adamw8bit")
_BLOCK = 256
_OPTIMIZERS = (*_STATES, *_EIGHT_BIT, "adafactor", "muon")


@dataclass(frozen=True, kw_only=True)
class MemoryEstimate:
    """Bytes on one device in one training step.

    ``backward_peak_bytes``: the most that is alive at one time in forward and backward.
    ``step_peak_bytes``: the same in the optimizer step, with all gradients and no activations.
    Library workspaces, the CUDA context and fragmentation of the allocator are not included.
    """

    parameters_bytes: int
    buffers_bytes: int
    gradients_bytes: int
    optimizer_state_bytes: int
    inputs_bytes: int
    activations_bytes: int
    autocast_weights_bytes: int
    backward_peak_bytes: int
    step_peak_bytes: int

    @property
    def peak_bytes(self) -> int:
        """The most that is alive at one time in the whole step."""
        return max(self.backward_peak_bytes, self.step_peak_bytes)

    def __str__(self) -> str:
        from simcore.base.units import MIB

        names = [n for n in vars(self) if not n.endswith("peak_bytes")]
        rows = [(n.removesuffix("_bytes").replace("_", " "), getattr(self, n)) for n in names]
        rows.append(("peak", self.peak_bytes))
        return "\n".join(f"{name:<18}{n / MIB:>12,.1f} MiB" for name, n in rows)


def _name(optimizer: Any) -> str:
    """The name, such as ``adamw``, of an optimizer that is given as name, class or instance.

    SGD without momentum is ``sgd-plain``. Raises UsageError for an unknown optimizer.
    """
    if isinstance(optimizer, str):
        name = optimizer.lower()
    else:
        kind = optimizer if isinstance(optimizer, type) else type(optimizer)
        name = kind.__name__.lower()
        defaults = getattr(optimizer, "defaults", {})
        if name == "sgd" and not defaults.get("momentum"):
            name = "sgd-plain"
    if name not in _OPTIMIZERS:
        hint = did_you_mean(name, _OPTIMIZERS, f": known are {', '.join(_OPTIMIZERS)}")
        raise UsageError(f"unknown optimizer {name!r}{hint}")
    return name


def _state(name: str, p: ParamRecord) -> int:
    """Bytes of optimizer state of one parameter tensor."""
    if name in _EIGHT_BIT:
        if p.numel < 4096:  # bitsandbytes keeps small tensors in fp32
            return 2 * 4 * p.numel
        return 2 * p.numel + 2 * 4 * -(-p.numel // _BLOCK)
    if name == "adafactor":  # rows and columns for matrices (Shazeer & Stern 2018)
        if len(p.shape) < 2:
            return p.numel * p.item_bytes
        lead = p.numel // (p.shape[-1] * p.shape[-2])
        return lead * (p.shape[-1] + p.shape[-2]) * p.item_bytes
    if name == "muon":  # momentum for matrices, AdamW for the rest (Jordan et al. 2024)
        return (1 if len(p.shape) == 2 else 2) * p.numel * p.item_bytes
    return _STATES[name] * p.numel * p.item_bytes


def memory_of(traced: Trace, optimizer: Any = "adamw", *, amsgrad: bool = False) -> MemoryEstimate:
    """The memory estimate of a traced step. Raises UsageError for an unknown optimizer."""
    name = _name(optimizer)
    amsgrad = amsgrad or bool(getattr(optimizer, "defaults", {}).get("amsgrad"))
    trained = [p for p in traced.params if p.trained]
    ready = set(traced.gradient_order)
    parameters = sum(p.numel * p.item_bytes for p in traced.params)
    buffers = sum(n * width for _, n, width in traced.buffers)
    gradients = sum(p.numel * p.item_bytes for p in trained if p.names[0] in ready)
    state = sum(_state(name, p) for p in trained)
    if amsgrad:
        state += sum(p.numel * p.item_bytes for p in trained)
    held = parameters + buffers + state + traced.input_bytes
    alive = [s for s in traced.saved if s.role == "activation"]
    return MemoryEstimate(
        parameters_bytes=parameters,
        buffers_bytes=buffers,
        gradients_bytes=gradients,
        optimizer_state_bytes=state,
        inputs_bytes=traced.input_bytes,
        activations_bytes=sum(s.n_bytes for s in alive),
        autocast_weights_bytes=sum(s.n_bytes for s in traced.saved if s.role == "cast"),
        backward_peak_bytes=held + traced.peak_live_bytes,
        step_peak_bytes=held + gradients + _temporaries(name, trained),
    )


def _temporaries(name: str, trained: list[ParamRecord]) -> int:
    """Bytes that Adam's foreach step allocates: one denominator per parameter."""
    adam = name in ("adam", "adamw", "nadam", "radam")
    return sum(p.numel * p.item_bytes for p in trained) if adam else 0


def estimate_memory(
    model: Any,
    sample_input: Any,
    optimizer: Any = "adamw",
    *,
    loss: Callable[..., Any] | None = None,
    autocast: str | None = None,
    attention: Attention = "flash",
) -> MemoryEstimate:
    """Memory of one training step of ``model`` on ``sample_input``, without running it.

    ``sample_input``: a tensor, a tuple of arguments or a mapping of named ones, such as a batch of
    transformers; only shapes and dtypes matter. ``optimizer``: a torch optimizer, its class or its
    name. ``loss(output)``, ``autocast`` and ``attention`` as in ``trace``. The model is unchanged
    afterwards. Raises UsageError.
    """
    _name(optimizer)
    if not isinstance(model, nn.Module):
        raise UsageError(f"estimate_memory takes an nn.Module, not {model!r:.60}")
    what = type(unwrapped(model)).__name__
    many = isinstance(sample_input, (tuple, list, Mapping))
    inputs = sample_input if many else (sample_input,)
    traced = trace(model, inputs, loss=loss, autocast=autocast, attention=attention, what=what)
    return memory_of(traced, optimizer)
