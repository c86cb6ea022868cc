"""Kernels by name: FLOP stay, traffic and what is kept follow the kernels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest

from simcore.step.transients import saved_bytes
from simcore.strategy.precision import PRECISIONS
from simcore.workload import ops
from simcore.workload.archs import ARCHS, load
from simcore.workload.graph import Kernel

load("transformer")
SHAPE = {
    "layers": 2, "hidden": 1024, "heads": 16, "kv_heads": 4, "ffn": 2816, "vocab": 32000,
    "seq_len": 512, "norm": "rmsnorm", "mlp": "swiglu", "positions": "rope", "bias": False,
    "tied": False,
}  # fmt: skip


def layer(**changes):
    built = ARCHS["transformer"](name="x", **{**SHAPE, **changes})
    return next(b for b in built.blocks if b.recomputable)


def moved(block, words, *, backward=False):
    kernels = [
        k for op in block.ops if any(w in op.name for w in words)
        for k in (op.bwd if backward else op.fwd)
    ]  # fmt: skip
    return sum(k.low + k.high for k in kernels)


def test_fused_rope_and_gate_move_each_element_once():
    fused, plain = layer(fused_pointwise=True), layer()
    q, kv, inner = 512 * 1024, 512 * 256, 512 * 2816
    assert moved(fused, ["rope"]) == 2 * (q + kv)
    assert moved(fused, ["product"]) == 3 * inner
    assert moved(fused, ["product"], backward=True) == 5 * inner
    # in tensor operations: mul, neg of half, cat, mul, add; silu, then the product
    assert moved(plain, ["rope"]) == 10 * (q + kv)
    assert moved(plain, ["activation", "silu", "product"]) == 5 * inner


def test_attention_kernels_do_the_same_products():
    def products(**changes):
        return sum(
            k.flop for op in layer(kv_heads=16, **changes).ops for k in op.fwd
            if "attention" in op.name
        )  # fmt: skip

    causal = products(attention="flash")
    assert products(attention="flash1") == causal
    assert products(attention="flash_triton") == causal
    # scores written out are not halved by the mask, nor those of a kernel that reads one
    scores = 4 * 512 * 512 * 1024
    assert products(attention="masked") - causal == pytest.approx(scores / 2)
    assert products(attention="masked", window=128) == products(attention="masked")
    assert products(attention="flash", window=128) < causal
    written = products(attention="fused_softmax")
    assert written - causal == pytest.approx(scores / 2)


def test_passes_of_xla_read_the_scores_once_a_reduction():
    """Maximum, sum and quotient forward, sum and product backward: 4 and 5 elements a score."""
    scores = 16 * 512 * 512
    one, passes = layer(attention="fused_softmax"), layer(attention="xla")
    assert moved(one, ["softmax"]) == 2 * scores
    assert moved(passes, ["softmax"]) == 4 * scores
    assert moved(one, ["softmax"], backward=True) == 3 * scores
    assert moved(passes, ["softmax"], backward=True) == 5 * scores
    p = PRECISIONS["bf16"]
    assert saved_bytes(one.saved, p) == saved_bytes(passes.saved, p)


def test_kernels_that_a_compiler_makes_look_up_no_offsets():
    """The heads' outputs are merged by a copy that PyTorch's kernel takes element by element."""

    def one_by_one(attention):
        return sum(k.indexed for op in layer(attention=attention).ops for k in op.fwd + op.bwd)

    rope = one_by_one("flash")
    assert one_by_one("fused_softmax") == rope + 2 * 512 * 1024
    assert one_by_one("xla") == 0


def test_a_compiled_loss_caps_its_logits_itself():
    """Three kernels forward and three backward, in tensor operations, of 32,000 logits a token."""

    def head(**words):
        return ARCHS["transformer"](name="x", **SHAPE, **words).blocks[-1]

    plain, capped = (head(logit_softcap=on) for on in (False, True))
    names = ["cap", "tanh"]
    assert moved(capped, names) - moved(plain, names) == 6 * 512 * 32000
    assert moved(head(loss="compiled", logit_softcap=True), names) == 0


def test_fused_softmax_keeps_what_korthikanti_counts():
    """sb (34 h + 5 a s) bytes a layer: Korthikanti et al. 2022, equation 1."""
    seq, hidden, heads = 1024, 2304, 24
    block = layer(
        hidden=hidden, heads=heads, kv_heads=heads, ffn=4 * hidden, seq_len=seq, norm="layernorm",
        mlp="gelu", positions="learned", bias=True, dropout=0.1, attention="fused_softmax",
        fused_pointwise=True,
    )  # fmt: skip
    p = PRECISIONS["fp16"]
    kept = saved_bytes(block.saved, p)
    assert kept == pytest.approx(seq * (34 * hidden + 5 * heads * seq), rel=0.01)


def test_an_eager_norm_casts_where_training_is_in_16_bits() -> None:
    """Four casts of 6 bytes an element: input and result, and their gradients."""
    op = ops.rms_norm_eager("norm", 10.0, 100)

    def moved(precision: str) -> float:
        p = PRECISIONS[precision]
        kernels = [k for k in (*op.fwd, *op.bwd) if k.launches == 0]
        return sum(k.high * p.high_bytes + k.low * p.low_bytes + k.raw_bytes for k in kernels)

    assert moved("bf16") == 4 * 6 * 1000
    assert moved("fp32") == moved("amp-bf16") == 0


def test_megatrons_loss_moves_what_its_tensor_operations_read_and_write() -> None:
    """A logit: cast 6, maximum 4, shift 8, exponential 8, sum 4, division 8; back 8 and 6.

    Compiled up to each sum over ranks: cast and maximum 6, shift to sum 8, division 8; back the
    saved tensor's clone 8, then that read, the gradient in 16 bit and in the saved tensor: 10.
    """
    bf16 = PRECISIONS["bf16"]

    def moved(fused: bool) -> tuple[float, float]:
        kernels = [(op.fwd, op.bwd) for op in ops.loss_vocab_parallel("l", 10, 100, fused=fused)]
        forward, backward = (
            sum(k.low * bf16.low_bytes + k.raw_bytes for one in kernels for k in one[way])
            for way in (0, 1)
        )
        return forward / 1000, backward / 1000

    seed = ops.loss_vocab_parallel("l", 10, 100)[2]
    assert not any(k.low for k in (*seed.fwd, *seed.bwd))
    forward, backward = moved(fused=False)
    assert (round(forward), round(backward)) == (38, 14)
    forward, backward = moved(fused=True)
    assert (round(forward), round(backward)) == (22, 18)


def bytes_of(kernels: Sequence[Kernel], precision: str) -> float:
    p = PRECISIONS[precision]
    return sum(k.high * p.high_bytes + k.low * p.low_bytes + k.raw_bytes for k in kernels)


def test_a_norm_under_a_checkpoint_casts_and_runs_twice() -> None:
    """Forward: cast 6 bytes an element, norm 4 and 2. Backward: both again; the gradient 2, the
    cast input 4, its gradient 4; the weight's 2 and 4; the cast back 6. In fp32 no casts."""
    op = ops.rms_norm_again("norm", 10.0, 100)
    assert bytes_of(op.fwd, "bf16") == 12 * 1000
    assert bytes_of(op.bwd, "bf16") == 34 * 1000
    assert (bytes_of(op.fwd, "fp32"), bytes_of(op.bwd, "fp32")) == (8 * 1000, 28 * 1000)
    assert saved_bytes(op.saved, PRECISIONS["bf16"]) == 2 * 1000


def test_losses_and_metrics_read_logits_as_their_programs_do() -> None:
    """flash-attn: twice forward, read and written over backward. torch's cross entropy in fp32: a
    cast 6, a log-softmax 8, of each metric."""
    loss = ops.loss_flash("loss", 10, 100)[0]
    assert bytes_of(loss.fwd, "bf16") == pytest.approx(4 * 1000, rel=0.1)
    assert bytes_of(loss.bwd, "bf16") == pytest.approx(4 * 1000, rel=0.1)
    assert saved_bytes(loss.saved, PRECISIONS["bf16"]) == pytest.approx(2 * 1000, rel=0.1)
    assert bytes_of(ops.logit_metrics("metrics", 10, 100, 2).bwd, "bf16") == 2 * 14 * 1000


def test_an_eager_norm_moves_what_torch_dispatches() -> None:
    """Bytes an element of each aten op of the eager module in bf16, 128 in all: 36 and 92."""
    p = PRECISIONS["bf16"]
    op = ops.rms_norm_eager("norm", 64.0, 512)
    forward, backward = (
        sum(k.high * p.high_bytes + k.low * p.low_bytes + k.raw_bytes for k in kernels) / 64 / 512
        for kernels in (op.fwd, op.bwd)
    )
    assert (forward, backward) == pytest.approx(dispatched_bytes(64, 512), rel=0.01)


def dispatched_bytes(rows: int, dim: int) -> tuple[float, float]:
    """What torch's dispatcher sees RMSNorm read and write [bytes an element], each way."""
    torch = pytest.importorskip("torch")
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves

    views = ("view", "expand", "detach", "unsqueeze", "_unsafe_view", "alias", "t")

    class Bytes(TorchDispatchMode):  # type: ignore[misc]
        seen = 0.0

        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            out = func(*args, **(kwargs or {}))
            if func.__name__.split(".")[0] not in views:
                tensors = [t for t in tree_leaves((args, out)) if isinstance(t, torch.Tensor)]
                self.seen += sum(
                    t.element_size()
                    * math.prod(n for n, step in zip(t.shape, t.stride(), strict=True) if step)
                    for t in tensors
                )
            return out

    x = torch.randn(rows, dim, dtype=torch.bfloat16, requires_grad=True)
    weight = torch.ones(dim, dtype=torch.bfloat16, requires_grad=True)
    mode = Bytes()
    with mode:
        wide = x.float()
        root = torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)
        y = weight * (wide * root).to(x.dtype)
        forward = mode.seen
        y.backward(torch.randn(rows, dim, dtype=torch.bfloat16))
    seed = 2.0 * rows * dim  # randn, which no norm draws
    return forward / rows / dim, (mode.seen - forward - seed) / rows / dim
