"""Tracing: any nn.Module, or training step, becomes a Workload. Torch is loaded when one runs.

``trace_callable`` is what ``--model pkg.mod:build`` calls; ``simcore.workload.trace.tracer.trace``
gives the ops of one step; ``simcore.workload.trace.estimate`` the memory of one device.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from simcore.base.errors import UsageError
from simcore.workload.models import ModelRecord
from simcore.workload.trace import cache, loaded
from simcore.workload.trace.inputs import parse_inputs


def trace_callable(text: str, inputs: tuple[str, ...] = ()) -> ModelRecord:
    """The model that ``package.module:callable`` builds, traced or from the cache.

    ``inputs`` are shapes such as ``float32[B,3,224,224]``, needed where the callable does not
    return sample inputs itself. The callable is run: the user named it. Raises UsageError.
    """
    return ModelRecord.model_validate_json(json.dumps(trace_data(text, inputs)))


def trace_data(text: str, inputs: tuple[str, ...] = ()) -> dict[str, Any]:
    """The same as the plain data of a models_db file. Raises UsageError."""
    shapes = parse_inputs(inputs)
    module, _, attribute = text.partition(":")
    if not module or not attribute:
        raise UsageError(f"{text!r} is not package.module:callable")
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


def _trace(text: str, shapes: Any) -> dict[str, Any]:
    try:
        from simcore.workload.trace.callables import record_data
    except ModuleNotFoundError as err:
        if err.name != "torch":
            raise
        raise UsageError(
            f"tracing {text!r} needs PyTorch: pip install 'simcore[torch]', or use a YAML file "
            "written by `simcore trace-model`"
        ) from None
    return record_data(text, shapes)
