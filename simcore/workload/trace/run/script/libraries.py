"""Answers for libraries that scripts use: models without weights, nothing written, no launcher.

A library's module is changed when the script imports it, so none is imported for this.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as checkpoints
import torch.multiprocessing
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor

from simcore.base.errors import UsageError
from simcore.workload.trace.run.patches import Patches
from simcore.workload.trace.run.places import is_library


class _Weights(dict[str, Any]):
    """Published weights that are not downloaded; a module that loads them stays as it is."""


def _no_weights(*_: Any, **__: Any) -> _Weights:
    return _Weights()


def _nothing(*_: Any, **__: Any) -> None:
    pass


def _saved(_: Any, file: Any, *__: Any, **___: Any) -> None:
    """Write an empty file in place of tensors: scripts rename, count and delete what they saved."""
    if isinstance(file, (str, os.PathLike)):
        Path(file).open("wb").close()


def _from_config(patches: Patches, module: Any) -> None:
    """``PreTrainedModel.from_pretrained``: the model of its config, in the data type asked for."""
    kind = module.PreTrainedModel

    def from_pretrained(
        cls: Any, /, name: Any = None, *args: Any, config: Any = None, **kwargs: Any
    ) -> Any:
        kwargs.pop("_from_auto", None)
        dtype = kwargs.pop("dtype", None) or kwargs.pop("torch_dtype", None)
        attention = kwargs.pop("attn_implementation", None)
        quantised = kwargs.pop("quantization_config", None)
        if config is None or isinstance(config, str):
            options = {k: v for k, v in kwargs.items() if k in ("revision", "cache_dir", "token")}
            config = cls.config_class.from_pretrained(config or name, **options)
            for key, value in kwargs.items():
                if key in config.to_dict():
                    setattr(config, key, value)
        config.name_or_path = str(name)
        if quantised is not None or getattr(config, "quantization_config", None):
            raise NotImplementedError("quantised weights: their kernels do not run dry")
        if isinstance(dtype, str) and dtype != "auto":
            dtype = getattr(torch, dtype)
        if dtype is None or dtype == "auto":
            dtype = getattr(config, "dtype", None) or torch.float32
        words = {"dtype": dtype}
        if attention is not None:
            words["attn_implementation"] = attention
        return cls._from_config(config, **words).train(False)

    patches.set(kind, "from_pretrained", classmethod(from_pretrained))


def _timm(patches: Patches, module: Any) -> None:
    patches.set(module, "load_pretrained", _nothing)


def _torchvision(patches: Patches, module: Any) -> None:
    patches.set(module.WeightsEnum, "get_state_dict", _no_weights)


def _safetensors(patches: Patches, module: Any) -> None:
    for name in ("save_file", "save_model"):
        patches.set(module, name, _saved)


def _datasets(_: Patches, module: Any) -> None:
    module.disable_caching()
    module.disable_progress_bars()


def _arrow(patches: Patches, module: Any) -> None:
    def opened(plain: Any, path: Any, *args: Any, **kwargs: Any) -> Any:
        with Path(path).open("rb") as file:  # what the script wrote is elsewhere
            return plain(file.name, *args, **kwargs)

    patches.wrap(module, "memory_map", opened)


def _trainer(patches: Patches, module: Any) -> None:
    patches.set(module.Trainer, "save_model", _nothing)


def _extensions(patches: Patches, module: Any) -> None:
    def compiled(*_: Any, **__: Any) -> None:
        raise UsageError(
            "the script compiles an extension in another language, which a dry run does not: "
            "register its operators with torch.library and give them fake implementations"
        )

    patches.set(module, "_jit_compile", compiled)


#: What is changed in a module once it has been imported.
ANSWERS: dict[str, Callable[[Patches, Any], None]] = {
    "transformers.modeling_utils": _from_config,
    "transformers.trainer": _trainer,
    "timm.models._builder": _timm,
    "torchvision.models._api": _torchvision,
    "safetensors.torch": _safetensors,
    "datasets": _datasets,
    "pyarrow": _arrow,
    "torch.utils.cpp_extension": _extensions,
}


class _Loader(importlib.abc.Loader):
    """Executes a module as its own loader does, and changes it."""

    def __init__(self, own: Any, patches: Patches) -> None:
        self._own, self._patches = own, patches

    def create_module(self, spec: Any) -> Any:
        return self._own.create_module(spec)

    def exec_module(self, module: Any) -> None:
        module.__loader__ = module.__spec__.loader = self._own
        self._own.exec_module(module)
        ANSWERS[module.__name__](self._patches, module)


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, patches: Patches) -> None:
        self._patches = patches

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        if name not in ANSWERS:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, self._patches)
        return spec


def _caller() -> str:
    """The file of the code that calls a wrapped function."""
    return sys._getframe(3).f_code.co_filename


def answered(patches: Patches, local_rank: int) -> None:
    """Change torch and, as they are imported, the libraries of ``ANSWERS``."""
    sys.meta_path.insert(0, _Finder(patches))
    for name, change in ANSWERS.items():
        if name in sys.modules:
            change(patches, sys.modules[name])

    def spawn(fn: Any, args: Any = (), *_: Any, **__: Any) -> None:
        fn(local_rank, *args)

    def load_state(plain: Any, self: nn.Module, state: Any, *args: Any, **kwargs: Any) -> Any:
        return None if isinstance(state, _Weights) else plain(self, state, *args, **kwargs)

    def address(plain: Any, tensor: Any) -> Any:
        if not isinstance(tensor, FakeTensor):
            return plain(tensor)
        if not is_library(_caller()):
            raise RuntimeError("cannot access data pointer of a tensor without memory")
        return tensor.untyped_storage()._cdata  # libraries tell tensors apart by it

    patches.wrap(torch.Tensor, "data_ptr", address)
    patches.set(torch.multiprocessing, "spawn", spawn)
    patches.wrap(nn.Module, "load_state_dict", load_state)
    patches.set(torch.hub, "load_state_dict_from_url", _no_weights)
    patches.set(torch, "save", _saved)
    for name in ("save", "async_save"):
        patches.set(checkpoints, name, _nothing)
    for module in (dist, dist.distributed_c10d):
        patches.set(module, "destroy_process_group", _nothing)
