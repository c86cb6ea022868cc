"""What the host knows while a script runs dry: its data, and whole numbers that it computes itself.

Data loaders read their real data. Whole numbers of batches, and those that the script makes on the
host (seeds, permutations, lengths, masks, positions), keep their values, which fake tensors carry
on; floating point numbers, such as images, have shapes alone. Every other rank has the numbers that
this one has, so that collectives of whole numbers have values too.
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
from torch.utils.data import DataLoader, dataloader

from simcore.workload.trace.run.patches import Patches

#: Largest tensor whose values are kept [elements].
_MOST_KEPT = 4_000_000


def _is_whole(tensor: torch.Tensor) -> bool:
    """Whether the values of a tensor are kept: few enough whole numbers."""
    small = tensor.numel() <= _MOST_KEPT
    return small and not tensor.is_floating_point() and not tensor.is_complex()


def fake_mode() -> FakeTensorMode:
    """The mode that gives the tensors of the dry run that goes on."""
    return torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.FAKE)


def _fake(mode: FakeTensorMode, tensor: torch.Tensor) -> torch.Tensor:
    if isinstance(tensor, FakeTensor):
        return tensor
    return mode.fake_tensor_converter.from_real_tensor(
        mode, tensor, make_constant=_is_whole(tensor)
    )


def read_data(patches: Patches, seen: dict[str, Any]) -> None:
    """Let data loaders read real data in this process, and give fake tensors to the script.

    ``seen`` gets the ``num_workers`` that the script asks for.
    """
    base = dataloader._BaseDataLoaderIter

    def made(plain: Any, self: Any, *args: Any, **kwargs: Any) -> None:
        seen["num_workers"] = int(kwargs.get("num_workers") or 0)
        kwargs.update(num_workers=0, pin_memory=False, persistent_workers=False,
                      prefetch_factor=None, multiprocessing_context=None)  # fmt: skip
        plain(self, *args, **kwargs)

    def begun(plain: Any, *args: Any, **kwargs: Any) -> Any:
        with DisableTorchFunction(), _disable_current_modes():
            return plain(*args, **kwargs)

    def batch(plain: Any, self: Any) -> Any:
        mode = fake_mode()
        with DisableTorchFunction(), _disable_current_modes():
            data = plain(self)
        if mode is None:  # a loader that is read by another one
            return data
        fake = partial(_fake, mode)
        if isinstance(data, UserDict):  # what Hugging Face's collators return
            data.data = tree_map_only(torch.Tensor, fake, data.data)
            return data
        return tree_map_only(torch.Tensor, fake, data)

    patches.wrap(DataLoader, "__init__", made)
    patches.wrap(base, "__init__", begun)
    patches.wrap(base, "__next__", batch)
    patches.set(fake_tensor, "CONSTANT_NUMEL_LIMIT", _MOST_KEPT)


def are_known(tensors: list[Any]) -> bool:
    """Whether an op's tensors are all real ones of whole numbers, such as states of generators."""
    return bool(tensors) and all(type(t) is torch.Tensor and _is_whole(t) for t in tensors)


def with_values(func: Any, args: Any, kwargs: Any, out: Any) -> Any:
    """The result ``out`` of an op without tensors, with its values if these are whole numbers."""
    known = getattr(out, "constant", None) is not None
    if known or not isinstance(out, FakeTensor) or out.device.type != "cpu" or not _is_whole(out):
        return out
    with _disable_current_modes():
        real = func(*args, **kwargs)
    return out.fake_mode.fake_tensor_converter.from_real_tensor(
        out.fake_mode, real, make_constant=True
    )


def drawn(func: Any, args: Any, kwargs: Any) -> Any:
    """The tensor of whole numbers into which a random op writes; None for any other op."""
    tensor: Any = args[0] if args else None
    if torch.Tag.nondeterministic_seeded not in func.tags or not func._schema.name.endswith("_"):
        return None
    if getattr(tensor, "constant", None) is None:
        return None
    with _disable_current_modes():
        func(tensor.constant, *args[1:], **kwargs)
    return tensor


def exchanged(given: list[Any], written: list[Any], times: int) -> None:
    """Give the tensors that a collective writes the values that all ranks have: this one's.

    ``given``: this rank's tensors; ``times``: the ranks whose numbers are added; 1 for no sum.
    Values that are not known become unknown.
    """
    known = [c for t in given if (c := _value(t)) is not None]
    is_known = bool(known) and len(known) == len(given)
    with _disable_current_modes():
        flat = torch.cat([c.reshape(-1) for c in known]) * times if is_known else None
        for tensor in filter(_is_whole, written):
            value, n = _value(tensor), tensor.numel()
            if flat is None:
                if value is not None and value is not tensor:
                    tensor.fake_mode.fake_tensor_converter.invalidate_constant_aliases(value)
                continue
            shown = flat.repeat(-(-n // max(1, flat.numel())))[:n].to(tensor.dtype)
            if value is not None:
                value.copy_(shown.reshape(value.shape))
            else:
                tensor.constant = shown.reshape(tuple(tensor.shape))
                tensor.fake_mode.fake_tensor_converter.add_constant_storage_mapping(tensor)


def _value(tensor: Any) -> Any:
    """The values of a tensor of whole numbers; None if they are not known."""
    return tensor.constant if isinstance(tensor, FakeTensor) else tensor
