"""Time that PyTorch takes on one core of this processor to issue each kind of operator.

Tensors have a few elements and live on the CPU, so that dispatch, autograd and Python modules are
measured and kernels take next to nothing; what CUDA adds (the launch, cuBLAS, cuDNN) is not in it.
Each kind is a chain of equal units: its time is the slope over the length of the chain, forward and
backward apart. Prints what ``host_work`` in ``hardware_db/calibrations/runtime.yaml`` is from:

    python -m benchmarks.host_costs
"""

from __future__ import annotations

import contextlib
import platform
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

#: Lengths of the two chains whose difference is taken, and runs of each, of which the least counts.
SHORT, LONG, RUNS = 8, 40, 60
#: Elements of each side of the tensors.
SIDE = 4

Unit = Callable[[torch.Tensor], torch.Tensor]


def _linear(bias: bool = True) -> Unit:
    return nn.Linear(SIDE, SIDE, bias=bias)


def _attention() -> Unit:
    """Attention of an encoder between its products: heads apart, attention, heads together."""

    def unit(x: torch.Tensor) -> torch.Tensor:
        n, s, d = x.shape
        q, k, v = (x.view(n, s, 2, d // 2).transpose(1, 2) for _ in range(3))
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return y.transpose(1, 2).reshape(n, s, d)

    return unit


def _embedding() -> Unit:
    table, ids = nn.Embedding(SIDE, SIDE), torch.zeros(1, SIDE, dtype=torch.long)
    return lambda x: x + table(ids)


def units() -> dict[str, Callable[[], Unit]]:
    """What a kind is, as a factory of one unit of its chain."""
    other = torch.randn(1, SIDE, SIDE)
    image = torch.randn(1, SIDE, SIDE, SIDE)
    return {
        "add": lambda: lambda x: x + other,
        "multiply": lambda: lambda x: x * other,
        "silu": lambda: nn.SiLU(),
        "relu": lambda: nn.ReLU(),
        "dropout": lambda: nn.Dropout(0.1),
        "view": lambda: lambda x: x.view(1, SIDE, SIDE),
        "transpose": lambda: lambda x: x.transpose(1, 2),
        "matmul": lambda: lambda x: x @ other[0],
        "batched product": lambda: lambda x: torch.bmm(x, x),
        "linear": _linear,
        "linear without bias": lambda: _linear(bias=False),
        "layer norm": lambda: nn.LayerNorm(SIDE),
        "rms norm": lambda: nn.RMSNorm(SIDE),
        "attention": _attention,
        "embedding": lambda: _embedding(),
        "softmax": lambda: lambda x: torch.softmax(x, -1),
        "sum": lambda: lambda x: x.sum(-1, keepdim=True),
        "copy": lambda: lambda x: x.transpose(1, 2).contiguous(),
        "cast": lambda: lambda x: x.to(torch.float64).to(torch.float32),
        "module": lambda: nn.Identity(),
        "image add": lambda: lambda x: x + image,
        "image convolution": lambda: nn.Conv2d(SIDE, SIDE, 1, bias=False),
        "image batch norm": lambda: nn.BatchNorm2d(SIDE),
        "image pool": lambda: nn.AvgPool2d(1),
    }


def _once(chain: list[Unit], x: torch.Tensor, amp: bool) -> tuple[float, float]:
    inside: Any = torch.autocast("cpu", torch.bfloat16) if amp else contextlib.nullcontext()
    y = x.detach().clone().requires_grad_() * 1.0
    for p in (p for u in chain if isinstance(u, nn.Module) for p in u.parameters()):
        p.grad = None
    begin = time.perf_counter()
    with inside:
        for unit in chain:
            y = unit(y)
    ahead = time.perf_counter()
    y.backward(torch.ones_like(y))
    return ahead - begin, time.perf_counter() - ahead


def _least(make: Callable[[], Unit], n: int, x: torch.Tensor, amp: bool) -> tuple[float, float]:
    chain = [make() for _ in range(n)]
    times = [_once(chain, x, amp) for _ in range(RUNS)]
    return min(t[0] for t in times), min(t[1] for t in times)


def slopes_us(name: str, amp: bool = False) -> tuple[float, float]:
    """Microseconds (forward, backward) of one unit of a kind."""
    make = units()[name]
    x = torch.randn(1, SIDE, SIDE, SIDE) if name.startswith("image") else torch.randn(1, SIDE, SIDE)
    long, short = _least(make, LONG, x, amp), _least(make, SHORT, x, amp)
    return tuple(1e6 * (a - b) / (LONG - SHORT) for a, b in zip(long, short, strict=True))


def step_us(optimizer: str, tensors: int, **options: Any) -> float:
    """Microseconds of one step of an optimizer over tensors, without its kernels' work.

    Functions on lists of tensors (``torch._foreach_*``) return at once, except those that count
    steps on the CPU.
    """
    params = [nn.Parameter(torch.randn(SIDE, SIDE)) for _ in range(tensors)]
    for p in params:
        p.grad = torch.randn_like(p)
    step = getattr(torch.optim, optimizer)(params, lr=1e-5, **options)
    step.step()
    names = [n for n in dir(torch) if n.startswith("_foreach")]
    kept = {n: getattr(torch, n) for n in names}

    def light(name: str) -> Callable[..., Any]:
        real = kept[name]

        def call(first: Any, *rest: Any, **named: Any) -> Any:
            counts = first[0].numel() == 1 and first[0].ndim == 0
            return real(first, *rest, **named) if counts else first

        return call

    try:
        for n in names:
            setattr(torch, n, light(n))
        return 1e6 * min(_timed(step.step) for _ in range(RUNS))
    finally:
        for n, real in kept.items():
            setattr(torch, n, real)


def _timed(call: Callable[[], Any]) -> float:
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def optimizers() -> Iterator[tuple[str, float]]:
    """Microseconds a tensor of each optimizer's step."""
    for name, options in (
        ("AdamW foreach", {"foreach": True}), ("AdamW fused", {"fused": True}),
        ("AdamW for-loop", {"foreach": False}),
        ("SGD foreach", {"foreach": True, "momentum": 0.9, "weight_decay": 1e-4}),
        ("SGD for-loop", {"foreach": False, "momentum": 0.9, "weight_decay": 1e-4}),
    ):  # fmt: skip
        optimizer = name.split()[0]
        few, many = (step_us(optimizer, n, **options) for n in (20, 200))
        yield name, (many - few) / 180


def layers() -> Iterator[tuple[str, float, float]]:
    """Microseconds (forward, backward) of a layer of transformers' models, in fp32."""
    import transformers as hf

    one = {"num_hidden_layers": SHORT, "vocab_size": 8, "hidden_size": 16, "intermediate_size": 16,
           "num_attention_heads": 4, "use_cache": False}  # fmt: skip
    gpt2 = {"n_embd": 16, "n_head": 4, "vocab_size": 8, "use_cache": False}
    made: dict[str, Callable[[int], Any]] = {
        "gpt2": lambda n: hf.GPT2LMHeadModel(hf.GPT2Config(**gpt2, n_layer=n)),
        "bert": lambda n: hf.BertForMaskedLM(hf.BertConfig(**{**one, "num_hidden_layers": n})),
        "llama": lambda n: hf.LlamaForCausalLM(hf.LlamaConfig(**{**one, "num_hidden_layers": n})),
    }
    ids = torch.zeros(1, 2, dtype=torch.long)
    for name, make in made.items():
        times = []
        for n in (2, 10):
            net = make(n)
            runs = [_model_once(net, ids) for _ in range(RUNS)]
            times.append([min(t[i] for t in runs) for i in (0, 1)])
        yield name, *(1e6 * (b - a) / 8 for a, b in zip(*times, strict=True))


def _model_once(net: nn.Module, ids: torch.Tensor) -> tuple[float, float]:
    net.zero_grad(set_to_none=True)
    begin = time.perf_counter()
    loss = net(input_ids=ids, labels=ids).loss
    ahead = time.perf_counter()
    loss.backward()
    return ahead - begin, time.perf_counter() - ahead


def rows() -> Iterator[str]:
    """Lines of the table."""
    yield f"# torch {torch.__version__}, Python {platform.python_version()}, {time.strftime('%F')}"
    for amp, names in ((False, tuple(units())), (True, ("linear", "matmul", "image convolution"))):
        for name in names:
            forward, backward = slopes_us(name, amp)
            under = " under autocast" * amp
            yield f"{name}{under}: {{forward: {forward:.2f}, backward: {backward:.2f}}}"
    yield from (f"{name}: {each:.2f} a tensor" for name, each in optimizers())
    for name, forward, backward in layers():
        yield f"layer of {name}: {{forward: {forward:.1f}, backward: {backward:.1f}}}"


def main() -> None:
    """Print the table."""
    torch.set_num_threads(1)
    # Kernels of oneDNN are prepared anew for each call.
    with torch.backends.mkldnn.flags(enabled=False):
        for line in rows():
            sys.stdout.write(line + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
