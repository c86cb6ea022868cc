"""Gated DeltaNet: the chunked rule against the recurrence, its work against torch's counter."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from simcore.workload import ops
from simcore.workload.graph import Op
from simcore.workload.models import MODELS

L, H, K, V, T = 256, 2, 20, 12, 64
SHAPE = ops.DeltaShape(seq=L, key_heads=1, value_heads=H, key_dim=K, value_dim=V, conv=4)


def flop(kernels: tuple[Any, ...]) -> float:
    return sum(k.flop for k in kernels)


def chunked(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, g: torch.Tensor, beta: torch.Tensor
) -> torch.Tensor:
    """Yang, Kautz & Hatamizadeh 2024: w and u by the inverse of I + tril(beta k k')."""
    n = L // T
    q, k = (x.view(n, T, H, K).transpose(1, 2) for x in (q, k))
    v = v.view(n, T, H, V).transpose(1, 2)
    g, beta = (x.view(n, T, H).transpose(1, 2) for x in (g, beta))
    total = g.cumsum(-1)
    decay = (total[..., :, None] - total[..., None, :]).exp().tril()
    pairs = (k * beta[..., None]) @ k.transpose(-1, -2)
    lower = (pairs * decay).tril(-1) + torch.eye(T)
    inverse = torch.linalg.solve_triangular(lower, torch.eye(T).expand_as(lower), upper=False)
    u = inverse @ (v * beta[..., None])
    w = inverse @ (k * (beta * total.exp())[..., None])
    state, out = torch.zeros(H, K, V), []
    for c in range(n):
        new = u[c] - w[c] @ state
        inside = (q[c] @ k[c].transpose(-1, -2) * decay[c]) @ new
        out.append(inside + (q[c] * total[c].exp()[..., None]) @ state)
        last = total[c][:, -1:]
        state = (
            state * last.exp()[..., None]
            + (k[c] * (last - total[c]).exp()[..., None]).transpose(-1, -2) @ new
        )
    return torch.stack(out).transpose(1, 2).reshape(L, H, V)


def stepwise(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, g: torch.Tensor, beta: torch.Tensor
) -> torch.Tensor:
    """S = exp(g) (S - beta k (k' S)) + beta k v', y = q S."""
    state, out = torch.zeros(H, K, V), []
    for t in range(L):
        state = state * g[t].exp()[:, None, None]
        seen = torch.einsum("hk,hkv->hv", k[t], state)
        state = state + torch.einsum("hk,hv->hkv", k[t], (v[t] - seen) * beta[t][:, None])
        out.append(torch.einsum("hk,hkv->hv", q[t], state))
    return torch.stack(out)


def inputs() -> tuple[torch.Tensor, ...]:
    torch.manual_seed(0)
    q, k = (torch.nn.functional.normalize(torch.randn(L, H, K), dim=-1) for _ in range(2))
    return q, k, torch.randn(L, H, V), -torch.rand(L, H), torch.rand(L, H)


def test_the_counted_algorithm_is_the_recurrence() -> None:
    assert torch.allclose(chunked(*inputs()), stepwise(*inputs()), atol=1e-4)


def test_forward_flop_are_those_of_the_chunked_algorithm() -> None:
    """The triangular inverse, T^2 / 3 a token and head, is none of those that torch counts."""
    with FlopCounterMode(display=False) as counter:
        chunked(*inputs())
    inverse = L * H * T**2 / 3
    found = flop(ops.delta_rule("rule", SHAPE).fwd)
    assert found == pytest.approx(counter.get_total_flops() + inverse)


def test_decays_by_channel_are_more_bytes_and_no_more_products() -> None:
    """Kimi Delta Attention (fla/ops/kda/chunk.py, save_for_backward): beside q, k, v and the
    inverse the pairs of q and k, and decays of K numbers, raw and summed up, where one was."""
    own = replace(SHAPE, by_channel=True)
    one, many = (ops.delta_rule("rule", s) for s in (SHAPE, own))
    assert flop(one.fwd) == flop(many.fwd) and flop(one.bwd) == flop(many.bwd)
    assert many.saved.low - one.saved.low == L * H * T
    assert many.saved.raw_bytes - one.saved.raw_bytes == 4 * L * H * (2 * K - 1)
    moved = [sum(k.raw_bytes for k in op.fwd) for op in (one, many)]
    # the sum of decays reads and writes, four products and the passing of states read them
    assert moved[1] - moved[0] == 4 * L * H * (K - 1) * 7


def test_parameters_of_kimi_linear_are_those_of_its_weights() -> None:
    """model.safetensors.index.json of Kimi-Linear-48B-A3B: total_parameters 49,122,681,728, of
    which a router's bias for each of 256 experts in 26 layers is a buffer, not trained."""
    assert MODELS["kimi-linear-48b-a3b"].build().trainable_numel == 49_122_681_728 - 26 * 256


def test_flop_by_hand() -> None:
    op, tokens = ops.delta_rule("rule", SHAPE), L * H
    assert flop(op.fwd) == pytest.approx(
        tokens * (6 * T * K + 4 * T * V + 6 * K * V + T**2 / 3)
    )  # fmt: skip
    assert flop(op.bwd) == pytest.approx(
        tokens * (18 * T * K + 10 * T * V + 16 * K * V + 4 * T**2)
    )  # fmt: skip


def test_work_is_linear_in_length() -> None:
    longer = ops.delta_rule(
        "rule",
        ops.DeltaShape(seq=2 * L, key_heads=1, value_heads=H, key_dim=K, value_dim=V, conv=4),
    )
    short = ops.delta_rule("rule", SHAPE)
    assert flop(longer.fwd) == pytest.approx(2 * flop(short.fwd))
    assert flop(longer.bwd) == pytest.approx(2 * flop(short.bwd))
    assert longer.saved == short.saved * 2


def _layer(**settings: Any) -> dict[str, Op]:
    workload = MODELS["qwen3-next-80b-a3b"].build(seq_len=128, **settings)
    return {op.name: op for b in workload.blocks if b.name == "layer delta" for op in b.ops}


def test_storages_are_what_the_modules_keep() -> None:
    """chunk.py, ctx.save_for_backward: q and k of each head of values, v, the inverse, g and both
    deviations in fp32, beta (a sigmoid's result); around it convolution, norm and products."""
    n, keys, values, heads = 128, 2048, 4096, 32
    found = _layer()
    assert found["in_proj"].saved.matmul == n * 2048 and found["in_proj1"].saved.matmul == 0
    assert found["mixer.conv"].saved.low == n * (2 * keys + values)
    assert found["mixer.rule"].saved.low == n * heads * (2 * 128 + 128 + 64)
    assert found["mixer.rule"].saved.raw_bytes == 3 * 4 * n * heads
    assert found["mixer.rms"].saved.low == 2 * n * values
    assert found["out_proj"].saved.matmul == n * values


@pytest.mark.parametrize(("products", "names"), [(1, 1), (2, 2), (4, 4)])
def test_the_first_product_may_be_cut(products: int, names: int) -> None:
    found = {n: op for n, op in _layer(delta_products=products).items() if "in_proj" in n}
    assert len(found) == names
    assert sum(op.gemm_weight for op in found.values()) == 2048 * (2 * 2048 + 2 * 4096 + 64)


@pytest.mark.parametrize("fused", [False, True])
def test_gated_attention_has_a_gate_as_wide_as_its_output(fused: bool) -> None:
    record = MODELS["qwen3-next-80b-a3b"]
    n, wide = 128, 16 * 256
    layers = [
        {op.name: op for op in b.ops}
        for gated in (True, False)
        for b in record.build(seq_len=n, gated_attention=gated, fused_pointwise=fused).blocks
        if b.name == "layer attention"
    ]
    with_gate, without = layers
    assert with_gate["q"].gemm_weight == 2 * without["q"].gemm_weight == 2 * 2048 * wide

    def kept(ops_of: dict[str, Op]) -> float:
        return sum(op.saved.low + op.saved.matmul + op.saved.matmul_copy for op in ops_of.values())

    # the gate, or its sigmoid, and the product of both, which the last product keeps
    assert kept(with_gate) - kept(without) == 2 * n * wide
