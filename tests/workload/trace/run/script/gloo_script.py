"""One of two real gloo ranks, which runs a script as torchrun does and counts its third step.

Arguments: file for the result, the script and its words. RANK and the rest are set by the caller.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from gloo_rank import Sent, local, n_bytes
from torch import nn
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

STEPS = 3
found: dict[str, Any] = {"steps": 0}
models: dict[int, nn.Module] = {}
sent = Sent()
plain_call, plain_init = nn.Module.__call__, nn.parallel.DistributedDataParallel.__init__


def called(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
    if isinstance(self, nn.parallel.DistributedDataParallel):
        models[id(self)] = self
    return plain_call(self, *args, **kwargs)


def on_processor(self: Any, module: nn.Module, **kwargs: Any) -> None:
    plain_init(self, module, **{**kwargs, "device_ids": None, "output_device": None})


def before(*_: Any) -> None:
    parameters = [p for m in models.values() for p in m.parameters()]
    found["parameters"] = sum(n_bytes(local(p)) for p in parameters)
    found["gradients"] = sum(n_bytes(local(p.grad)) for p in parameters if p.grad is not None)


def after(optimizer: Any, *_: Any) -> None:
    values = [v for s in optimizer.state.values() for v in s.values()]
    state = [v for v in values if isinstance(v, torch.Tensor) and v.dim()]
    found["optimizer_state"] = sum(n_bytes(local(v)) for v in state)
    found["steps"] += 1
    if found["steps"] == STEPS:
        Path(result).write_text(
            json.dumps({**found, "collectives": sent.counts, "peak": sent.peak})
        )
        os._exit(0)
    sent.counts.clear()


if __name__ == "__main__":
    torch.set_num_threads(1)
    nn.Module.__call__ = called  # type: ignore[method-assign]
    nn.parallel.DistributedDataParallel.__init__ = on_processor  # type: ignore[method-assign]
    register_optimizer_step_pre_hook(before)
    register_optimizer_step_post_hook(after)
    result, script, *words = sys.argv[1:]
    sys.argv = [script, *words]
    with sent:
        runpy.run_path(script, run_name="__main__")
