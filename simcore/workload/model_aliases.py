"""Names that stand for a model plus options of ``simcore predict``: ``models_db/aliases/*.yaml``.

An alias keeps commands working whose model was once an entry of the database. Aliases are not
listed, since the model's own name with the options says the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from simcore.base.database import fold_name, read_yaml, shipped_root
from simcore.base.errors import DataError
from simcore.base.figures import Part, entry
from simcore.workload.models import Scalar, Training

#: Options that are settings of the architecture under the same name.
AS_SETTINGS = ("seq_len", "layout", "attention")


class ModelAlias(Part):
    """The model and options that a name stands for.

    - ``words``: values of options that the job does not state.
    - ``settings``: settings of the model, as of ``--set``.
    - ``params``: trained parameters of the model with these settings.
    """

    model: str
    words: dict[str, Scalar] = entry(default_factory=dict)
    settings: dict[str, Scalar] = entry(default_factory=dict)
    params: int
    about: str
    sources: dict[str, str]
    notes: tuple[str, ...] = ()

    @property
    def all_settings(self) -> dict[str, Scalar]:
        """The settings, including those that are given among the options."""
        return {**{k: v for k, v in self.words.items() if k in AS_SETTINGS}, **self.settings}

    def training(self, base: Training) -> Training:
        """The model's training loop with the alias's options replacing its own values."""
        own: dict[str, Any] = {k: v for k, v in self.words.items() if k not in AS_SETTINGS}
        return base.model_copy(update=own)


def alias_named(name: str) -> ModelAlias | None:
    """The alias of that name; None if there is none."""
    return _by_folded_name().get(fold_name(name))


def model_aliases() -> Mapping[str, ModelAlias]:
    """All aliases by name, as written in their files. Raises DataError."""
    aliases: dict[str, ModelAlias] = {}
    for path in sorted((shipped_root() / "models_db" / "aliases").glob("*.yaml")):
        aliases.update(_read(path))
    return MappingProxyType(aliases)


def _read(path: Path) -> dict[str, ModelAlias]:
    try:
        return {name: ModelAlias.model_validate(data) for name, data in read_yaml(path).items()}
    except (ValueError, AttributeError) as err:
        raise DataError(f"is no list of aliases: {err}", file=path) from None


@lru_cache(maxsize=1)
def _by_folded_name() -> Mapping[str, ModelAlias]:
    return {fold_name(name): alias for name, alias in model_aliases().items()}
