"""Megatron-LM's experts of gpt-oss: what lies beside their fused kernels, against torch itself."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from simcore.workload.archs.lm_mlp import gate_product, weighed_bias
from simcore.workload.archs.transformer import build
from simcore.workload.graph import Kernel, Op
from simcore.workload.recompute import recomputed

ROWS, WIDTH, EXPERTS = 64, 512, 4
SMALL: dict[str, Any] = {
    "layers": 2, "hidden": 64, "heads": 4, "vocab": 100, "seq_len": 32, "positions": "rope",
    "norm": "rmsnorm", "bias": False, "mlp": "swiglu_clamped", "experts": 4, "top_k": 2,
    "expert_ffn": 48, "expert_bias": True, "fused_pointwise": True,
}  # fmt: skip


class Traffic(TorchDispatchMode):
    """Bytes that kernels read and write, and how many kernels there are; scalars aside."""

    def __init__(self) -> None:
        super().__init__()
        self.n_bytes, self.launches = 0, 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        tensors = [t for t in tree_leaves((args, kwargs, out)) if isinstance(t, Tensor)]
        if not func.is_view and any(t.numel() > 1 for t in tensors) and "detach" not in str(func):
            self.n_bytes += sum(t.numel() * t.element_size() for t in tensors)
            self.launches += 1
        return out


def moved(kernels: tuple[Kernel, ...]) -> float:
    return sum(2 * k.low + 4 * k.high + k.raw_bytes for k in kernels)


def compare(op: Op, forward: Traffic, backward: Traffic, rel: float) -> None:
    for kernels, seen in ((op.fwd, forward), (op.bwd, backward)):
        assert moved(kernels) == pytest.approx(seen.n_bytes, rel=rel)
        assert sum(k.launches for k in kernels) == seen.launches


def test_clamps_before_the_fused_activation() -> None:
    """weighted_bias_quick_geglu_impl: halves clamped apart and joined."""
    x = torch.randn(ROWS, 2 * WIDTH, dtype=torch.bfloat16, requires_grad=True)
    with Traffic() as forward:
        gate, up = x.chunk(2, -1)
        y = torch.cat((gate.clamp(min=None, max=7.0), up.clamp(min=-7.0, max=7.0)), -1)
    grad = torch.randn_like(y)
    with Traffic() as backward:
        y.backward(grad)
    clamps, fused = gate_product("swiglu_clamped", ROWS * WIDTH, True, clamps_apart=True)
    compare(clamps, forward, backward, 1e-4)
    assert (fused,) == gate_product("swiglu_clamped", ROWS * WIDTH, True)


def test_weighed_bias_of_the_last_product() -> None:
    """_apply_bias: each expert's rows plus its bias times their routing weights, in fp32."""
    split = [ROWS // EXPERTS] * EXPERTS
    t = torch.randn(ROWS, WIDTH, dtype=torch.bfloat16, requires_grad=True)
    p = torch.rand(ROWS, 1, requires_grad=True)
    biases = [torch.randn(WIDTH, dtype=torch.bfloat16, requires_grad=True) for _ in split]
    with Traffic() as forward:
        parts = zip(torch.split(t, split), biases, torch.split(p, split), strict=True)
        y = torch.cat([rows + b * w for rows, b, w in parts]).to(t.dtype)
    grad = torch.randn_like(y)
    with Traffic() as backward:
        y.backward(grad)
    compare(weighed_bias(ROWS, WIDTH, EXPERTS), forward, backward, 0.03)


def test_they_are_there_where_asked_and_run_again_with_the_activation() -> None:
    plain = build(name="small", **SMALL)
    apart = build(name="small", **SMALL, clamps_apart=True, expert_bias_apart=True)
    assert [b.params for b in apart.blocks] == [b.params for b in plain.blocks]
    names = {op.name for op in apart.blocks[1].ops}
    assert names - {op.name for op in plain.blocks[1].ops} == {"clamps", "experts.bias"}
    more = apart.blocks[1].saved - plain.blocks[1].saved
    elems = 32 * 2 * 48  # tokens, experts a token, width: gate and up clamped are kept beside
    assert (more.low, more.high) == (2 * elems, 32 * 2)
    again = recomputed(apart, ("moe_act",)).blocks[1]
    assert again.saved.low < apart.blocks[1].saved.low - elems


def test_rows_that_bring_their_weights_are_added_up_alone() -> None:
    """Combination neither multiplies nor keeps the experts' outputs; work is the same."""
    plain, early = (build(name="small", **SMALL, weighed_early=w) for w in (False, True))
    old, new = (
        {op.name: op for op in w.blocks[1].ops}["combine"] for w in (plain, early)
    )  # fmt: skip
    rows = 32 * 2 * 64  # tokens, experts a token, hidden
    assert old.saved.low - new.saved.low == rows
    out = (
        32 * 64
    )  # index_add reads and writes the sum for each row, the fused kernel a token's once
    assert sum(k.low for k in old.fwd) - sum(k.low for k in new.fwd) == 2 * rows + rows + out
    # the product's two gradients read both factors and the sum's, and one is summed up
    assert sum(k.low for k in old.bwd) - sum(k.low for k in new.bwd) == 6 * rows
    assert sum(k.launches for k in new.fwd + new.bwd) == 2
    assert [b.params for b in early.blocks] == [b.params for b in plain.blocks]


@pytest.mark.parametrize(("kind", "apart"), [("gelu", True), ("relu2", False)])
def test_rows_are_multiplied_by_their_weights_after_a_plain_activation(
    kind: str, apart: bool
) -> None:
    """bias_act_func keeps the activation for the product with the weights; relu2 is fused."""
    small = SMALL | {"mlp": kind, "expert_bias": False, "weighed_early": True}
    found = {op.name: op for op in build(name="small", **small).blocks[1].ops}
    assert ("weights" in found) is apart
    if apart:
        assert found["weights"].saved.low == 32 * 2 * (48 + 1)  # tokens, experts, width


def expert_ops(**settings: Any) -> dict[str, Op]:
    model = build(name="small", **{**SMALL, "expert_bias": False, "mlp": "swiglu"}, **settings)
    return {op.name: op for op in model.blocks[1].ops}


@pytest.mark.parametrize(
    ("setting", "word"), [("regrouped_rows", "regroup"), ("padded_rows", "pad")]
)
def test_rows_are_copied_once_more_before_and_after_experts(setting: str, word: str) -> None:
    """sort_chunks_by_idxs of what came, quantization_padding: each row read and written."""
    found = expert_ops(**{setting: True})
    assert set(found) - set(expert_ops()) == {f"dispatch.{word}", f"combine.{word}"}
    for side in ("dispatch", "combine"):
        op = found[f"{side}.{word}"]
        assert [k.low for k in op.fwd + op.bwd] == [2 * 32 * 2 * 64] * 2  # tokens, experts, width
        assert op.saved.low == 0
    alone = expert_ops(regrouped_rows=True, local_experts=1)
    assert "dispatch.regroup" not in alone  # one expert's rows need no order


def test_fused_experts_are_a_launch_each_product_and_none_between() -> None:
    apart, fused = expert_ops(), expert_ops(fused_experts=True)
    for name in ("experts.gate_up", "experts.down"):
        old, new = apart[name], fused[name]
        assert [k.flop for k in new.fwd + new.bwd] == [k.flop for k in old.fwd + old.bwd]
        assert sum(k.launches for k in new.fwd + new.bwd) == 3
        assert sum(k.launches for k in old.fwd + old.bwd) == 3 * 4
    assert not fused["product"].fwd
    assert fused["product"].saved.low == apart["product"].saved.low
    assert sum(k.launches for k in fused["product"].bwd) == 0


@pytest.mark.parametrize("kind", ["gelu", "relu2"])
@pytest.mark.parametrize("apart", [False, True])
def test_plain_experts_have_two_matrices_each(kind: str, apart: bool) -> None:
    """As Megatron-LM's mixtures without --swiglu have them, and Switch Transformers."""
    plain = SMALL | {"mlp": kind, "expert_bias": False, "expert_apart": apart}
    built = build(name="small", **plain)
    gated = build(name="small", **plain | {"mlp": "swiglu"})
    matrix = 4 * 48 * 64  # experts, width, hidden
    assert gated.blocks[1].numel - built.blocks[1].numel == matrix
    rows = 32 * 2  # tokens, experts a token
    ops = {op.name: op for op in built.blocks[1].ops}
    assert {name for name in ops if name.startswith("experts.")} == {
        "experts.up", "experts.down", "experts.forks",
    }  # fmt: skip
    for name in ("experts.up", "experts.down"):
        (product,) = ops[name].fwd
        assert product.flop == 2 * rows * 64 * 48
        assert sum(k.flop for k in ops[name].bwd) == 2 * product.flop
    assert ops["experts.up"].saved.matmul == rows * 64
