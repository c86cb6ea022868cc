"""Gradient buckets that DistributedDataParallel makes on two gloo processes."""

from __future__ import annotations

import json
import multiprocessing
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from reference.nets import BY_NAME, DenseMixture, Stack
from reference.resnet import ResNet
from reference.transformer import Gpt2
from reference.vit import ViT
from torch import nn
from torch.nn.parallel import DistributedDataParallel

Inputs = Callable[[int], tuple[Any, ...]]

DDP: dict[str, tuple[Callable[[], nn.Module], Inputs]] = {
    "resnet": (lambda: ResNet((1, 1, 1, 1), False, 10), BY_NAME["resnet-18"].inputs),
    "gpt2": (lambda: Gpt2(2, 192, 4, 3000, 32), BY_NAME["gpt2"].inputs),
    "mixture": (lambda: DenseMixture(160), lambda b: (torch.randn(b, 6, 160),)),
    "unet": (BY_NAME["unet"].make, BY_NAME["unet"].inputs),
    "vit": (lambda: ViT(2, 192, 4, 768, image=32, patch=8), BY_NAME["vit"].inputs),
    "checkpoint": (lambda: Stack(4, 256, "plain"), lambda b: (torch.randn(b, 6, 256),)),
}


def _rank(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    store = dist.FileStore(f"{folder}/store", 2)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=2)
    found = {}
    for name, (make, inputs) in DDP.items():
        torch.manual_seed(0)
        ddp = DistributedDataParallel(make())
        for _ in range(3):  # rebuilt in the second step, logged in the third
            ddp(*inputs(2)).sum().backward()
        found[name] = ddp._get_ddp_logging_data()
        assert found[name]["world_size"] == 2 and found[name]["has_rebuilt_buckets"]
    if rank == 0:
        Path(folder, "found.json").write_text(json.dumps(found), encoding="utf-8")
    dist.barrier()
    dist.destroy_process_group()


def two_processes(folder: Path) -> dict[str, dict[str, Any]]:
    """What DDP logged of its buckets, by net."""
    spawn = multiprocessing.get_context("spawn")
    ranks = [spawn.Process(target=_rank, args=(r, str(folder))) for r in range(2)]
    for process in ranks:
        process.start()
    for process in ranks:
        process.join(timeout=120)
        if process.is_alive():
            process.kill()
    assert [process.exitcode for process in ranks] == [0, 0]
    logged: dict[str, dict[str, Any]] = json.loads((folder / "found.json").read_text())
    return logged
