"""Rows of the fullest expert rank, by hand."""

import math

import pytest

from simcore.base.errors import InvalidConfig
from simcore.strategy.layout import ExpertRows, Routing
from simcore.strategy.options import Number


@pytest.mark.parametrize(
    ("routing", "ep", "dispatcher", "computed", "sent", "permuted"),
    [
        ({}, 8, "alltoall", 1, 1, 1),
        ({"imbalance": 1.3}, 8, "alltoall", 1.3, 1.3, 1),  # it sorts its own tokens, then sends
        ({"imbalance": 1.3}, 8, "deepep", 1.3, 1.3, 1.3),  # sorted where they arrive
        ({"imbalance": 1.3}, 1, "alltoall", 1, 1, 1),  # every rank has all experts
        ({"imbalance": 3.0}, 2, "alltoall", 2, 2, 1),  # one of two ranks with all tokens
        ({"capacity": 1.25}, 8, "alltoall", 1.25, 1.25, 1.25),
        ({"capacity": 1.25}, 8, "deepep", 1.25, 1, 1.25),  # empty slots are not sent
        ({"capacity": 1.25}, 1, "alltoall", 1.25, 1.25, 1.25),
        ({"imbalance": 1.3, "capacity": 1.25}, 8, "alltoall", 1.25, 1.25, 1.25),
        ({"imbalance": 1.3, "capacity": 2.0}, 8, "alltoall", 2, 2, 2),
        ({"imbalance": 1.3, "capacity": 2.0}, 8, "deepep", 2, 1.3, 2),
        ({"imbalance": 1.3, "capacity": 1.25, "padding": False}, 8, "alltoall", 1.25, 1.25, 1),
        ({"imbalance": 1.1, "capacity": 1.25, "padding": False}, 8, "alltoall", 1.1, 1.1, 1),
        ({"imbalance": 1.3, "capacity": 1.0}, 8, "alltoall", 1, 1, 1),
    ],
)
def test_rows_of_the_fullest_rank(
    routing: dict, ep: int, dispatcher: str, computed: float, sent: float, permuted: float
) -> None:
    expected = ExpertRows(computed=computed, sent=sent, permuted=permuted)
    assert Routing(**routing).rows(ep, dispatcher) == expected


@pytest.mark.parametrize(("value", "number"), [("1.3", 1.3), (1, 1.0), (" 2 ", 2.0)])
def test_factors(value: object, number: float) -> None:
    assert Number(least=1).read("expert-capacity", value) == number


@pytest.mark.parametrize(
    "value", [0.99, "0", -1, math.nan, "nan", math.inf, "1e999", "x", "", True, [1.3], None]
)
def test_what_is_no_factor(value: object) -> None:
    with pytest.raises(InvalidConfig, match="expert-capacity") as caught:
        Number(least=1).read("expert-capacity", value)
    assert len(caught.value.violations) == 1
