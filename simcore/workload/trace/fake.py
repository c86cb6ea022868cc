"""Fake tensors, without memory or values, in place of a module's tensors while it is traced."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch._prims_common import suggest_memory_format
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._pytree import tree_map_only

from simcore.workload.trace.attention import Attention, attention_as
from simcore.workload.trace.autocast import cuda_policy

_OWN = ("_parameters", "_buffers", "_modules")


class _Memo:
    """One fake tensor for each real one, so that tied parameters stay tied."""

    def __init__(self) -> None:
        self.made: dict[int, tuple[Any, Any]] = {}

    def fake(self, tensor: Any) -> Any:
        if id(tensor) in self.made:
            return self.made[id(tensor)][0]
        new = torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype, device="cpu")
        if isinstance(tensor, nn.Parameter):
            new = nn.Parameter(new, tensor.requires_grad)
        elif tensor.requires_grad:
            new.requires_grad_()
        self.made[id(tensor)] = (new, tensor)
        return new

    def value(self, value: Any, depth: int = 2) -> Any:
        """The value with fake tensors inside lists, tuples and dicts; itself if it has none."""
        if isinstance(value, torch.Tensor):
            return self.fake(value)
        if not depth:
            return value
        if type(value) in (list, tuple):
            new = [self.value(v, depth - 1) for v in value]
            if any(a is not b for a, b in zip(new, value, strict=True)):
                return type(value)(new)
        elif type(value) is dict:
            fresh = {k: self.value(v, depth - 1) for k, v in value.items()}
            if any(fresh[k] is not value[k] for k in value):
                return fresh
        return value


@contextmanager
def faked(modules: tuple[Any, ...]) -> Iterator[None]:
    """A context in which parameters, buffers and tensor attributes of modules are fake.

    It must be entered inside a FakeTensorMode.
    """
    memo = _Memo()
    undo: list[tuple[dict[str, Any], str, Any]] = []
    seen: set[int] = set()
    try:
        for root in modules:
            for module in root.modules():
                if id(module) in seen:
                    continue
                seen.add(id(module))
                tables = [module._parameters, module._buffers]
                attributes = {k: v for k, v in vars(module).items() if k not in _OWN}
                for table, items in (*((t, dict(t)) for t in tables), (vars(module), attributes)):
                    for key, old in items.items():
                        new = memo.value(old)
                        if new is not old:
                            undo.append((table, key, old))
                            table[key] = new
        yield
    finally:
        for table, key, old in reversed(undo):
            table[key] = old


def resized(inputs: Any, batch: int | None = None, of: int = 0, *, device: str = "cpu") -> Any:
    """Empty tensors of the same shapes, dtypes and layouts, in the same lists, tuples and dicts.

    ``batch``: another batch size, for tensors whose first dimension is ``of``; others stay.
    """

    def empty(t: Any) -> Any:
        if batch is not None and not (t.dim() and t.shape[0] == of):
            return t
        shape = t.shape if batch is None else (batch, *t.shape[1:])
        layout = suggest_memory_format(t)
        return torch.empty(shape, dtype=t.dtype, device=device, memory_format=layout)

    return tree_map_only(torch.Tensor, empty, inputs)


@contextmanager
def fake_step(modules: tuple[Any, ...], inputs: Any, attention: Attention) -> Iterator[Any]:
    """A context of fake tensors in which a step runs as on CUDA; yields fake ``inputs``."""
    with (
        eager(),
        FakeTensorMode(allow_non_fake_inputs=True),
        faked(modules),
        cuda_policy(),
        attention_as(attention),
    ):
        yield resized(inputs)


@contextmanager
def eager() -> Iterator[None]:
    """A context in which compiled functions and modules run eagerly."""
    import sys

    if "torch._dynamo" not in sys.modules:  # Nothing has been compiled then.
        yield
        return
    with torch.compiler.set_stance("force_eager"):
        yield


def unwrapped(module: Any) -> Any:
    """The user's module without the wrappers of ``torch.compile`` and (Distributed)DataParallel."""
    while True:
        if hasattr(module, "_orig_mod"):
            module = module._orig_mod
        elif type(module).__name__ in ("DistributedDataParallel", "DataParallel"):
            module = module.module
        else:
            return module
