"""Of many near-equal cases ``./check`` runs one; ``pytest -m long`` runs the others."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import TypeVar

import pytest

from simcore.workload.models import MODELS

Case = TypeVar("Case")


def first_of_each(
    cases: Iterable[Case], kind: Callable[[Case], Hashable], name: Callable[[Case], str]
) -> list[object]:
    """Every case as a parameter: the first of its ``kind`` is no part of ``-m long``."""
    seen, found = set[Hashable](), list[object]()
    for case in cases:
        marks = [pytest.mark.long] if kind(case) in seen else []
        values = case if isinstance(case, tuple) else (case,)
        found.append(pytest.param(*values, id=name(case), marks=marks))
        seen.add(kind(case))
    return found


def settings_of(model: str) -> Hashable:
    """What a model shares with those that differ from it in numbers alone."""
    record = MODELS[model]
    return record.arch, frozenset(record.config)


def one_of_each() -> list[str]:
    """The first model of each architecture and set of settings."""
    firsts = {settings_of(name): name for name in reversed(MODELS.names())}
    return sorted(firsts.values())
