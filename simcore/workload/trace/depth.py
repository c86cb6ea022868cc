"""Workloads of deep models from traces with a few of their equal layers.

The result is exact; where it would not be, the model is traced at full depth. Three conditions must
hold. The layers are equal: same class, same settings except the layer's index, same shapes, no
shared tensors. The workload of a model that is one layer deeper is the shallower one with one block
repeated. The operators of a forward pass at full depth, which takes little time, are those of the
shallow model with the operators of one layer repeated.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from simcore.base.record import dataclass
from simcore.workload.graph import Block, Workload
from simcore.workload.trace.convert import Dropped
from simcore.workload.trace.fake import fake_step
from simcore.workload.trace.recorder import leaves
from simcore.workload.trace.tracer import scalar_of

#: Layers of the shallower trace. The first and the last layer differ from those between (inputs,
#: end of backward): A B B C.
SHALLOW = 4
#: The fewest layers for which shallow traces are worthwhile. A model with fewer is traced at full
#: depth, which takes no longer than two traces each of four and of five layers.
LEAST = 20
#: Tables of the hooks that run with a module.
_HOOK_TABLES = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
#: Attributes of nn.Module that do not change the operators that run.
_HOOKS = re.compile(r"_.*hooks.*|_non_persistent_buffers_set|_is_full_backward_hook|_is_hf.*")
#: Names of the attribute that holds a layer's index (transformers, Megatron-LM, torchtitan).
_NUMBERS = ("layer_idx", "layer_id", "layer_number")
#: Types whose values are compared with ``==``.
_COMPARED = (int, float, str, bool, type(None), torch.dtype, torch.device)


@dataclass(frozen=True)
class Layers:
    """Equal layers: children ``start`` (included) to ``stop`` (excluded) of a module list.

    ``container``: the ModuleList or Sequential; ``path``: its path in the model.
    """

    container: Any
    path: str
    start: int
    stop: int

    @property
    def depth(self) -> int:
        """The number of equal layers."""
        return self.stop - self.start

    @contextmanager
    def cut_to(self, depth: int) -> Iterator[None]:
        """A context in which the model has only the first ``depth`` of these layers."""
        whole = self.container._modules
        items = list(whole.items())
        remaining = items[: self.start + depth] + items[self.stop :]
        self.container._modules = OrderedDict(remaining)
        try:
            yield
        finally:
            self.container._modules = whole


def equal_layers(root: Any) -> Layers | None:
    """The longest run of equal layers; None if it is shorter than ``LEAST`` or shares tensors."""
    best: Layers | None = None
    for path, module in root.named_modules():
        if not isinstance(module, (nn.ModuleList, nn.Sequential)):
            continue
        children = list(module.children())
        start = 0
        for i in range(1, len(children) + 1):
            if i < len(children) and _equal(children[start], children[i]):
                continue
            if i - start >= max(LEAST, best.depth + 1 if best else 0):
                best = Layers(module, path, start, i)
            start = i
    return best if best is not None and _share_no_tensor(root, best) else None


def _equal(one: Any, other: Any) -> bool:
    """Whether two modules differ only in the values of their tensors and in a layer's index."""
    return bool(_plain(one) == _plain(other))


def _plain(value: Any) -> Any:
    """A value as data that is equal for equal layers: tensors without their values.

    Values of unknown types, and modules with hooks, are equal only to themselves.
    """
    if isinstance(value, torch.Tensor):
        return value.shape, value.stride(), value.dtype, value.requires_grad
    if isinstance(value, _COMPARED):
        return type(value), value
    if isinstance(value, dict):
        return type(value), {k: _plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value), [_plain(v) for v in value]
    if isinstance(value, nn.Module) and not any(getattr(value, h, None) for h in _HOOK_TABLES):
        own = {
            k: v for k, v in vars(value).items() if k not in _NUMBERS and not _HOOKS.fullmatch(k)
        }
        return type(value), _plain(own)
    return id(value)


def _share_no_tensor(root: Any, layers: Layers) -> bool:
    """Whether no layer shares a tensor with another layer or with the rest of the model."""
    inside = [m for i, m in enumerate(layers.container.children())
              if layers.start <= i < layers.stop]  # fmt: skip
    of_layers = [id(t) for m in inside for t in (*m.parameters(), *m.buffers())]
    everywhere = [
        id(t)
        for table in (root.named_parameters, root.named_buffers)
        for _, t in table(remove_duplicate=False)
    ]
    distinct = set(of_layers)
    return len(distinct) == len(of_layers) and all(everywhere.count(t) == 1 for t in distinct)


# -- operators of a forward pass -------------------------------------------------------------------


class _OperatorList(TorchDispatchMode):  # type: ignore[misc]
    """Lists every operator with the shapes and dtypes of its inputs and results."""

    def __init__(self) -> None:
        super().__init__()
        self.operators: list[tuple[object, ...]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        inputs = [(tuple(t.shape), t.stride(), t.dtype, t.requires_grad) for t in leaves(args)]
        out = func(*args, **(kwargs or {}))
        results = [(tuple(t.shape), t.dtype) for t in leaves(out)]
        self.operators.append((func, tuple(inputs), tuple(results)))
        return out


def forward_operators(
    root: Any, inputs: Sequence[Any], loss: Callable[..., Any] | None
) -> list[tuple[object, ...]]:
    """Every operator of one forward pass with the shapes and dtypes of its inputs and results.

    The pass runs on fake tensors. Without a ``Recorder`` it takes much less time than a trace.
    """
    with fake_step((root,), inputs, "flash") as fake, _OperatorList() as mode:
        scalar_of(root(*fake), loss)
    return mode.operators


@dataclass(frozen=True)
class Repeat:
    """What a longer sequence has in addition to a shorter one.

    ``period``: the additional elements; ``at``: their position in the longer sequence.
    """

    at: int
    period: tuple[Any, ...]

    def times(self, shorter: Sequence[Any], times: int) -> tuple[Any, ...]:
        """The shorter sequence with the period inserted ``times`` times."""
        return (*shorter[: self.at], *self.period * times, *shorter[self.at :])


def repeat_of(shorter: Sequence[Any], longer: Sequence[Any]) -> Repeat | None:
    """The one piece by which two sequences differ; None if they differ in several places."""
    at = next((i for i, (a, b) in enumerate(zip(shorter, longer, strict=False)) if a != b),
              len(shorter))  # fmt: skip
    repeat = Repeat(at, tuple(longer[at : at + len(longer) - len(shorter)]))
    return repeat if repeat.period and repeat.times(shorter, 1) == tuple(longer) else None


# -- workloads -------------------------------------------------------------------------------------

Converted = tuple[Workload, Dropped]


def extrapolated(shallow: Converted, deeper: Converted, layers: Layers) -> Converted | None:
    """The workload at full depth, from those with ``SHALLOW`` layers and with one more.

    Returns None if it would not be exact.
    """
    (one, less), (two, more) = shallow, deeper
    times = layers.depth - SHALLOW
    repeat = repeat_of(one.order, two.order)
    if repeat is None:
        return None
    late = {i for i in one.order if one.order.index(i) >= repeat.at}

    def moved(blocks: Sequence[Block], by: int) -> list[Block]:
        """The blocks, with layer indices after the repeated one increased by ``by``."""
        return [
            replace(b, name=_shifted(b.name, layers.path, by)) if i in late else b
            for i, b in enumerate(blocks)
        ]

    if moved(one.blocks, 1) != list(two.blocks) or not _same_rest(one, two, less, more):
        return None

    def line(a: float, b: float) -> float:
        return a + times * (b - a)

    frozen = tuple(
        replace(f, resident_numel=round(line(f.resident_numel, g.resident_numel)))
        for f, g in zip(one.frozen, two.frozen, strict=True)
    )
    workload = one.replace(
        blocks=tuple(moved(one.blocks, times)),
        order=repeat.times(one.order, times),
        frozen=frozen,
        buffers_numel=round(line(one.buffers_numel, two.buffers_numel)),
        n_buffers=round(line(one.n_buffers, two.n_buffers)),
    )
    dropped = Dropped(
        line(less.flop, more.flop), line(less.saved_bytes, more.saved_bytes), less.unready,
        less.uncounted,
    )  # fmt: skip
    return workload, dropped


def _same_rest(one: Workload, two: Workload, less: Dropped, more: Dropped) -> bool:
    """Whether the workloads agree in all that does not depend on the number of layers."""
    widths = [[(f.name, f.bytes_per_param) for f in w.frozen] for w in (one, two)]
    return (
        widths[0] == widths[1]
        and one.input_bytes == two.input_bytes
        and less.unready == more.unready
        and less.uncounted == more.uncounted
    )


def _shifted(name: str, path: str, by: int) -> str:
    """The name of a layer at ``path`` with its index increased; other names unchanged."""
    head = f"{path}." if path else ""
    index = name.removeprefix(head)
    return f"{head}{int(index) + by}" if name.startswith(head) and index.isdigit() else name
