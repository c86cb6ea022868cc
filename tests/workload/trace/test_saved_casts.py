"""What autograd saves under CUDA's autocast, by torch: a copy for each op of another width."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from simcore.step.transients import saved_bytes
from simcore.strategy.precision import PRECISIONS
from simcore.workload.trace.autocast import cuda_policy
from simcore.workload.trace.convert import converted
from simcore.workload.trace.tracer import trace

WIDTH, BATCH = 16, 4
Step = Callable[["Net", Tensor], Tensor]


class Net(nn.Module):
    """A norm, three products and a loss of what ``step`` makes of them."""

    def __init__(self, step: Step) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.a, self.b, self.c = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(3))
        self.step = step

    def forward(self, x: Tensor) -> Tensor:
        return self.step(self, self.norm(x)).sum()


def three_products(net: Net, x: Tensor) -> Tensor:
    """A copy of what the norm wrote for each of them."""
    return net.a(x) * net.b(x) + net.c(x)


def also_read_in_fp32(net: Net, x: Tensor) -> Tensor:
    """The gate reads the norm's result itself, the product a copy."""
    return x * torch.tanh(net.a(x))


def loss_of_16_bit(net: Net, x: Tensor) -> Tensor:
    """The loss has an fp32 copy of the product beside the 16 bits that tanh keeps."""
    y = torch.tanh(net.a(x))
    return F.mse_loss(y, torch.zeros_like(x))


def words(net: Net, x: Tensor) -> Tensor:
    """The log-probabilities in 16 bit, and in fp32 for the likelihood."""
    return F.cross_entropy(net.a(x), torch.zeros(len(x), dtype=torch.long))


def kept_by_torch(net: Net, x: Tensor) -> int:
    """Bytes of the storages that torch saves, less single numbers, weights and their copies."""
    storages: dict[int, int] = {}
    kept = []

    def pack(tensor: Tensor) -> Tensor:
        if tensor.dim() and tuple(tensor.shape) not in {(WIDTH, WIDTH), (WIDTH,)}:
            kept.append(tensor)
            storages[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    hooks = torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t)
    with cuda_policy(), hooks, torch.autocast("cpu", torch.bfloat16):
        net(x)
    return sum(storages.values())


@pytest.mark.parametrize("step", [three_products, also_read_in_fp32, loss_of_16_bit, words])
def test_each_op_of_another_width_keeps_its_own_copy(step: Step) -> None:
    net = Net(step)
    traces = tuple(trace(net, (torch.randn(b, WIDTH),)) for b in (BATCH, BATCH + 1))
    built, _ = converted(
        traces, (BATCH, BATCH + 1), name="n", sample_unit="s", tokens_per_sample=0.0
    )
    ours = sum(saved_bytes(b.saved, PRECISIONS["amp-bf16"]) for b in built.instances()) * BATCH
    assert ours == pytest.approx(kept_by_torch(net, torch.randn(BATCH, WIDTH)), rel=0.02)


def test_a_batch_is_held_beside_its_16_bit_copy() -> None:
    found = trace(nn.Linear(WIDTH, WIDTH), (torch.randn(BATCH, WIDTH),))
    (batch,) = [s for s in found.saved if s.role == "input"]
    assert (batch.width, batch.casts, batch.wide_casts) == ("high", 1, 0)


class Rows(nn.Module):
    """Log-softmax of a few long rows."""

    def __init__(self, long: int) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(long))

    def forward(self, x: Tensor) -> Tensor:
        return F.log_softmax(x + self.bias, -1)


def test_long_rows_are_read_again_by_the_same_kernel() -> None:
    """Forward reads its rows three times; backward reads the gradient twice and the result once."""
    rows, long = 2, 20_000
    found = trace(Rows(long), (torch.randn(rows, long),))
    for name, tensors in (("_log_softmax", 4), ("_log_softmax_backward_data", 4)):
        (op,) = [o for o in found.ops if o.name == name]
        assert sum(k.launches for k in op.kernels) == 1
        assert op.n_bytes == tensors * 4 * rows * long
        assert sum(p.numel for k in op.kernels for p in k.writes) == rows * long
