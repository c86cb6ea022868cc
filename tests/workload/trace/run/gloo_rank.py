"""One of two real processes that run the set-ups over gloo and write what they held and sent.

Arguments: rank, number of ranks, file for the rendezvous, file for the result, names of set-ups.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from setups import SETUPS
from torch.profiler import ProfilerActivity, profile
from torch.utils._python_dispatch import TorchDispatchMode

_KINDS = {
    "allreduce_": "all-reduce", "broadcast_": "broadcast", "_allgather_base_": "all-gather",
    "allgather_": "all-gather", "_reduce_scatter_base_": "reduce-scatter", "send": "send",
    "recv_": "receive", "all_reduce": "all-reduce",
}  # fmt: skip


def n_bytes(value: Any) -> int:
    if isinstance(value, torch.Tensor):
        return value.numel() * value.element_size()
    return sum(map(n_bytes, value)) if isinstance(value, (list, tuple)) else 0


class Sent(TorchDispatchMode):
    """Counts collectives by kind and bytes of the largest of their tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any("DTensor" in t.__name__ or "AsyncCollective" in t.__name__ for t in types):
            return NotImplemented
        space, _, name = func._schema.name.partition("::")
        if space in ("c10d", "_c10d_functional") and name in _KINDS:
            self.counts[f"{_KINDS[name]} {max(map(n_bytes, args[:2]))}"] += 1
        return func(*args, **(kwargs or {}))


def local(tensor: Any) -> Any:
    return getattr(tensor, "_local_tensor", tensor)


def held(step: Any) -> dict[str, int]:
    """Bytes of parameters and optimizer state on this rank."""
    optimizer = getattr(step.optimizer, "optim", step.optimizer)
    states = [v for s in optimizer.state.values() for v in s.values()
              if isinstance(v, torch.Tensor) and v.dim()]  # fmt: skip
    return {
        "parameters": sum(n_bytes(local(p)) for p in step.model.parameters()),
        "optimizer_state": sum(n_bytes(local(v)) for v in states),
    }


def peak(events: Any) -> int:
    """The most bytes of the processor's allocator that were in use at one time."""
    live = most = 0
    for e in sorted((e for e in events if e.name() == "[memory]"), key=lambda e: e.start_ns()):
        live += e.nbytes()
        most = max(most, live)
    return most


def measured(name: str) -> dict[str, Any]:
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        step = SETUPS[name]()
        gradients: list[int] = []

        def note(optimizer: Any, *_: Any) -> None:
            grads = (local(p.grad) for p in step.model.parameters() if p.grad is not None)
            gradients.append(sum(map(n_bytes, grads)))

        step.optimizer.register_step_pre_hook(note)
        step()
        step()
        with Sent() as sent:
            step()
    return {**held(step), "gradients": gradients[-1], "collectives": sent.counts,
            "peak": peak(profiler.profiler.kineto_results.events())}  # fmt: skip


def main(rank: str, ranks: str, meeting: str, result: str, *names: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=int(rank),
                            world_size=int(ranks))  # fmt: skip
    found = {name: measured(name) for name in names}
    Path(result).write_text(json.dumps(found), encoding="utf-8")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
