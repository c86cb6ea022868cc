"""Cuts of a pipeline: the text, and the dynamic programme against all cuts that there are."""

from __future__ import annotations

from itertools import combinations
from time import process_time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simcore.base.errors import InvalidConfig
from simcore.strategy.cuts import (
    balanced_cut,
    cut_problems,
    cut_sizes,
    filled_cut,
    holds_all,
    least_layers,
    modules_cut,
    normalised,
    stages_told,
    written,
)
from simcore.workload.sharding import even_cut


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        ("19,21,21,19", (19, 21, 21, 19)),
        ("19, 2x21 ,19", (19, 21, 21, 19)),
        ("19,rest,19", (19, 21, 21, 19)),
        ("rest,17", (21, 21, 21, 17)),
        ("even", (20, 20, 20, 20)),
        ("", (20, 20, 20, 20)),
    ],
)
def test_text(text: str, sizes: tuple[int, ...]) -> None:
    assert cut_sizes(normalised(text), 80, 4) == sizes
    assert cut_sizes(written(sizes), 80, 4) == sizes


def test_what_stands_in_a_text() -> None:
    assert written((7, 8, 8, 7)) == "7,2x8,7"
    assert stages_told("7,14x8,7") == 16
    assert stages_told("7,rest,7") is None
    assert stages_told("auto") is None


def test_llama_405b_as_it_was_trained() -> None:
    """Llama Team 2024, 3.3.2: 126 layers, first and last of 16 stages have one less."""
    assert even_cut(126, 16) == (7, *[8] * 14, 7)
    assert cut_sizes("7,14x8,7", 126, 16) == even_cut(126, 16)


@given(st.integers(1, 130), st.integers(1, 20), st.integers(0, 3), st.integers(0, 3))
def test_modules_are_dealt_out_as_a_list_is(
    layers: int, stages: int, before: int, after: int
) -> None:
    """``numpy.array_split`` deals out the same list: the first parts take one more."""
    parts = np.array_split([0] * before + [1] * layers + [0] * after, stages)
    sizes = tuple(int(part.sum()) for part in parts)
    if 0 in sizes:
        with pytest.raises(InvalidConfig, match="without a layer"):
            modules_cut(layers, stages, before, after)
    else:
        assert modules_cut(layers, stages, before, after) == sizes


def test_deepspeed_fills_stages_in_turn() -> None:
    """BigScience's 78 layers in 12 stages: the last had one, the rest seven (its chronicles)."""
    assert filled_cut(78, 12) == (*[7] * 11, 1)
    assert filled_cut(72, 12) == (6,) * 12
    assert cut_sizes("", 78, 12, fills=True) == (*[7] * 11, 1)
    assert cut_sizes("rest,1", 78, 12, fills=True) == (*[7] * 11, 1)
    with pytest.raises(InvalidConfig, match="without a layer"):
        filled_cut(9, 4)  # 3 + 3 + 3


def test_a_program_s_own_cut_is_taken_where_none_is_named() -> None:
    """Aleph Alpha's scaling on Llama 30B: the head's stage is the short one."""
    assert cut_sizes("", 60, 16, (1, 2)) == (3, *[4] * 14, 1)
    assert cut_sizes("", 60, 1, (1, 2)) == (60,)
    assert cut_sizes("12x4,4x3", 60, 16, (1, 2)) == (4,) * 12 + (3,) * 4


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("19,21,40", "are 3, not pp=4"),
        ("20,20,20,19", "have 79 layers, not the model's 80"),
        ("20,rest,19", "leave 41 layers to 2 stages, which does not divide: 40 would"),
        ("20,20,20,20,rest", "leave no stage of pp=4"),
        ("0,30,30,20", "stage 0 of stages 0,2x30,20 has 0 layers, less than one layer"),
    ],
)
def test_every_rule_is_one_sentence(text: str, said: str) -> None:
    (told,) = cut_problems(normalised(text), 80, 4)
    assert said in told
    with pytest.raises(InvalidConfig):
        cut_sizes(normalised(text), 80, 4)


def test_all_rules_are_told_at_once() -> None:
    assert len(cut_problems("19,21,21", 80, 4)) == 2
    for text in ("19;21", "a,b", "2xrest", "rest,2,rest", "0x4,1"):
        with pytest.raises(InvalidConfig):
            normalised(text)
    with pytest.raises(InvalidConfig) as caught:
        normalised("x,19,y")
    assert len(caught.value.violations) == 2


def test_chunks_may_hold_an_embedding_or_a_head_for_a_layer() -> None:
    """Llama 3.1 405B in 16 stages of 8 chunks: 7 layers and the embedding are 8 chunks."""
    assert not cut_problems("7,14x8,7", 126, 16, chunks=8)
    assert "less than its 8 chunks" in cut_problems("8,7,13x8,7", 126, 16, chunks=8)[0]
    assert least_layers(4, 8) == (7, 8, 8, 7)
    assert least_layers(4, 1) == (1, 1, 1, 1)


def every_cut(n_layers: int, n_stages: int) -> list[tuple[int, ...]]:
    marks = combinations(range(1, n_layers), n_stages - 1)
    return [
        tuple(b - a for a, b in zip((0, *m), (*m, n_layers), strict=True)) for m in marks
    ]  # fmt: skip


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_the_cut_is_the_best_of_all(data: st.DataObject) -> None:
    """Layers of any cost, embedding and head, a limit of memory that falls along the stages."""
    n = data.draw(st.integers(1, 10))
    p = data.draw(st.integers(1, min(n, 5)))
    layer = data.draw(st.lists(st.integers(1, 9), min_size=n, max_size=n))
    first, last = data.draw(st.integers(0, 12)), data.draw(st.integers(0, 12))
    room = data.draw(st.lists(st.integers(1, 60), min_size=p, max_size=p))
    limited = data.draw(st.booleans())

    def cost(a: int, b: int) -> float:
        return float(sum(layer[a:b]) + first * (a == 0) + last * (b == n))

    def fits(s: int, a: int, b: int) -> bool:
        return (p - s) * (b - a) <= room[s]

    def slowest(sizes: tuple[int, ...]) -> float:
        at = [sum(sizes[:s]) for s in range(p + 1)]
        return max(cost(at[s], at[s + 1]) for s in range(p))

    def squares(sizes: tuple[int, ...]) -> float:
        at = [sum(sizes[:s]) for s in range(p + 1)]
        return sum(cost(at[s], at[s + 1]) ** 2 for s in range(p))

    def allowed(sizes: tuple[int, ...]) -> bool:
        at = [sum(sizes[:s]) for s in range(p + 1)]
        return not limited or all(fits(s, at[s], at[s + 1]) for s in range(p))

    good = [c for c in every_cut(n, p) if allowed(c)]
    found = balanced_cut(cost, n, least_layers(p, 1), fits if limited else None)
    if not good:
        assert found is None
        return
    assert found in good
    best = min(map(slowest, good))
    assert slowest(found) == best
    assert squares(found) == min(squares(c) for c in good if slowest(c) == best)


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_what_greedy_stages_cannot_hold_no_cut_can(data: st.DataObject) -> None:
    n = data.draw(st.integers(1, 9))
    p = data.draw(st.integers(1, min(n, 4)))
    layer = data.draw(st.lists(st.integers(1, 9), min_size=n, max_size=n))
    room = data.draw(st.lists(st.integers(1, 40), min_size=p, max_size=p))

    def fits(s: int, a: int, b: int) -> bool:
        return (p - s) * sum(layer[a:b]) <= room[s]

    def held(sizes: tuple[int, ...]) -> bool:
        at = [sum(sizes[:s]) for s in range(p + 1)]
        return all(fits(s, at[s], at[s + 1]) for s in range(p))

    if any(map(held, every_cut(n, p))):
        assert holds_all(n, least_layers(p, 1), fits)
    else:
        assert balanced_cut(lambda a, b: b - a, n, least_layers(p, 1), fits) is None


def test_stages_that_must_take_more_than_they_may_are_weighed_in_full() -> None:
    """Greedy stages pass the second one, which holds some layers alone, and none in between."""

    def without(*layers: int) -> tuple[int, ...] | None:
        def fits(s: int, a: int, b: int) -> bool:
            return s != 1 or not any(a <= layer < b for layer in layers)

        assert holds_all(4, least_layers(3, 1), fits)
        return balanced_cut(lambda a, b: b - a, 4, least_layers(3, 1), fits)

    assert without(2) == (1, 1, 2)
    assert without(1, 2) is None


def test_a_thousand_layers_in_64_stages_take_a_blink() -> None:
    begun = process_time()
    found = balanced_cut(lambda a, b: b - a + 3.0 * (b == 1000), 1000, least_layers(64, 1))
    assert found is not None
    assert max(found[:-1]) == 16
    assert process_time() - begun < 1.0
