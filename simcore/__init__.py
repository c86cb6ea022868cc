"""simcore: time, memory and scaling of a GPU training job, before it starts.

    import simcore

    answer = simcore.predict("latte-xl", "4x8xA6000ada")
    answer.fits, answer.step_time_s.value, answer.bound_by

What is public here loads on first use: ``import simcore`` costs a millisecond.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from simcore.api import (
        compare,
        explain,
        goodput,
        memory_timeline,
        plan,
        predict,
        scaling,
        sweep,
    )
    from simcore.api.catalog import gpus, models, programs
    from simcore.api.dry_run import dry_run
    from simcore.api.results import Prediction
    from simcore.base.errors import (
        BadQuantity,
        DataError,
        InvalidConfig,
        SimcoreError,
        UnknownName,
        UsageError,
    )
    from simcore.workload.trace.estimate import estimate_memory

__version__ = "0.1.0"

__all__ = [
    "BadQuantity",
    "DataError",
    "InvalidConfig",
    "Prediction",
    "SimcoreError",
    "UnknownName",
    "UsageError",
    "__version__",
    "compare",
    "dry_run",
    "estimate_memory",
    "explain",
    "goodput",
    "gpus",
    "memory_timeline",
    "models",
    "plan",
    "predict",
    "programs",
    "scaling",
    "sweep",
]

_ERRORS = ("BadQuantity", "DataError", "InvalidConfig", "SimcoreError", "UnknownName", "UsageError")
_HOMES = {
    **dict.fromkeys(_ERRORS, "simcore.base.errors"),
    **dict.fromkeys(("gpus", "models", "programs"), "simcore.api.catalog"),
    "Prediction": "simcore.api.results",
    "compare": "simcore.api",
    "dry_run": "simcore.api.dry_run",
    "explain": "simcore.api",
    "goodput": "simcore.api",
    "memory_timeline": "simcore.api",
    "plan": "simcore.api",
    "predict": "simcore.api",
    "scaling": "simcore.api",
    "sweep": "simcore.api",
    "estimate_memory": "simcore.workload.trace.estimate",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        told = f"module {__name__!r} has no attribute {name!r}"
        if name in getattr(sys.modules.get("simcore.api"), "__all__", ()):
            told += f": it is simcore.api.{name}"
        raise AttributeError(told, name=name, obj=sys.modules[__name__])  # Python says what is near
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
