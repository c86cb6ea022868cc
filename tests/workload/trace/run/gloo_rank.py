"""Real processes that run the set-ups over gloo and write what they held and sent.

Arguments: number of ranks, folder for the rendezvous and the results, names of set-ups.
"""

from __future__ import annotations

import json
import os
import sys
import time
import weakref
from collections import Counter
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from setups import SETUPS
from torch._C._distributed_c10d import _create_work_from_future
from torch._subclasses.fake_tensor import FakeTensor
from torch.futures import Future
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

_KINDS = {
    "allreduce_": "all-reduce", "broadcast_": "broadcast", "_allgather_base_": "all-gather",
    "allgather_": "all-gather", "_reduce_scatter_base_": "reduce-scatter", "send": "send",
    "recv_": "receive", "all_reduce": "all-reduce", "all_to_all_single": "all-to-all",
}  # fmt: skip


def n_bytes(value: Any) -> int:
    if isinstance(value, torch.Tensor):
        return value.numel() * value.element_size()
    return sum(map(n_bytes, value)) if isinstance(value, (list, tuple)) else 0


class Sent(TorchDispatchMode):
    """Counts collectives by kind and bytes of the largest of their tensors, and bytes alive.

    It waits for each collective: else gloo's threads hold tensors for a while, and peaks differ by
    a fifth from run to run.
    """

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()
        self.peak = 0
        self._alive: dict[int, Any] = {}  # address -> weak reference

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any("DTensor" in t.__name__ or "AsyncCollective" in t.__name__ for t in types):
            return NotImplemented
        space, _, name = func._schema.name.partition("::")
        if space in ("c10d", "_c10d_functional") and name in _KINDS:
            self.counts[f"{_KINDS[name]} {max(map(n_bytes, args[:2]))}"] += 1
        out = func(*args, **(kwargs or {}))
        if space == "c10d" and name not in ("send", "recv_"):  # which end in an order of their own
            out = _finished(out, tree_leaves(args[0]))
        elif space == "_c10d_functional" and name in _KINDS:
            torch.ops._c10d_functional.wait_tensor(out)
            time.sleep(0.002)
        for tensor in tree_leaves((args, kwargs, out)):
            if isinstance(tensor, torch.Tensor) and not isinstance(tensor, FakeTensor):
                storage = tensor.untyped_storage()
                if storage._cdata not in self._alive:
                    self._alive[storage._cdata] = weakref.ref(storage)
        self.peak = max(self.peak, self._live())
        return out

    def _live(self) -> int:
        """Bytes of the storages that are still there, whatever their size is now."""
        there = {key: s for key, ref in self._alive.items() if (s := ref()) is not None}
        self._alive = {key: self._alive[key] for key in there}
        return sum(s.nbytes() for s in there.values())


def _finished(value: Any, written: list[Any]) -> Any:
    """A collective's result once it has ended and its thread has let go of the tensors.

    A finished work takes the place of gloo's, which holds copies of its own.
    """
    if isinstance(value, (list, tuple)):
        return type(value)(_finished(v, written) for v in value)
    if not isinstance(value, torch.ScriptObject) or "Work" not in str(value._type()):
        return value
    dist.Work.unbox(value).wait()
    time.sleep(0.002)
    done: Future[Any] = Future()
    done.set_result(written)  # DDP copies its gradients from it
    return _create_work_from_future(done).boxed()


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


def measured(name: str) -> dict[str, Any]:
    gradients: list[int] = []
    with Sent() as sent:
        step = SETUPS[name]()

        def note(optimizer: Any, *_: Any) -> None:
            grads = (local(p.grad) for p in step.model.parameters() if p.grad is not None)
            gradients.append(sum(map(n_bytes, grads)))

        step.optimizer.register_step_pre_hook(note)
        step()
        step()
        sent.counts.clear()
        step()
    return {**held(step), "gradients": gradients[-1], "collectives": sent.counts,
            "peak": sent.peak}  # fmt: skip


def run(rank: int, ranks: int, folder: Path, names: list[str]) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank,
                            world_size=ranks)  # fmt: skip
    found = {name: measured(name) for name in names}
    (folder / f"{rank}.json").write_text(json.dumps(found), encoding="utf-8")
    dist.barrier()
    dist.destroy_process_group()


def main(ranks: str, folder: str, *names: str) -> int:
    """Run each rank in a process of its own, forked from this one, which has imported torch."""
    import torch.distributed.fsdp
    import torch.distributed.pipelining
    import torch.distributed.tensor  # noqa: F401

    children = []
    for rank in range(int(ranks)):
        children.append(os.fork())
        if not children[-1]:
            run(rank, int(ranks), Path(folder), list(names))
            os._exit(0)
    return max(os.waitstatus_to_exitcode(os.waitpid(c, 0)[1]) != 0 for c in children)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
