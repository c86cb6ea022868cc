"""Cuts of a pipeline as training libraries make them, against their own loops and runs."""

from __future__ import annotations

from itertools import combinations_with_replacement, pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simcore.base.errors import InvalidConfig
from simcore.strategy.cuts import chunk_counts, costs_cut, cut_sizes, modules_cut, parameters_cut
from simcore.strategy.layout import CUT_RULES
from simcore.strategy.programs import program_named, program_names


@given(st.integers(1, 130), st.integers(1, 20), st.integers(0, 3), st.integers(0, 3))
def test_modules_are_dealt_out_as_a_list_is(
    layers: int, stages: int, before: int, after: int
) -> None:
    """``numpy.array_split`` deals out the same list: the first parts take one more."""
    parts = np.array_split([0] * before + [1] * layers + [0] * after, stages)
    sizes = tuple(int(part.sum()) for part in parts)
    if 0 in sizes:
        beside = f"{layers} layers and {before + after} more modules divided over {stages} stages"
        with pytest.raises(InvalidConfig, match=f"{beside} leave stage .* without a layer"):
            modules_cut(layers, stages, before, after)
    else:
        assert modules_cut(layers, stages, before, after) == sizes


def test_modules_of_further_tokens_are_on_the_last_stage_besides() -> None:
    """Megatron-Core divides the layers alone: 16 over 2 stages of 4 chunks are 8 and 8 + 1."""
    assert cut_sizes("", 17, 2, settings={"next_tokens": 1}) == (8, 9)
    assert cut_sizes("", 34, 4, settings={"next_tokens": 2}) == (8, 8, 8, 10)
    assert cut_sizes("", 17, 2) == (9, 8)
    # 61 layers do not divide: with the module they do
    assert cut_sizes("", 62, 2, settings={"next_tokens": 1}) == (31, 31)


def test_deepspeed_fills_stages_in_turn() -> None:
    """BigScience's 78 layers in 12 stages: the last had one, the rest seven (its chronicles)."""
    assert cut_sizes("", 78, 12, "filled") == (*[7] * 11, 1)
    assert cut_sizes("", 72, 12, "filled") == (6,) * 12
    assert cut_sizes("rest,12", 78, 12, "filled") == (*[6] * 11, 12)
    with pytest.raises(InvalidConfig, match="without a layer"):
        cut_sizes("", 9, 4, "filled")  # 3 + 3 + 3


def numbered(n_layers: int, n_stages: int, layer: int, head: int) -> list[int]:
    """Stage of each layer as nanotron's build_model numbers them, block by block."""
    costs = np.cumsum([0, *[layer] * n_layers, 0, head, 0])  # embedding, layers, norm, head, cast
    shares = [costs[-1] * ((stage + 1) / n_stages) for stage in range(n_stages)]
    stage, found = 0, []
    for cost in costs:
        found.append(stage)
        stage += bool(cost > shares[stage])
    return found[1 : n_layers + 1]


@given(
    st.integers(1, 130), st.integers(1, 16), st.sampled_from([1024, 3072, 4096, 8192]),
    st.sampled_from([32000, 131072]),
)  # fmt: skip
def test_costs_are_dealt_out_as_nanotron_does(
    layers: int, stages: int, hidden: int, vocab: int
) -> None:
    layer, head = hidden * 16 * hidden, vocab * hidden
    try:
        sizes = costs_cut(layers, stages, layer, head)
    except InvalidConfig as err:
        assert "without a layer" in str(err)
        return
    at = numbered(layers, stages, layer, head)
    assert sizes == tuple(at.count(stage) for stage in range(stages))


def test_a_large_head_leaves_its_stage_fewer_layers() -> None:
    """28 layers of 3,072 and 8,192 wide, a vocabulary of 131,072: the head is 3.6 layers."""
    layer = 3072 * (4 * 3072 + 3 * 8192)
    assert costs_cut(28, 2, layer, 131_072 * 3072) == (16, 12)
    with pytest.raises(InvalidConfig, match="leave stage 2 without a layer"):
        costs_cut(4, 4, layer, 131_072 * 3072)


@given(st.integers(1, 9), st.integers(1, 4), st.integers(1, 30), st.integers(0, 60))
def test_no_division_has_a_lighter_heaviest_stage(
    layers: int, stages: int, layer: int, table: int
) -> None:
    modules = [table, *[layer] * layers, table]
    sizes = parameters_cut(layers, stages, layer, table)
    assert len(sizes) == stages
    assert sum(sizes) == layers
    heaviest = min(
        max(sum(modules[a:b]) for a, b in pairwise((0, *cuts, len(modules))))
        for cuts in combinations_with_replacement(range(len(modules) + 1), stages - 1)
    )
    assert layer * max(sizes) <= heaviest
    if stages > 1:  # the first stage is as full as that allows
        assert table + layer * sizes[0] <= heaviest or not sizes[0]
        assert sizes[0] == layers or table + layer * (sizes[0] + 1) > heaviest


def test_stages_by_parameters_leave_those_at_the_ends_fewer_layers() -> None:
    """Llama's 30B with 128,000 tokens: a table is 1.6 layers, so 63.2 are divided by stages."""
    layer, table = 6656 * (4 * 6656 + 3 * 17_920), 128_000 * 6656
    assert parameters_cut(60, 2, layer, table) == (30, 30)
    assert parameters_cut(60, 4, layer, table) == (14, 16, 16, 14)
    assert parameters_cut(60, 16, layer, table) == (2, *[4] * 14, 2)


def test_a_program_s_own_cut_is_taken_where_none_is_named() -> None:
    """Aleph Alpha's scaling on Llama 13B with 128,000 tokens: a table is two layers."""
    widths = {"hidden": 5120, "ffn": 13_824, "vocab": 128_000, "heads": 40, "mlp": "swiglu"}
    assert cut_sizes("", 40, 4, "parameters", widths) == (9, 11, 11, 9)
    assert cut_sizes("", 40, 1, "parameters", widths) == (40,)
    assert cut_sizes("4x8,2x4", 40, 6, "parameters", widths) == (8, 8, 8, 8, 4, 4)
    assert cut_sizes("", 40, 4, "parameters") == (10,) * 4  # a model that has no widths
    # The table would fill the first of sixteen stages, so modules are shared out.
    assert cut_sizes("", 40, 14, "parameters", widths) == modules_cut(40, 14, 1, 2)


def test_layers_by_parameters_have_fewer_of_keys_and_of_a_plain_feed_forward() -> None:
    """A table of 22 squared widths is two layers of 2 + 2/4 + 8, but not of 2 + 2 + 8 or + 12."""
    few = {"hidden": 64, "ffn": 256, "heads": 8, "kv_heads": 2, "mlp": "gelu", "vocab": 22 * 64}
    assert cut_sizes("", 10, 3, "parameters", few) == (3, 5, 2)
    assert cut_sizes("", 10, 3, "parameters", few | {"kv_heads": 8}) == (3, 4, 3)
    assert cut_sizes("", 10, 3, "parameters", few | {"mlp": "swiglu"}) == (3, 4, 3)


def test_costs_are_of_the_models_widths() -> None:
    widths = {"hidden": 3072, "ffn": 8192, "vocab": 131_072}
    assert cut_sizes("", 28, 2, "costs", widths) == (16, 12)
    assert cut_sizes("", 28, 2, "costs") == (14, 14)  # a model that has none
    plain = {
        "hidden": 1024,
        "vocab": 131_072,
    }  # four times as wide between: 16 of the width squared
    assert cut_sizes("", 24, 2, "costs", plain) == costs_cut(24, 2, 16 * 1024**2, 131_072 * 1024)
    assert cut_sizes("", 24, 2, "costs", plain) == (17, 7)


def test_every_library_cuts_by_a_rule_that_there_is() -> None:
    assert {
        program_named(name).pipeline.cut for name in [*program_names(), "deepspeed@2022"]
    } == set(CUT_RULES)


@pytest.mark.parametrize(
    ("layers", "stages", "chunks"),
    [
        (32, 4, (2, 4, 8)), (24, 4, (2, 6)), (60, 2, (2, 6)), (7, 2, (2, 4)), (14, 2, (2, 4, 8)),
        (13, 7, (2,)), (5, 3, (2,)), (10, 3, (2, 4)), (11, 5, ()), (120, 2, (2, 4, 6)),
    ],
)  # fmt: skip
def test_chunks_that_divide_a_pipeline(layers: int, stages: int, chunks: tuple[int, ...]) -> None:
    """Layers, and layers with one or both of embedding and head: powers of two, the ends."""
    assert chunk_counts(layers, stages) == chunks
