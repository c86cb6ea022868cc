"""Inputs of reentrant checkpoints that FSDP 1 keeps beside frozen parameters."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from simcore import api
from simcore.answer.request import make_request
from simcore.memory.events import step_events

#: Layers under torch's FSDP 1 on one gloo rank, each a checkpoint: when backward reaches the first
#: one's input, how many inputs of layers exist, and how many of their gradients. Nothing collects
#: cycles.
SCRIPT = """
import gc, json, sys, tempfile
import torch
from torch import distributed, nn
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils.checkpoint import checkpoint
gc.disable()
reentrant, frozen, layers = json.loads(sys.argv[1])
folder = tempfile.mkdtemp()
distributed.init_process_group("gloo", init_method=f"file://{folder}/ranks", rank=0, world_size=1)

def sharded(module):
    return FullyShardedDataParallel(module, device_id=torch.device("cpu"))

class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.base = nn.Linear(8, 8).requires_grad_(not frozen)
        self.adapter = sharded(nn.Linear(8, 8, bias=False))
    def forward(self, x):
        return torch.tanh(self.base(x) + self.adapter(x))

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(8, 8), nn.Linear(8, 1)
        self.layers = nn.ModuleList(sharded(Layer()) for _ in range(layers))
    def forward(self, x):
        inputs, gradients = [], []
        def alive(of):
            return sum(not ref.expired() for ref in of)
        x = self.first(x)
        x.register_hook(lambda g: print(json.dumps([alive(inputs), alive(gradients)])))
        for layer in self.layers:
            inputs.append(StorageWeakRef(x.untyped_storage()))
            x.register_hook(lambda g: gradients.append(StorageWeakRef(g.untyped_storage())))
            x = checkpoint(layer, x, use_reentrant=reentrant)
        return self.last(x)

sharded(Model())(torch.randn(2, 8)).sum().backward()
"""
LAYERS = 5
#: Adapters on Llama 2 70B, sharded over two ranks.
JOB: dict[str, Any] = {
    "micro_batch": 2, "seq_len": 4096, "recompute": "full", "software": "transformers@4",
    "quantised_base": "nf4", "precision": "bf16", "lora_rank": 16, "strategy": "zero3",
}  # fmt: skip
#: A layer's input: 80 layers of 8,192 channels in 16 bit.
DEPTH, INPUT_BYTES = 80, 2 * 4096 * 8192 * 2


@pytest.mark.parametrize(("reentrant", "frozen"), [(True, True), (False, True), (True, False)])
def test_torch_s_fsdp_keeps_them_beside_frozen_parameters(reentrant: bool, frozen: bool) -> None:
    asked = [sys.executable, "-W", "ignore", "-c", SCRIPT, json.dumps([reentrant, frozen, LAYERS])]
    ran = subprocess.run(asked, capture_output=True, text=True, check=True)
    inputs, gradients = json.loads(ran.stdout)
    if reentrant and frozen:
        assert (inputs, gradients) == (LAYERS, LAYERS - 1)
    else:
        assert inputs <= 1  # the one in work
        assert gradients == 0


def _allocated(gpus: str, **words: Any) -> float:
    return api.predict("llama2-70b", gpus, **JOB | words).memory.allocated_bytes


def test_the_first_layer_s_backward_has_all_inputs_and_all_gradients_but_one() -> None:
    # without them the last layer's has all inputs too: the gradients make the difference
    more = _allocated("1x2xA100-80GB") - _allocated("1x2xA100-80GB", reentrant=False)
    assert more == pytest.approx((DEPTH - 2) * INPUT_BYTES, rel=0.05)


@pytest.mark.parametrize(
    ("gpus", "words"),
    [
        ("1xH200", {"strategy": "single"}),
        ("1x2xH200", {"strategy": "ddp"}),
        ("1x2xH200", {"software": "fsdp"}),  # FSDP 2
        ("1x2xH200", {"software": "transformers-deepspeed"}),
        ("1x2xH200", {"recompute": "none", "seq_len": 128}),
    ],
)
def test_nothing_else_keeps_them(gpus: str, words: dict[str, Any]) -> None:
    kept = [_allocated(gpus, reentrant=on, **words) for on in (True, False)]
    assert kept[0] == pytest.approx(kept[1], rel=0.01)


def test_the_events_of_a_step_have_them_too() -> None:
    request = make_request("llama2-70b", "1x2xA100-80GB", **JOB)
    events = step_events(
        request.held_workload, request.strategy, micro_batch=2, n_ranks=2, cublas_bytes=0.0, steps=2
    )
    held = peak = 0
    sizes: dict[int, int] = {}
    for number, n_bytes in events.events:
        held += n_bytes if n_bytes is not None else -sizes.pop(number)
        if n_bytes is not None:
            sizes[number] = n_bytes
        peak = max(peak, held)
    assert peak == pytest.approx(_allocated("1x2xA100-80GB"), rel=0.02)
