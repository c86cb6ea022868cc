"""Device memory that no tensor accounts for: context, cuBLAS workspace, NCCL's buffers."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from simcore.calibrate.bench.case import FAMILIES, Device, World


def _used(torch: Any) -> int:
    free, total = torch.cuda.mem_get_info()
    return int(total - free - torch.cuda.memory_reserved())


def _resident_bytes() -> int:
    """Memory of this process that is in use now; 0 where the system does not say."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except OSError:
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def probe(device: Device, world: World) -> dict[str, int]:
    """Bytes by what holds them: of a processor what the interpreter and its libraries take.

    Asked once at the start of a process, since nothing gives it back: what the driver counts as
    used less what the allocator has reserved.
    """
    if device.kind != "cuda":
        return {"context": _resident_bytes()}
    import torch

    x = torch.ones(8, device="cuda")
    torch.cuda.synchronize()
    found = {"context": _used(torch)}
    before = torch.cuda.memory_reserved()
    a = torch.randn(512, 512, device="cuda")
    (a @ a).sum().item()
    found["kernels"] = max(0, _used(torch) - found["context"])
    found["cublas"] = max(0, torch.cuda.memory_reserved() - before)
    if world.size > 1:
        import torch.distributed as dist

        held = _used(torch)
        dist.all_reduce(x)
        torch.cuda.synchronize()
        found["nccl"] = max(0, _used(torch) - held)
    return found


@FAMILIES.register("memory-probe")
def cases(device: Device, world: World) -> Iterable[Any]:
    """None that are timed: ``probe`` is asked once, before the others."""
    return ()
