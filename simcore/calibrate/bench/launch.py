"""Benchmarks of the overhead of a kernel: its start on the device, its launch on the host."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any, Final

from simcore.calibrate.bench.case import FAMILIES, Case, Device, Run, World

#: Layers of the network of the eager benchmark; its kernels have almost no work.
DEPTH: Final = 32
#: Kernels of one layer (linear and ReLU): 2 forward; gradients of ReLU, input, weight, bias.
KERNELS_A_LAYER: Final = 6
#: Kernels of the CUDA graph.
GRAPH_KERNELS: Final = 200


def _tiny(torch: Any, device: Device) -> tuple[Any, Any]:
    layers = [m for _ in range(DEPTH) for m in (torch.nn.Linear(4, 4), torch.nn.ReLU())]
    net = torch.nn.Sequential(*layers).to(device.kind)
    return net, torch.randn(4, 4, device=device.kind, requires_grad=True)


def _eager(device: Device) -> Run:
    """Forward and backward of the tiny network; on CUDA only the time to launch it counts."""
    import torch

    net, x = _tiny(torch, device)
    if device.kind == "cpu":
        return lambda: net(x).sum().backward()

    def issue() -> float:
        torch.cuda.synchronize()
        start = time.perf_counter()
        net(x).sum().backward()
        return time.perf_counter() - start

    return issue


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
def cases(device: Device, world: World) -> Iterable[Case]:
    """Eagerly launched kernels; on CUDA also those of a CUDA graph."""
    named = {"gpu": device.name}
    yield Case("launch", "host", {**named, "op": "eager", "count": DEPTH * KERNELS_A_LAYER},
               _eager, seconds=0.3, first=True)  # fmt: skip
    if device.kind == "cuda":
        yield Case("launch", "host", {**named, "op": "graph", "count": GRAPH_KERNELS}, _graph,
                   seconds=0.2)  # fmt: skip
