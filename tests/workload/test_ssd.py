"""Mamba-2's mixer: work against torch's counter, storages against the autograd function's list."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from simcore.base.errors import InvalidConfig
from simcore.workload import ops
from simcore.workload.graph import Op, Workload
from simcore.workload.models import MODELS
from simcore.workload.sharding import pipeline_stages, sequence_parallel, tensor_overrides

L, H, P, N, G, Q = 64, 6, 16, 10, 2, 16
SHAPE = ops.SsdShape(seq=L, heads=H, head_dim=P, state=N, groups=G, chunk=Q, conv=4)
NANO = MODELS["nemotron-3-nano-30b-a3b"]


def flop(kernels: tuple[object, ...]) -> float:
    return sum(k.flop for k in kernels)  # type: ignore[attr-defined]


def chunked(x: torch.Tensor, b: torch.Tensor, c: torch.Tensor, decay: torch.Tensor) -> torch.Tensor:
    """Dao & Gu 2024, listing 1, with B and C by groups: chunks, then what passes between them."""
    per = H // G
    x, decay = x.view(L // Q, Q, H, P), decay.view(L // Q, Q, H)
    b, c = b.view(L // Q, Q, G, N), c.view(L // Q, Q, G, N)
    total = decay.cumsum(1)
    of_pairs = torch.einsum("clgn,csgn->cgls", c, b)
    lower = (total[:, :, None] - total[:, None]).permute(0, 3, 1, 2).exp().tril()
    weights = of_pairs.repeat_interleave(per, 1) * lower
    inside = torch.einsum("chls,cshp->clhp", weights, x)
    left = (total[:, -1:] - total).exp()
    states = torch.einsum("clhn,clhp->chpn", b.repeat_interleave(per, 2), x * left[..., None])
    before, kept = [], torch.zeros_like(states[0])
    for chunk in range(L // Q):
        before.append(kept)
        kept = kept * total[chunk, -1].exp()[:, None, None] + states[chunk]
    passed = torch.stack(before)
    across = torch.einsum("clhn,chpn->clhp", c.repeat_interleave(per, 2), passed)
    return (inside + across * total.exp()[..., None]).reshape(L, H, P)


def stepwise(
    x: torch.Tensor, b: torch.Tensor, c: torch.Tensor, decay: torch.Tensor
) -> torch.Tensor:
    """The recurrence itself: h = exp(decay) h + x b', y = h c."""
    b, c = (t.repeat_interleave(H // G, 1) for t in (b, c))
    state, out = torch.zeros(H, P, N), []
    for t in range(L):
        state = state * decay[t].exp()[:, None, None] + x[t][..., None] * b[t][:, None]
        out.append(torch.einsum("hpn,hn->hp", state, c[t]))
    return torch.stack(out)


def test_the_counted_algorithm_is_the_recurrence() -> None:
    torch.manual_seed(0)
    x, b, c = torch.randn(L, H, P), torch.randn(L, G, N), torch.randn(L, G, N)
    decay = -torch.rand(L, H)
    assert torch.allclose(chunked(x, b, c, decay), stepwise(x, b, c, decay), atol=1e-4)


def test_forward_flop_are_those_of_the_chunked_algorithm() -> None:
    """But for the half of the pairs' product with x that causality leaves out (2LQD / 2)."""
    x, b, c = torch.randn(L, H, P), torch.randn(L, G, N), torch.randn(L, G, N)
    with FlopCounterMode(display=False) as counter:
        chunked(x, b, c, -torch.rand(L, H))
    whole = counter.get_total_flops()
    assert flop(ops.ssd_scan("scan", SHAPE, gated=False).fwd) == whole - L * Q * H * P


def test_flop_by_hand() -> None:
    op, inner = ops.ssd_scan("scan", SHAPE, gated=False), H * P
    states, pairs, cb = 2 * L * inner * N, L * Q * inner, 2 * L * Q * G * N
    assert flop(op.fwd) == 2 * states + pairs + cb
    assert flop(op.bwd) == 5 * states + 3 * pairs + 3 * cb


def test_work_and_storages_are_linear_in_length_and_chunks_no_longer_than_it() -> None:
    """Attention's are not: twice the tokens are twice the scan."""
    shapes = [
        ops.SsdShape(seq=n, heads=H, head_dim=P, state=N, groups=G, chunk=Q, conv=4)
        for n in (Q, 2 * Q, 4 * Q)
    ]
    found = [ops.ssd_scan("scan", s, gated=True) for s in shapes]
    for a, b in pairwise(found):
        assert flop(b.fwd) == 2 * flop(a.fwd) and flop(b.bwd) == 2 * flop(a.bwd)
        assert b.saved == a.saved * 2
        assert [k.low for k in b.bwd] == [2 * k.low for k in a.bwd]
    short = ops.SsdShape(seq=8, heads=H, head_dim=P, state=N, groups=G, chunk=Q, conv=4)
    whole = ops.SsdShape(seq=8, heads=H, head_dim=P, state=N, groups=G, chunk=8, conv=4)
    assert ops.ssd_scan("a", short, gated=False) == ops.ssd_scan("a", whole, gated=False)


def mixer(workload: Workload) -> dict[str, Op]:
    """Operators of the first layer with a mixer."""
    return next(
        {op.name: op for op in b.ops} for b in workload.blocks
        if any(op.name == "mixer.scan" for op in b.ops)
    )  # fmt: skip


@pytest.mark.parametrize("apart", [False, True])
def test_storages_are_what_the_autograd_function_keeps(apart: bool) -> None:
    """ssd_combined.py, ctx.save_for_backward: zxbcdt, out_x, rstd; the last product's input is made
    again. Megatron's norm, behind the function, keeps the gated result, its product the norm's.
    """
    found = mixer(NANO.build(mixer_apart=apart, seq_len=256))
    d, width = 64 * 64, 2 * 64 * 64 + 2 * 8 * 128 + 64
    assert found["in_proj"].saved.matmul == 256 * 2688
    assert found["mixer.scan"].saved.low == 256 * (width + d)
    assert found["mixer.rms"].saved.raw_bytes == 256 * 8 * 4
    assert found["mixer.rms"].saved.low == 256 * d * apart
    assert found["out_proj"].saved.matmul == 256 * d * apart
    assert found["mixer.conv"].saved.low == 0


def test_parameters_by_hand() -> None:
    """24 layers of 130m: in, conv, three numbers a head, two norms, out; and the table."""
    d, inner, state = 768, 1536, 128
    channels = inner + 2 * state
    layer = d * (inner + channels + 24) + 5 * channels + 3 * 24 + inner + inner * d + d
    assert MODELS["mamba2-130m"].build().trainable_numel == 24 * layer + 50288 * d + d


def test_layers_of_one_part_each() -> None:
    workload = NANO.build()
    names = [workload.blocks[i].name for i in workload.order]
    assert names[1:8] == [
        "layer mamba", "layer experts", "layer mamba", "layer experts", "layer mamba",
        "layer attention", "layer experts",
    ]  # fmt: skip
    of = {b.name: {op.name for op in b.ops} for b in workload.blocks}
    assert "mixer.scan" in of["layer mamba"] and "router" not in of["layer mamba"]
    assert "attention" in of["layer attention"] and "router" not in of["layer attention"]
    assert "router" in of["layer experts"] and "attention.out" not in of["layer experts"]
    assert [b.name for b in MODELS["nemotron-h-8b"].build().blocks][1:-1] == [
        "layer mamba", "layer dense", "layer attention",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "name", ["nemotron-h-8b", "nemotron-3-nano-30b-a3b", "qwen3-next-80b-a3b", "qwen3.5-27b"]
)
@pytest.mark.parametrize("tp", [2, 8])
def test_tensor_ranks_divide_mixers(name: str, tp: int) -> None:
    """Whole heads and groups of each (mamba_mixer.py, gated_delta_net.py)."""
    record = MODELS[name]
    own = tensor_overrides(record, tp, 1)
    kinds = ("in_proj", "in_proj1", "mixer.scan", "mixer.rule", "mixer.conv", "out_proj")

    def work(workload: Workload) -> dict[str, float]:
        ops_of = [op for b in workload.instances() for op in b.ops if op.name in kinds]
        return {
            "flop": sum(k.flop for op in ops_of for k in (*op.fwd, *op.bwd)),
            "low": sum(k.low for op in ops_of if op.name in kinds[2:5] for k in op.fwd),
            "kept": sum(op.saved.low for op in ops_of),
        }

    whole, part = work(record.build(seq_len=512)), work(record.build(seq_len=512, **own))
    assert whole["flop"] > 0
    assert {k: tp * v for k, v in part.items()} == pytest.approx(whole)


def test_attention_beside_a_mixer_is_the_work_of_both() -> None:
    """Falcon-H1's layer is one of attention and one of Mamba-2, but for a second norm and MLP."""
    record = MODELS["falcon-h1-34b"]

    def one(mixer: str, fed: str) -> Workload:
        pattern = {"mixer_pattern": mixer, "expert_pattern": fed}
        return record.build(layers=1, seq_len=256, **pattern)

    def work(workload: Workload) -> float:
        return sum(k.flop for op in workload.blocks[1].ops for k in (*op.fwd, *op.bwd))

    assert work(one("h", "n")) == work(one("a", "n")) + work(one("m", "n"))
    norm, fed = 5120, 3 * 5120 * 21504 + 5120
    apart = one("a", "d").trainable_numel + one("m", "d").trainable_numel
    rest = 2 * 261120 * 5120 + norm  # both tables and the last norm
    assert one("h", "d").trainable_numel == apart - rest - norm - fed


def test_constants_of_a_layer_are_kernels_unless_compiled() -> None:
    names = ["mixer.in", "mixer.result", "attention.in", "attention.result", "mlp.result"]
    wanted = {f"{n}.scale" for n in names} | {f"{n}.multiplier" for n in ("in_proj", "k", "gate")}
    found = {op.name for op in MODELS["falcon-h1-0.5b"].build().blocks[1].ops}
    compiled = MODELS["falcon-h1-0.5b"].build(fused_pointwise=True).blocks[1].ops
    assert wanted <= found
    assert not wanted & {op.name for op in compiled}


def test_without_a_norm_the_scan_has_the_gate() -> None:
    """ssd_combined.py with rmsnorm_weight None: z goes into the scan, whose gated result backward
    makes anew for the last product: seven elements of a width moved, where with a norm none is."""
    own, normed = (MODELS["falcon-h1-0.5b"].build(seq_len=256, ssm_norm=x) for x in (False, True))
    wide = 256 * 24 * 64
    assert "mixer.rms" not in mixer(own) and "mixer.rms" in mixer(normed)
    moved = [sum(k.low for k in mixer(w)["mixer.scan"].bwd) for w in (own, normed)]
    assert moved[0] - moved[1] == 7 * wide
    assert mixer(own)["mixer.scan"].saved == mixer(normed)["mixer.scan"].saved
    assert mixer(own)["out_proj"].saved.matmul == 0


def test_ranks_that_would_share_a_group_are_refused() -> None:
    with pytest.raises(InvalidConfig, match="tp=2 does not divide ssm_groups=1"):
        tensor_overrides(MODELS["mamba2-1.3b"], 2, 1)
    with pytest.raises(InvalidConfig, match="tp=3 does not divide delta_key_heads=16"):
        tensor_overrides(MODELS["qwen3.5-27b"], 3, 1)


def test_sequence_parallelism_cuts_what_the_first_product_keeps() -> None:
    part = NANO.build(seq_len=256, **tensor_overrides(NANO, 2, 1))
    before, after = mixer(part), mixer(sequence_parallel(part, 2))
    assert after["in_proj"].saved == before["in_proj"].saved * 0.5
    assert after["norm1"].saved == before["norm1"].saved * 0.5
    assert after["mixer.residual"].fwd[0].low == before["mixer.residual"].fwd[0].low / 2
    for name in ("mixer.scan", "mixer.rms"):  # heads' own
        assert after[name] == before[name]


@pytest.mark.parametrize("pp", [2, 4])
def test_stages_of_a_hybrid_are_the_model(pp: int) -> None:
    workload = NANO.build(seq_len=256)
    stages = pipeline_stages(workload, pp)
    assert sum(s.n_layers for s in stages) == 52
    assert sum(s.workload.trainable_numel for s in stages) == workload.trainable_numel
    assert sum(s.workload.forward_flop for s in stages) == pytest.approx(workload.forward_flop)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"mixer_pattern": "mx"}, "letters a, m, s, g, k, l, h, c, n"),
        ({"mixer_pattern": "n", "expert_pattern": "n"}, "leave a layer empty"),
        ({"ssm_heads": 0}, "ssm_heads 0"),
        ({"ssm_groups": 3}, "multiple of ssm_groups 3"),
        ({"residual": "parallel"}, "residual 'parallel'"),
        ({"mixer_pattern": "g"}, "delta_value_heads 0"),
    ],
)
def test_settings_of_no_sense_are_named(settings: dict[str, str | int], words: str) -> None:
    with pytest.raises(InvalidConfig, match=words):
        MODELS["nemotron-h-8b"].build(**settings)


def test_adapters_on_a_hybrid_train_products_alone() -> None:
    """A frozen scan has as much backward as a trained one: it has no weight."""
    plain, tuned = (MODELS["nemotron-h-8b"].build(seq_len=256, **x) for x in ({}, {"lora_rank": 8}))
    scans = [mixer(w)["mixer.scan"] for w in (plain, tuned)]
    assert scans[0] == scans[1]
    linear = sum(
        op.fwd[0].flop for b in plain.instances() for op in b.ops
        if op.gemm_weight and op.fwd and b.recomputable
    )  # fmt: skip
    head = next(op for op in plain.blocks[-1].ops if op.name == "head").fwd[0].flop
    assert tuned.frozen_weight_flop == pytest.approx(linear + head)
    assert 0 < tuned.trainable_numel < 0.01 * plain.trainable_numel


def test_a_last_chunk_that_is_not_full_is_a_chunk() -> None:
    """Of 20 tokens in chunks of 16 a state is made twice, as of 32; in DeltaNet's of 64 of 70."""

    def products(op: Op) -> list[float]:
        return [k.blocks.per_sample for k in op.fwd if k.kind == "chunk_products"]

    def scan(n: int) -> list[float]:
        shape = ops.SsdShape(seq=n, heads=H, head_dim=P, state=N, groups=G, chunk=Q, conv=4)
        return products(ops.ssd_scan("scan", shape, gated=False))

    def rule(n: int) -> list[float]:
        shape = ops.DeltaShape(
            seq=n, key_heads=2, value_heads=4, key_dim=8, value_dim=8, conv=4
        )  # fmt: skip
        return products(ops.delta_rule("rule", shape))

    assert scan(20) == scan(32) != scan(16)
    assert 2 * H in scan(20)
    assert rule(70)[0] == rule(128)[0] == 2 * 4
