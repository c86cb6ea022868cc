"""Benchmarks of AdamW's update: PyTorch's default implementation and the fused one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from simcore.base.units import GIB
from simcore.calibrate.bench.case import FAMILIES, Case, Columns, Device, Prepare, Run, World

#: (number of tensors, elements of each), by kind of device.
SIZES: Final = {
    "cpu": ((24, 40_000), (12, 400_000), (8, 2_000_000)),
    "cuda": ((200, 100_000), (100, 4_000_000), (40, 16_000_000)),
}
#: PyTorch's default implementation and the fused one, by kind of device.
IMPLS: Final = {"cpu": ("for-loop", "fused"), "cuda": ("foreach", "fused")}
#: fp32 elements that an update reads and writes per parameter, with the gradient. foreach and the
#: loop materialise temporaries (``strategy.precision``); the fused update reads g, w, m, v and
#: writes w, m, v in one pass.
ELEMENTS_MOVED: Final = {"for-loop": 16, "foreach": 16, "fused": 7}


def _prepare(impl: str, tensors: int, numel: int) -> Prepare:
    def prepare(device: Device) -> Run:
        import torch

        params = [
            torch.randn(numel, device=device.kind, requires_grad=True) for _ in range(tensors)
        ]
        for p in params:
            p.grad = torch.randn_like(p)
        chosen = {"for-loop": {"foreach": False}, "foreach": {"foreach": True},
                  "fused": {"fused": True}}  # fmt: skip
        update = torch.optim.AdamW(params, lr=1e-4, **chosen[impl])

        def run() -> None:
            update.step()

        return run

    return prepare


@FAMILIES.register("optimizer")
def cases(device: Device, world: World) -> Iterable[Case]:
    """Both implementations on few large tensors and on many small ones."""
    for impl in IMPLS[device.kind]:
        for tensors, numel in SIZES[device.kind]:
            n_bytes = 4 * ELEMENTS_MOVED[impl] * tensors * numel
            if 2 * n_bytes > min(device.memory_bytes, 16 * GIB):
                continue
            columns: Columns = {"gpu": device.name, "op": f"adamw-{impl}", "bytes": n_bytes,
                       "count": tensors}  # fmt: skip
            yield Case("optimizer", "host", columns, _prepare(impl, tensors, numel), cold=True,
                       seconds=0.3)  # fmt: skip


def _on_host(numel: int) -> Prepare:
    def prepare(device: Device) -> Run:
        import torch

        p = torch.randn(numel, requires_grad=True)
        p.grad = torch.randn(numel)
        update = torch.optim.AdamW([p], lr=1e-4, fused=True)

        def run() -> float:
            import time

            start = time.perf_counter()
            update.step()
            return time.perf_counter() - start

        return run

    return prepare


@FAMILIES.register("host-adam")
def host_adam(device: Device, world: World) -> Iterable[Case]:
    """The fused update on the host of a GPU, as with an offloaded optimizer."""
    if device.kind == "cuda":
        for numel in (4_000_000, 64_000_000):
            columns: Columns = {
                "gpu": device.name,
                "op": "host-adam",
                "bytes": 28 * numel,
                "count": 1,
            }
            yield Case("host-adam", "host", columns, _on_host(numel), seconds=0.5)
