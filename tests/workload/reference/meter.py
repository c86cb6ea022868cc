"""What a torch step really does on CPU: kernels, traffic, storages saved, live elements.

Independent of simcore: it watches the dispatcher and autograd, it knows no formula.
"""

from __future__ import annotations

import math
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

#: Operators that run no kernel although their schema does not call them views.
FREE = {
    "aten.empty", "aten.empty_like", "aten.new_empty", "aten.empty_strided", "aten.detach",
    "aten._unsafe_view", "aten._reshape_alias", "aten.new_empty_strided", "aten.set_",
    "aten._local_scalar_dense", "aten._to_copy.skip", "aten.lift_fresh",
}  # fmt: skip


def touched_numel(tensor: torch.Tensor) -> int:
    """Elements that lie apart in memory: an expanded dimension counts once."""
    return math.prod(
        size
        for size, stride in zip(tensor.shape, tensor.stride(), strict=True)
        if stride or not size
    )


@dataclass
class KernelMeter(TorchDispatchMode):
    """Counts operators that run a kernel, and elements they read and write."""

    launches: Counter[str] = field(default_factory=Counter)
    elems: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        super().__init__()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        out = func(*args, **(kwargs or {}))
        name = str(func).rsplit(".", 1)[0]
        before = [t for t in tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)]
        after = [t for t in tree_leaves(out) if isinstance(t, torch.Tensor)]
        if func.is_view or name in FREE or not after:
            return out
        held = {t.untyped_storage().data_ptr() for t in before}
        if name in {"aten.reshape", "aten.contiguous"} and all(
            t.untyped_storage().data_ptr() in held for t in after
        ):
            return out
        self._as_cuda(name, args, before, after)
        self.launches[name] += 1
        self.elems[name] += sum(map(touched_numel, before)) + sum(map(touched_numel, after))
        return out

    def _as_cuda(
        self, name: str, args: tuple[object, ...], before: list[torch.Tensor],
        after: list[torch.Tensor],
    ) -> None:  # fmt: skip
        """Kernels that CUDA adds to what the CPU dispatches (ATen's CUDA sources)."""
        extra: dict[str, int] = {}
        if name.startswith("aten.native_layer_norm"):  # copies what is not contiguous
            strided = [t for t in before if not t.is_contiguous()]
            self.launches["layout copy"] += len(strided)
            self.elems["layout copy"] += 2 * sum(map(touched_numel, strided))
        elif name == "aten.convolution" and args[2] is not None:  # cuDNN's bias comes after
            extra["convolution bias"] = 2 * after[0].numel()
        elif name == "aten.convolution_backward" and after[-1].dim() == 1:
            extra["convolution bias gradient"] = before[0].numel()
        elif name == "aten.native_group_norm":  # moments first
            extra["group norm moments"] = before[0].numel()
        elif name == "aten.constant_pad_nd":  # fill, then copy
            extra["pad fill"] = after[0].numel()
        self.launches.update(dict.fromkeys(extra, 1))
        self.elems.update(extra)

    @property
    def n_launches(self) -> int:
        return sum(self.launches.values())

    @property
    def n_elems(self) -> int:
        return sum(self.elems.values())


class LiveMeter(TorchDispatchMode):
    """Peak of elements in storages that are alive and were born under it."""

    def __init__(self) -> None:
        super().__init__()
        self.live = self.peak = 0
        self._refs: Counter[int] = Counter()
        self._size: dict[int, int] = {}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        out = func(*args, **(kwargs or {}))
        born = {
            id(t): t
            for t in tree_leaves(out)
            if isinstance(t, torch.Tensor) and not any(t is a for a in tree_leaves((args, kwargs)))
        }
        inputs = {
            t.untyped_storage().data_ptr()
            for t in tree_leaves((args, kwargs))
            if isinstance(t, torch.Tensor)
        }
        for tensor in born.values():
            storage = tensor.untyped_storage()
            key = storage.data_ptr()
            if key not in self._size:
                if key in inputs:
                    continue  # a view of something older than the meter
                self._size[key] = storage.nbytes() // tensor.element_size()
                self.live += self._size[key]
            self._refs[key] += 1
            weakref.finalize(tensor, self._drop, key)
        self.peak = max(self.peak, self.live)
        return out

    def _drop(self, key: int) -> None:
        self._refs[key] -= 1
        if not self._refs[key] and key in self._size:
            self.live -= self._size.pop(key)


@contextmanager
def saved_storages(model: torch.nn.Module) -> Iterator[dict[int, int]]:
    """Bytes of every distinct storage that autograd saves, parameters and buffers left out."""
    own = {t.untyped_storage().data_ptr() for t in [*model.parameters(), *model.buffers()]}
    found: dict[int, int] = {}
    kept = []  # a freed storage would lend its address to another

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            found[storage.data_ptr()] = storage.nbytes()
            kept.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        yield found


@dataclass(frozen=True)
class Step:
    """One measured training step."""

    saved_bytes: int
    fwd: KernelMeter
    bwd: KernelMeter


def measure_step(model: torch.nn.Module, forward: Callable[[], torch.Tensor]) -> Step:
    """Run ``forward`` to a scalar loss and its backward under the meters."""
    fwd, bwd = KernelMeter(), KernelMeter()
    with saved_storages(model) as found, fwd:
        loss = forward()
    with bwd:
        loss.backward()
    return Step(saved_bytes=sum(found.values()), fwd=fwd, bwd=bwd)
