"""The calls from a batch to its loss, as a module that can be traced at another batch size."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.utils._pytree import tree_map_only
from torch.utils.weak import WeakIdKeyDictionary


class Slot(NamedTuple):
    """A tensor of the program: result ``number`` of a call; an input where ``call`` is -1."""

    call: int
    number: int


@dataclass(slots=True)
class Called:
    """A call of a module or of a function of torch, with slots instead of its tensors."""

    target: Any
    args: Any
    kwargs: Any

    @property
    def is_module(self) -> bool:
        """Whether a module was called."""
        return isinstance(self.target, nn.Module)


def outputs_of(value: Any) -> list[Any]:
    """All tensors of a result in a fixed order, also those of fields of a data class."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        return [t for v in value.values() for t in outputs_of(v)]
    if isinstance(value, (list, tuple)):
        return [t for v in value for t in outputs_of(v)]
    if hasattr(value, "__dataclass_fields__"):
        return [t for v in vars(value).values() for t in outputs_of(v)]
    return []


class Program:
    """The calls that lead to a loss. It keeps no tensor alive.

    ``inputs``: shape and data type of each tensor that no call made, in the order of first use.
    """

    def __init__(self) -> None:
        self.calls: list[Called] = []
        self.inputs: list[torch.Tensor] = []
        self.loss: Slot | None = None
        self._received: set[int] = set()  # inputs that want a gradient: of the stage before
        self._slots: Any = WeakIdKeyDictionary()

    def add(self, target: Any, args: Any, kwargs: Any, out: Any) -> None:
        """Append a call."""
        call = Called(target, self._slotted(args), self._slotted(kwargs))
        for i, t in enumerate(outputs_of(out)):
            self._slots.setdefault(t, Slot(len(self.calls), i))
        self.calls.append(call)

    def _slotted(self, values: Any) -> Any:
        return tree_map_only(torch.Tensor, self._slot, values)

    def _slot(self, tensor: Any) -> Any:
        if isinstance(tensor, nn.Parameter):
            return tensor
        if tensor not in self._slots:
            self._slots[tensor] = Slot(-1, len(self.inputs))
            like = torch.empty_strided(
                tuple(tensor.shape), tuple(tensor.stride()), dtype=tensor.dtype, device="meta"
            ) if tensor.layout == torch.strided else tensor  # fmt: skip
            self.inputs.append(like)
            if tensor.requires_grad:
                self._received.add(len(self.inputs) - 1)
        return self._slots[tensor]

    def ends_at(self, loss: Any) -> None:
        """State from which tensor backward starts."""
        self.loss = self._slots.get(loss) if isinstance(loss, torch.Tensor) else None

    def module(
        self, twin_of: Callable[[nn.Module], nn.Module]
    ) -> tuple[nn.Module, tuple[Any, ...]]:
        """A module that runs the calls which the loss needs, and sample inputs of it.

        ``twin_of``: gives the module to call instead of each that was called. Without a known loss
        it returns what the last module returned.
        """
        last = max((i for i, c in enumerate(self.calls) if c.is_module), default=0)
        end = self.loss if self.loss is not None and self.loss.call >= 0 else Slot(last, 0)
        needed, wanted = set(), [end]
        while wanted:
            slot = wanted.pop()
            if slot.call >= 0 and slot.call not in needed:
                needed.add(slot.call)
                call = self.calls[slot.call]
                wanted += _slots_in((call.args, call.kwargs))
        kept = [i for i in range(len(self.calls)) if i in needed]
        modules = {i: twin_of(c.target) for i in kept if (c := self.calls[i]).is_module}
        used = sorted({s.number for i in kept
                       for s in _slots_in((self.calls[i].args, self.calls[i].kwargs))
                       if s.call < 0})  # fmt: skip
        steps = [(i, self.calls[i]) for i in kept]
        step = _Step(modules, steps, used, end)
        step.received = self._received
        return step, tuple(self.inputs[i] for i in used)


def _slots_in(value: Any) -> list[Slot]:
    if isinstance(value, Slot):
        return [value]
    if isinstance(value, dict):
        return [s for v in value.values() for s in _slots_in(v)]
    if isinstance(value, (list, tuple)):
        return [s for v in value for s in _slots_in(v)]
    return []


def _filled(value: Any, of: Callable[[Slot], Any]) -> Any:
    """A value with tensors in place of slots."""
    if isinstance(value, Slot):
        return of(value)
    if isinstance(value, dict):
        filled = {k: _filled(v, of) for k, v in value.items()}
        return filled if type(value) is dict else type(value)(filled)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_filled(v, of) for v in value))
    if isinstance(value, (list, tuple)):
        return type(value)(_filled(v, of) for v in value)
    return value


class _Step(nn.Module):  # type: ignore[misc]
    """Runs the calls of a program on other inputs and returns the loss."""

    def __init__(
        self, modules: dict[int, nn.Module], steps: Any, used: list[int], end: Slot
    ) -> None:
        super().__init__()
        distinct = list({id(m): m for m in modules.values()}.values())
        if len(distinct) == 1:
            self.model = distinct[0]
        else:
            self.models = nn.ModuleList(distinct)
        self._at = modules  # a plain mapping: the modules are registered above
        self._steps, self._used, self._end = steps, used, end
        self.received: set[int] = set()

    def forward(self, *inputs: Any) -> Any:
        results: dict[int, list[Any]] = {-1: []}
        given = {
            number: torch.empty_like(x).requires_grad_() if number in self.received else x
            for number, x in zip(self._used, inputs, strict=True)
        }

        def of(slot: Slot) -> Any:
            return given[slot.number] if slot.call < 0 else results[slot.call][slot.number]

        for i, call in self._steps:
            target = self._at.get(i, call.target)
            out = target(*_filled(call.args, of), **_filled(call.kwargs, of))
            results[i] = outputs_of(out)
        return results[self._end.call][self._end.number]
