"""Tracing: any nn.Module, or training step, becomes a Workload. Torch is loaded when one runs.

``trace_callable`` is what ``--model pkg.mod:build`` calls; ``simcore.workload.trace.tracer.trace``
gives the ops of one step; ``simcore.workload.trace.estimate`` the memory of one device.
"""

from __future__ import annotations

import json
from typing import Any

from simcore.base.errors import UsageError
from simcore.workload.models import ModelRecord
from simcore.workload.trace import cache
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
    data = cache.load(key)
    if data is None:
        data = _trace(text, shapes)
        cache.store(key, data, cache.source_files())
    return data


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
