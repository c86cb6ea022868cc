"""What torch answers about GPUs and about other ranks while a script runs dry.

Tensors that a script asks for on a GPU are made on the processor: fake tensors have no memory on
either. Process groups have torch's backend ``fake``, whose collectives return at once.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from types import FunctionType, SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.distributed import device_mesh
from torch.distributed import distributed_c10d as c10d
from torch.distributed.device_mesh import DeviceMesh
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import _disable_current_modes

from simcore.base.errors import UsageError
from simcore.workload.trace.run.host import read_data
from simcore.workload.trace.run.meter import Meter
from simcore.workload.trace.run.patches import Patches

_GPU = ("cuda", "xpu")


@dataclass(frozen=True, slots=True)
class World:
    """The rank that a script runs as, and the GPU that it is told it has.

    ``local_size``: ranks of a node; ``memory_bytes``: memory of the GPU; ``capability``: its
    compute capability; ``sm_count``: number of its streaming multiprocessors, None if not known:
    a script that asks for it then gets torch's AttributeError.
    """

    rank: int
    world_size: int
    local_size: int
    gpu: str
    memory_bytes: int
    capability: tuple[int, int]
    sm_count: int | None = None

    @property
    def local_rank(self) -> int:
        """The rank within its node."""
        return self.rank % self.local_size

    @property
    def environment(self) -> dict[str, str]:
        """The variables that torchrun sets."""
        return {
            "RANK": str(self.rank),
            "WORLD_SIZE": str(self.world_size),
            "LOCAL_RANK": str(self.local_rank),
            "LOCAL_WORLD_SIZE": str(min(self.local_size, self.world_size)),
            "GROUP_RANK": str(self.rank // self.local_size),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": "29500",
        }


def on_processor(device: Any) -> Any:
    """The processor for a device that is a GPU; any other value as it is."""
    if isinstance(device, torch.device):
        return torch.device("cpu") if device.type in _GPU else device
    if isinstance(device, str) and device.partition(":")[0] in _GPU:
        return "cpu"
    return device


class OnProcessor(TorchFunctionMode):  # type: ignore[misc]
    """Makes tensors of GPUs on the processor, and tells the meter that they are a GPU's."""

    def __init__(self, meter: Meter) -> None:
        super().__init__()
        self._meter = meter

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        if name in ("cuda", "pin_memory") and args and isinstance(args[0], torch.Tensor):
            return args[0]
        if func is torch.device and args and isinstance(args[0], int):
            return torch.device("cpu")
        if name == "record_stream":
            return None
        on_gpu = False
        if kwargs and kwargs.get("device") is not None:
            device = kwargs["device"]
            is_index = isinstance(device, int) and not isinstance(device, bool)
            kwargs = {**kwargs, "device": "cpu" if is_index else on_processor(device)}
            on_gpu = kwargs["device"] is not device
        if kwargs and kwargs.get("pin_memory"):
            kwargs = {**kwargs, "pin_memory": False}
        if name == "to" and len(args) > 1:
            args = (args[0], *map(on_processor, args[1:]))
        before, self._meter.on_gpu = self._meter.on_gpu, on_gpu or self._meter.on_gpu
        try:
            return func(*args, **(kwargs or {}))
        finally:
            self._meter.on_gpu = before


class _Nothing:
    """A stream, event or graph: every method does nothing, and it is a context."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.device = torch.device("cpu")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *_, **__: None

    def __enter__(self) -> _Nothing:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def query(self) -> bool:
        return True

    def elapsed_time(self, *_: Any) -> float:
        return 1.0


def _cuda_answers(world: World, patches: Patches, meter: Meter) -> None:
    """Answers of ``torch.cuda`` about the GPU of a rank."""
    major, minor = world.capability
    properties = SimpleNamespace(
        name=world.gpu, total_memory=world.memory_bytes, major=major, minor=minor,
        warp_size=32, is_integrated=False,
    )  # fmt: skip
    if world.sm_count is not None:
        properties.multi_processor_count = world.sm_count
    # What torch itself finds: torch.cuda.is_available stays as it is for torch's own modules, which
    # would ask the driver; scripts read it as an attribute of torch.cuda.
    answers: dict[str, Any] = {
        "is_available": True, "is_initialized": True, "device_count": world.local_size,
        "current_device": world.local_rank, "get_device_name": world.gpu,
        "get_device_capability": world.capability, "get_device_properties": properties,
        "is_bf16_supported": major >= 8, "mem_get_info": (world.memory_bytes, world.memory_bytes),
        "get_arch_list": [f"sm_{major}{minor}"],
        "is_current_stream_capturing": False, "memory_stats": {}, "memory_summary": "",
        "utilization": 0,
    }  # fmt: skip
    for name, value in answers.items():
        patches.set(torch.cuda, name, lambda *_, value=value, **__: value)
    for name in ("memory_allocated", "memory_reserved"):
        patches.set(torch.cuda, name, lambda *_, **__: meter.live)
    for name in ("max_memory_allocated", "max_memory_reserved"):
        patches.set(torch.cuda, name, lambda *_, **__: meter.peak)
    for name in (
        "set_device", "synchronize", "empty_cache", "reset_peak_memory_stats", "init", "_lazy_init",
        "reset_max_memory_allocated", "manual_seed", "manual_seed_all", "ipc_collect",
        "reset_accumulated_memory_stats", "set_per_process_memory_fraction", "set_rng_state",
        "set_rng_state_all", "set_stream",
    ):  # fmt: skip
        patches.set(torch.cuda, name, lambda *_, **__: None)
    for name in ("_accelerator_graph_capture_health_check", "_cuda_graph_capture_health_check"):
        if hasattr(torch.optim.Optimizer, name):  # asks the driver
            patches.set(torch.optim.Optimizer, name, lambda *_: None)
    patches.set(torch.cuda, "get_rng_state", lambda *_, **__: torch.get_rng_state())
    patches.set(torch.cuda, "get_rng_state_all", lambda *_, **__: [])
    for name in ("Stream", "Event", "device", "stream", "device_of", "CUDAGraph", "graph"):
        patches.set(torch.cuda, name, _Nothing)  # what a graph records runs once, and is seen so
    patches.set(torch.cuda, "graph_pool_handle", lambda: (0, 0))
    patches.set(torch.cuda, "make_graphed_callables", lambda of, *_, **__: of)
    for name in ("current_stream", "default_stream"):
        patches.set(torch.cuda, name, lambda *_, **__: _Nothing())


def _groups(world: World, patches: Patches) -> None:
    """Process groups of the backend ``fake``, whoever starts them."""
    from torch.testing._internal.distributed.fake_pg import FakeStore

    start = c10d.init_process_group

    def started(*_: Any, **__: Any) -> None:
        if not dist.is_initialized():
            with _disable_current_modes():
                start("fake", rank=world.rank, world_size=world.world_size, store=FakeStore())

    def helper(plain: Any, size: int, rank: int, ranks: Any, _: Any, store: Any, name: Any,
               **more: Any) -> Any:  # fmt: skip
        more.update(device_id=None, backend_options=None)
        return plain(size, rank, ranks, dist.Backend.FAKE, store, name, **more)

    for module in (dist, c10d):
        patches.set(module, "init_process_group", started)
        patches.set(module, "get_backend", lambda *_, **__: "nccl")
        for name in ("is_nccl_available", "is_gloo_available"):
            patches.set(module, name, lambda: True)
    patches.wrap(c10d, "_new_process_group_helper", helper)
    patches.set(dist, "_verify_params_across_processes", lambda *_, **__: None)
    patches.set(dist.c10d_logger, "_get_msg_dict", lambda *_, **__: {})  # asks NCCL
    _objects(patches)
    patches.set(device_mesh, "torch", _TorchOfMeshes())
    for name, value in list(vars(DeviceMesh).items()):
        own = not name.startswith("__") or name in ("__init__", "__getitem__")
        if isinstance(value, property):
            patches.set(DeviceMesh, name, property(partial(_without_modes, value.fget)))
        elif isinstance(value, FunctionType) and own:
            patches.wrap(DeviceMesh, name, _without_modes)


class _TorchOfMeshes:
    """torch, as the module of meshes sees it: its tables of ranks are real tensors."""

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)

    def arange(self, *args: Any, **kwargs: Any) -> Any:
        with _disable_current_modes():
            return torch.arange(*args, **kwargs)

    def tensor(self, *args: Any, **kwargs: Any) -> Any:
        with _disable_current_modes():
            return torch.tensor(*args, **kwargs)


def _without_modes(plain: Any, *args: Any, **kwargs: Any) -> Any:
    """Call a method of meshes on real tensors: a mesh is a table of ranks, which it reads."""
    with _disable_current_modes():
        if plain.__name__ == "__init__":
            args = (args[0], *map(on_processor, args[1:]))
            if "device_type" in kwargs:
                kwargs["device_type"] = on_processor(kwargs["device_type"])
        return plain(*args, **kwargs)


def _objects(patches: Patches) -> None:
    """Collectives of Python objects: every rank has what this one has."""

    def gathered(into: Any, value: Any, *_: Any, **__: Any) -> None:
        if into:
            into[:] = [value] * len(into)

    def received(*_: Any, **__: Any) -> None:
        raise UsageError(
            "the script receives a Python object from another rank, which a dry run does not have: "
            "give PipelineStage its input_args and output_args, or capture the sending rank"
        )

    for module in (dist, c10d):
        patches.set(module, "all_gather_object", gathered)
        patches.set(module, "gather_object",
                    lambda value, into=None, *_, **__: gathered(into, value))  # fmt: skip
        for name in ("broadcast_object_list", "send_object_list", "monitored_barrier"):
            patches.set(module, name, lambda *_, **__: None)
        patches.set(module, "recv_object_list", received)


def _apply(module: nn.Module, fn: Any, recurse: bool = True) -> nn.Module:
    """``nn.Module._apply``, which on fake tensors refuses what stays on its device.

    A parameter that ``fn`` leaves alone stays the same object.
    """
    for child in module.children() if recurse else ():
        child._apply(fn)
    for key, old in module._parameters.items():
        if old is None:
            continue
        with torch.no_grad():
            new = fn(old)
        if new is not old:
            new = nn.Parameter(new, old.requires_grad)
            try:
                torch.utils.swap_tensors(old, new)
            except RuntimeError:  # something refers to it weakly
                module._parameters[key] = new
    for key, old in module._buffers.items():
        if old is not None:
            module._buffers[key] = fn(old)
    return module


def _copied(plain: Any, tensor: Any, memo: dict[int, Any]) -> Any:
    """``Tensor.__deepcopy__``, which copies storages: those of fake tensors are on no device."""
    if not isinstance(tensor, FakeTensor):
        with _disable_current_modes():
            return plain(tensor, memo)
    if id(tensor) in memo:
        return memo[id(tensor)]
    memo[id(tensor)] = copy = tensor.detach().clone().requires_grad_(tensor.requires_grad)
    return copy


@contextmanager
def pretended(world: World, meter: Meter, seen: dict[str, Any]) -> Iterator[None]:
    """A context in which torch answers as a rank of ``world``.

    ``meter``: knows the memory of tensors, and is told which are a GPU's; ``seen``: gets what the
    script asks of data loaders.
    """
    before = {name: os.environ.get(name) for name in world.environment}
    began = dist.is_initialized()
    with Patches() as patches:
        os.environ.update(world.environment)
        _cuda_answers(world, patches, meter)
        _groups(world, patches)
        read_data(patches, seen)
        patches.set(nn.Module, "_apply", _apply)
        patches.wrap(torch.Tensor, "__deepcopy__", _copied)
        if world.world_size > 1:
            dist.init_process_group()
        try:
            with OnProcessor(meter):
                yield
        finally:
            for name, value in before.items():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value
            if dist.is_initialized() and not began:
                dist.destroy_process_group()
