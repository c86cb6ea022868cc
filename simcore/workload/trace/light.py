"""Modules built without the memory of their parameters."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from simcore.base.errors import SimcoreError
from simcore.workload.trace.guard import own_error


def light(make: Callable[[], Any], text: str) -> Any:
    """What ``make`` returns, built without memory for its parameters.

    It runs on the meta device, or if it fails there because it needs values, on the CPU, where each
    parameter's memory is freed once it is registered. Raises UsageError with the text of its own
    exception.
    """
    try:
        with torch.device("meta"):
            return make()
    except Exception:
        try:
            with _light_parameters():
                return make()
        except SimcoreError:
            raise
        except Exception as err:
            raise own_error(text, err) from err


@contextmanager
def _light_parameters() -> Any:
    """A context in which the memory of each parameter is freed as soon as it is registered."""
    plain = nn.Module.register_parameter

    def register(self: Any, name: str, param: Any) -> None:
        if param is not None and param.device.type != "meta":
            light = nn.Parameter(param.data.to("meta"), requires_grad=param.requires_grad)
            param = light if type(param) is nn.Parameter else param
        plain(self, name, param)

    nn.Module.register_parameter = register
    try:
        yield
    finally:
        nn.Module.register_parameter = plain
