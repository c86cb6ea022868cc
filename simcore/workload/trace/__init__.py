"""Tracing: a Workload from any nn.Module or training step. Torch is imported by the first trace.

``--model pkg.mod:build`` and ``--model timm:NAME`` call ``trace_callable``.
``simcore.workload.trace.tracer.trace`` returns the ops of one step, and
``simcore.workload.trace.estimate`` the memory of one device.
"""

from __future__ import annotations

import sys
from functools import lru_cache
from typing import Any

from simcore.base.errors import UsageError
from simcore.workload.models import ModelRecord
from simcore.workload.settings import TrustedName, permitted
from simcore.workload.trace import cache, loaded
from simcore.workload.trace.inputs import InputShape, parse_inputs
from simcore.workload.trace.zoos import AttentionForm, zoo_of


def trace_callable(text: str, inputs: tuple[str, ...] = ()) -> ModelRecord:
    """The record of the model that ``package.module:callable`` builds, or of ``timm:NAME``.

    It is traced, or read from the cache of traces. ``inputs``: shapes such as
    ``float32[B,3,224,224]``, required where the callable returns no sample inputs. Tracing runs the
    callable, so ``text`` must be a ``TrustedName``. Raises CodeRefused if it is not, and
    UsageError.
    """
    return trace_zoo(text, inputs) if zoo_of(text) else _record(trace_data(text, inputs))


def trace_data(text: str, inputs: tuple[str, ...] = ()) -> dict[str, Any]:
    """The plain data of ``trace_callable``'s record, as in a models_db file. Raises UsageError."""
    shapes = parse_inputs(inputs)
    if zoo_of(text):
        return _zoo_data(text, shapes, "own")
    module, _, attribute = text.partition(":")
    if not module or not attribute:
        raise UsageError(f"{text!r} is not package.module:callable")
    text = permitted(text)  # This holds for a cached trace too.
    key = cache.key_of(text, map(str, shapes))
    loaded.forget_changed(module)
    first_name = attribute.partition(".")[0]
    if loaded.is_the_programs(module) and hasattr(sys.modules[module], first_name):
        data = _trace(text, shapes)
        if module == "__main__":  # A worker process has another __main__ and reads the cache.
            _store(key, data)
        return data
    with loaded.importing(module):
        if (cached := cache.load(key)) is not None:
            return cached
        data = _trace(text, shapes)
        _store(key, data)
        return data


def _store(key: str, data: dict[str, Any]) -> None:
    """Write a trace to the cache, together with the source files on which it depends."""
    cache.store(key, data, sorted(set(loaded.own_files().values())))


@lru_cache(maxsize=64)
def trace_zoo(
    text: str, inputs: tuple[str, ...] = (), attention: AttentionForm = "own"
) -> ModelRecord:
    """The record of a vision library's model, ``timm:NAME``. Raises UsageError.

    ``attention``: how attention is computed, for libraries that let one choose (timm).
    """
    return _record(_zoo_data(text, parse_inputs(inputs), attention))


def _record(data: dict[str, Any]) -> ModelRecord:
    return ModelRecord.model_validate(data)


def _zoo_data(
    text: str, shapes: tuple[InputShape, ...], attention: AttentionForm
) -> dict[str, Any]:
    library = zoo_of(text)
    assert library is not None
    zoo, model = library
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
            f"tracing {text!r} needs PyTorch: pip install '.[torch]', or use a YAML file "
            "written by `simcore trace-model`"
        ) from None
    return callable_data(text, shapes)
