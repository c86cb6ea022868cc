"""Widths that context ranks exchange, by heads counted by hand, and the copies that this needs."""

from __future__ import annotations

from typing import Any

import pytest
from strategies import workload

from simcore.base.errors import InvalidConfig
from simcore.step.parallel.context import (
    ContextRanks,
    Heads,
    Mixers,
    attending_frac,
    elements,
    gathered,
    heads_of,
    mixers_of,
    sent_frac,
    turned,
)
from simcore.strategy.layout import Layout
from simcore.strategy.precision import PRECISIONS
from simcore.workload.graph import Block, Kernel, Op
from simcore.workload.resolve import resolve_model
from simcore.workload.saved import NOTHING, Saved


def ulysses(cp: int, tp: int = 1) -> Layout:
    return Layout(tp=tp, cp=cp, cp_comm="ulysses")


#: Heads of a rank: of queries and of keys, with their widths; q, output, k, v and copies by hand.
LLAMA3 = {"heads": 32, "hidden": 4096, "kv_heads": 8}
LATENT = {"heads": 16, "hidden": 2048, "head_dim": 192, "value_dim": 128}  # DeepSeek-V2-Lite


@pytest.mark.parametrize(
    ("config", "layout", "widths"),
    [
        (LLAMA3, Layout(), (4096, 4096, 1024, 1024, 1)),
        (LLAMA3, Layout(tp=2), (2048, 2048, 512, 512, 1)),
        (LLAMA3, Layout(tp=16), (256, 256, 128, 128, 1)),  # a key head on two tensor ranks
        (LLAMA3, Layout(tp=2, cp=16), (2048, 2048, 512, 512, 1)),  # a ring copies nothing
        (LLAMA3, ulysses(4), (4096, 4096, 1024, 1024, 1)),
        (LLAMA3, ulysses(16), (4096, 4096, 1024, 1024, 2)),
        (LLAMA3, ulysses(8, tp=2), (2048, 2048, 512, 512, 2)),
        (LATENT, Layout(), (3072, 2048, 3072, 2048, 1)),
        ({"heads": 12, "hidden": 768}, ulysses(4), (768, 768, 768, 768, 1)),
    ],
)
def test_widths_of_attention(
    config: dict[str, Any], layout: Layout, widths: tuple[int, ...]
) -> None:
    found = heads_of("x", config, layout)
    assert found == Heads(*widths)
    queries, output, keys, values, copies = widths
    assert found.turned == queries + output + copies * (keys + values)


def test_models_without_one_count_of_heads() -> None:
    for config in ({}, {"heads": (5, 10)}):
        assert heads_of("x", config, Layout(cp=2)) is None  # type: ignore[arg-type]
        assert heads_of("x", config, Layout(cp=1, cp_comm="ulysses")) is None  # type: ignore[arg-type]
        with pytest.raises(InvalidConfig, match="x: cp-comm ulysses needs attention heads"):
            heads_of("x", config, ulysses(2))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("config", "layout", "says"),
    [
        ({"heads": 6, "hidden": 6}, ulysses(4), "x: cp=4 does not divide heads=6, which cp-comm "
         "ulysses shares; allowed here: [1, 2, 3, 6]"),
        ({"heads": 6, "hidden": 6}, ulysses(2, tp=2), "x: cp=2 does not divide heads / tp = 3, "
         "which cp-comm ulysses shares; allowed here: [1, 3]"),
        ({"heads": 12, "hidden": 12, "kv_heads": 4}, ulysses(6), "x: cp=6 and 4 key heads a tensor "
         "rank: one must divide the other with cp-comm ulysses"),
    ],
)  # fmt: skip
def test_heads_that_ranks_cannot_share(config: dict[str, Any], layout: Layout, says: str) -> None:
    with pytest.raises(InvalidConfig) as refused:
        heads_of("x", config, layout)
    assert tuple(refused.value.violations) == (says,)
    heads_of("x", config, Layout(tp=layout.tp, cp=layout.cp))  # a ring shares tokens


MAMBA = {"layers": 8, "mixer_pattern": "mmma", "ssm_heads": 64, "ssm_groups": 4,
         "ssm_head_dim": 64, "ssm_state": 128}  # fmt: skip
DELTA = {"layers": 4, "mixer_pattern": "ga", "delta_key_heads": 16, "delta_value_heads": 32,
         "delta_key_dim": 64, "delta_value_dim": 128}  # fmt: skip


def test_widths_of_mamba() -> None:
    """Two tensor ranks: 32 heads of 64, z and x; B and C of two groups of 128; a dt for each head.

    Of four context ranks two share a group, whose B and C are copied once.
    """
    two, four = (mixers_of(MAMBA, ulysses(cp, tp=2)) for cp in (2, 4))
    assert two == Mixers(2 * 2048 + 2 * 2 * 128 + 32, 2048, 0, 0.75)
    assert four == Mixers(2 * 2048 + 2 * 2 * 2 * 128 + 32, 2048, 2 * 2 * 128, 0.75)
    assert two.turned == two.taken + 2048
    many = mixers_of({**MAMBA, "ssm_groups": 16}, ulysses(2, tp=2))  # four a context rank
    assert many == Mixers(2 * 2048 + 2 * 8 * 128 + 32, 2048, 0, 0.75)


def test_widths_of_gated_deltanet() -> None:
    """Two tensor ranks: 8 heads of q and k of 64, 16 of v and the gate of 128, beta and alpha."""
    found = mixers_of(DELTA, ulysses(4, tp=2))
    assert found == Mixers(2 * 8 * 64 + 2 * 16 * 128 + 2 * 16, 16 * 128, 0, 0.5)


def test_what_exchanges_no_mixers() -> None:
    assert mixers_of(MAMBA, ulysses(1)) is None
    assert mixers_of(MAMBA, Layout(cp=2)) is None
    assert mixers_of({"layers": 4, "mixer_pattern": "as"}, ulysses(2)) is None
    assert mixers_of({}, ulysses(2)) is None


def test_a_pattern_repeats_over_the_layers() -> None:
    """aab over 5 layers is aabaa: four of five attend."""
    assert attending_frac({"layers": 5, "mixer_pattern": "aam"}) == pytest.approx(0.8)
    assert attending_frac({"layers": 2, "mixer_pattern": "mma"}) == 0.0
    assert attending_frac({}) == 1.0


def test_elements_of_one_exchange() -> None:
    """Queries 8, output 6, keys 3 and values 2, twice: 24 elements in four exchanges."""
    heads, mixers = Heads(8, 6, 3, 2, copies=2), Mixers(10, 4, 0, 0.25)
    assert elements(heads, Layout(cp=4), 100.0) == 100 * 5  # keys and values of all tokens
    assert elements(heads, ulysses(4), 100.0) == 100 / 4 * 24 / 4
    assert elements(heads, ulysses(4), 100.0, mixers, 0.5) == 100 / 4 * (0.5 * 24 + 0.25 * 14) / 4
    assert elements(None, ulysses(4), 100.0) == 0.0


@pytest.mark.parametrize(
    ("attention", "precision", "layout", "frac"),
    [
        ("cudnn_fp8", "fp8", ulysses(4), 0.5),  # cast before the exchange: one byte of two
        ("cudnn_fp8", "nvfp4", ulysses(4), 0.5),
        ("cudnn_fp8", "mxfp8", ulysses(4), 1.0),  # scales along the sequence: cast afterwards
        ("cudnn_fp8", "bf16", ulysses(4), 1.0),  # no 8-bit attention without 8-bit products
        ("cudnn", "fp8", ulysses(4), 1.0),
        ("cudnn_fp8", "fp8", Layout(cp=4), 1.0),
    ],
)
def test_attention_in_8_bits_exchanges_8_bits(
    attention: str, precision: str, layout: Layout, frac: float
) -> None:
    assert sent_frac({"attention": attention}, PRECISIONS[precision], layout) == frac


@pytest.mark.parametrize(
    ("model", "layout", "settings", "says"),
    [
        ("mamba2-2.7b", Layout(cp=2), {}, "can share Mamba-2 layers only by exchanging"),
        ("qwen3-next-80b-a3b", Layout(cp=2), {}, "can share gated DeltaNet layers only"),
        ("mamba2-2.7b", ulysses(3), {"ssm_heads": 80}, "cp=3 does not divide ssm_heads / tp = 80"),
        ("mamba2-2.7b", ulysses(3, tp=2), {"ssm_heads": 80, "ssm_groups": 2},
         "cp=3 does not divide ssm_heads / tp = 40"),
        ("qwen3-next-80b-a3b", ulysses(8, tp=4), {},
         "cp=8 does not divide delta_key_heads / tp = 4"),
    ],
)  # fmt: skip
def test_layers_with_a_state_that_ranks_cannot_share(
    model: str, layout: Layout, settings: dict[str, int], says: str
) -> None:
    told = ContextRanks.refused(resolve_model(model), layout, settings)
    assert len(told) == 1 and says in told[0]
    assert ContextRanks.refused(resolve_model(model), Layout(), settings) == []


@pytest.mark.parametrize(("groups", "ranks"), [(8, 2), (2, 8), (8, 8), (1, 4)])
def test_groups_that_ranks_divide_or_share_are_not_refused(groups: int, ranks: int) -> None:
    settings = {"ssm_heads": 80, "ssm_groups": groups}
    assert ContextRanks.refused(resolve_model("mamba2-2.7b"), ulysses(ranks), settings) == []


# -- copies ----------------------------------------------------------------------------------------

KEPT = Saved(low=7.0)


def op_of(name: str, kind: Any = "gemm") -> Op:
    return Op(name=name, fwd=(Kernel(kind=kind),), bwd=(Kernel(kind=kind),))


def layer(*ops: Op, **more: Any) -> Block:
    return Block(name="layer", ops=ops, params=(), recomputable=True, **more)


def test_copies_of_what_attention_turns() -> None:
    """10 tokens, q 8, output 6, k 3 and v 2 twice: 24 elements a token read and written, 4 copies.

    Kept: the output once more, and the second copy of k and v.
    """
    heads = Heads(8, 6, 3, 2, copies=2)
    plain = layer(op_of("attention.score"))
    part = workload([plain, layer(op_of("mlp.up"))], tokens_per_sample=10.0)
    (*ops, added), other = (block.ops for block in turned(part, heads, ()).blocks)
    assert tuple(ops) == plain.ops and [op.name for op in other] == ["mlp.up"]
    assert added.fwd == added.bwd == (Kernel(kind="copy", low=2 * 10 * 24, launches=4.0),)
    assert added.saved == Saved(low=10 * (6 + 5))
    half = turned(part, heads, (), None, 0.5).blocks[0].ops[-1]  # in 8 bits
    assert half.fwd == (Kernel(kind="copy", low=10 * 24, launches=4.0),)
    assert half.saved == Saved(low=10 * (6 + 5) / 2)
    again = turned(part, heads, ("core_attn",)).blocks[0]
    assert again.ops[-1].fwd == added.fwd and again.ops[-1].bwd == 2 * added.bwd
    assert again.ops[-1].saved == NOTHING and again.recomputed == Saved(low=110)


def test_what_layers_that_run_again_keep() -> None:
    """Of recomputed layers only those with something made again; others keep their copies."""
    heads = Heads(8, 6, 3, 2)
    blocks = [layer(op_of("attention"), recomputed=KEPT), layer(op_of("attention"))]
    part = workload(blocks, tokens_per_sample=10.0)
    first, second = turned(part, heads, ("layer",)).blocks
    assert first.ops[-1].saved == NOTHING and first.recomputed == KEPT + Saved(low=60)
    assert second.ops[-1].saved == Saved(low=60) and second.recomputed == NOTHING
    kept = turned(part, heads, ("mlp",)).blocks[0]
    assert kept.ops[-1].saved == Saved(low=60) and kept.recomputed == KEPT


def test_copies_of_recurrent_layers() -> None:
    """Inputs move three times, results twice, in twelve kernels; copies of B and C are kept."""
    scan = layer(op_of("mixer.scan"))
    part = workload([scan, layer(op_of("mlp.up"))], tokens_per_sample=10.0)
    mixers = Mixers(taken=20, output=6, copied=4, layers_frac=0.5)
    first, other = turned(part, Heads(1, 1, 1, 1), (), mixers).blocks
    (moved,) = first.ops[-1].fwd
    assert moved == Kernel(kind="copy", low=2 * 10 * (3 * 20 + 2 * 6), launches=12.0)
    assert first.ops[-1].bwd == (moved,) and first.ops[-1].saved == Saved(low=10 * 4)
    assert other.ops == part.blocks[1].ops
    assert turned(part, Heads(1, 1, 1, 1), ()).blocks[0].ops == scan.ops


def test_gathered_keys_and_values_lie_beside_attention_alone() -> None:
    """k 3 and v 2 of 10 tokens of each of 4 ranks."""
    part = workload(
        [layer(op_of("attention.flash", "attention"), op_of("mlp"))], tokens_per_sample=10.0
    )
    (block,) = gathered(part, Heads(8, 8, 3, 2), 4).blocks
    assert block.ops[0].beside == Saved(low=4 * 10 * 5) and block.ops[1] == part.blocks[0].ops[1]
