"""Finds models and GPUs by what people type: any words of any of their names."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, StringConstraints

from simcore import api
from simcore.base.database import Database, fold_name
from simcore.base.errors import SimcoreError, nearest
from simcore.base.names import by_size, printable
from simcore.hardware.spec import GPUS
from simcore.workload.models import MODELS

#: Most names in an answer.
MOST = 12
_DATABASES: Mapping[str, Database[Any]] = {"model": MODELS, "gpu": GPUS}


class NameQuery(BaseModel, extra="forbid", frozen=True):
    """What to look for, and among which names."""

    kind: Literal["model", "gpu"] = Field(description="whose names", examples=["model"])
    text: Annotated[str, StringConstraints(max_length=100)] = Field(
        description="words of the name: any part of any of its names", examples=["llama3 70b"]
    )


class Found(BaseModel):
    """One name; ``about``: the full name, or the other name by which it was found."""

    name: str
    about: str


def search(asked: NameQuery) -> list[Found]:
    """At most ``MOST`` names, those first that are nearest to the text."""
    names = _names(asked.kind)
    whole, words = fold_name(asked.text), [fold_name(w) for w in asked.text.split()]
    best: dict[str, tuple[Any, str]] = {}
    for folded, alias, name in names:
        if all(word in folded for word in words):
            rank = (folded != whole, not folded.startswith(whole), whole not in folded,
                    alias != name, by_size(name))  # fmt: skip
            if name not in best or rank < best[name][0]:
                best[name] = (rank, alias)
    found = {name: alias for name, (_, alias) in sorted(best.items(), key=lambda b: b[1][0])}
    for name in [] if whole in {f for f, _, _ in names} else _meant(asked):
        found = {name: found.get(name, name), **found}
    if not found:
        near = nearest(asked.text, [alias for _, alias, _ in names])
        found = {name: alias for _, alias, name in names if alias in near}
    return [Found(name=n, about=_about(asked.kind, n, a)) for n, a in list(found.items())[:MOST]]


def _names(kind: str) -> tuple[tuple[str, str, str], ...]:
    database = _DATABASES[kind]
    return _folded(kind, database.folders())


@lru_cache(maxsize=4)
def _folded(kind: str, _folders: object) -> tuple[tuple[str, str, str], ...]:
    """(folded name, name as written, name of the record) for every name and alias."""
    return tuple((fold_name(a), a, name) for a, name in _DATABASES[kind].aliases().items())


def _meant(asked: NameQuery) -> list[str]:
    """The record that the command line would take for the text, where there is one."""
    if asked.kind != "model" or ":" in asked.text or not asked.text.strip():
        return []
    try:
        name: str = api.model_named(asked.text).name
    except SimcoreError:
        return []
    return [name] if MODELS.path(name) is not None else []


def _about(kind: str, name: str, alias: str) -> str:
    """The other name by which it was found, else the full name of a model."""
    if fold_name(alias) != fold_name(name) or kind == "gpu":
        return printable(alias) if alias != name else ""
    try:
        return printable(str(MODELS[name].full_name))
    except SimcoreError:
        return ""
