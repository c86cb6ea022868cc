"""Few evaluations of a convex function give all of it."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from simcore.timing.convex import at_counts

#: Rows of slopes and offsets: each row is the maximum of its affine parts.
PARTS = st.lists(
    st.lists(st.tuples(st.integers(0, 50), st.integers(-2000, 2000)), min_size=1, max_size=5),
    min_size=1, max_size=6,
)  # fmt: skip


@given(parts=PARTS, counts=st.lists(st.integers(1, 300), min_size=1, max_size=60), data=st.data())
def test_every_value_of_a_maximum_of_affine_functions(
    parts: list[list[tuple[int, int]]], counts: list[int], data: st.DataObject
) -> None:
    width = max(map(len, parts))
    slopes = np.array([[*(s for s, _ in r), *[0] * (width - len(r))] for r in parts], float)
    offsets = np.array([[*(o for _, o in r), *[-1e9] * (width - len(r))] for r in parts], float)
    jump = np.arange(len(parts), dtype=float)  # one micro-step alone is another matter

    def f(row: np.ndarray, count: np.ndarray) -> np.ndarray:
        top = (slopes[row] * count[:, None] + offsets[row]).max(axis=1)
        return np.stack([top - jump[row] * (count < 2), -3.0 * top])

    row = np.array([data.draw(st.integers(0, len(parts) - 1)) for _ in counts])
    row[0] = len(parts) - 1
    count = np.array(counts, dtype=float)
    truth = f(row, count)
    found = at_counts(f, row, count)
    assert np.abs(found - truth).max() <= 1e-9 * (1.0 + np.abs(truth).max())


def test_single_micro_steps_are_evaluated_by_themselves() -> None:
    """At 1, which the points ask for, and at 2, where the convex part begins; no less than that."""
    seen: set[tuple[int, float]] = set()

    def f(row: np.ndarray, count: np.ndarray) -> np.ndarray:
        seen.update(zip(row.tolist(), count.tolist(), strict=True))
        return (100.0 * (count < 2) + count + 10.0 * row)[None, :]

    found = at_counts(f, np.array([0, 1, 1]), np.array([1.0, 1.0, 4.0]))
    assert found.tolist() == [[101.0, 111.0, 14.0]]
    assert seen == {(0, 1.0), (0, 2.0), (1, 1.0), (1, 2.0), (1, 3.0), (1, 4.0)}


def test_no_value_is_computed_twice() -> None:
    """A bend at 6 and one at 30: intervals around them are halved, each middle computed once."""
    seen: list[float] = []

    def f(row: np.ndarray, count: np.ndarray) -> np.ndarray:
        seen.extend(count.tolist())
        return np.maximum(np.maximum(6.0, count), 3.0 * count - 60.0)[None, :]

    count = np.arange(2.0, 65.0)
    found = at_counts(f, np.zeros(len(count), dtype=np.intp), count)
    assert found[0].tolist() == f(np.zeros(1), count)[0].tolist()
    asked = seen[: -len(count)]
    assert len(asked) == len(set(asked)) < len(count)


def test_an_affine_row_costs_four_evaluations() -> None:
    calls: list[int] = []

    def f(row: np.ndarray, count: np.ndarray) -> np.ndarray:
        calls.append(len(row))
        return (3.0 * count + row)[None, :]

    row, count = np.repeat(np.arange(10), 500), np.tile(np.arange(1.0, 501.0), 10)
    assert np.allclose(at_counts(f, row, count), (3.0 * count + row)[None, :], rtol=1e-15)
    assert calls == [40]
