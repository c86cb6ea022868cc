"""One traced step against the same step run for real on the CPU, with the same kernels."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import pytest
import torch
from reference import measure
from reference.nets import BY_NAME, NETS, Net, Stack
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from simcore.workload.ops.recurrent import lstm
from simcore.workload.trace.autocast import cuda_policy
from simcore.workload.trace.record import Trace
from simcore.workload.trace.tracer import trace

BATCH = 2


def loss(output: Any) -> torch.Tensor:
    return output.float().square().mean()


def traced(net: Net, batch: int = BATCH, **options: Any) -> Trace:
    torch.manual_seed(0)
    given = {"attention": "native", **net.options, **options}
    return trace(net.make(), net.inputs(batch), loss=loss, **given)


class Real:
    """The same step with real tensors."""

    def __init__(self, net: Net, batch: int = BATCH) -> None:
        torch.manual_seed(0)
        self.model, self.inputs, self.net = net.make(), net.inputs(batch), net

    def forward(self) -> torch.Tensor:
        with ExitStack() as stack:
            stack.enter_context(cuda_policy())
            if self.net.options.get("autocast"):
                stack.enter_context(torch.autocast("cpu", dtype=torch.bfloat16))
            self.output = self.model(*self.inputs)  # held, as training loops hold it
            return loss(self.output)


@pytest.mark.parametrize("net", [n for n in NETS if n.name != "lstm"], ids=lambda n: n.name)
def test_saved_bytes_are_those_of_a_real_run(net: Net) -> None:
    real = Real(net)
    truth = measure.saved_bytes(real.model, real.forward)
    ours = traced(net).saved_bytes("activation", "input", "cast")
    assert ours == pytest.approx(truth, rel=1e-3)


def test_a_fused_lstm_saves_its_gates_and_cells_besides() -> None:
    """The kernel's own workspace differs by library: it is counted by formula."""
    real, workspaces = Real(BY_NAME["lstm"]), set()

    def pack(t: torch.Tensor) -> torch.Tensor:
        if t.dtype == torch.uint8:
            workspaces.add(t.untyped_storage().nbytes())
        return t

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        real.forward()
    (workspace,) = workspaces
    truth = measure.saved_bytes(real.model, real.forward) - 2 * workspace
    formula = 2 * BATCH * 6 * 32 * (4 + 1) * 4
    ours = traced(BY_NAME["lstm"]).saved_bytes("activation", "input")
    assert ours - formula == pytest.approx(truth, rel=1e-3)


@pytest.mark.parametrize("net", [n for n in NETS if n.name != "resnet-50"], ids=lambda n: n.name)
def test_parameters_and_gradients_are_those_of_a_real_run(net: Net) -> None:
    real, ours = Real(net), traced(net)
    names = {id(p): name for name, p in real.model.named_parameters()}
    order: list[str] = []
    for p in real.model.parameters():
        if p.requires_grad:
            p.register_post_accumulate_grad_hook(lambda p: order.append(names[id(p)]))
    real.forward().backward()
    assert list(ours.gradient_order) == order
    assert ours.n_params == sum(p.numel() for p in real.model.parameters() if p.requires_grad)
    assert len(ours.buffers) == len(list(real.model.buffers()))


#: The counter knows neither the CPU's flash attention nor oneDNN's LSTM.
_COUNTED = [n for n in NETS if n.name not in ("vit", "gpt2", "llama-gqa", "lstm", "resnet-50")]


@pytest.mark.parametrize("net", _COUNTED, ids=lambda n: n.name)
def test_flop_are_those_of_the_counter(net: Net) -> None:
    real, ours = Real(net), traced(net)
    with FlopCounterMode(display=False) as forward:
        value = real.forward()
    assert ours.flop() == forward.get_total_flops()
    with FlopCounterMode(display=False) as backward:
        value.backward()
    assert ours.flop("backward") + ours.flop("recompute") == backward.get_total_flops()


@pytest.mark.parametrize("name", ["vit", "gpt2", "llama-gqa"])
def test_attention_counts_two_products_forward_and_five_backward(name: str) -> None:
    ours = traced(BY_NAME[name], attention="flash")
    heads, width, rows = 4, 8, 17 if name == "vit" else 16
    two = BATCH * heads * 4 * rows * rows * width // (1 if name == "vit" else 2)
    found = [o.flop for o in ours.ops if "attention" in o.name]
    assert sorted(found) == [two, two, two * 5 // 2, two * 5 // 2]


def test_a_grouped_convolution_counts_each_group_once() -> None:
    # torch's counter forgets the groups in the gradient of the weight
    model = nn.Sequential(nn.Conv2d(8, 8, 1), nn.Conv2d(8, 16, 3, padding=1, groups=2))
    ours = trace(model, (torch.zeros(2, 8, 8, 8),))
    grouped = 2 * (2 * 8 * 8) * 16 * (4 * 9)
    assert [o.flop for o in ours.ops if o.name == "convolution_backward"] == [
        2 * grouped, 2 * (2 * 8 * 8) * 8 * 8,
    ]  # fmt: skip


def test_the_layout_of_a_convolution_is_that_of_its_tensors() -> None:
    """cuDNN is given channels last where input or weight is; else both gradients move all."""
    net = nn.Sequential(nn.Conv2d(4, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 4, 1))
    images = torch.zeros(2, 4, 6, 6)
    first = trace(net, (images,))
    relaid = [k.relaid for op in first.ops for k in op.kernels if k.flop]
    wide, narrow = 2 * 8 * 36, 2 * 4 * 36
    # forward the inputs; backward the second one's two gradients, the first one's of its weight
    assert relaid == [narrow, wide, wide + narrow, wide + narrow, wide + narrow]
    last = trace(net.to(memory_format=torch.channels_last), (images,))
    assert not any(k.relaid for op in last.ops for k in op.kernels)
    given = images.to(memory_format=torch.channels_last)
    back = trace(net.to(memory_format=torch.contiguous_format), (given,))
    assert not any(k.relaid for op in back.ops for k in op.kernels)


def test_lstm_counts_its_gates() -> None:
    forward = [o.flop for o in traced(BY_NAME["lstm"]).ops if o.name == "mkldnn_rnn_layer"]
    assert forward == [2 * BATCH * 6 * 4 * 32 * (32 + 32)] * 2


def test_the_state_of_an_lstm_is_multiplied_step_by_step() -> None:
    steps, width = 6, 32
    ops = [o for o in traced(BY_NAME["lstm"]).ops if o.name.startswith("mkldnn_rnn_layer")]
    by_hand = lstm("by hand", steps, width, width)
    for op in ops:
        mine = [k for k in op.kernels if k.flop or k.launches > 1]
        theirs = by_hand.bwd if op.phase == "backward" else by_hand.fwd
        theirs = [k for k in theirs if k.flop or k.launches > 1]
        key = [(k.kind, k.flop, k.launches) for k in mine]
        assert sorted(key) == sorted((k.kind, BATCH * k.flop, k.launches) for k in theirs)
        (state,) = (k for k in mine if k.flop and k.launches == steps)
        assert state.dims[0] == BATCH  # rows of a step's product
        weight = 4 * width * width
        assert max(p.numel for p in state.reads) == steps * weight  # read anew by each step
    assert {op.phase for op in ops} == {"forward", "backward"}


def test_checkpoints_run_again_and_are_a_phase_of_their_own() -> None:
    plain, again = (traced(BY_NAME[n]) for n in ("stack", "checkpoint"))
    reentrant = traced(BY_NAME["checkpoint-reentrant"])
    assert plain.flop("recompute") == 0
    assert 0 < again.flop("recompute") <= reentrant.flop("recompute")
    assert again.flop("backward") == reentrant.flop("backward") == plain.flop("backward")
    assert {o.module.split(".")[0] for o in again.ops if o.phase == "recompute"} == {"layers"}


def peak_of_a_real_step(net: Net, batch: int) -> int:
    """Peak of allocated bytes over forward and backward, from the profiler's allocator events."""
    real = Real(net, batch)
    real.forward().backward()
    real.model.zero_grad(set_to_none=True)
    with torch.profiler.profile(profile_memory=True) as profile:
        real.forward().backward()
    events = list(profile.profiler.kineto_results.experimental_event_tree())
    held: dict[int, int] = {}  # by address: what was there before and goes now is not the step's
    peak, at = 0, 0
    while at < len(events):
        events.extend(events[at].children)
        at += 1
    events = [e for e in events if e.tag == torch._C._profiler._EventType.Allocation]
    for event in sorted(events, key=lambda e: e.start_time_ns):
        told = event.extra_fields
        if told.alloc_size > 0:
            held[told.ptr] = told.alloc_size
            peak = max(peak, sum(held.values()))
        else:
            held.pop(told.ptr, None)
    return peak


#: Nets without kernels that use temporary memory of their own on the CPU (oneDNN's do).
_PLAIN = [
    "stack", "checkpoint", "checkpoint-reentrant", "gpt2", "gpt2-math", "llama-gqa", "dit",
    "mixture", "tied",
]  # fmt: skip


@pytest.mark.parametrize("name", _PLAIN)
def test_peak_of_live_bytes_is_that_of_a_real_step(name: str) -> None:
    # checkpoints also keep the generator's state, on the host
    batch = 128 if name.startswith("checkpoint") else 16
    ours = traced(BY_NAME[name], batch).peak_live_bytes
    assert ours == pytest.approx(peak_of_a_real_step(BY_NAME[name], batch), rel=0.01)


@pytest.mark.parametrize("kind", ["flash", "efficient"])
def test_fused_attention_keeps_no_scores(kind: str) -> None:
    net = BY_NAME["llama-gqa"]
    fused, written_out = (traced(net, attention=a).saved_bytes() for a in (kind, "math"))
    assert fused < written_out


def test_the_module_is_as_before() -> None:
    model = Stack()
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    trace(model, (torch.randn(2, 6, 32),))
    assert all(torch.equal(p, before[name]) for name, p in model.named_parameters())
    assert all(p.grad is None and not p._backward_hooks for p in model.parameters())
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())
    model(torch.randn(2, 6, 32)).sum().backward()


def test_a_compiled_module_is_traced_as_written() -> None:
    plain = Stack()
    compiled = torch.compile(plain)
    one, two = (trace(m, (torch.zeros(2, 6, 32),)) for m in (plain, compiled))
    assert [o.name for o in one.ops] == [o.name for o in two.ops]
    assert one.gradient_order == two.gradient_order


def test_a_step_of_ones_own() -> None:
    model, target = Stack(), torch.zeros(2, 6, 32)

    def step(x: torch.Tensor) -> torch.Tensor:
        return nn.functional.mse_loss(model(x), target)

    ours = trace(step, (torch.zeros(2, 6, 32),), modules=(model,))
    assert ours.n_params == sum(p.numel() for p in model.parameters())
    assert any(o.name == "mse_loss" for o in ours.ops)


def test_widths_follow_the_rules_of_autocast() -> None:
    ours = traced(BY_NAME["stack"])
    by_name: dict[str, set[str]] = {}
    for op in ours.ops:
        for kernel in op.kernels:
            if kernel.casts:  # of what the op reads
                continue
            widths = {p.width for p in kernel.writes if p.role == "activation"}
            by_name.setdefault(op.name, set()).update(widths)
    assert by_name["addmm"] == {"low"} and by_name["native_layer_norm"] == {"high"}
    assert by_name["gelu"] == {"low"}


def test_a_likelihood_touches_one_element_a_row_and_fills_its_gradient_with_zeros() -> None:
    """ATen native/cuda/NLLLoss.cu."""
    rows, classes = 6, 50

    def loss(scores: torch.Tensor) -> torch.Tensor:
        return nn.functional.nll_loss(scores, torch.zeros(rows, dtype=torch.int64))

    found = trace(nn.Linear(8, classes), (torch.randn(rows, 8),), loss=loss)
    forward, backward = (
        kernel
        for op in found.ops
        for kernel in op.kernels
        if op.name.startswith("nll_loss") and not kernel.casts
    )
    assert forward.n_bytes < 4 * rows * classes / 10
    assert backward.n_bytes - forward.n_bytes == pytest.approx(4 * rows * classes, abs=16)
    assert (forward.launches, backward.launches) == (1, 2)
