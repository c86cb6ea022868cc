"""What ``--model`` may name: a database entry, a YAML or JSON file, a Python callable.

latte-xl              an entry of models_db
my-model.yaml         a models_db file of one's own
config.json           a Hugging Face config (never executed)
mypkg.net:build       a callable that returns an nn.Module (executed: the user named it)
timm:convnext_tiny    a model of an installed vision library, without weights (trace/zoos.py)
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from simcore.base.database import load_record
from simcore.base.errors import DataError, UsageError
from simcore.workload.graph import Workload
from simcore.workload.models import MODELS, Dataset, ModelRecord, Scalar, Training


class ModelSource(Protocol):
    """What a request needs of a model, wherever it comes from."""

    @property
    def name(self) -> str:
        """Short name."""

    @property
    def full_name(self) -> str:
        """Name as people know it."""

    @property
    def training(self) -> Training:
        """What its training script does where the user says nothing."""

    @property
    def dataset(self) -> Dataset | None:
        """The data set, if one is described."""

    def build(self, **overrides: Scalar) -> Workload:
        """The workload with config keys overridden. Raises InvalidConfig."""


def resolve_model(text: str, *, inputs: tuple[str, ...] = ()) -> ModelSource:
    """The model that ``text`` names. Raises UnknownName, DataError or UsageError.

    ``inputs`` are shapes such as ``float32[B,3,224,224]`` for a callable or a library's model.
    """
    path = Path(text)
    if path.suffix in (".yaml", ".yml"):
        if not path.is_file():
            raise DataError("no such model file", file=path)
        return load_record(path, ModelRecord)
    if path.suffix == ".json" or (path.is_dir() and (path / "config.json").is_file()):
        from simcore.workload.huggingface import read_config

        found: ModelSource = read_config(path / "config.json" if path.is_dir() else path)
        return found
    if "/" in text and path.is_file():
        raise DataError("is no model file: a .yaml of models_db or a config.json", file=path)
    if ":" in text and not path.exists():
        from simcore.workload.trace import trace_callable

        traced: ModelSource = trace_callable(text, inputs)
        return traced
    if inputs:
        raise UsageError(
            "--input is for a model given as package.module:callable, timm:NAME or torchvision:NAME"
        )
    return MODELS[text]
