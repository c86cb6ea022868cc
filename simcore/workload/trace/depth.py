"""Deep models from shallow traces: equal layers are traced at two depths, the rest follows.

Exact or not at all. The layers must be equal (class, settings but their number, shapes, nothing
shared); a model one layer deeper must be the shallower one with one of its blocks repeated; and the
operators of a forward pass at full depth, which costs little, must be the shallow ones with those
of a layer repeated.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from simcore.workload.graph import Block, Workload
from simcore.workload.trace.attention import attention_as
from simcore.workload.trace.autocast import cuda_policy
from simcore.workload.trace.convert import Dropped
from simcore.workload.trace.fake import eager, faked
from simcore.workload.trace.recorder import leaves
from simcore.workload.trace.tracer import fake_inputs, scalar_of

#: The first and the last layer differ from those between (inputs, ends of backward): A B B C.
SHALLOW = 4
#: Fewer layers are traced as they are: no slower than twice four and five of them.
LEAST = 20
#: What nn.Module keeps of itself: compared apart, or of no effect on what runs.
_OWN = ("_parameters", "_buffers", "_modules")
_HOOKS = re.compile(r"_.*hooks.*|_non_persistent_buffers_set|_is_full_backward_hook|_is_hf.*")
#: What a layer calls its number (transformers, Megatron-LM, torchtitan).
_NUMBERS = ("layer_idx", "layer_id", "layer_number")
_PLAIN = (int, float, str, bool, type(None), torch.dtype, torch.device)


@dataclass(frozen=True, slots=True)
class Layers:
    """Equal members ``start`` to ``stop`` of a list or sequence that lies at ``path``."""

    container: Any
    path: str
    start: int
    stop: int

    @property
    def depth(self) -> int:
        """How many they are."""
        return self.stop - self.start

    @contextmanager
    def cut_to(self, depth: int) -> Iterator[None]:
        """Inside, only the first ``depth`` of them are there."""
        whole = self.container._modules
        items = list(whole.items())
        kept = items[: self.start + depth] + items[self.stop :]
        self.container._modules = OrderedDict(kept)
        try:
            yield
        finally:
            self.container._modules = whole


def equal_layers(root: Any) -> Layers | None:
    """The longest stretch of equal layers; None where none is worth while."""
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
    return best if best is not None and _apart(root, best) else None


def _equal(one: Any, other: Any) -> bool:
    """Whether two modules are built alike: they differ in values only."""
    if type(one) is not type(other) or one is other or one.training != other.training:
        return False
    for table in ("_parameters", "_buffers"):
        if not _alike(dict(getattr(one, table)), dict(getattr(other, table))):
            return False
    if one._modules.keys() != other._modules.keys():
        return False
    hooks = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    if any(getattr(m, h, None) for m in (one, other) for h in hooks):
        return False
    ours, theirs = (
        {k: v for k, v in vars(m).items() if k not in _OWN and not _HOOKS.fullmatch(k)}
        for m in (one, other)
    )
    children = zip(one._modules.values(), other._modules.values(), strict=True)
    return _alike(_unnumbered(ours), _unnumbered(theirs)) and all(
        a is b is None or (a is not None and b is not None and _equal(a, b)) for a, b in children
    )


def _unnumbered(attributes: dict[str, Any]) -> dict[str, Any]:
    """Without a layer's number: what it makes of it shows in the operators that run."""
    return {
        k: v for k, v in attributes.items() if k not in ("layer_idx", "layer_id", "layer_number")
    }


def _alike(one: Any, other: Any) -> bool:
    if one is other:
        return True
    if type(one) is not type(other):
        return False
    if isinstance(one, torch.Tensor):
        kinds = [(t.shape, t.stride(), t.dtype, t.requires_grad) for t in (one, other)]
        return kinds[0] == kinds[1]
    if isinstance(one, _PLAIN):
        return bool(one == other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_alike(v, other[k]) for k, v in one.items())
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(_alike, one, other))
    if isinstance(one, nn.Module):
        return _equal(one, other)
    return False  # what it is, is not known


def _apart(root: Any, layers: Layers) -> bool:
    """Whether no layer shares a tensor with another one or with the rest."""
    inside = [m for i, m in enumerate(layers.container.children())
              if layers.start <= i < layers.stop]  # fmt: skip
    held = [id(t) for m in inside for t in (*m.parameters(), *m.buffers())]
    everywhere = [
        id(t)
        for table in (root.named_parameters, root.named_buffers)
        for _, t in table(remove_duplicate=False)
    ]
    return len(set(held)) == len(held) and all(everywhere.count(t) == 1 for t in set(held))


# -- operators of a forward pass -------------------------------------------------------------------


class _Names(TorchDispatchMode):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[object, ...]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = [(tuple(t.shape), t.stride(), t.dtype, t.requires_grad) for t in leaves(args)]
        out = func(*args, **(kwargs or {}))
        made = [(tuple(t.shape), t.dtype) for t in leaves(out)]
        self.seen.append((func, tuple(given), tuple(made)))
        return out


def forward_operators(
    root: Any, inputs: Sequence[Any], loss: Callable[..., Any] | None
) -> list[tuple[object, ...]]:
    """Every operator of one forward pass, what it reads and makes, without values, unrecorded."""
    with ExitStack() as stack:
        stack.enter_context(eager())
        stack.enter_context(FakeTensorMode(allow_non_fake_inputs=True))
        stack.enter_context(faked((root,)))
        given = fake_inputs(inputs)
        stack.enter_context(cuda_policy())
        stack.enter_context(attention_as("flash"))
        names = stack.enter_context(_Names())
        scalar_of(root(*given), loss)
        found: list[tuple[object, ...]] = names.seen
    return found


@dataclass(frozen=True, slots=True)
class Repeat:
    """What a longer sequence has more of than a shorter one, and where it lies."""

    at: int
    period: tuple[Any, ...]

    def times(self, shorter: Sequence[Any], times: int) -> tuple[Any, ...]:
        """The shorter sequence with ``times`` more of it."""
        return (*shorter[: self.at], *self.period * times, *shorter[self.at :])


def repeat_of(shorter: Sequence[Any], longer: Sequence[Any]) -> Repeat | None:
    """How the longer sequence follows from the shorter; None where it has more than one piece."""
    at = next((i for i, (a, b) in enumerate(zip(shorter, longer, strict=False)) if a != b),
              len(shorter))  # fmt: skip
    found = Repeat(at, tuple(longer[at : at + len(longer) - len(shorter)]))
    return found if found.period and found.times(shorter, 1) == tuple(longer) else None


# -- workloads -------------------------------------------------------------------------------------

Converted = tuple[Workload, Dropped]


def extrapolated(shallow: Converted, deeper: Converted, layers: Layers) -> Converted | None:
    """The model at full depth, from ``SHALLOW`` layers and one more; None where it is not exact."""
    (one, less), (two, more) = shallow, deeper
    times = layers.depth - SHALLOW
    repeat = repeat_of(one.order, two.order)
    if repeat is None:
        return None
    late = {i for i in one.order if one.order.index(i) >= repeat.at}

    def moved(blocks: Sequence[Block], by: int) -> list[Block]:
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
    widths = [[(f.name, f.bytes_per_param) for f in w.frozen] for w in (one, two)]
    return (
        widths[0] == widths[1]
        and one.input_bytes == two.input_bytes
        and less.unready == more.unready
        and less.uncounted == more.uncounted
    )


def _shifted(name: str, path: str, by: int) -> str:
    head = f"{path}." if path else ""
    index = name.removeprefix(head)
    return f"{head}{int(index) + by}" if name.startswith(head) and index.isdigit() else name
