"""Results of a script are finite: what asks whether they are is answered, not refused."""

from __future__ import annotations

from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import _disable_current_modes

#: What each function of torch says of every element of a finite tensor.
_OF_FINITE = {"isfinite": True, "isnan": False, "isinf": False}


class Finite(TorchFunctionMode):  # type: ignore[misc]
    """Gives ``isfinite``, ``isnan`` and ``isinf`` values, which fake tensors carry on."""

    def __init__(self, mode: FakeTensorMode) -> None:
        super().__init__()
        self._mode = mode

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        value = _OF_FINITE.get(getattr(func, "__name__", ""))
        if value is None or not isinstance(out, FakeTensor):
            return out
        with _disable_current_modes():
            values = torch.full((), value).expand(out.shape)
        return self._mode.fake_tensor_converter.from_real_tensor(
            self._mode, values, make_constant=True
        )
