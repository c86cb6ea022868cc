"""Benchmarks of launches: what the host takes to issue operators, by kind and phase.

``eager``: forward and backward of a network of tiny layers. ``eager-KIND`` and
``eager-KIND-backward``: a chain of equal units with tiny tensors, such as linear modules, and the
backward pass of the chain; ``count`` is the number of units. ``graph``: kernels of a CUDA graph.
On a GPU the time that the host takes counts, from an empty queue on; on a host, which is the device
too, the whole time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final

from simcore.calibrate.bench.case import FAMILIES, Case, Columns, Device, Run, World, seconds_of

#: Layers of the network of the benchmark ``eager``; its kernels have almost no work.
DEPTH: Final = 32
#: Its kernels: of a layer (linear and ReLU) 2 forward, the gradients of ReLU, input, weight and
#: bias, and 2 that add those of the parameters to the earlier ones; and one that adds the input's.
EAGER_KERNELS: Final = DEPTH * 8 + 1
#: Kernels of the CUDA graph.
GRAPH_KERNELS: Final = 200
#: Units of a chain; a GPU's queue holds the kernels of all.
UNITS: Final = 64
#: Elements of each side of the tensors.
SIDE: Final = 8

Unit = Callable[[Any], Any]
#: (torch, keyword arguments of a new tensor) -> one unit.
Make = Callable[[Any, dict[str, Any]], Unit]


def _module(make: Callable[[Any], Any]) -> Make:
    """A module of ``torch.nn``, on the device."""
    return lambda torch, made: make(torch.nn).to(made["device"])


def _with_tensor(function: Callable[[Any, Any], Any]) -> Make:
    """``function`` of the chain's tensor and another."""
    return lambda torch, made: partial(_swapped, function, torch.randn(1, SIDE, SIDE, **made))


def _swapped(function: Callable[[Any, Any], Any], other: Any, x: Any) -> Any:
    return function(x, other)


def _attention(torch: Any, made: dict[str, Any]) -> Unit:
    attend = torch.nn.functional.scaled_dot_product_attention

    def unit(x: Any) -> Any:
        heads = x.view(1, SIDE, 2, SIDE // 2).transpose(1, 2)
        return attend(heads, heads, heads, is_causal=True).transpose(1, 2).reshape(x.shape)

    return unit


#: Kind of operator -> how a unit of it is made.
KINDS: Final[dict[str, Make]] = {
    "elementwise": _with_tensor(lambda x, other: x + other),
    "in-place": lambda torch, made: lambda x: x.add_(1.0),
    "activation-module": _module(lambda nn: nn.GELU()),
    "view": lambda torch, made: lambda x: x.view(1, SIDE, SIDE),
    "matmul": _with_tensor(lambda x, other: x @ other[0]),
    "bmm": lambda torch, made: lambda x: torch.bmm(x, x),
    "linear-module": _module(lambda nn: nn.Linear(SIDE, SIDE)),
    "norm-module": _module(lambda nn: nn.LayerNorm(SIDE)),
    "attention": _attention,
    "softmax": lambda torch, made: lambda x: x.softmax(-1),
    "reduction": lambda torch, made: lambda x: x.sum(-1, keepdim=True).expand(1, SIDE, SIDE),
    "copy": lambda torch, made: lambda x: x.transpose(1, 2).contiguous(),
    "conv-module": _module(lambda nn: nn.Conv2d(SIDE, SIDE, 1, bias=False)),
    "batch-norm-module": _module(lambda nn: nn.BatchNorm2d(SIDE)),
}
#: Kinds whose tensors are images; the others' are [1, SIDE, SIDE].
IMAGES: Final = ("conv-module", "batch-norm-module")
#: Kinds without a backward pass of their own.
NO_BACKWARD: Final = ("view", "in-place")


def chain(kind: str, backward: bool, device: Device) -> Run:
    """``UNITS`` units one after the other, forward with gradients recorded, or their backward."""
    import torch

    made = {"device": device.kind}
    shape = (1, SIDE, SIDE, SIDE) if kind in IMAGES else (1, SIDE, SIDE)
    units = [KINDS[kind](torch, made) for _ in range(UNITS)]
    weights = [p for u in units if isinstance(u, torch.nn.Module) for p in u.parameters()]
    x = torch.randn(*shape, **made, requires_grad=True)
    ones = torch.ones(*shape, **made)

    def forward() -> Any:
        y = x * 1.0  # a leaf cannot be changed in place
        for unit in units:
            y = unit(y)
        return y

    def run() -> float:
        y = None
        if backward:
            y = forward()
            for w in (x, *weights):
                w.grad = None
        if device.line is not None:
            device.line.wait()
        call = partial(y.backward, ones) if y is not None else forward
        return float(seconds_of(call)())

    return run


def eager(device: Device) -> Run:
    """Forward and backward of the network of tiny layers."""
    import torch

    layers = [m for _ in range(DEPTH) for m in (torch.nn.Linear(4, 4), torch.nn.ReLU())]
    net = torch.nn.Sequential(*layers).to(device.kind)
    x = torch.randn(4, 4, device=device.kind, requires_grad=True)
    ones = torch.ones(4, 4, device=device.kind)
    if device.line is None:
        return lambda: net(x).backward(ones)
    line, launched = device.line, seconds_of(lambda: net(x).backward(ones))

    def run() -> float:
        line.wait()
        return float(launched())

    return run


def _graph(device: Device) -> Run:
    """Replay of a CUDA graph of near-empty kernels: the device's own time per kernel."""
    import torch

    x = torch.zeros(8, device="cuda")
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        x.add_(1.0)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(GRAPH_KERNELS):
            x.add_(1.0)
    return lambda: graph.replay()


@FAMILIES.register("launch")
def launch_cases(device: Device, world: World) -> Iterable[Case]:
    """The network, each kind of operator forward and backward, and on CUDA a graph's kernels."""

    def of(op: str, count: int, prepare: Callable[[Device], Run], **more: Any) -> Case:
        columns: Columns = {"gpu": device.name, "op": op, "count": count}
        return Case("launch", "host", columns, prepare, **more)

    yield of("eager", EAGER_KERNELS, eager, seconds=0.3, first=True)
    for kind in KINDS:
        yield of(f"eager-{kind}", UNITS, partial(chain, kind, False))
        if kind not in NO_BACKWARD:
            yield of(f"eager-{kind}-backward", UNITS, partial(chain, kind, True))
    if device.kind == "cuda":
        yield of("graph", GRAPH_KERNELS, _graph, seconds=0.2)
