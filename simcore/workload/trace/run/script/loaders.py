"""Data loaders of a script: they read their real data, and batches keep the whole numbers.

What a script computes from its data alone (lengths, masks, positions, numbers of labels) thereby
has values. Batches of floating point numbers, such as images, have shapes alone.
"""

from __future__ import annotations

from collections import UserDict
from functools import partial
from typing import Any

import torch
from torch._C import DisableTorchFunction
from torch._subclasses import fake_tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_map_only
from torch.utils.data import dataloader

from simcore.workload.trace.run.patches import Patches

#: Largest tensor whose values are kept [elements].
_MOST_KEPT = 4_000_000


def _fake(mode: FakeTensorMode, tensor: torch.Tensor) -> torch.Tensor:
    if isinstance(tensor, FakeTensor):
        return tensor
    keeps = not tensor.is_floating_point() and not tensor.is_complex()
    return mode.fake_tensor_converter.from_real_tensor(
        mode, tensor, make_constant=keeps and tensor.numel() <= _MOST_KEPT
    )


def fake_mode() -> FakeTensorMode:
    """The mode that gives the tensors of the dry run that goes on."""
    mode: FakeTensorMode = torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.FAKE)
    return mode


def read_data(patches: Patches) -> None:
    """Let data loaders read real data, and give fake tensors to the script."""
    mode = fake_mode()
    base = dataloader._BaseDataLoaderIter

    def begun(plain: Any, *args: Any, **kwargs: Any) -> Any:
        with DisableTorchFunction(), _disable_current_modes():
            return plain(*args, **kwargs)

    def batch(plain: Any, self: Any) -> Any:
        with DisableTorchFunction(), _disable_current_modes():
            data = plain(self)
        fake = partial(_fake, mode)
        if isinstance(data, UserDict):  # what Hugging Face's collators return
            data.data = tree_map_only(torch.Tensor, fake, data.data)
            return data
        return tree_map_only(torch.Tensor, fake, data)

    patches.wrap(base, "__init__", begun)
    patches.wrap(base, "__next__", batch)
    patches.set(fake_tensor, "CONSTANT_NUMEL_LIMIT", _MOST_KEPT)
