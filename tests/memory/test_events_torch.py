"""Peak of live bytes over forward and backward against what torch really holds on the CPU."""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from reference.bert import Bert
from reference.resnet import ResNet
from reference.transformer import Gpt2
from reference.vit import ViT
from strategies import strategy
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from simcore.memory.allocator import replay
from simcore.memory.events import step_events
from simcore.memory.parts import CUBLAS_WORKSPACE_BYTES
from simcore.workload.archs.body_layers import BodyList
from simcore.workload.archs.layers import LayerList
from simcore.workload.archs.transformer import build as transformer
from simcore.workload.graph import Workload
from simcore.workload.trace.autocast import cuda_policy
from simcore.workload.trace.convert import converted
from simcore.workload.trace.tracer import trace

bert = BodyList("bert")


class LiveBytes(TorchDispatchMode):
    """Peak of bytes in storages that are alive and were made by an operator under it."""

    def __init__(self) -> None:
        super().__init__()
        self.live = self.peak = 0
        self._views: Counter[int] = Counter()
        self._bytes: dict[int, int] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        given = [t for t in tree_leaves((args, kwargs)) if isinstance(t, Tensor)]
        old = {t.untyped_storage().data_ptr() for t in given}
        for tensor in {id(t): t for t in tree_leaves(out) if isinstance(t, Tensor)}.values():
            if any(tensor is t for t in given):
                continue
            key = tensor.untyped_storage().data_ptr()
            if key not in self._bytes:
                if key in old:
                    continue  # a view of something older than the meter
                self._bytes[key] = tensor.untyped_storage().nbytes()
                self.live += self._bytes[key]
            self._views[key] += 1
            weakref.finalize(tensor, self._drop, key)
        self.peak = max(self.peak, self.live)
        return out

    def _drop(self, key: int) -> None:
        self._views[key] -= 1
        if not self._views[key] and key in self._bytes:
            self.live -= self._bytes.pop(key)


def truth(model: nn.Module, step: Callable[[], Tensor]) -> int:
    with LiveBytes() as meter:
        step().backward()
    assert all(p.grad is not None for p in model.parameters())
    return meter.peak


def ours(model: Workload, batch: int, precision: str = "fp32") -> float:
    """Peak of the third step less the state, of which the meter sees nothing."""
    how = strategy("manual", precision, optimizer="sgd-plain")
    events = step_events(model, how, micro_batch=batch)
    start = next(at for at, name in events.phases if name == "step 2 forward")
    held = 4 * (model.trainable_numel + model.buffers_numel) + CUBLAS_WORKSPACE_BYTES
    return float(replay(events.events).requested[start:].max()) - held


BATCH = 4


def test_vit() -> None:
    net = ViT(4, 128, 4, 512, image=64, patch=8, classes=10)
    x, labels = torch.randn(BATCH, 3, 64, 64), torch.zeros(BATCH, dtype=torch.long)
    built = BodyList("vit")(name="v", layers=4, hidden=128, heads=4, image=64, patch=8, classes=10)
    assert ours(built, BATCH) == pytest.approx(
        truth(net, lambda: F.cross_entropy(net(x), labels)), rel=0.01
    )


@pytest.mark.parametrize(
    ("depth", "layers", "bottleneck"), [(18, (2, 2, 2, 2), False), (50, (3, 4, 6, 3), True)]
)
def test_resnet(depth: int, layers: tuple[int, ...], bottleneck: bool) -> None:
    net = ResNet(layers, bottleneck, 10)
    x, labels = torch.randn(BATCH, 3, 64, 64), torch.zeros(BATCH, dtype=torch.long)
    built = LayerList("resnet")(name="r", depth=depth, image=64, classes=10)
    assert ours(built, BATCH) == pytest.approx(
        truth(net, lambda: F.cross_entropy(net(x), labels)), rel=0.01
    )


def test_bert() -> None:
    """4 %: gradients of the residual and of v wait while those of the scores run, in no op here."""
    net = Bert(4, 64, 4, 256, vocab=100, positions=64)
    ids, mask = torch.zeros(BATCH, 64, dtype=torch.long), torch.ones(BATCH, 64, dtype=torch.long)
    labels = torch.zeros(BATCH, dtype=torch.long)
    built = bert(
        name="b", layers=4, hidden=64, heads=4, vocab=100, seq_len=64, max_positions=64
    )  # fmt: skip
    assert ours(built, BATCH) == pytest.approx(
        truth(net, lambda: F.cross_entropy(net(ids, ids, mask), labels)), rel=0.04
    )


def test_gpt2_whose_step_lets_go_of_its_logits() -> None:
    """As a Trainer's, whose loss is computed in a function of its own: one tensor less."""
    net = Gpt2(4, 64, 4, 1000, 128, flash=False, written_out=False, p=0.0)
    ids = torch.zeros(BATCH, 128, dtype=torch.long)

    def step() -> Tensor:
        logits = net(ids)
        return F.cross_entropy(logits[:, :-1].reshape(-1, 1000), ids[:, 1:].reshape(-1))

    built = transformer(
        name="g", layers=4, hidden=64, heads=4, vocab=1000, seq_len=128, mlp="gelu",
        attention="math", loss="eager_freed",
    )  # fmt: skip
    assert ours(built, BATCH) == pytest.approx(truth(net, step), rel=0.01)


@pytest.mark.parametrize("mlp", ["gelu", "gelu_new"])
def test_gpt2_with_the_shift_at_its_loss(mlp: str) -> None:
    """The logits that the step holds, their shifted copy, log-probabilities and two gradients."""
    net = Gpt2(4, 64, 4, 1000, 128, flash=False, written_out=mlp == "gelu_new", p=0.0)
    ids = torch.zeros(BATCH, 128, dtype=torch.long)
    held: list[Tensor] = []

    def step() -> Tensor:
        logits = net(ids)
        held[:] = [logits]
        return F.cross_entropy(logits[:, :-1].reshape(-1, 1000), ids[:, 1:].reshape(-1))

    built = transformer(
        name="g", layers=4, hidden=64, heads=4, vocab=1000, seq_len=128, mlp=mlp, attention="math"
    )
    assert ours(built, BATCH) == pytest.approx(truth(net, step), rel=0.01)


class TinyLm(nn.Module):
    """A few small layers and a loss over many words; ``upcast``: of fp32 logits."""

    def __init__(self, vocab: int, upcast: bool) -> None:
        super().__init__()
        self.table, self.norm = nn.Embedding(vocab, 8), nn.LayerNorm(8)
        self.gate, self.up, self.skip = (nn.Linear(8, 8) for _ in range(3))
        self.head, self.upcast = nn.Linear(8, vocab, bias=False), upcast

    def forward(self, ids: Tensor) -> Tensor:
        x = self.norm(self.table(ids))
        logits = self.head(F.silu(self.gate(x)) * self.up(x) + self.skip(x))
        logits = logits.float() if self.upcast else logits
        return F.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())


@pytest.mark.parametrize("precision", ["fp32", "amp-bf16"])
@pytest.mark.parametrize("upcast", [False, True])
@pytest.mark.parametrize("vocab", [300, 20_000])  # rows that a thread block holds, and longer ones
def test_a_traced_loss_under_autocast(vocab: int, upcast: bool, precision: str) -> None:
    """cross_entropy's softmax stays in 16 bit under autocast, unless the logits are converted."""
    net, ids = TinyLm(vocab, upcast), torch.zeros(BATCH, 64, dtype=torch.long)
    traces = tuple(trace(net, (torch.zeros(b, 64, dtype=torch.long),)) for b in (2, 3))
    built, _ = converted(traces, (2, 3), name="n", sample_unit="s", tokens_per_sample=64.0)

    def step() -> Tensor:
        with torch.autocast("cpu", torch.bfloat16, enabled=precision != "fp32"):
            loss: Tensor = net(ids)
        return loss

    with cuda_policy():
        peak = truth(net, step)
    assert ours(built, BATCH, precision) == pytest.approx(peak, rel=0.025)


def test_cuda_autocast_treats_the_parts_of_a_cross_entropy() -> None:
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    names = ("cross_entropy_loss", "log_softmax.int", "nll_loss")
    assert [has(f"aten::{n}", "AutocastCUDA") for n in names] == [False, True, True]
