"""What a program does for some kinds of job only: by model, precision or release of PyTorch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from simcore.base.conditions import holds
from simcore.strategy.programs.mechanisms import OfKind


class _Facts(dict[str, str]):
    """Facts of a job as text, written when a condition asks for them; what it lacks is blank."""

    def __init__(self, facts: Mapping[str, Any]) -> None:
        self._facts = facts

    def __missing__(self, name: str) -> str:
        return self.setdefault(name, _text(self._facts.get(name)))


def kind_of(kinds: Iterable[OfKind], facts: Mapping[str, Any]) -> OfKind:
    """Everything that a program does for a job, joined; a later entry overrides an earlier one."""
    held = [kind for kind in kinds if holds_of(kind.when, facts)]
    return OfKind(
        when={},
        options=_joined(kind.options for kind in held),
        settings=_joined(kind.settings for kind in held),
        precisions=_joined(kind.precisions for kind in held),
    )


def holds_of(when: Mapping[str, Any], facts: Mapping[str, Any]) -> bool:
    """Whether a condition holds for a job; what the job does not have is blank."""
    return holds(when, _Facts(facts))


def _joined(values: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """The values of all, later ones last; None takes a value back."""
    joined = {k: v for one in values for k, v in one.items()}
    return {k: v for k, v in joined.items() if v is not None}


def _text(value: object) -> str:
    """A fact as text: switches as yes or no, as in the cells of a table."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "" if value is None else str(value)
