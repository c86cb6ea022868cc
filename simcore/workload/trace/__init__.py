"""Tracing: any nn.Module, or training step, becomes a Workload. Torch is loaded when one runs.

``trace_callable`` is what ``--model pkg.mod:build`` and ``--model timm:NAME`` call;
``simcore.workload.trace.tracer.trace`` gives the ops of one step;
``simcore.workload.trace.estimate`` the memory of one device.
"""

from __future__ import annotations

import json
import sys
from functools import lru_cache
from typing import Any

from simcore.base.errors import UsageError
from simcore.workload.models import ModelRecord
from simcore.workload.permission import TrustedName, permitted
from simcore.workload.trace import cache, loaded
from simcore.workload.trace.inputs import InputShape, parse_inputs
from simcore.workload.trace.zoos import AttentionForm, zoo_of


def trace_callable(text: str, inputs: tuple[str, ...] = ()) -> ModelRecord:
    """The model that ``package.module:callable`` builds or a library calls ``timm:NAME``.

    Traced or from the cache. ``inputs`` are shapes such as ``float32[B,3,224,224]``, needed where a
    callable does not return sample inputs itself. A callable is run, and must be a
    ``TrustedName``: CodeRefused otherwise. Raises UsageError.
    """
    return trace_zoo(text, inputs) if zoo_of(text) else _record(trace_data(text, inputs))


def trace_data(text: str, inputs: tuple[str, ...] = ()) -> dict[str, Any]:
    """The same as the plain data of a models_db file. Raises UsageError."""
    shapes = parse_inputs(inputs)
    if zoo_of(text):
        return _zoo_data(text, shapes, "own")
    module, _, attribute = text.partition(":")
    if not module or not attribute:
        raise UsageError(f"{text!r} is not package.module:callable")
    text = permitted(text)  # of a trace in the cache too
    key = cache.key_of(text, map(str, shapes))
    loaded.forget_changed(module)
    if loaded.is_the_programs(module) and _holds(module, attribute):
        found = _trace(text, shapes)
        if module == "__main__":  # for a worker process, which has another
            _keep(key, found)
        return found
    with loaded.importing(module):
        if (kept := cache.load(key)) is not None:
            return kept
        found = _trace(text, shapes)
        _keep(key, found)
        return found


def _holds(module: str, attribute: str) -> bool:
    return hasattr(sys.modules[module], attribute.partition(".")[0])


def _keep(key: str, data: dict[str, Any]) -> None:
    cache.store(key, data, sorted(set(loaded.own_files().values())))


@lru_cache(maxsize=64)
def trace_zoo(
    text: str, inputs: tuple[str, ...] = (), attention: AttentionForm = "own"
) -> ModelRecord:
    """A model of a vision library, ``timm:NAME``. Raises UsageError.

    ``attention``: how it is computed, where it is the library's own code that does.
    """
    return _record(_zoo_data(text, parse_inputs(inputs), attention))


def _record(data: dict[str, Any]) -> ModelRecord:
    return ModelRecord.model_validate_json(json.dumps(data))


def _zoo_data(
    text: str, shapes: tuple[InputShape, ...], attention: AttentionForm
) -> dict[str, Any]:
    found = zoo_of(text)
    assert found is not None
    zoo, model = found
    key = cache.key_of(text, map(str, shapes), (*zoo.versions(), attention))
    data = cache.load(key)
    if data is None:
        from simcore.workload.trace.callables import Built, record_data

        network = zoo.find(model, shapes, attention)
        data = record_data(
            Built(network.module, None, network.loss), network.inputs, text, zoo.usual
        )
        cache.store(key, data, ())
    return data


def _trace(text: TrustedName, shapes: tuple[InputShape, ...]) -> dict[str, Any]:
    try:
        from simcore.workload.trace.callables import callable_data
    except ModuleNotFoundError as err:
        if err.name != "torch":
            raise
        raise UsageError(
            f"tracing {text!r} needs PyTorch: pip install 'simcore[torch]', or use a YAML file "
            "written by `simcore trace-model`"
        ) from None
    return callable_data(text, shapes)
