"""The dynamic programme against all cuts that there are."""

from __future__ import annotations

from itertools import combinations
from operator import ge

from hypothesis import given, settings
from hypothesis import strategies as st

from simcore.strategy.balanced_cut import balanced_cut, holds_all
from simcore.strategy.cuts import least_layers


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

    spare = n - p
    least = [1] * p  # at most a spare layer more for some of the stages
    for s in data.draw(st.lists(st.integers(0, p - 1), max_size=spare)):
        least[s] += 1
    good = [c for c in every_cut(n, p) if allowed(c) and all(map(ge, c, least))]
    found = balanced_cut(cost, n, least, fits if limited else None)
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


def test_a_thousand_layers_in_64_stages_are_weighed_where_an_end_can_lie() -> None:
    """The plain dynamic programme prices every stretch for every stage: 32 million of them."""
    priced = 0

    def cost(a: int, b: int) -> float:
        nonlocal priced
        priced += 1
        return b - a + 3.0 * (b == 1000)

    found = balanced_cut(cost, 1000, least_layers(64, 1))
    assert found is not None
    assert max(found[:-1]) == 16
    assert priced < 64 * 1000


def test_of_equal_cuts_the_first_stages_are_shortest() -> None:
    """They hold most micro-batches, and the step ends with their update."""
    alike = least_layers(4, 1)
    assert balanced_cut(lambda a, b: 0.1 * (b - a), 10, alike) == (2, 2, 3, 3)
    assert balanced_cut(lambda a, b: 0.1 * (b - a) + 0.1 * (b == 10), 10, alike) == (2, 3, 3, 2)


def test_stages_with_more_layers_than_the_slowest_division_needs() -> None:
    """A stage of three layers of 10 is slower than any other: the others are as equal as can be."""

    def cost(a: int, b: int) -> float:
        return float(sum([10, 10, 10, 1, 1, 1, 1][a:b]))

    assert balanced_cut(cost, 7, (1, 1, 1)) == (1, 1, 5)
    assert balanced_cut(cost, 7, (3, 1, 1)) == (3, 2, 2)
    assert balanced_cut(cost, 7, (3, 1, 1), lambda s, a, b: b - a <= 3 - s) is None
