"""Kinds of traffic that hide under compute: defaults, words and their text."""

from __future__ import annotations

import pytest

from simcore.base.errors import UnknownName, UsageError
from simcore.strategy.layout import (
    KINDS,
    NO_OVERLAP,
    Overlap,
    default_overlap,
    parse_overlap,
)


def test_only_gradients_hide_where_nothing_is_said_and_messages_between_chunks() -> None:
    assert default_overlap() == default_overlap(1) == Overlap(grads=True)
    assert default_overlap(2) == parse_overlap(None, 2) == Overlap(grads=True, pipeline=True)
    assert str(Overlap()) == "grads" and str(NO_OVERLAP) == "none"
    assert KINDS == ("grads", "params", "tensor", "dgrad", "experts", "pipeline", "none")


@pytest.mark.parametrize("kind", KINDS[:-1])
def test_a_word_turns_on_its_kind_alone(kind: str) -> None:
    found = parse_overlap(f" {kind.upper()} ,", 2)
    assert [k for k in KINDS[:-1] if getattr(found, k)] == [kind]
    assert parse_overlap(str(found)) == found


def test_none_is_no_kind_and_stands_alone() -> None:
    assert parse_overlap("none") == parse_overlap("none,none") == parse_overlap("") == NO_OVERLAP
    with pytest.raises(UsageError, match="none cannot be combined"):
        parse_overlap("none,grads")
    with pytest.raises(UnknownName, match="did you mean 'tensor'"):
        parse_overlap("grads,tensr")
