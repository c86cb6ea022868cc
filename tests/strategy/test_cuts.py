"""Cuts of a pipeline as text."""

from __future__ import annotations

import pytest

from simcore.base.errors import InvalidConfig
from simcore.strategy.cuts import (
    chunk_counts,
    cut_problems,
    cut_sizes,
    least_layers,
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
        ("20,2x19,rest", (20, 19, 19, 22)),
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
    assert "less than its 2 chunks" in cut_problems("1,1,2", 4, 3, chunks=2)[0]
    assert least_layers(4, 8) == (7, 8, 8, 7)
    assert least_layers(4, 1) == (1, 1, 1, 1)


@pytest.mark.parametrize(
    ("stages", "chunks", "least"),
    [(1, 1, (1,)), (1, 2, (1,)), (2, 2, (1, 1)), (3, 2, (1, 2, 1)), (4, 1, (1, 1, 1, 1))],
)
def test_least_layers(stages: int, chunks: int, least: tuple[int, ...]) -> None:
    assert least_layers(stages, chunks) == least


@pytest.mark.parametrize(
    ("layers", "stages", "chunks"),
    [
        (80, 4, (2, 4, 5)),  # 20 layers a stage; 5 is the largest
        (126, 16, (2, 4, 8)),  # with embedding and head 128 (Llama 3.1 405B)
        (12, 12, ()),  # 12, 13, 14: none of 24, 36 ...
        (61, 8, ()),  # 61 to 63
        (94, 4, (2, 4, 8)),  # 96 = 4 x 24: 3 and 6 divide too
        (30, 4, (2, 4, 8)),  # 32 = 4 x 8
        (47, 7, (7,)),  # 49 = 7 x 7
        (63, 3, (3, 7)),  # 21 layers a stage
        (36, 2, (2, 6)),  # 18 layers a stage; 9 would be more than a search tries
    ],
)
def test_numbers_of_chunks_that_divide(layers: int, stages: int, chunks: tuple[int, ...]) -> None:
    """Of many only the smallest, the largest and 4."""
    assert chunk_counts(layers, stages) == chunks


def test_a_rest_may_leave_one_layer_to_each_of_its_stages() -> None:
    assert cut_sizes("10,rest,10", 24, 6) == (10, 1, 1, 1, 1, 10)
    assert "leave 3 layers to 4 stages" in cut_problems("10,rest,10", 23, 6)[0]
    assert "leave no stage of pp=2" in cut_problems("10,rest,10", 20, 2)[0]


@pytest.mark.parametrize(
    ("text", "layers", "stages", "told"),
    [
        # 8 named, none left for two: one each would do
        ("8,rest", 8, 3, "leave 0 layers to 2 stages, which does not divide: 2 would"),
        ("3,rest", 8, 3, "leave 5 layers to 2 stages, which does not divide: 4 would"),
        ("1,rest", 8, 3, "leave 7 layers to 2 stages, which does not divide: 8 would"),
        ("7,rest", 8, 4, "leave 1 layers to 3 stages, which does not divide: 3 would"),
    ],
)
def test_what_would_divide_is_told(text: str, layers: int, stages: int, told: str) -> None:
    (problem,) = cut_problems(text, layers, stages)
    assert problem.endswith(told)
