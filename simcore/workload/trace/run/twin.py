"""A model as it was before it was wrapped and sharded, made from the wrapped one."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.distributed.tensor import DTensor

#: Attributes of a module that hold its hooks.
_HOOKS = tuple(
    name for name, value in vars(nn.Module()).items() if "hook" in name and isinstance(value, dict)
)
#: Attributes that libraries put in place of ``forward``.
_REPLACED = ("forward", "_old_forward", "_original_forward")


@dataclass(slots=True)
class Shapes:
    """Parameters of modules before a wrapper flattened them: module -> name -> (shape, dtype).

    The modules are kept, so that no other gets their identity.
    """

    of: dict[int, dict[str, Any]] = field(default_factory=dict)
    kept: list[nn.Module] = field(default_factory=list)

    def note(self, root: nn.Module) -> None:
        """Note the parameters of ``root`` and of all modules in it, once."""
        for module in root.modules():
            if id(module) in self.of or type(module).__name__ == "FullyShardedDataParallel":
                continue
            self.kept.append(module)
            self.of[id(module)] = {
                name: p if p is None else (id(p), tuple(p.shape), p.dtype, p.requires_grad)
                for name, p in module._parameters.items()
            }


def unwrapped(module: Any) -> Any:
    """The module inside wrappers of data parallelism, compilation and checkpointing."""
    while True:
        inner = getattr(module, "_orig_mod", None)
        if inner is None and type(module).__name__ in (
            "DistributedDataParallel", "DataParallel", "FullyShardedDataParallel",
        ):  # fmt: skip
            inner = module.module
        if inner is None:
            inner = getattr(module, "_checkpoint_wrapped_module", None)
        if inner is None:
            return module
        module = inner


def _class_of(module: nn.Module) -> type:
    """The user's class, of which ``fully_shard`` made a subclass."""
    kind = type(module)
    if any(base.__name__ == "FSDPModule" for base in kind.__bases__):
        return kind.__bases__[1]
    return kind


class Twins:
    """Makes twins; parameters and modules that are shared stay shared.

    ``tensor_ranks``: above 1, parameters have the shapes that one of these tensor ranks holds.
    """

    def __init__(self, shapes: Shapes, tensor_ranks: int = 1) -> None:
        self._shapes = shapes
        self._ranks = tensor_ranks
        self._modules: dict[int, nn.Module] = {}
        self._tensors: dict[int, torch.Tensor] = {}

    def of(self, wrapped: nn.Module) -> nn.Module:
        """The twin of a module: parameters of full shape on the meta device, without hooks."""
        module = unwrapped(wrapped)
        if id(module) in self._modules:
            return self._modules[id(module)]
        kind: Any = _class_of(module)
        twin: nn.Module = kind.__new__(kind)
        self._modules[id(module)] = twin
        state = {k: v for k, v in vars(module).items() if k not in _REPLACED}
        for name in _HOOKS:
            state[name] = OrderedDict()
        state["_parameters"] = self._parameters(module)
        state["_buffers"] = {
            k: None if b is None else self._tensor(id(b), b.shape, b.dtype)
            for k, b in module._buffers.items()
        }
        state["_modules"] = {}
        twin.__dict__.update(state)
        twin.__dict__["_modules"] = {
            k: None if m is None else self.of(m) for k, m in module._modules.items()
        }
        for key, value in state.items():
            if key not in ("_modules", "_parameters", "_buffers"):
                twin.__dict__[key] = self._value(value)
        if getattr(twin, "gradient_checkpointing", False) is True:
            twin.gradient_checkpointing = False
        return twin

    def _value(self, value: Any) -> Any:
        """An attribute that refers to modules or tensors, with their twins instead."""
        if isinstance(value, nn.Module):
            return self.of(value)
        if isinstance(value, torch.Tensor) and not isinstance(value, nn.Parameter):
            return self._tensor(id(value), value.shape, value.dtype)
        if type(value) in (list, tuple) and any(isinstance(v, nn.Module) for v in value):
            return type(value)(map(self._value, value))
        return value

    def _parameters(self, module: nn.Module) -> dict[str, Any]:
        noted = self._shapes.of.get(id(module))
        if noted is not None:
            return {
                name: None if known is None else self._parameter(*known)
                for name, known in noted.items()
            }
        return {
            name: None
            if p is None
            else self._parameter(id(p), self._shape(p), p.dtype, p.requires_grad)
            for name, p in module._parameters.items()
        }

    def _shape(self, parameter: Any) -> tuple[int, ...]:
        """The shape of a whole parameter, or of a tensor rank's part of it.

        Tensor ranks are the last dimension of a mesh: FSDP shards what they have divided.
        """
        shape = list(parameter.shape)
        if self._ranks > 1 and isinstance(parameter, DTensor):
            mesh, placement = parameter.device_mesh, parameter.placements[-1]
            if mesh.size(mesh.ndim - 1) == self._ranks and placement.is_shard():
                shape[placement.dim] //= self._ranks
        return tuple(shape)

    def _parameter(self, key: int, shape: Any, dtype: Any, trained: bool) -> Any:
        if key not in self._tensors:
            made = torch.empty(tuple(shape), dtype=dtype, device="meta")
            self._tensors[key] = nn.Parameter(made, requires_grad=trained)
        return self._tensors[key]

    def _tensor(self, key: int, shape: Any, dtype: Any) -> torch.Tensor:
        if key not in self._tensors:
            self._tensors[key] = torch.empty(tuple(shape), dtype=dtype, device="meta")
        return self._tensors[key]
