"""Distinct columns of an axis, its stretches of equal values, and when Python looks for cycles."""

from __future__ import annotations

import gc
import subprocess
import sys
from itertools import pairwise
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simcore.base import arrays
from simcore.base.arrays import distinct_columns, equal_neighbours, rare_collections

#: Axes of one to three rows of few values: many equal columns, next to each other or not.
AXES = st.integers(1, 40).flatmap(
    lambda n: st.lists(
        st.lists(st.sampled_from([0.0, 1.0, 2.5]), min_size=n, max_size=n), min_size=1, max_size=3
    )
)


@pytest.mark.parametrize("few", [0, 100])
@given(axis=AXES)
def test_every_column_is_found_again_and_none_twice(few: int, axis: list[list[float]]) -> None:
    rows = [np.array(row) for row in axis]
    with patch.object(arrays, "_FEW", few):  # one by one, and by sorting
        first, which = distinct_columns(rows)
    columns = list(zip(*axis, strict=True))
    assert [columns[first[k]] for k in which] == columns
    assert len(first) == len(set(columns))


@given(row=st.lists(st.sampled_from([0.0, 1.0, 2.5]), min_size=1, max_size=40))
def test_stretches_of_equal_values_make_up_the_row(row: list[float]) -> None:
    starts, lengths = equal_neighbours(np.array(row))
    values = [row[i] for i in starts]
    assert np.repeat(values, lengths).tolist() == row
    assert all(a != b for a, b in pairwise(values)), "as long as they go"


#: In a process of its own, where nothing is frozen; ``conftest.py`` freezes what it finds here.
RARELY = """
import gc
from simcore.base.arrays import rare_collections

before, passes = gc.get_threshold(), []
gc.collect()
gc.callbacks.append(lambda phase, _: passes.append(phase))
with rare_collections():
    made = [[n] for n in range(10_000)]
again = gc.get_count()[0]
assert not passes and again < len(made)
assert gc.get_threshold() == before and not gc.get_freeze_count()
"""


def test_python_looks_for_cycles_neither_within_nor_at_the_end() -> None:
    """Ten thousand new objects, each of which would count; afterwards all of them are old ones."""
    subprocess.run([sys.executable, "-c", RARELY], check=True)


def test_objects_that_the_caller_froze_stay_frozen() -> None:
    frozen = gc.get_freeze_count()
    with rare_collections():
        pass
    assert gc.get_freeze_count() == frozen > 0
