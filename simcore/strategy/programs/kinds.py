"""What a program does for some kinds of job only: by model, precision or release of PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from simcore.base.conditions import holds
from simcore.workload.models import Scalar


@dataclass(frozen=True, slots=True, kw_only=True)
class OfKind:
    """Defaults of a program for the jobs for which ``when`` holds (``base/conditions.py``).

    Facts of a job: ``model`` and ``arch``, names of models_db and of its architecture;
    ``precision``, ``strategy``; ``torch``, the release of PyTorch; and the model's settings, blank
    where it does not have one.

    ``options``, as the command line names them; ``settings`` of the model, as of ``--set``;
    ``precisions``: what the program makes of a precision that the job names. A value of None takes
    an earlier one back.
    """

    when: Mapping[str, Any]
    options: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Scalar] = field(default_factory=dict)
    precisions: Mapping[str, str] = field(default_factory=dict)


class _Facts(dict[str, str]):
    """Facts of a job: what it does not have is blank."""

    def __missing__(self, name: str) -> str:
        return ""


def kind_of(kinds: Iterable[OfKind], facts: Callable[[], Mapping[str, Any]]) -> OfKind:
    """Everything that a program does for a job, joined; a later entry overrides an earlier one.

    ``facts``: gives the job's facts; it is called only where there are kinds.
    """
    kinds = tuple(kinds)
    if not kinds:
        return _NONE
    texts = _Facts({k: _text(v) for k, v in facts().items()})
    held = [kind for kind in kinds if holds(kind.when, texts)]
    return OfKind(
        when={},
        options=_joined(kind.options for kind in held),
        settings=_joined(kind.settings for kind in held),
        precisions=_joined(kind.precisions for kind in held),
    )


def _joined(values: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """The values of all, later ones last; None takes a value back."""
    joined = {k: v for one in values for k, v in one.items()}
    return {k: v for k, v in joined.items() if v is not None}


def _text(value: object) -> str:
    """A fact as text: switches as yes or no, as in the cells of a table."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "" if value is None else str(value)


_NONE = OfKind(when={})
