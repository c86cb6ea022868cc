"""Models and inputs as Python objects: modules and tensors of torch, configs of transformers.

Torch is not imported here: who holds a module has imported it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from simcore.base.errors import UsageError

if TYPE_CHECKING:
    from simcore.workload.resolve import ModelSource

    class Module(Protocol):
        """A torch.nn.Module, as a type checker needs it."""

        def parameters(self, recurse: bool = True) -> Any: ...

    class Config(Protocol):
        """A config of transformers, as a type checker needs it."""

        def to_dict(self) -> dict[str, Any]: ...

    Model: TypeAlias = str | Path | ModelSource | Module | Config | Mapping[str, Any]


def with_objects(
    args: tuple[Any, ...], words: dict[str, Any], at: int
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of a call with its model, the ``at``-th, and its inputs read from objects."""
    if words.get("inputs") is not None:
        words = {**words, "inputs": texts_of_inputs(words["inputs"])}
    inputs = words.get("inputs")
    if len(args) > at:
        args = (*args[:at], model_of_object(args[at], inputs), *args[at + 1 :])
    elif "model" in words:
        words = {**words, "model": model_of_object(words["model"], inputs)}
    return args, words


def model_of_object(model: Any, inputs: Sequence[str] | str | None) -> Any:
    """The record of a module or config; any other value as it is. Raises UsageError, DataError.

    ``inputs``: shapes of the arguments of a module's ``forward``.
    """
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(model, torch.nn.Module):
        return _of_module(model, (inputs,) if isinstance(inputs, str) else tuple(inputs or ()))
    config = (
        model.to_dict() if hasattr(model, "to_dict") and hasattr(model, "model_type") else model
    )
    if isinstance(config, Mapping):
        from simcore.workload.huggingface.read import parse_config

        name = config.get("_name_or_path") or config.get("model_type") or "config"
        return parse_config(json.dumps(dict(config), default=str), Path(f"{name}/config.json"))
    return model


def _of_module(module: Any, inputs: tuple[str, ...]) -> Any:
    """The record of a module, traced without its weights. Raises UsageError."""
    from simcore.workload.models import ModelRecord
    from simcore.workload.trace.callables import Built, record_data
    from simcore.workload.trace.inputs import parse_inputs

    name = type(module).__name__
    if not inputs:
        raise UsageError(
            f"the module {name} needs its inputs, in the order of forward's arguments: "
            "inputs=[tensor] or inputs=['float32[B,3,224,224]']"
        )
    data = record_data(Built(module, None, None), parse_inputs(inputs), name)
    return ModelRecord.model_validate(data)


def texts_of_inputs(inputs: Any) -> Any:
    """Tensors as the texts of their shapes, ``float32[B,3,224,224]``; other values as they are.

    The first dimension of a tensor is the batch.
    """
    if isinstance(inputs, list | tuple):
        return [_text(one) for one in inputs]
    return _text(inputs)


def _text(value: Any) -> Any:
    if isinstance(value, str) or not (hasattr(value, "shape") and hasattr(value, "dtype")):
        return value
    if not len(value.shape):
        raise UsageError("an input without dimensions has no batch: give tensors of a batch")
    sides = ",".join(["B", *(str(int(n)) for n in value.shape[1:])])
    return f"{str(value.dtype).removeprefix('torch.')}[{sides}]"
