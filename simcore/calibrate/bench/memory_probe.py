"""Device memory that is not in tensors: CUDA context, cuBLAS workspace, NCCL buffers."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from simcore.calibrate.bench.case import Device, World


def _used(torch: Any) -> int:
    free, total = torch.cuda.mem_get_info()
    return int(total - free - torch.cuda.memory_reserved())


def _resident_bytes() -> int:
    """Resident memory of this process in bytes; 0 if the system does not report it."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except OSError:
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def probe(device: Device, world: World) -> dict[str, int]:
    """Bytes of memory outside tensors, by what holds them.

    On CUDA these are the context, loaded kernels, the cuBLAS workspace and (with several ranks)
    NCCL's buffers: what the driver counts as used less what the allocator has reserved. On a
    processor it is the resident memory of the process. Call it once, at the start of a process,
    because this memory is never freed.
    """
    if device.kind != "cuda":
        return {"context": _resident_bytes()}
    import torch

    x = torch.ones(8, device="cuda")
    torch.cuda.synchronize()
    n_bytes = {"context": _used(torch)}
    before = torch.cuda.memory_reserved()
    a = torch.randn(512, 512, device="cuda")
    (a @ a).sum().item()
    n_bytes["kernels"] = max(0, _used(torch) - n_bytes["context"])
    n_bytes["cublas"] = max(0, torch.cuda.memory_reserved() - before)
    if world.size > 1:
        import torch.distributed as dist

        before = _used(torch)
        dist.all_reduce(x)
        torch.cuda.synchronize()
        n_bytes["nccl"] = max(0, _used(torch) - before)
    return n_bytes
